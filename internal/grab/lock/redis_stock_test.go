package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"grablab/internal/order"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// TestStockModel compares random reservations, sales and returns with a model that counts units. A
// returned unit must leave no trace in the stock or with its driver. A repeated call must have the
// same result as the first one. Only the first reservation of an order may read the database.
func TestStockModel(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr(), Protocol: 2})
	defer client.Close()
	tokens := 0
	orders := &countedReads{Store: new(order.Mem)}
	env := Env{Redis: client, Orders: orders, TTL: time.Hour, Token: func() string { tokens++; return fmt.Sprint("token-", tokens) }}
	for seed := range uint64(60) {
		units, perDriver := int(seed%3)+1, int(seed/3%2)+1
		env.PerDriver = perDriver
		l := stockLocker{env, true}
		id, err := env.Orders.Create(t.Context(), 1, units)
		if err != nil {
			t.Fatal(err)
		}
		orders.reads = 0
		var reserved []*stockLease
		owner, has, left := map[*stockLease]int64{}, map[int64]int{}, units
		random := rand.New(rand.NewPCG(seed, 0))
		for step := range 40 {
			driver := random.Int64N(3) + 1
			var want, got error
			what := fmt.Sprintf("driver %d reserves", driver)
			if i := random.IntN(3); i < len(reserved) {
				lease := reserved[i]
				driver = owner[lease]
				if what = fmt.Sprintf("driver %d returns", driver); random.IntN(4) == 0 {
					what = fmt.Sprintf("driver %d has sold", driver)
					lease.Sold()
				} else {
					left, has[driver] = left+1, has[driver]-1
				}
				reserved = append(reserved[:i:i], reserved[i+1:]...)
				for range 2 { // the second call has no effect
					got = errors.Join(got, lease.Release(context.Background()))
				}
			} else {
				switch {
				case has[driver] >= perDriver:
					want = order.ErrLimit
				case left == 0:
					want = order.ErrTaken
				}
				var lease Lease
				if lease, got = l.Acquire(WithDriver(t.Context(), driver), fmt.Sprintf("grab:{%d}", id)); got == nil {
					s := lease.(*stockLease)
					got = s.take(WithDriver(t.Context(), driver)) // a client may send the script twice, but this must not reserve another unit
					reserved, owner[s], left, has[driver] = append(reserved, s), driver, left-1, has[driver]+1
				}
			}
			if !errors.Is(got, want) || errors.Is(got, order.ErrLimit) != errors.Is(want, order.ErrLimit) {
				t.Fatalf("%d units, %d to a driver, seed %d, step %d: %s: %v, want %v", units, perDriver, seed, step, what, got, want)
			}
		}
		if orders.reads != 1 {
			t.Errorf("%d units, %d to a driver, seed %d: the database was read %d times, want once", units, perDriver, seed, orders.reads)
		}
	}
}

// countedReads counts how often an order is read.
type countedReads struct {
	order.Store
	reads int
}

func (c *countedReads) Read(ctx context.Context, id int64, fence uint64) (order.Order, error) {
	c.reads++
	return c.Store.Read(ctx, id, fence)
}
