package lock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/tap/redishook"

	"github.com/redis/go-redis/v9"
)

// redlockTimeout is the time for which redlock waits for a quorum if the TTL is simulatedTTL.
const redlockTimeout = 1500 * time.Millisecond

// A nodeState describes a node during one phase. A silent node never answers.
type nodeState byte

const (
	lacksKey nodeState = 'l' // no client has the lock on this node
	hasKey   nodeState = 'h' // the client under test has the lock on this node
	taken    nodeState = 't' // another client has the lock on this node
	silent   nodeState = 's'
)

// states returns every assignment of the given states to three nodes.
func states(of ...nodeState) (all [][]nodeState) {
	for _, a := range of {
		for _, b := range of {
			for _, c := range of {
				all = append(all, []nodeState{a, b, c})
			}
		}
	}
	return all
}

// A quorumTrial puts each node into its given state and runs one phase.
type quorumTrial struct {
	*simulation
	a        *actor
	isSilent *[3]atomic.Bool
	name     string
	count    map[nodeState]int
}

// enter puts each node into its given state.
func (q *quorumTrial) enter(nodes []nodeState) {
	for i, n := range nodes {
		switch n {
		case lacksKey:
			q.forget(i)
		case taken:
			q.set(q.nodes[i], "another's")
		case silent:
			q.isSilent[i].Store(true)
		}
	}
}

// most returns the maximum duration of one question to all nodes. If decide is true, the question
// needs a quorum of nodes that have the key, or a quorum of nodes that lack it.
func (q *quorumTrial) most(decide bool) time.Duration {
	enough := q.count[silent] < 2
	if decide {
		enough = q.count[hasKey] > 1 || q.count[lacksKey]+q.count[taken] > 1
	}
	if enough {
		return lock.RedlockGrace
	}
	return redlockTimeout
}

// within runs do, and checks that it takes at most limit.
func (q *quorumTrial) within(limit time.Duration, do func()) {
	q.Helper()
	began := time.Now()
	do()
	if took := time.Since(began); took > limit {
		q.Errorf("%s took %v, want at most %v", q.name, took, limit)
	}
}

// silentIf makes nodes not answer requests for theKey while their entry in isSilent is true.
func silentIf(isSilent *[3]atomic.Bool) func(*lock.Env) {
	return func(e *lock.Env) {
		for i, node := range e.Redlock {
			node.AddHook(redishook.Hook(func(ctx context.Context, cmds []redis.Cmder, send func(context.Context) error) error {
				if isSilent[i].Load() && strings.Contains(fmt.Sprint(cmds[0].Args()), theKey) {
					<-ctx.Done()
					return ctx.Err()
				}
				return send(ctx)
			}))
		}
	}
}

// TestEveryAttemptCounts makes the nodes fall silent in some phases, while clients of one process wait
// for a lock that another client holds. The client that makes the attempts must get ErrBusy if any of
// them found the lock taken. A client in the local queue must get ErrBusy if the last attempt did. If
// its own context ends first, it must get the context's error.
func TestEveryAttemptCounts(t *testing.T) {
	const phase = 10 * time.Second // longer than an attempt and its cleanup
	for n := range 8 {
		var phases []nodeState
		for i := range 3 {
			phases = append(phases, [...]nodeState{silent, taken}[n>>i&1])
		}
		t.Run(fmt.Sprintf("%c", phases), func(t *testing.T) {
			simulate(t, func(s *simulation) {
				var isSilent [3]atomic.Bool
				a := s.actor("redlock", silentIf(&isSilent), func(e *lock.Env) { e.Wait = time.Hour })
				for _, node := range s.nodes {
					s.set(node, "another's")
				}
				go func() {
					for _, p := range phases {
						for i := range isSilent {
							isSilent[i].Store(p == silent)
						}
						time.Sleep(phase)
					}
				}()
				errs := make(chan error, 1)
				time.Sleep(time.Millisecond)
				go func() {
					_, err := a.Acquire(lock.WaitAtMost(s.Context(), 3*phase-time.Second), theKey)
					errs <- err
				}()
				for i, p := range phases {
					time.Sleep(phase - 2*time.Second)
					_, err := a.Acquire(lock.WaitAtMost(s.Context(), time.Millisecond), theKey)
					if errors.Is(err, lock.ErrBusy) != (p == taken) {
						s.Errorf("phase %d: a client in the queue of the process: %v", i+1, err)
					}
					ctx, hangUp := context.WithTimeout(s.Context(), time.Millisecond)
					if _, err := a.Acquire(ctx, theKey); !errors.Is(err, context.DeadlineExceeded) {
						s.Errorf("phase %d: a client that leaves the queue of the process: %v", i+1, err)
					}
					hangUp()
					time.Sleep(2*time.Second - 2*time.Millisecond)
				}
				err := <-errs
				if errors.Is(err, lock.ErrBusy) != slices.Contains(phases, taken) {
					s.Errorf("the client that made the attempts: %v", err)
				}
			})
		})
	}
}

