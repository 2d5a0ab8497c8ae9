package grab

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/history"
	"grablab/internal/order"
)

// OnLost says what a holder does when it learns that its lease is gone.
type OnLost string

// The reactions to a lost lease.
const (
	Abort  OnLost = "abort"  // stop working, write nothing
	Ignore OnLost = "ignore" // go on, as most programs do
)

// Config of a Service. The zero value of an optional field is its default.
type Config struct {
	Instance string
	Orders   order.Store
	Lock     lock.Env
	Strategy string           // the current one at first
	Work     time.Duration    // what a driver does between the read and the write
	Guard    order.Guard      // "": each strategy's own
	OnLost   OnLost           // "": Abort
	History  history.Recorder // nil: nothing is recorded
	// PerDriver is how many units of an order of several one driver may have; 0: 1.
	PerDriver int

	Find func(name string) (lock.Strategy, error) // nil: lock.Find
}

// Service grabs orders. It is safe for concurrent use.
type Service struct {
	cfg     Config
	current atomic.Pointer[guardedLock]

	mu    sync.Mutex
	locks map[string]*building // by strategy, begun when first asked for
}

// building is a lock that is built, or will soon be.
type building struct {
	done chan struct{}
	lock *guardedLock // nil: it could not be built
	err  error
}

// guardedLock is a strategy at work: its lock, and the guard in force.
type guardedLock struct {
	lock.Strategy
	lock.Locker
	guard order.Guard
}

// New returns a Service that uses cfg.Strategy until it is switched.
func New(cfg Config) (*Service, error) {
	if cfg.OnLost == "" {
		cfg.OnLost = Abort
	}
	if cfg.History == nil {
		cfg.History = history.Discard
	}
	if cfg.Find == nil {
		cfg.Find = lock.Find
	}
	s := &Service{cfg: cfg, locks: map[string]*building{}}
	return s, s.Switch(cfg.Strategy)
}

// Strategy is the name of the current strategy.
func (s *Service) Strategy() string { return s.current.Load().Name }

// Lease is for how long a lease of the current strategy lives without renewal:
// what was asked for, or what its servers make of that.
func (s *Service) Lease() time.Duration {
	return lock.LeaseOf(s.current.Load().Locker, s.cfg.Lock.TTL)
}

// Switch makes the named strategy the current one. Grabs in flight end under
// the one they began with.
func (s *Service) Switch(name string) error {
	l, err := s.lockOf(name)
	if err != nil {
		return err
	}
	s.current.Store(l)
	return nil
}

// lockOf builds the lock of a strategy once. Those who ask for another do not wait.
func (s *Service) lockOf(name string) (*guardedLock, error) {
	s.mu.Lock()
	b, begun := s.locks[name]
	if !begun {
		b = &building{done: make(chan struct{}), err: errNotBuilt}
		s.locks[name] = b
	}
	s.mu.Unlock()
	if begun {
		<-b.done
		return b.lock, b.err
	}
	defer func() {
		if b.lock == nil { // who asks next tries again
			s.mu.Lock()
			delete(s.locks, name)
			s.mu.Unlock()
		}
		close(b.done)
	}()
	b.lock, b.err = s.build(name)
	return b.lock, b.err
}

var errNotBuilt = errors.New("grab: the strategy panicked")

func (s *Service) build(name string) (*guardedLock, error) {
	st, err := s.cfg.Find(name)
	if err != nil {
		return nil, err
	}
	guard := st.GuardedBy(s.cfg.Guard)
	if guard.NeedsFence() && !st.Fences {
		return nil, fmt.Errorf("grab: guard %s needs fencing tokens, and strategy %s has none", guard, name)
	}
	if missing := lacks(s.cfg.Lock, st.Needs); missing != "" {
		return nil, fmt.Errorf("grab: strategy %s needs %s, which this instance was not given", name, missing)
	}
	locker, err := st.New(s.cfg.Lock)
	if err != nil {
		return nil, fmt.Errorf("grab: strategy %s: %w", name, err)
	}
	return &guardedLock{st, locker, guard}, nil
}

// Close ends the background work of every lock that was used, once no grab is
// in flight any more.
func (s *Service) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, b := range s.locks {
		errs = append(errs, b.lock.Close())
	}
	return errors.Join(errs...)
}
