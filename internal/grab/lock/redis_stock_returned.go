package lock

import (
	_ "embed"

	"grablab/internal/catalog"

	"github.com/redis/go-redis/v9"
)

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

//go:embed redis_stock_return.lua
var redisStockReturnLua string

var stockReturn = redis.NewScript(redisStockReturnLua)
