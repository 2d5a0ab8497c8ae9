package backendtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/order"
	"grablab/internal/tap"
	"grablab/internal/testbed/conformtest"
	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/stack/stacktest"

	"github.com/go-zookeeper/zk"
)

// consensus lists the locks on consensus systems.
var consensus = []string{"zookeeper", "etcd"}

func forEachConsensus(t *testing.T, test func(t *testing.T, name string, b *bed)) {
	for _, name := range consensus {
		t.Run(name, func(t *testing.T) { test(t, name, newBed(t, name)) })
	}
}

// A bed creates lockers of one strategy on the shared servers. Their calls pass through a tap.
type bed struct {
	strategy string
	stack    *stack.Stack
	db       *order.SQL
	left     func(context.Context, string) ([]string, error)
}

func newBed(t *testing.T, strategy string) *bed {
	st := stacktest.With(t, needs)
	b := &bed{strategy: strategy, stack: st, db: database(t, 4)}
	if strategy == "etcd" {
		b.left = dialEtcd(t, st.Etcd).left
	} else {
		b.left = dialZooKeeper(t, st.ZooKeeper).left
	}
	return b
}

// locker returns a locker with a separate client, as in a separate process.
func (b *bed) locker(t *testing.T, ttl, wait time.Duration, through tap.Tap) lock.Locker {
	t.Helper()
	env := lock.Env{TTL: ttl, Wait: wait}
	if b.strategy == "etcd" {
		client, err := lock.DialEtcd(b.stack.Etcd, tap.Etcd(through, "i", "etcd")...)
		must(t, err)
		t.Cleanup(func() { _ = client.Close() })
		env.Etcd = client
	} else {
		return b.zooKeeper(t, ttl, wait, tap.Around(through, "i", "zookeeper"))
	}
	return newLocker(t, b.strategy, env)
}

// zooKeeper is like locker, but passes each call to around together with the path of its node.
func (b *bed) zooKeeper(t *testing.T, ttl, wait time.Duration, around lock.Around) lock.Locker {
	t.Helper()
	return newLocker(t, "zookeeper", lock.Env{TTL: ttl, Wait: wait, ZooKeeper: &lock.Ensemble{Servers: b.stack.ZooKeeper, Around: around}})
}

func (b *bed) mustBeFree(t *testing.T, key string) {
	t.Helper()
	left, err := soon(func() ([]string, error) { return b.left(t.Context(), key) })
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// trying acquires the lock in the background. It sends the lease to got, or closes got if the acquire
// fails.
func trying(t *testing.T, l lock.Locker, key string) (got <-chan lock.Lease, giveUp context.CancelFunc) {
	ctx, cancel := context.WithCancel(t.Context())
	leases := make(chan lock.Lease, 1)
	go func() {
		defer close(leases)
		if lease, err := l.Acquire(ctx, key); err == nil {
			leases <- lease
		} else if ctx.Err() == nil {
			t.Logf("acquire %s: %v", key, err)
		}
	}()
	return leases, cancel
}

// queued waits until n clients are in the key's queue.
func (b *bed) queued(t *testing.T, key string, n int) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		left, err := b.left(t.Context(), key)
		must(t, err)
		if len(left) == n {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d in the queue, want %d", len(left), n)
		}
	}
}

// TestFencesGrow checks that each token is higher than all earlier ones, even if another process
// held the lock.
func TestFencesGrow(t *testing.T) {
	forEachConsensus(t, func(t *testing.T, _ string, b *bed) {
		lockers := []lock.Locker{b.locker(t, 10*time.Second, 0, nil), b.locker(t, 10*time.Second, 0, nil)}
		var last uint64
		for i := range 6 {
			lease := acquire(t, lockers[i%2], "fences")
			if lease.Fence() <= last {
				t.Errorf("token %d after %d", lease.Fence(), last)
			}
			last = lease.Fence()
			must(t, lease.Release(t.Context()))
		}
		b.mustBeFree(t, "fences")
	})
}

// TestOneLockerTwoGoroutines checks that two goroutines never hold the lock at once, even though
// they share a locker and perhaps a session (F28).
func TestOneLockerTwoGoroutines(t *testing.T) {
	forEachConsensus(t, func(t *testing.T, _ string, b *bed) {
		l := b.locker(t, 10*time.Second, 0, nil)
		var both sync.WaitGroup
		leases, errs := make([]lock.Lease, 2), make([]error, 2)
		for i := range 2 {
			both.Go(func() { leases[i], errs[i] = l.Acquire(t.Context(), "two") })
		}
		both.Wait()
		held := 0
		for i, lease := range leases {
			if lease != nil {
				held++
				// The failed acquire must not have freed the lock of the other goroutine.
				if _, err := l.Acquire(t.Context(), "two"); !errors.Is(err, lock.ErrBusy) {
					t.Errorf("acquire while the lock is held: %v, want %v", err, lock.ErrBusy)
				}
				must(t, lease.Release(t.Context()))
			} else if !errors.Is(errs[i], lock.ErrBusy) {
				t.Error(errs[i])
			}
		}
		if held > 1 {
			t.Errorf("%d goroutines hold the lock", held)
		}
		must(t, acquire(t, l, "two").Release(t.Context()))
		b.mustBeFree(t, "two")
	})
}

