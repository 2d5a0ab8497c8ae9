package lock

import (
	_ "embed"

	"grablab/internal/catalog"

	"github.com/redis/go-redis/v9"
)

// redisStockReturned is redis-stock, except that a client gives its reserved unit back if it has
// not sold the unit. A client that has died gives nothing back.
//
// The strategy fails if a write is delayed. A gets no reply to its write and gives the unit back. B
// reserves the unit and reads that the order is open. A's write then arrives, and B writes too.
var redisStockReturned = variant(redisStock, Strategy{
	Name:   "redis-stock-returned",
	Title:  "redis-stock, which gives unsold units back",
	Claims: catalog.ClaimsOf("returned"),
	// This replaces the claim of redis-stock, because here the client gives the unit back.
	InSearch: []SearchClaim{{
		Faults: []catalog.Fault{catalog.PartitionDB, catalog.SlowDB}, As: catalog.RedisRestart,
		Why: "in a search, the reply to a write may be lost, so the client gives back a unit that it has sold",
	}},
	Breaks: []string{"F42", "F43", "F44"},
	New:    func(env Env) (Locker, error) { return newStockLocker(env, true) },
})

//go:embed redis_stock_return.lua
var redisStockReturnLua string

var stockReturn = redis.NewScript(redisStockReturnLua)
