package grab

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/grab/trace"
	"grablab/internal/history"
	"grablab/internal/order"

	"golang.org/x/sync/singleflight"
)

// OnLost determines how a grab reacts when it notices that its lease is lost.
type OnLost string

// These are the values of OnLost.
const (
	Abort  OnLost = "abort"  // stop the work and write nothing
	Ignore OnLost = "ignore" // continue, as most programs do
)

// Config configures a Service. An optional field's zero value means its default.
type Config struct {
	Instance string
	Orders   order.Store
	Lock     lock.Env
	Strategy string           // the strategy until Switch is called
	Work     time.Duration    // how long a driver works between the read and the write
	Guard    order.Guard      // if empty, each strategy's default guard
	OnLost   OnLost           // if empty, Abort
	History  history.Recorder // if nil, no events are recorded
	Trace    *trace.Tracer    // if nil, no spans are made
	// PerDriver is how many units of an order one driver may have. It defaults to 1.
	PerDriver int

	Find func(name string) (lock.Strategy, error) // if nil, lock.Find
}

// Service grabs orders for drivers. It is safe for concurrent use.
type Service struct {
	cfg     Config
	current atomic.Pointer[guardedLock]

	building singleflight.Group // keeps concurrent requests from creating a strategy's lock twice
	locks    sync.Map           // maps the name of each strategy used so far to its *guardedLock
}

// guardedLock combines a lock with its guard, the condition under which the database accepts a
// winner.
type guardedLock struct {
	lock.Strategy
	lock.Locker
	guard order.Guard
}

// New returns a Service that uses cfg.Strategy until Switch is called.
func New(cfg Config) (*Service, error) {
	cfg.OnLost = cmp.Or(cfg.OnLost, Abort)
	if cfg.History == nil {
		cfg.History = history.Discard
	}
	if cfg.Find == nil {
		cfg.Find = lock.Find
	}
	s := &Service{cfg: cfg}
	return s, s.Switch(cfg.Strategy)
}

// Strategy returns the name of the current strategy.
func (s *Service) Strategy() string { return s.current.Load().Name }

// Lease returns how long a lease lasts without renewal. It may differ from the configured TTL,
// because some servers round the TTL.
func (s *Service) Lease() time.Duration {
	return lock.LeaseOf(s.current.Load().Locker, s.cfg.Lock.TTL)
}

// Switch selects the strategy for new grabs. Running grabs keep theirs.
func (s *Service) Switch(name string) error {
	l, err := s.lockOf(name)
	if err != nil {
		return err
	}
	s.current.Store(l)
	return nil
}

// lockOf returns a strategy's lock. It creates the lock on first use, without blocking grabs that
// use other strategies.
func (s *Service) lockOf(name string) (*guardedLock, error) {
	built, err, _ := s.building.Do(name, func() (any, error) {
		if l, ok := s.locks.Load(name); ok {
			return l, nil
		}
		l, err := s.build(name)
		if err == nil {
			s.locks.Store(name, l)
		}
		return l, err
	})
	return built.(*guardedLock), err
}

// build creates the locker of a strategy. It returns an error if the guard or the instance's
// servers do not suit the strategy.
func (s *Service) build(name string) (*guardedLock, error) {
	st, err := s.cfg.Find(name)
	if err != nil {
		return nil, err
	}
	guard := st.GuardedBy(s.cfg.Guard)
	if guard.NeedsFence() && !st.Fences {
		return nil, fmt.Errorf("grab: guard %s needs fencing tokens, but strategy %s has none: choose another guard", guard, name)
	}
	if missing := missingBackend(s.cfg.Lock, st.Needs); missing != "" {
		return nil, fmt.Errorf("grab: strategy %s needs %s, but this instance has none: start it with the flag", name, missing)
	}
	locker, err := st.New(s.cfg.Lock)
	if err != nil {
		return nil, fmt.Errorf("grab: strategy %s: %w", name, err)
	}
	return &guardedLock{st, locker, guard}, nil
}

// Close stops all locks' background work. Call it only after all grabs have returned.
func (s *Service) Close() error {
	var errs []error
	for _, l := range s.locks.Range {
		errs = append(errs, l.(*guardedLock).Close())
	}
	return errors.Join(errs...)
}
