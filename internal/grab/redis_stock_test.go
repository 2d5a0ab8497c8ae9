package grab_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"net/http/httptest"
	"testing"
	"time"

	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/order"

	"github.com/redis/go-redis/v9"
)

// sellTo makes driver n grab an order.
func (r rig) sellTo(t *testing.T, id int64, driver int) grab.Answer {
	t.Helper()
	return answerOf(t, r.call(t, request("POST", fmt.Sprintf("/orders/%d/grab", id), fmt.Sprintf(`{"driver_id":%d}`, driver))))
}

// stockRig returns a rig, and the ID of an order with the given number of units.
func stockRig(t *testing.T, set settings, units int) (rig, int64) {
	t.Helper()
	r := newRig(t, set)
	id, err := r.store.Create(t.Context(), 1, units)
	if err != nil {
		t.Fatal(err)
	}
	return r, id
}

// TestRedisStock checks that Redis enforces both the stock and the number of units per driver. Redis
// must keep no key for an order that does not exist.
func TestRedisStock(t *testing.T) {
	for _, strategy := range []string{"redis-stock", "redis-stock-returned"} {
		t.Run(strategy, func(t *testing.T) {
			env := lock.Env{PerDriver: 2}
			r, id := stockRig(t, settings{env: env, grab: grab.Config{Strategy: strategy, PerDriver: 2}}, 3)
			for i, want := range []struct {
				driver  int
				outcome grab.Outcome
				reason  string
			}{
				{1, grab.Grabbed, ""}, {1, grab.Grabbed, ""}, {1, grab.Taken, grab.PerDriver}, {2, grab.Grabbed, ""}, {3, grab.Taken, ""},
			} {
				if a := r.sellTo(t, id, want.driver); a.Outcome != want.outcome || a.Reason != want.reason {
					t.Errorf("grab %d: %+v, want %s %s", i+1, a, want.outcome, want.reason)
				}
			}
			if o, err := r.store.Read(t.Context(), id, 0); err != nil || o.Stock != 0 || o.Status != order.Grabbed {
				t.Errorf("the row is %+v, %v", o, err)
			}
			if a := r.sellTo(t, id+1, 1); a.Reason != "not_found" {
				t.Errorf("an order that does not exist: %+v", a)
			}
			if left := r.redis.Exists(fmt.Sprintf("grab:%s:{%d}", strategy, id+1)); left {
				t.Error("Redis keeps a key for an order that does not exist")
			}
		})
	}
}