// TestWaiterInTheMiddleGoes checks the third client in a queue when the second one leaves. The third
// client must not get the lock before the holder releases it.
func TestWaiterInTheMiddleGoes(t *testing.T) {
	forEachConsensus(t, func(t *testing.T, _ string, b *bed) {
		var lockers []lock.Locker
		for range 3 {
			lockers = append(lockers, b.locker(t, 10*time.Second, 20*time.Second, nil))
		}
		a := acquire(t, lockers[0], "middle")
		second, hangUp := trying(t, lockers[1], "middle")
		b.queued(t, "middle", 2)
		third, cancel := trying(t, lockers[2], "middle")
		defer cancel()
		b.queued(t, "middle", 3)

		hangUp()
		if lease := <-second; lease != nil {
			t.Fatal("a disconnected client has the lock")
		}
		b.queued(t, "middle", 2)
		select {
		case <-third:
			t.Fatal("the third client got the lock or gave up while the first one held it")
		case <-time.After(100 * time.Millisecond):
		}
		must(t, a.Release(t.Context()))
		lease := <-third
		if lease == nil {
			t.Fatal("the third client gave up")
		}
		must(t, lease.Release(t.Context()))
		b.mustBeFree(t, "middle")
	})
}

// TestLease checks that a locker reports the TTL that the server granted, because servers limit and
// round TTLs.
func TestLease(t *testing.T) {
	for _, tt := range []struct {
		strategy string
		ask, get time.Duration
	}{
		{"zookeeper", 10 * time.Millisecond, 200 * time.Millisecond},
		{"zookeeper", 1500 * time.Millisecond, 1500 * time.Millisecond},
		{"zookeeper", time.Hour, 10 * time.Minute},
		{"etcd", 10 * time.Millisecond, time.Second},
		{"etcd", 1500 * time.Millisecond, 2 * time.Second},
		{"etcd", time.Hour, time.Hour},
	} {
		l := newBed(t, tt.strategy).locker(t, tt.ask, 0, nil)
		if got := lock.LeaseOf(l, tt.ask); got != tt.get {
			t.Errorf("%s: a lease of %v lives for %v, want %v", tt.strategy, tt.ask, got, tt.get)
		}
	}
	if got := lock.LeaseOf(newLocker(t, "none", lock.Env{}), time.Second); got != time.Second {
		t.Errorf("none: %v", got)
	}
}

// TestUnreachable checks that New returns ErrUnreachable if the server does not respond.
func TestUnreachable(t *testing.T) {
	line, err := newLine("127.0.0.1:1")
	must(t, err)
	defer line.cut()
	client, err := lock.DialEtcd([]string{line.addr()})
	must(t, err)
	defer client.Close()
	env := lock.Env{TTL: time.Second, ZooKeeper: &lock.Ensemble{Servers: []string{line.addr()}}, Etcd: client}
	var both sync.WaitGroup
	for _, name := range consensus {
		st, err := lock.Find(name)
		must(t, err)
		both.Go(func() {
			if _, err := st.New(env); !errors.Is(err, lock.ErrUnreachable) {
				t.Errorf("%s: New: %v, want %v", name, err, lock.ErrUnreachable)
			}
		})
	}
	both.Wait()
}

