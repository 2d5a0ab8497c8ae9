package lock_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"grablab/internal/grab/lock"
)

const troublesFile = "testdata/troubles.txt"

// A trouble is a failure of one request. hangUp cancels the acquire.
type trouble struct {
	name  string
	lasts time.Duration // how long the client needs until it has cleaned up
	step  func(a *actor, hangUp context.CancelFunc) step
}

// late is the delay of a delayed request. It exceeds the time for which a client tries to clean up.
const late = 1500 * time.Millisecond

var troubles = []trouble{
	{"refused", time.Second, func(a *actor, _ context.CancelFunc) step {
		return func(context.Context, func(context.Context) error) error { return a.lost }
	}},
	{"lost reply", time.Second, func(a *actor, _ context.CancelFunc) step {
		return func(ctx context.Context, send func(context.Context) error) error {
			_ = send(ctx)
			return a.lost
		}
	}},
	{"reply after a TTL", simulatedTTL + time.Second, func(a *actor, _ context.CancelFunc) step {
		return func(ctx context.Context, send func(context.Context) error) error {
			err := send(ctx)
			time.Sleep(simulatedTTL + time.Millisecond)
			return err
		}
	}},
	{"hangs up before", time.Second, func(a *actor, hangUp context.CancelFunc) step {
		return func(ctx context.Context, send func(context.Context) error) error {
			hangUp()
			return send(ctx)
		}
	}},
	{"hangs up after", time.Second, func(a *actor, hangUp context.CancelFunc) step {
		return func(ctx context.Context, send func(context.Context) error) error {
			err := send(ctx)
			hangUp()
			return err
		}
	}},
	{"hangs up, and the request arrives late", 2 * late, func(a *actor, hangUp context.CancelFunc) step {
		return func(ctx context.Context, send func(context.Context) error) error {
			hangUp()
			time.Sleep(late)
			return send(context.WithoutCancel(ctx))
		}
	}},
}

// troublePhases lists the phases in which a process can run into trouble.
var troublePhases = []string{"acquire", "wait", "release"}

// mostTroubled is the maximum number of requests per phase into which TestTroubles injects trouble. It
// exists because a polling client sends many requests.
const mostTroubled = 6

// meetsTrouble makes A's nth request in the given phase fail, and then makes B try to get the lock. It
// returns false if the phase has fewer than n requests.
func (s *stage) meetsTrouble(phase string, n int, tr trouble) (struck bool) {
	s.outcome = nil
	ctx, hangUp := context.WithCancel(s.Context())
	defer hangUp()
	begin := func() {
		do := tr.step(s.a, hangUp)
		s.a.at(n, func(ctx context.Context, send func(context.Context) error) error {
			struck = true
			return do(ctx, send)
		})
	}
	var lease lock.Lease
	switch phase {
	case "acquire":
		begin()
		lease = s.getsIn(ctx, s.a, 0)
	case "wait":
		before := s.b.lock()
		begin()
		waiting := s.waitsIn(ctx, s.a, 4*time.Second)
		time.Sleep(time.Second)
		s.release(before)
		lease = waiting()
	case "release":
		lease = s.a.lock()
		begin()
		s.releases(s.a, lease)
		lease = nil
	}
	s.a.forgetSteps()
	if lease != nil && !lock.IsClosed(lease.Lost()) && s.b.tries() {
		s.note("B has it too")
	}
	s.releases(s.a, lease)
	s.releases(s.b, s.gets(s.b, 3*simulatedTTL))
	time.Sleep(tr.lasts)
	if n := s.a.sent(func() { time.Sleep(3 * simulatedTTL) }); n > 0 {
		s.note("A keeps sending: %d requests", n)
	}
	s.keepsNothing()
	return struck
}

