package lock

import (
	_ "embed"

	"grablab/internal/catalog"

	"github.com/redis/go-redis/v9"
)

// redisStockReturned is redis-stock with a compensation: a client that has not sold its reserved
// unit gives the unit back. The token of the attempt ensures that each unit is given back only
// once. A client that has died gives nothing back (F42).
//
// If a write gets no reply, the client assumes that nothing was written. A gives the unit back, and
// B reserves it and reads that the order is open. A's delayed write then arrives, and B writes too
// (F44).
var redisStockReturned = variant(redisStock, Strategy{
	Name:     "redis-stock-returned",
	Title:    "redis-stock, which gives unsold units back",
	Claims:   catalog.ClaimsOf("returned"),
	InSearch: []SearchClaim{}, // none, because in a search the unit is given back
	Breaks:   []string{"F42", "F43", "F44"},
	New:      func(env Env) (Locker, error) { return newStockLocker(env, true) },
})

//go:embed redis_stock_return.lua
var redisStockReturnLua string

var stockReturn = redis.NewScript(redisStockReturnLua)