// TestServerKilledUnderAHolder kills the server while A holds the lock, and restarts it once A has been
// told of the loss. B must then get the lock. If A writes anyway, the order is grabbed twice (F29),
// unless the fenced strategy's guard rejects A's write.
func TestServerKilledUnderAHolder(t *testing.T) {
	forEachConsensus(t, func(t *testing.T, name string, b *bed) {
		const ttl = time.Second
		holder := b.locker(t, ttl, 0, nil)
		naive, fenced := fmt.Sprint(name, "-naive"), fmt.Sprint(name, "-fenced")
		orders := map[string]int64{}
		held := map[string]lock.Lease{}
		for _, key := range []string{naive, fenced} {
			orders[key], _ = newOrder(t, b.db)
			held[key] = acquire(t, holder, key)
		}
		if _, err := b.db.Read(t.Context(), orders[fenced], held[fenced].Fence()); err != nil {
			t.Fatal(err)
		}

		killed := time.Now()
		_ = b.stack.Process(name).Stop(0)
		for key, lease := range held {
			select {
			case <-lease.Lost():
			case <-time.After(10 * ttl):
				t.Fatalf("%s: the holder was never told of the loss", key)
			}
		}
		if took := time.Since(killed); took < ttl/2 {
			t.Errorf("the holders were told of the loss after %v, although their leases were valid for longer", took)
		}
		must(t, b.stack.Revive(t.Context(), name))

		heir := b.locker(t, ttl, 20*time.Second, nil)
		for key, guard := range map[string]order.Guard{naive: guardOf(t, name), fenced: guardOf(t, name+"-fenced")} {
			id, a := orders[key], held[key]
			lease := acquire(t, heir, key)
			if lease.Fence() <= a.Fence() {
				t.Errorf("%s: token %d after %d", key, lease.Fence(), a.Fence())
			}
			fence := lease.Fence()
			if guard == order.Naive {
				fence = 0
			}
			if row, err := b.db.Read(t.Context(), id, fence); err != nil || row.Status != order.Open {
				t.Fatalf("%s: B reads %+v (%v), want an open order", key, row, err)
			}
			must(t, claim(t.Context(), b.db, id, 2, lease, guard))
			must(t, lease.Release(t.Context()))

			want, late := []int64{2, 1}, error(nil)
			if guard == order.Fenced {
				want, late = []int64{2}, order.ErrStale
			}
			if err := claim(t.Context(), b.db, id, 1, a, guard); !errors.Is(err, late) {
				t.Errorf("%s: A's late claim: %v, want %v", key, err, late)
			}
			if got := winners(t, b.db, id); !slices.Equal(got, want) {
				t.Errorf("%s: the ledger says %v, want %v", key, got, want)
			}
			if err := a.Release(t.Context()); !errors.Is(err, lock.ErrLost) {
				t.Errorf("%s: A's release: %v, want %v", key, err, lock.ErrLost)
			}
			b.mustBeFree(t, key)
		}
	})
}

func guardOf(t *testing.T, strategy string) order.Guard {
	t.Helper()
	st, err := lock.Find(strategy)
	must(t, err)
	return st.Guard
}

// TestServerRestartedUnderAHolder restarts the server without data loss, and quickly enough that no
// lease expires. The holder must keep the lock, and the waiter must get it after the release.
func TestServerRestartedUnderAHolder(t *testing.T) {
	forEachConsensus(t, func(t *testing.T, name string, b *bed) {
		const ttl = 30 * time.Second
		a := acquire(t, b.locker(t, ttl, 0, nil), "restart")
		waiting, cancel := trying(t, b.locker(t, ttl, ttl, nil), "restart")
		defer cancel()
		b.queued(t, "restart", 2)

		_ = b.stack.Process(name).Stop(0)
		must(t, b.stack.Revive(t.Context(), name))
		release(t, a)
		lease := <-waiting
		if lease == nil {
			t.Fatal("the waiter gave up")
		}
		select {
		case <-lease.Lost():
			t.Error("the new lease is lost")
		default:
		}
		release(t, lease)
		b.mustBeFree(t, "restart")
	})
}

// release releases a lease, which must not be lost. It accepts other errors, because the client may
// not have reconnected yet and then retries the release.
func release(t *testing.T, lease lock.Lease) {
	t.Helper()
	select {
	case <-lease.Lost():
		t.Fatal("the lease is lost")
	default:
	}
	if err := lease.Release(t.Context()); errors.Is(err, lock.ErrLost) {
		t.Fatal(err)
	}
}

// A gate holds back the first chosen call until it is opened, even if the caller has given up. All
// other calls pass.
type gate struct {
	chosen  func(tap.Op) bool
	once    sync.Once
	reached chan struct{}
	opened  chan struct{}
}

func newGate(chosen func(tap.Op) bool) *gate {
	return &gate{chosen: chosen, reached: make(chan struct{}), opened: make(chan struct{})}
}

// tap implements tap.Tap.
func (g *gate) tap(ctx context.Context, op tap.Op, send func(context.Context) error) error {
	if g.chosen(op) {
		g.once.Do(func() {
			close(g.reached)
			<-g.opened
		})
	}
	return send(ctx)
}

