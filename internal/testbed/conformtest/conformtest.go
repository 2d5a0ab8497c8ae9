// Package conformtest holds a lock to its contract: one suite of checks, run against
// any strategy on any kind of server.
//
// Conform is the entry: it takes Subjects, each a strategy, its servers, and how to
// open clients of them. Which checks apply to a subject follows from what its
// registry entry claims. Some checks start the test binary again as another process,
// so the TestMain of a package that calls Conform must call Main, or BeChild first of
// all. For locks in Redis the servers are here, too: Embedded and Servers start
// them, and Nodes.Subject makes a Subject of a strategy.
//
// The suite is itself tested: a lock that does nothing fails every check, and each
// known flaw is found by the checks that are meant for it.
package conformtest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
)

// Opener connects one process to the servers that spec describes. The Env needs
// no TTL and no Wait. Its clients call Replied after every reply of a server.
type Opener func(spec string) (env lock.Env, disconnect func(), err error)

// Subject is one strategy over one set of servers.
type Subject struct {
	Strategy lock.Strategy
	Spec     string // handed to Open, also in child processes
	Open     Opener

	// Child are the arguments with which the test binary becomes a child, if its
	// TestMain does not see to that.
	Child []string
	// Drop takes the lock of key away from its holder, as an expiry would. It
	// may be nil where nothing can.
	Drop func(ctx context.Context, key string) error
	// Left names what the servers still hold for key. It may be nil where locks
	// leave nothing that could be seen.
	Left func(ctx context.Context, key string) ([]string, error)
	// Settling is for how long something may be left while it is on its way to go,
	// because a server has still to notice that a client has gone; 0: half a second.
	Settling time.Duration
	// Unseen: what keeps its leases alive goes past Replied, and can neither be cut nor be late.
	Unseen bool
}

// check is one property of a lock.
type check struct {
	name    string
	applies func(Subject) bool
	does    func(*trial)
	alone   bool // it needs the machine to itself
}

// checks are all properties, the simple ones first. Each has keys of its own.
var checks = []check{
	{"busy", locks, busy, false},
	{"tries once", locks, triesOnce, false},
	{"wakes a waiter", locks, wakes, false},
	{"release once", both(locks, spares), releaseOnce, false},
	{"release of a lost lease", both(loses, spares), releaseLost, false},
	{"expiry frees the key", expires, expiry, false},
	{"kept past its TTL", outlasts, kept, false},
	{"loss is known", both(renews, loses), lossKnown, false},
	{"unconfirmed renewals", both(both(renews, remote), seen), unconfirmed, false},
	{"cancelled while waiting", locks, cancelledWaiting, false},
	{"cancelled in the middle", both(locks, remote), cancelledMidway, false},
	{"lost reply", both(undoes, remote), lostReply, false},
	{"late reply", both(both(expires, timed), both(both(doubts, remote), seen)), lateReply, false},
	{"two processes", locks, processes, true},
	{"contention", locks, contention, true},
}

// Conform holds each subject to every check that applies to it, as subtests. A check that
// its registry entry says it fails must fail; of one that it fails at times nothing is asked.
func Conform(t *testing.T, subjects ...Subject) {
	results := runAll(t.Context(), subjects, 2, func(Subject, check) bool { return true })
	for i, s := range subjects {
		t.Run(s.Strategy.Name, func(t *testing.T) {
			for name := range s.Strategy.Fails {
				if !slices.ContainsFunc(results[i], func(r result) bool { return r.name == name }) {
					t.Errorf("its entry says that it fails %q, and there is no such check", name)
				}
			}
			for _, r := range results[i] {
				t.Run(r.name, func(t *testing.T) {
					t.Logf("took %v: %v", r.took.Round(time.Millisecond), r.err)
					if why, ok := s.Strategy.Flaky[r.name]; ok {
						t.Skipf("its entry says that chance decides: %s", why)
					}
					if err := r.against(s.Strategy.Fails); err != nil {
						t.Error(err)
					}
				})
			}
		})
	}
}

// against is nil if the result is as the entry of the registry says.
func (r result) against(fails map[string]string) error {
	why, said := fails[r.name]
	switch {
	case !said:
		return r.err
	case r.err == nil:
		return fmt.Errorf("it passes, and its entry says that it fails: %s", why)
	default:
		return nil
	}
}

type result struct {
	check
	err  error
	took time.Duration
}

// stagger parts the starts of checks that run at the same time: what they connect and
// acquire first, with short TTLs, is to take no longer than alone.
const stagger = 20 * time.Millisecond

// runAll runs those of the checks that apply and are wanted: all of a few subjects at
// the same time, for they mostly wait, and then, one by one, those that need the
// machine to themselves.
func runAll(ctx context.Context, subjects []Subject, atOnce int, wanted func(Subject, check) bool) [][]result {
	results := make([][]result, len(subjects))
	each := func(i int, run func(*result)) {
		for j := range results[i] {
			run(&results[i][j])
		}
	}
	for i, s := range subjects {
		for _, c := range checks {
			if _, fails := s.Strategy.Fails[c.name]; (fails || c.applies(s)) && wanted(s, c) {
				results[i] = append(results[i], result{check: c})
			}
		}
	}
	var running sync.WaitGroup
	for i, s := range subjects {
		each(i, func(r *result) {
			if !r.alone {
				running.Go(func() { r.run(ctx, s) })
				time.Sleep(stagger)
			}
		})
		if i%atOnce == atOnce-1 {
			running.Wait()
		}
	}
	running.Wait()
	for i, s := range subjects {
		each(i, func(r *result) {
			if r.alone {
				r.run(ctx, s)
			}
		})
	}
	return results
}

func (r *result) run(ctx context.Context, s Subject) {
	began := time.Now()
	r.err = r.check.run(ctx, s)
	r.took = time.Since(began)
}

// What a strategy claims.

// locks: it excludes a second holder at all.
func locks(s Subject) bool { return s.Strategy.Excludes != catalog.NoExclusion }

// expires: a holder that dies does not keep the key.
func expires(s Subject) bool {
	return s.Strategy.Excludes == catalog.Global && s.Strategy.Expected(catalog.Crash) != catalog.Stuck
}

// outlasts: a lease lasts as long as the work.
func outlasts(s Subject) bool {
	return expires(s) && s.Strategy.ExclusiveUnder(catalog.Slow)
}

// timed: a lease ends by the clock. That of a database session does not: it
// ends with the session, whose loss is known when it is used.
func timed(s Subject) bool { return s.Strategy.Needs&lock.SQLLocks == 0 }

// renews: it lasts by being renewed, and its loss is known.
func renews(s Subject) bool { return outlasts(s) && timed(s) }

// spares: its release does not free what another client has by then.
func spares(s Subject) bool { return !s.breaks("F5") && !s.breaks("F35") }

// undoes: what it has taken without knowing is given back.
func undoes(s Subject) bool { return locks(s) && !s.breaks("F25") }

// doubts: a grant that comes late is looked at twice.
func doubts(s Subject) bool { return !s.breaks("F12") }

func (s Subject) breaks(id string) bool { return slices.Contains(s.Strategy.Breaks, id) }

func loses(s Subject) bool  { return locks(s) && s.Drop != nil }
func remote(s Subject) bool { return s.Strategy.Needs != 0 }
func seen(s Subject) bool   { return !s.Unseen }

func both(a, b func(Subject) bool) func(Subject) bool {
	return func(s Subject) bool { return a(s) && b(s) }
}