// TestRedisStockAgreesWithTheLedger compares the data in Redis with the ledger after each of many
// random grabs. Redis must have the number of remaining units, even after it has lost its data. It must
// also have each sale since then, with its driver. A unit whose claim failed must have been returned.
func TestRedisStockAgreesWithTheLedger(t *testing.T) {
	const units, drivers, perDriver = 6, 5, 2
	for _, strategy := range []string{"redis-stock", "redis-stock-returned"} {
		t.Run(strategy, func(t *testing.T) {
			failing := &lateClaims{}
			r := newRig(t, settings{env: lock.Env{PerDriver: perDriver}, grab: grab.Config{Strategy: strategy, PerDriver: perDriver, Orders: failing}})
			random := mathrand.New(mathrand.NewPCG(1, 2))
			for range 8 {
				id, err := r.store.Create(t.Context(), 1, units)
				if err != nil {
					t.Fatal(err)
				}
				key, forgot := fmt.Sprintf("grab:%s:{%d}", strategy, id), 0
				for step := range 15 {
					driver := random.IntN(drivers) + 1
					failing.driver = 0
					switch what := random.IntN(5); {
					case what == 0:
						r.redis.FlushAll()
						ledger, err := r.store.Ledger(t.Context(), id, 1)
						if forgot = len(ledger); err != nil {
							t.Fatal(err)
						}
					case what == 1 && strategy == "redis-stock-returned":
						failing.driver = int64(driver)
					}
					before, err := r.store.Ledger(t.Context(), id, 1)
					if err != nil {
						t.Fatal(err)
					}
					bought := 0 // as far as Redis remembers
					for _, g := range before[forgot:] {
						if g.Driver == int64(driver) {
							bought++
						}
					}
					outcome, reason := grab.Grabbed, ""
					switch {
					case bought >= perDriver:
						outcome, reason = grab.Taken, grab.PerDriver
					case len(before) == units:
						outcome = grab.Taken
					case failing.driver != 0:
						outcome = grab.Timeout
					}
					a := r.sellTo(t, id, driver)
					if a.Outcome != outcome || outcome == grab.Taken && a.Reason != reason {
						t.Fatalf("step %d, driver %d has %d of %d sold and was told %+v, want %s %s", step, driver, bought, len(before), a, outcome, reason)
					}
					ledger, err := r.store.Ledger(t.Context(), id, 1)
					if err != nil {
						t.Fatal(err)
					}
					want := map[string]string{"stock": fmt.Sprint(units - len(ledger))}
					had := map[int64]int{}
					for _, g := range ledger[forgot:] {
						had[g.Driver]++
						want[g.Token] = fmt.Sprint(g.Driver)
					}
					for driver, n := range had {
						want[fmt.Sprint("driver:", driver)] = fmt.Sprint(n)
					}
					fields, err := r.redis.HKeys(key)
					if err != nil {
						t.Fatal(err)
					}
					got := map[string]string{}
					for _, field := range fields {
						if v := r.redis.HGet(key, field); v != "0" || field == "stock" {
							got[field] = v
						}
					}
					if !maps.Equal(got, want) {
						t.Fatalf("step %d, driver %d was told %+v: Redis has %v, the ledger %v", step, driver, a, got, want)
					}
					if kept := r.redis.TTL(key); kept < time.Hour {
						t.Fatalf("the order's key in Redis expires in %v, so Redis would forget reserved units", kept)
					}
				}
			}
		})
	}
}

// TestRedisStockIsReturnedOnce checks that a reserved unit is returned exactly once, even if its lease
// is released twice or its client disconnects during the acquire. A sold unit must not be returned.
func TestRedisStockIsReturnedOnce(t *testing.T) {
	r, id := stockRig(t, settings{}, 3)
	key := grab.Key("redis-stock-returned", id)
	client := redis.NewClient(&redis.Options{Addr: r.redis.Addr(), MaxRetries: -1})
	defer client.Close()
	strategy, err := lock.Find("redis-stock-returned")
	if err != nil {
		t.Fatal(err)
	}
	locker, err := strategy.New(lock.Env{Redis: client, Orders: r.store, TTL: time.Second, Token: rand.Text, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	defer locker.Close()
	left := func(what, want string) {
		t.Helper()
		if got := r.redis.HGet(key, "stock"); got != want {
			t.Errorf("%s: %s left, want %s", what, got, want)
		}
	}
	acquire := func(driver int64) lock.Lease {
		t.Helper()
		lease, err := locker.Acquire(lock.WithDriver(t.Context(), driver), key)
		if err != nil {
			t.Fatal(err)
		}
		return lease
	}
	other, lease := acquire(1), acquire(2)
	left("two units are reserved", "1")
	for range 2 {
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		left("one unit is returned", "2")
	}
	other.(lock.Reservation).Sold()
	if err := other.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	left("the other unit is sold", "2")

	ctx, cancel := context.WithCancel(lock.WithDriver(t.Context(), 3))
	client.AddHook(afterEach(cancel))
	if _, err := locker.Acquire(ctx, key); !errors.Is(err, context.Canceled) {
		t.Errorf("an acquire whose client has disconnected: %v", err)
	}
	left("a client has disconnected", "2")
}

// afterEach is a Redis hook that runs after each command.
type afterEach func()

func (afterEach) DialHook(next redis.DialHook) redis.DialHook { return next }
func (afterEach) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (f afterEach) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		defer f()
		return next(ctx, cmd)
	}
}