// TestTroubles injects each kind of trouble into each request that a process sends. Afterwards,
// another process must get the lock, but never alongside the first. Nothing may stay on the
// servers, and no process may keep sending requests. The test compares the observations and their
// times with a file. A line of the file contains one outcome per failed request.
func TestTroubles(t *testing.T) {
	kept, _ := os.ReadFile(troublesFile) // missing until the first -update
	known := strings.Split(string(kept), "\n")
	var lines []string
	for _, strategy := range []string{"setnx", "setnx-watch", "watchdog", "redlock", "redlock-miswired", "handoff", "zookeeper", "etcd"} {
		onStage(t, strategy, func(s *stage) {
			for _, phase := range troublePhases {
				for _, tr := range troubles {
					outcomes := func() string {
						var all []string
						for n := 1; n <= mostTroubled && s.meetsTrouble(phase, n, tr); n++ {
							all = append(all, strings.Join(s.outcome, ", "))
							if got := all[n-1]; !strings.Contains(got, "B has it after") || strings.Contains(got, "too") || strings.Contains(got, "keeps") {
								t.Errorf("%s does not recover from trouble with request %d of %s, %s: %s", strategy, n, phase, tr.name, got)
							}
						}
						return fmt.Sprintf("%s, %s, %s: %s", strategy, phase, tr.name, strings.Join(all, " | "))
					}
					line := outcomes()
					for again := 0; again < 2 && !slices.Contains(known, line); again++ {
						line = outcomes() // on a busy machine, simultaneous requests may arrive in another order
					}
					lines = append(lines, line)
					parallel := strings.HasPrefix(strategy, "redlock") // sends requests in varying order
					if !*updateEpisodes && !parallel && !slices.Contains(known, line) {
						t.Errorf("unexpected outcome: %s", line)
					}
				}
			}
		})
	}
	if *updateEpisodes {
		if err := os.WriteFile(troublesFile, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSlowRepliesGrantNoLostLease delays every reply to a process by a part of the TTL, so a lease may
// end between two replies. An acquire must not return a lease that has already ended.
func TestSlowRepliesGrantNoLostLease(t *testing.T) {
	for _, strategy := range []string{"setnx", "watchdog", "redlock", "handoff", "zookeeper", "etcd"} {
		t.Run(strategy, func(t *testing.T) {
			for percent := time.Duration(10); percent <= 110; percent += 20 {
				for _, held := range []bool{false, true} {
					simulate(t, func(s *simulation) {
						a, b := s.actor(strategy, func(e *lock.Env) { e.Wait = 4 * simulatedTTL }), s.actor(strategy)
						if held {
							before := b.lock()
							time.AfterFunc(simulatedTTL/2, func() { s.release(before) })
						}
						a.every = func(ctx context.Context, send func(context.Context) error) error {
							err := send(ctx)
							time.Sleep(simulatedTTL * percent / 100)
							return err
						}
						lease, err := a.Acquire(s.Context(), theKey)
						if err != nil {
							if percent == 10 {
								t.Errorf("replies take %d %% of the TTL, held before: %v: %v", percent, held, err)
							}
							return
						}
						bounded, ok := lease.(lock.Bounded)
						if lock.IsClosed(lease.Lost()) || ok && !time.Now().Before(bounded.Until()) {
							t.Errorf("replies take %d %% of the TTL, held before: %v: the acquire returns a lost lease", percent, held)
						}
						_ = lease.Release(s.Context())
					})
				}
			}
		})
	}
}

// TestReleaseWakesOne checks that a release makes only the next waiter send requests. If all
// waiters did, they could overload the server. The waiters must get the lock in order of arrival, although
// the tokens of later clients are smaller.
func TestReleaseWakesOne(t *testing.T) {
	for _, strategy := range []string{"handoff", "zookeeper", "etcd"} {
		t.Run(strategy, func(t *testing.T) {
			simulate(t, func(s *simulation) {
				long := func(e *lock.Env) {
					e.Wait = time.Hour
					e.Token = func() string { return fmt.Sprint("token", 1000-s.tokens.Add(1)) }
				}
				lease := s.actor(strategy, long).lock()
				type waiter struct {
					*actor
					got <-chan lock.Lease
				}
				var waiters []waiter
				for range 4 {
					w := s.actor(strategy, long)
					waiters = append(waiters, waiter{w, w.locks()})
					time.Sleep(10 * time.Millisecond) // it joins the queue before the next one starts
				}
				for len(waiters) > 0 {
					next, others := waiters[0], waiters[1:]
					before := 0
					for _, w := range others {
						before -= w.count()
					}
					for i, w := range waiters {
						if len(w.got) > 0 {
							t.Fatalf("waiter %d has the lock before its turn", i+1)
						}
					}
					s.release(lease)
					if lease = <-next.got; lease == nil {
						s.FailNow() // the waiter has reported its error
					}
					synctest.Wait()
					for _, w := range others {
						before += w.count()
					}
					if before > 0 {
						t.Errorf("the %d other waiters sent %d requests when the next waiter got the lock, want none", len(others), before)
					}
					waiters = others
				}
				s.release(lease)
			})
		})
	}
}
