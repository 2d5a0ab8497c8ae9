package grab_test

import (
	"context"
	"crypto/rand"
	mathrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"grablab/internal/check"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/history"
	"grablab/internal/order"
	"grablab/internal/testbed/stack/stacktest"

	"github.com/redis/go-redis/v9"
)

// site contains connections to real servers, and creates instances that use these servers.
type site struct {
	store order.Store
	redis *redis.Client
}

func newSite(t *testing.T) site {
	t.Helper()
	servers := stacktest.Local(t)
	store, err := order.Connect(t.Context(), servers.DSN, order.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	client := realClient(t, servers.Redis)
	t.Cleanup(func() { client.FlushAll(context.Background()) })
	return site{store, client}
}

func realClient(t *testing.T, addr string) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true})
	t.Cleanup(func() { client.Close() })
	return client
}

func (s site) instance(t *testing.T, strategy string, orders order.Store, env lock.Env, work time.Duration) (*grab.Service, *memory) {
	t.Helper()
	events := &memory{now: func() time.Duration { return 0 }}
	env.Redis, env.Now, env.Token, env.Rand = realClient(t, s.redis.Options().Addr), time.Now, rand.Text, mathrand.Float64
	service, err := grab.New(grab.Config{
		Orders: orders, Strategy: strategy, Lock: env, Work: work, History: events,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { service.Close() })
	return service, events
}

// fenced returns the names of the Redis strategies with the fenced guard.
func fenced() (names []string) {
	for _, st := range lock.Strategies {
		if st.Guard == order.Fenced && st.Needs == lock.Redis {
			names = append(names, st.Name)
		}
	}
	return names
}

// TestRedisForgetsUnderLoad deletes all data in Redis again and again while drivers grab on two
// instances. Each order must be grabbed exactly once, and no order may get stuck.
func TestRedisForgetsUnderLoad(t *testing.T) {
	s := newSite(t)
	for _, strategy := range fenced() {
		t.Run(strategy, func(t *testing.T) {
			const orders, drivers = 40, 8
			first, err := s.store.Create(t.Context(), orders, 1)
			if err != nil {
				t.Fatal(err)
			}
			env := lock.Env{TTL: time.Second, Wait: 5 * time.Second}
			one, events := s.instance(t, strategy, s.store, env, 3*time.Millisecond)
			two, more := s.instance(t, strategy, s.store, env, 3*time.Millisecond)

			var forgotten, refused atomic.Int32
			quit, stopped := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(stopped)
				for {
					select {
					case <-quit:
						return
					case <-time.After(5 * time.Millisecond):
						if s.redis.FlushAll(context.Background()).Err() == nil {
							forgotten.Add(1)
						}
					}
				}
			}()
			var load sync.WaitGroup
			for n := range orders * drivers {
				service := []*grab.Service{one, two}[n%2]
				load.Go(func() {
					service.Grab(t.Context(), grab.Request{Order: first + int64(n%orders), Driver: int64(n + 1)})
				})
			}
			load.Wait()
			close(quit)
			<-stopped

			for n := range orders {
				a := one.Grab(t.Context(), grab.Request{Order: first + int64(n), Driver: 1 << 40})
				if a.Outcome != grab.Grabbed && a.Outcome != grab.Taken {
					t.Errorf("order %d is stuck: %q %q (%s)", a.Order, a.Outcome, a.Reason, a.Error)
				}
			}
			ledger, err := s.store.Ledger(t.Context(), first, orders)
			if err != nil {
				t.Fatal(err)
			}
			won := map[int64]int{}
			for _, g := range ledger {
				won[g.Order]++
			}
			for n := range orders {
				if id := first + int64(n); won[id] != 1 {
					t.Errorf("order %d was grabbed %d times", id, won[id])
				}
			}
			for _, e := range append(events.Events(), more.Events()...) {
				if e.Op == history.Read && e.Code == history.Stale {
					refused.Add(1)
				}
			}
			if forgotten.Load() == 0 {
				t.Error("the data in Redis was never deleted")
			}
			t.Logf("the data in Redis was deleted %d times, and %d reads were refused", forgotten.Load(), refused.Load())
		})
	}
}

// lateStore is a database that delays claims: it calls before first.
type lateStore struct {
	order.Store
	before func()
}

func (s lateStore) Claim(ctx context.Context, c order.Claim, g order.Guard) error {
	s.before()
	return s.Store.Claim(ctx, c, g)
}

// TestPausedHolder checks a holder that pauses after its last check of the lease, until another driver
// has grabbed the order. Its write must be refused and counted as a near miss.
func TestPausedHolder(t *testing.T) {
	s := newSite(t)
	for _, strategy := range fenced() {
		t.Run(strategy, func(t *testing.T) {
			id, err := s.store.Create(t.Context(), 1, 1)
			if err != nil {
				t.Fatal(err)
			}
			env := lock.Env{TTL: 500 * time.Millisecond, Wait: 10 * time.Second}
			b, _ := s.instance(t, strategy, s.store, env, 0)
			var other grab.Answer
			a, events := s.instance(t, strategy, lateStore{s.store, func() {
				s.redis.FlushAll(context.Background()) // as if the lease had expired during the pause
				other = b.Grab(t.Context(), grab.Request{Order: id, Driver: 2})
			}}, env, 0)
			told := a.Grab(t.Context(), grab.Request{Order: id, Driver: 1})
			if other.Outcome != grab.Grabbed || told.Outcome != grab.Failed || told.Reason != "stale" {
				t.Errorf("B is told %q, A %q %q (%s), want grabbed and stale", other.Outcome, told.Outcome, told.Reason, told.Error)
			}
			ledger, err := s.store.Ledger(t.Context(), id, 1)
			if err != nil || len(ledger) != 1 || ledger[0].Driver != 2 {
				t.Errorf("ledger %+v, %v; want only driver 2", ledger, err)
			}
			var scan check.Scan
			for _, e := range events.Events() {
				scan.Add(e)
			}
			if got := scan.Record().CountNearMisses(); got != 1 {
				t.Errorf("%d near misses, want 1", got)
			}
		})
	}
}
