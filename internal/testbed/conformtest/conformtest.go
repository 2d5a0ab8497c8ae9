// Package conformtest checks that a distributed lock keeps its promises. The same checks run
// against any locking strategy on any kind of server.
//
// The entry point is Conform. It takes Subjects, each with a strategy, its servers, and a function
// that opens clients. The strategy's properties in the registry determine which checks apply. Some
// checks start the test binary again as another process, so a package that calls Conform must call
// BeChild at the beginning of its TestMain. For locks in Redis, RedisServer starts a server, and
// Nodes.Subject makes a Subject from a strategy.
//
// The suite's own tests show that a lock that does nothing fails every check, and that the checks
// find each known flaw.
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

// Opener opens clients for the servers in spec. The clients must call Replied after every reply.
// The caller sets TTL and Wait in the returned Env.
type Opener func(spec string) (env lock.Env, disconnect func(), err error)

// Subject is a locking strategy to test, together with its servers.
type Subject struct {
	Strategy lock.Strategy
	Spec     string // passed to Open, also in child processes
	Open     Opener

	// Child contains the command-line arguments for child processes of the test binary. It may be
	// empty.
	Child []string
	// Drop takes the lock on key away from its holder. It is nil if the servers do not support
	// that.
	Drop func(ctx context.Context, key string) error
	// Left lists what the servers still store for key. It is nil if the servers cannot tell.
	Left func(ctx context.Context, key string) ([]string, error)
	// Settling is how long data may stay on the servers after its client has disconnected. It
	// defaults to half a second.
	Settling time.Duration
	// Unseen means that renewals do not call Replied, so the checks cannot disturb them.
	Unseen bool
}

// A check tests one property that a lock should have.
type check struct {
	name    string
	applies func(Subject) bool
	does    func(*trial)
	alone   bool // whether no other check may run at the same time
}

var checks = []check{
	{"busy", excludesOthers, busy, false},
	{"tries once", excludesOthers, triesOnce, false},
	{"wakes a waiter", excludesOthers, wakes, false},
	{"release once", all(excludesOthers, sparesOthers), releaseOnce, false},
	{"release of a lost lease", all(loses, sparesOthers), releaseLost, false},
	{"expiry frees the key", expires, expiry, false},
	{"kept past its TTL", keepsLease, kept, false},
	{"loss is known", all(renews, loses), lossKnown, false},
	{"unconfirmed renewals", all(renews, remote, seen), unconfirmed, false},
	{"cancelled while waiting", excludesOthers, cancelledWaiting, false},
	{"cancelled in the middle", all(excludesOthers, remote), cancelledMidway, false},
	{"lost reply", all(undoesLostGrant, remote), lostReply, false},
	{"recovers", all(undoesLostGrant, remote), recovers, false},
	{"late reply", all(expires, hasExpiry, rejectsLateGrant, remote, seen), lateReply, false},
	{"two processes", excludesOthers, processes, true},
	{"contention", excludesOthers, contention, true},
}

// Conform runs every check that applies to a subject as a subtest. If the strategy is known to fail
// a check, that check must fail. For a check that it fails only sometimes, the result does not
// count.
func Conform(t *testing.T, subjects ...Subject) {
	results := runAll(t.Context(), subjects, 2, func(Subject, check) bool { return true })
	for i, s := range subjects {
		t.Run(s.Strategy.Name, func(t *testing.T) {
			for name := range s.Strategy.Fails {
				if !slices.ContainsFunc(results[i], func(r result) bool { return r.name == name }) {
					t.Errorf("the strategy claims to fail the check %q, but there is no such check", name)
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

// against returns an error if the result is not the expected one. The map fails contains the checks
// that must fail, with the reasons. All other checks must pass.
func (r result) against(fails map[string]string) error {
	why, said := fails[r.name]
	switch {
	case !said:
		return r.err
	case r.err == nil:
		return fmt.Errorf("the strategy passes this check, although its entry says that it fails: %s", why)
	default:
		return nil
	}
}

type result struct {
	check
	err  error
	took time.Duration
}

// stagger is the pause between the starts of concurrent checks. It reduces how much they disturb
// each other.
const stagger = 20 * time.Millisecond

// runAll runs most checks concurrently. The checks that need the whole machine run afterwards, one
// by one.
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

// excludesOthers reports whether the lock has at most one holder at a time, at least within a
// process.
func excludesOthers(s Subject) bool { return s.Strategy.Excludes != catalog.NoExclusion }

// expires reports whether a dead holder's lock becomes free after a while.
func expires(s Subject) bool {
	return s.Strategy.Excludes == catalog.Global && s.Strategy.Expected(catalog.Crash) != catalog.Stuck
}

// keepsLease reports whether a lease lasts until the work is done, even if the work is slow.
func keepsLease(s Subject) bool {
	return expires(s) && s.Strategy.ExclusiveUnder(catalog.Slow)
}

// hasExpiry reports whether a lease expires at a certain time. A database session's lock does not,
// because it ends with the session.
func hasExpiry(s Subject) bool { return s.Strategy.Needs&lock.SQLLocks == 0 }

// renews reports whether the client renews its lease, and therefore notices when it loses the lock.
func renews(s Subject) bool { return keepsLease(s) && hasExpiry(s) }

// sparesOthers reports whether a late release cannot free another client's lock.
func sparesOthers(s Subject) bool { return !s.breaks("F5") && !s.breaks("F35") }

// undoesLostGrant reports whether the strategy releases the lock if an acquire's reply is lost.
func undoesLostGrant(s Subject) bool { return excludesOthers(s) && !s.breaks("F25") }

// rejectsLateGrant reports whether the strategy rejects a lock if the acquire's reply took longer
// than the lease.
func rejectsLateGrant(s Subject) bool { return !s.breaks("F12") }

func (s Subject) breaks(id string) bool { return slices.Contains(s.Strategy.Breaks, id) }

func loses(s Subject) bool  { return excludesOthers(s) && s.Drop != nil }
func remote(s Subject) bool { return s.Strategy.Needs != 0 }
func seen(s Subject) bool   { return !s.Unseen }

// all returns a function that reports whether every condition holds.
func all(conditions ...func(Subject) bool) func(Subject) bool {
	return func(s Subject) bool {
		return !slices.ContainsFunc(conditions, func(holds func(Subject) bool) bool { return !holds(s) })
	}
}