// TestRedisStockForgotten checks that a unit can be sold twice if Redis loses its data while a driver
// has reserved it (F43). Redis then reads the stock from the database, which does not know of
// reservations.
func TestRedisStockForgotten(t *testing.T) {
	r, id := stockRig(t, settings{grab: grab.Config{Strategy: "redis-stock", Work: 200 * time.Millisecond}}, 2)
	r.sellTo(t, id, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.ServeHTTP(httptest.NewRecorder(), request("POST", fmt.Sprintf("/orders/%d/grab", id), `{"driver_id":2}`))
	}()
	eventually(t, "the last unit is reserved", func() bool {
		return r.redis.HGet(fmt.Sprintf("grab:redis-stock:{%d}", id), "stock") == "0"
	})
	r.redis.FlushAll()
	a := r.sellTo(t, id, 3)
	<-done
	ledger, err := r.store.Ledger(t.Context(), id, 1)
	if a.Outcome != grab.Grabbed || err != nil || len(ledger) != 3 {
		t.Errorf("%+v; the ledger of 2 units has %d rows, want 3, %v", a, len(ledger), err)
	}
	if o, err := r.store.Read(t.Context(), id, 0); err != nil || o.Stock != -1 {
		t.Errorf("the row is %+v, %v", o, err)
	}
}

// lateClaims is a store that returns an error for the claims of one driver. If arrive is true, it
// writes such a claim anyway, just before the next claim of another driver.
type lateClaims struct {
	*order.Mem
	driver int64
	arrive bool
	late   []func() error
}

func (s *lateClaims) Claim(ctx context.Context, c order.Claim, g order.Guard) error {
	if c.Driver == s.driver {
		if s.arrive {
			s.late = append(s.late, func() error { return s.Mem.Claim(context.WithoutCancel(ctx), c, g) })
		}
		return errors.New("no answer")
	}
	for _, write := range s.late {
		if err := write(); err != nil {
			return err
		}
	}
	s.late = nil
	return s.Mem.Claim(ctx, c, g)
}

// TestUnitOfAClaimWithoutAnswer checks who gets the last unit if its claim gets no answer. If Redis
// does not return the unit, it is lost (F42). If Redis does, and the claim arrives anyway, the unit is
// sold twice (F44), unless a guard checks the stock during the write.
func TestUnitOfAClaimWithoutAnswer(t *testing.T) {
	for _, tt := range []struct {
		strategy string
		guard    order.Guard
		arrive   bool
		next     grab.Outcome // the outcome for the next driver
		sold     int          // the number of sold units, of 2
	}{
		{"redis-stock", "", false, grab.Taken, 1},
		{"redis-stock-returned", "", false, grab.Grabbed, 2},
		{"redis-stock-returned", "", true, grab.Grabbed, 3},
		{"redis-stock-returned", order.Guarded, true, grab.Taken, 2},
	} {
		t.Run(fmt.Sprintf("%s %s, arrives: %v", tt.strategy, tt.guard, tt.arrive), func(t *testing.T) {
			r, id := stockRig(t, settings{grab: grab.Config{Strategy: tt.strategy, Guard: tt.guard, Orders: &lateClaims{driver: 2, arrive: tt.arrive}}}, 2)
			r.sellTo(t, id, 1)
			if a := r.sellTo(t, id, 2); a.Outcome != grab.Timeout || a.Reason != "unknown" {
				t.Fatalf("sellTo: %+v", a)
			}
			if a := r.sellTo(t, id, 3); a.Outcome != tt.next {
				t.Errorf("the next driver: %+v, want %s", a, tt.next)
			}
			if ledger, err := r.store.Ledger(t.Context(), id, 1); err != nil || len(ledger) != tt.sold {
				t.Errorf("the ledger has %d rows, %v, want %d", len(ledger), err, tt.sold)
			}
		})
	}
}
