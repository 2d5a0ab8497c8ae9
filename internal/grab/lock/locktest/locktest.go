// Package locktest holds every lock strategy to its contract: one suite of
// checks, run against each strategy on each kind of server.
//
// Which checks apply follows from what the strategy's registry entry claims. A
// check is a function that returns an error, so that the suite can itself be
// tested: a lock that does nothing must fail every check.
package locktest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"grablab/internal/grab/lock"
)

// Opener connects one process to the servers that spec tells of. The Env needs
// no TTL and no Wait. Its clients call Replied after every reply of a server.
type Opener func(spec string) (env lock.Env, disconnect func(), err error)

// Subject is one strategy over one set of servers.
type Subject struct {
	Strategy lock.Strategy
	Spec     string // handed to Open, also in child processes
	Open     Opener

	// Drop takes the lock of key away under its holder, as an expiry would. It
	// may be nil where nothing can.
	Drop func(ctx context.Context, key string) error
	// Left names what the servers still hold for key. It may be nil where locks
	// leave nothing that could be seen.
	Left func(ctx context.Context, key string) ([]string, error)
}

// Check is one property of a lock.
type Check struct {
	Name    string
	Applies func(Subject) bool
	Run     func(context.Context, Subject) error
	Alone   bool // it needs the machine to itself
}

// Checks are all properties, the simple ones first. Each has keys of its own.
var Checks = []Check{
	{"busy", locks, busy, false},
	{"tries once", locks, triesOnce, false},
	{"wakes a waiter", locks, wakes, false},
	{"release once", both(locks, spares), releaseOnce, false},
	{"release of a lost lease", both(loses, spares), releaseLost, false},
	{"expiry frees the key", expires, expiry, false},
	{"kept past its TTL", outlasts, kept, false},
	{"loss is known", both(renews, loses), lossKnown, false},
	{"unconfirmed renewals", both(renews, remote), unconfirmed, false},
	{"cancelled while waiting", locks, cancelledWaiting, false},
	{"cancelled in the middle", both(locks, remote), cancelledMidway, false},
	{"lost reply", both(undoes, remote), lostReply, false},
	{"late reply", both(both(expires, timed), remote), lateReply, false},
	{"two processes", locks, processes, true},
	{"crowd", locks, crowd, true},
}

// Conform holds the subject to every check that applies to it.
func Conform(t *testing.T, s Subject) {
	var apply []Check
	for _, c := range Checks {
		if c.Applies(s) {
			apply = append(apply, c)
		}
	}
	errs := runAll(t.Context(), s, apply)
	for i, c := range apply {
		t.Run(c.Name, func(t *testing.T) {
			if errs[i] != nil {
				t.Error(errs[i])
			}
		})
	}
}

// runAll runs the checks, which mostly wait, at the same time, and then those
// that need the machine to themselves.
func runAll(ctx context.Context, s Subject, checks []Check) []error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	errs := make([]error, len(checks))
	var running sync.WaitGroup
	for i, c := range checks {
		if !c.Alone {
			running.Go(func() { errs[i] = c.Run(ctx, s) })
		}
	}
	running.Wait()
	for i, c := range checks {
		if c.Alone {
			errs[i] = c.Run(ctx, s)
		}
	}
	return errs
}

// What a strategy claims.

// locks: it keeps holders apart at all.
func locks(s Subject) bool { return s.Strategy.Excludes != lock.Nobody }

// expires: a holder that dies does not keep the key.
func expires(s Subject) bool {
	return s.Strategy.Excludes == lock.Global && s.Strategy.Expected(lock.Crash) != lock.Stuck
}

// outlasts: a lease lasts as long as the work.
func outlasts(s Subject) bool { return expires(s) && slices.Contains(s.Strategy.Survives, lock.Slow) }

// timed: a lease ends by the clock. That of a database session does not: it
// ends with the session, whose loss is known when it is used.
func timed(s Subject) bool { return s.Strategy.Needs&lock.SQLLocks == 0 }

// renews: it lasts by being renewed, and its loss is known.
func renews(s Subject) bool { return outlasts(s) && timed(s) }

// spares: its release does not free what somebody else has by then.
func spares(s Subject) bool { return !s.breaks("F5") && !s.breaks("F35") }

// undoes: what it has taken without knowing is given back.
func undoes(s Subject) bool { return locks(s) && !s.breaks("F25") }

func (s Subject) breaks(id string) bool { return slices.Contains(s.Strategy.Breaks, id) }

func loses(s Subject) bool  { return locks(s) && s.Drop != nil }
func remote(s Subject) bool { return s.Strategy.Needs != 0 }

func both(a, b func(Subject) bool) func(Subject) bool {
	return func(s Subject) bool { return a(s) && b(s) }
}

// processes of a check.

// process is one locker with clients of its own, as a process would have.
type process struct {
	lock.Locker
	disconnect func()
}

func (s Subject) start(ttl, wait time.Duration) (*process, error) {
	env, disconnect, err := s.Open(s.Spec)
	if err != nil {
		return nil, err
	}
	env.TTL, env.Wait = ttl, wait
	locker, err := s.Strategy.New(env)
	if err != nil {
		disconnect()
		return nil, err
	}
	return &process{locker, disconnect}, nil
}

// stop ends the process as a clean exit would. It releases no lease.
func (p *process) stop() error {
	err := p.Close()
	p.disconnect()
	return err
}

// pair starts a holder and one that contends with it. For a lock that knows one
// process only, both are the same.
func (s Subject) pair(ttl, wait time.Duration) (holder, rival *process, stop func(), err error) {
	if s.Strategy.Excludes == lock.Process {
		p, err := s.start(ttl, wait)
		if err != nil {
			return nil, nil, nil, err
		}
		return p, p, func() { _ = p.stop() }, nil
	}
	if holder, err = s.start(ttl, wait); err != nil {
		return nil, nil, nil, err
	}
	if rival, err = s.start(ttl, wait); err != nil {
		_ = holder.stop()
		return nil, nil, nil, err
	}
	return holder, rival, func() { _, _ = holder.stop(), rival.stop() }, nil
}

// nothingLeft looks on the servers. What is on its way there may arrive: a
// release returns when a quorum has answered, and a dead holder's keys expire on
// one node after the other. A key that was forgotten stays for longer than that.
func (s Subject) nothingLeft(ctx context.Context, key string) error {
	if s.Left == nil {
		return nil
	}
	for began := time.Now(); ; {
		late := time.Since(began) > settling
		keys, err := s.Left(ctx, key)
		if err != nil || len(keys) == 0 {
			return err
		}
		if late {
			return fmt.Errorf("left behind: %v", keys)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("left behind: %v: %w", keys, ctx.Err())
		case <-time.After(settling / 50):
		}
	}
}
