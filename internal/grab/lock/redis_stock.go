package lock

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/order"

	"github.com/redis/go-redis/v9"
)

// redisStock takes no lock. Redis stores how many units of an order are left, and a script reserves one
// for a driver before the database write. The strategy is fast, because drivers without a unit never
// reach the database.
//
// A unit can get lost between Redis and the database. If A reserves the last unit in Redis and dies
// before the database write, no driver gets that unit. Redis reports that the order is taken.
//
// If Redis loses its data, the next client copies the unit count from the database. The database does
// not know the units that are reserved but not yet sold. A driver may therefore get a unit that another
// driver has already reserved.
var redisStock = Strategy{
	Name:   "redis-stock",
	Title:  "no lock: a Redis script decides, and the database write follows",
	Family: "redis",
	Source: "redis.io: Scripting with Lua; common in flash sales",
	Needs:  Redis | SQL,
	Guard:  order.Decrement,
	Claims: catalog.ClaimsOf("stock"),
	InSearch: []SearchClaim{{
		Faults: []catalog.Fault{catalog.Partition, catalog.PartitionDB, catalog.SlowDB}, As: catalog.Crash,
		Why: "in a search, the client is cut off until it gives up, so the unit that it has reserved stays unsold. In `run`, the fault ends before the client gives up",
	}},
	Excludes: catalog.NoExclusion,
	Breaks:   []string{"F42", "F43"},
	New:      func(env Env) (Locker, error) { return stockLocker{env, false}, nil },
}

// redisStockReturned is redis-stock, except that a client returns its reserved unit if it has not
// sold it. A client that has died returns nothing.
//
// The strategy fails if a write is delayed. A gets no reply to its write and returns the unit. B
// reserves the same unit and reads that the order is still open. A's write then arrives, and B
// writes too.
var redisStockReturned = variant(redisStock, Strategy{
	Name:   "redis-stock-returned",
	Title:  "redis-stock that returns unsold units",
	Claims: catalog.ClaimsOf("returned"),
	// This claim replaces the one of redis-stock, because here, the client returns the unit instead
	// of leaving it unsold.
	InSearch: []SearchClaim{{
		Faults: []catalog.Fault{catalog.PartitionDB, catalog.SlowDB}, As: catalog.RedisRestart, Units: 2,
		Why: "if an order has several units, a client whose write got no reply gives back a unit that it has sold, and a third driver gets it",
	}},
	Breaks: []string{"F42", "F43", "F44"},
	New:    func(env Env) (Locker, error) { return stockLocker{env, true}, nil },
})

// stockKeep is how long Redis keeps an order's unit count after the last request for it.
const stockKeep = 24 * time.Hour

var (
	//go:embed redis_stock.lua
	redisStockLua string
	//go:embed redis_stock_return.lua
	redisStockReturnLua string

	stockScript = redis.NewScript(redisStockLua)
	stockReturn = redis.NewScript(redisStockReturnLua)
)

// A stockLocker reserves individual units of an order in Redis, instead of locking the whole order.
type stockLocker struct {
	env     Env
	returns bool // whether Release gives back unsold units
}

// Acquire reserves one unit. It returns order.ErrTaken if no unit is left.
func (l stockLocker) Acquire(ctx context.Context, key string) (Lease, error) {
	lease := &stockLease{plainLease{l.env.Token()}, l, key, false}
	if err := lease.take(ctx); err != nil {
		if l.returns {
			cleanUp(ctx, lease.Release)
		}
		return nil, err
	}
	return lease, nil
}

func (stockLocker) Close() error { return nil }

// Forget deletes an order's unit count from Redis.
func (l stockLocker) Forget(ctx context.Context, key string) error {
	return l.env.Redis.Del(ctx, key).Err()
}

// A stockLease reserves one unit of an order for a driver.
type stockLease struct {
	plainLease
	stockLocker
	key  string
	sold bool
}

// take reserves a unit in Redis. If Redis does not know the order yet, take first copies its unit
// count from the database.
func (l *stockLease) take(ctx context.Context) error {
	reply, err := l.ask(ctx, "")
	if err == nil && reply < 0 {
		var left int64
		if left, err = l.leftInDatabase(ctx); err == nil {
			reply, err = l.ask(ctx, left)
		}
	}
	switch {
	case err != nil:
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	case reply == 0:
		return order.ErrTaken
	case reply == 2:
		return order.ErrLimit
	default:
		return nil
	}
}

func (l *stockLease) ask(ctx context.Context, left any) (int, error) {
	driver := any(l.token) // without a driver id, each acquire counts as a new driver
	if id, ok := ctx.Value(driverKey{}).(int64); ok {
		driver = id
	}
	return stockScript.Run(ctx, l.env.Redis, []string{l.key}, driver, max(l.env.PerDriver, 1), l.token, stockKeep.Milliseconds(), left).Int()
}

func (l *stockLease) leftInDatabase(ctx context.Context) (int64, error) {
	id, err := orderOf(l.key)
	if err != nil {
		return 0, err
	}
	o, err := l.env.Orders.Read(ctx, id, 0)
	if err != nil {
		return 0, fmt.Errorf("lock: cannot read how many units the database has left: %w", err)
	}
	return o.Left(), nil
}

func (l *stockLease) Sold() { l.sold = true }

// Release returns an unsold unit to the stock, if the strategy is configured to do so.
func (l *stockLease) Release(ctx context.Context) error {
	if l.sold || !l.returns {
		return nil
	}
	return stockReturn.Run(ctx, l.env.Redis, []string{l.key}, l.token).Err()
}
