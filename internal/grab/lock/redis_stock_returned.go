package lock

import (
	_ "embed"

	"grablab/internal/catalog"

	"github.com/redis/go-redis/v9"
)

// redisStockReturned is redis-stock with a compensation. A client that has not sold its
// reserved unit gives it back. The token of the attempt ensures that a unit is given back
// only once. A client that has died gives nothing back (F42).
//
// A write without an answer counts as not made. A gives the unit back, and B reserves it and
// reads that the order is open. A's delayed write then arrives, and B writes too (F44).
var redisStockReturned = variant(redisStock, Strategy{
	Name:     "redis-stock-returned",
	Title:    "redis-stock, which gives unsold units back",
	Claims:   catalog.ClaimsOf("returned"),
	InSearch: []SearchClaim{}, // the claims need no exception in a search, because the unit is given back
	Breaks:   []string{"F42", "F43", "F44"},
	New:      func(env Env) (Locker, error) { return newStockLocker(env, true) },
})

//go:embed redis_stock_return.lua
var redisStockReturnLua string

var stockReturn = redis.NewScript(redisStockReturnLua)