// TestLateCreateIsTakenBack checks that a create request is undone if it is sent after its caller
// has gone (F30, F14).
func TestLateCreateIsTakenBack(t *testing.T) {
	forEachConsensus(t, func(t *testing.T, name string, b *bed) {
		key := "late-create"
		before := map[string]int32{"zookeeper": 0, "etcd": 3}[name] // etcd grants and revokes a lease at first, and then grants the client's lease
		var calls atomic.Int32
		g := newGate(func(tap.Op) bool { return calls.Add(1) > before })
		l := b.locker(t, 10*time.Second, 0, g.tap)
		got, hangUp := trying(t, l, key)
		<-g.reached
		hangUp()
		if name == "zookeeper" { // the acquire returns while its call still runs in the background
			if <-got != nil {
				t.Fatal("a disconnected client has the lock")
			}
			close(g.opened)
		} else {
			close(g.opened)
			if <-got != nil {
				t.Fatal("a disconnected client has the lock")
			}
		}
		b.mustBeFree(t, key)
		must(t, acquire(t, b.locker(t, 10*time.Second, 5*time.Second, nil), key).Release(t.Context()))
	})
}

// TestCloseReleasesNoLease checks that Close does not release a lease. Another client must get the lock
// once the lease's session has expired.
func TestCloseReleasesNoLease(t *testing.T) {
	forEachConsensus(t, func(t *testing.T, name string, b *bed) {
		st, err := lock.Find(name)
		must(t, err)
		env := lock.Env{TTL: 2 * time.Second, Token: conformtest.Token, ZooKeeper: &lock.Ensemble{Servers: b.stack.ZooKeeper}}
		env.Etcd, err = lock.DialEtcd(b.stack.Etcd)
		must(t, err)
		defer env.Etcd.Close()
		l, err := st.New(env)
		must(t, err)
		acquire(t, l, "close")
		must(t, l.Close())
		left, err := b.left(t.Context(), "close")
		if err != nil || len(left) != 1 {
			t.Errorf("after Close, the queue contains %v, %v; want the holder's entry", left, err)
		}
		must(t, acquire(t, b.locker(t, time.Second, 20*time.Second, nil), "close").Release(t.Context()))
	})
}

// TestZooKeeperKeepsNoEmptyLocks checks that the server deletes a lock's parent node some time
// after its last use.
func TestZooKeeperKeepsNoEmptyLocks(t *testing.T) {
	b := newBed(t, "zookeeper")
	must(t, acquire(t, b.locker(t, 10*time.Second, 0, nil), "empty").Release(t.Context()))
	conn := dialZooKeeper(t, b.stack.ZooKeeper)
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		_, _, err := conn.Get(dir("empty"))
		if errors.Is(err, zk.ErrNoNode) {
			return
		}
		must(t, err)
		if time.Now().After(end) {
			t.Fatal("the node still exists")
		}
	}
}

// calls records the calls that pass through its tap.
type calls struct {
	mu  sync.Mutex
	ops []tap.Op
}

// tap implements tap.Tap.
func (c *calls) tap(ctx context.Context, op tap.Op, send func(context.Context) error) error {
	c.mu.Lock()
	c.ops = append(c.ops, op)
	c.mu.Unlock()
	return send(ctx)
}

// of lists an order's calls in the form "PHASE NUMBER". Calls are numbered within each phase.
func (c *calls) of(order int64) (phases []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := map[tap.Phase]int{}
	for _, op := range c.ops {
		if op.Order == order {
			n[op.Phase]++
			phases = append(phases, fmt.Sprintf("%s %d", op.Phase, n[op.Phase]))
		}
	}
	return phases
}

// TestCallsAreTapped checks that the calls of an acquire, a renewal and a release pass through the tap.
// The tap must get the order and the phase to which each call belongs.
func TestCallsAreTapped(t *testing.T) {
	forEachConsensus(t, func(t *testing.T, name string, b *bed) {
		var c calls
		l := b.locker(t, time.Second, 0, c.tap)
		must(t, acquire(t, l, "tapped").Release(t.Context())) // creates the parent node

		scope := tap.Scope{Order: 7, Driver: 42}
		ctx, end := scope.Enter(t.Context(), tap.Acquire)
		lease, err := l.Acquire(ctx, "tapped")
		must(t, err)
		end()
		want := []string{"acquire 1", "acquire 2"}
		if name == "zookeeper" {
			want = append(want, "acquire 3")
		}
		if got := c.of(7); !slices.Equal(got, want) {
			t.Errorf("acquire: %v, want %v", got, want)
		}
		want = append(want, "renew 1")
		for end := time.Now().Add(10 * time.Second); len(c.of(7)) < len(want) && time.Now().Before(end); {
			time.Sleep(5 * time.Millisecond)
		}
		ctx, end = scope.Enter(t.Context(), tap.Release)
		defer end()
		must(t, lease.Release(ctx))
		got := slices.DeleteFunc(c.of(7), func(call string) bool { return call == "renew 2" }) // if the machine is slow
		if want = append(want, "release 1"); !slices.Equal(got, want) {
			t.Errorf("acquire, renewal and release: %v, want %v", got, want)
		}
	})
}