// TestSilentNodesDelayNoPhase checks every combination of nodes that answer yes, answer no, or never
// answer, in each phase of redlock. A phase must wait for a silent node only if the other answers do
// not decide the result, and never longer than the timeout.
func TestSilentNodesDelayNoPhase(t *testing.T) {
	simulate(t, func(s *simulation) {
		var isSilent [3]atomic.Bool
		a := s.actor("redlock", silentIf(&isSilent))
		for _, phase := range []struct {
			name string
			run  func(q *quorumTrial, nodes []nodeState) lock.Lease
			of   []nodeState
		}{
			{"acquire", (*quorumTrial).acquires, []nodeState{lacksKey, taken, silent}},
			{"cancelled acquire", (*quorumTrial).acquiresCancelled, []nodeState{lacksKey, taken, silent}},
			{"release", (*quorumTrial).releases, []nodeState{hasKey, lacksKey, silent}},
			{"renewal", (*quorumTrial).renews, []nodeState{hasKey, lacksKey, silent}},
		} {
			for _, nodes := range states(phase.of...) {
				q := &quorumTrial{s, a, &isSilent, fmt.Sprintf("%s with nodes %c", phase.name, nodes), map[nodeState]int{}}
				for _, n := range nodes {
					q.count[n]++
				}
				lease := phase.run(q, nodes)
				for i := range isSilent {
					isSilent[i].Store(false)
				}
				if lease != nil {
					s.release(lease)
				}
				time.Sleep(2 * redlockTimeout) // until late grants have been undone
				s.forget(0, 1, 2)
			}
		}
	})
}

// acquires checks an acquire and the cleanup after it.
func (q *quorumTrial) acquires(nodes []nodeState) lock.Lease {
	return q.acquiresIn(q.Context(), nodes)
}

func (q *quorumTrial) acquiresCancelled(nodes []nodeState) lock.Lease {
	ctx, cancel := context.WithCancel(q.Context())
	defer cancel()
	time.AfterFunc(lock.RedlockGrace/2, cancel)
	return q.acquiresIn(ctx, nodes)
}

func (q *quorumTrial) acquiresIn(ctx context.Context, nodes []nodeState) (lease lock.Lease) {
	q.enter(nodes)
	granted := q.count[lacksKey] > 1
	limit := q.most(false)
	if !granted || ctx != q.Context() {
		limit *= 2 // the cleanup asks all nodes too
	}
	var err error
	q.within(limit, func() { lease, err = q.a.Acquire(lock.TryOnce(ctx), theKey) })
	noQuorum := q.count[silent] > 1 && q.count[taken] == 0
	switch {
	case granted && ctx.Err() == nil:
		if err != nil {
			q.Errorf("%s: the acquire should succeed, but returned %v", q.name, err)
		}
		return lease
	case err == nil:
		q.Errorf("%s: the acquire succeeded, but should fail", q.name)
	case ctx.Err() == nil && errors.Is(err, lock.ErrBusy) == noQuorum:
		q.Errorf("%s: the acquire returned %v", q.name, err)
	}
	for i, n := range nodes {
		if q.nodes[i].Exists(theKey) != (n == taken) {
			q.Errorf("%s: after the cleanup, node %d has the key: %v", q.name, i+1, n != taken)
		}
	}
	return lease
}

func (q *quorumTrial) releases(nodes []nodeState) lock.Lease {
	lease := q.a.lock()
	q.enter(nodes)
	var err error
	q.within(q.most(true), func() { err = lease.Release(q.Context()) })
	if lost := q.count[lacksKey] > 1; errors.Is(err, lock.ErrLost) != lost || (err == nil) != (q.count[hasKey] > 1) {
		q.Errorf("%s: the release returned %v", q.name, err)
	}
	for i, n := range nodes {
		if n == hasKey && q.nodes[i].Exists(theKey) {
			q.Errorf("%s: node %d still has the key", q.name, i+1)
		}
	}
	return nil
}

// renews checks that the holder learns the result of its first renewal in time. If the nodes reach no
// quorum, the holder must know that the lease is lost by the time it expires.
func (q *quorumTrial) renews(nodes []nodeState) lock.Lease {
	var renewed atomic.Bool
	lease := q.a.lock(func(ctx context.Context) context.Context {
		return lock.OnRenewal(ctx, func(time.Time) { renewed.Store(true) })
	})
	q.enter(nodes)
	time.Sleep(simulatedTTL/3 + q.most(true))
	time.Sleep(time.Millisecond) // the clocks of the timers differ by less
	wantRenewed, lost := q.count[hasKey] > 1, q.count[lacksKey] > 1
	if renewed.Load() != wantRenewed || lock.IsClosed(lease.Lost()) != lost {
		q.Errorf("%s: renewed %v, lost %v, want %v, %v", q.name, renewed.Load(), lock.IsClosed(lease.Lost()), wantRenewed, lost)
	}
	time.Sleep(simulatedTTL - simulatedTTL/3 - q.most(true))
	if lock.IsClosed(lease.Lost()) == wantRenewed {
		q.Errorf("%s: after a TTL, the loss is known: %v", q.name, !wantRenewed)
	}
	return lease
}
