package lock

import (
	_ "embed"

	"grablab/internal/catalog"

	"github.com/redis/go-redis/v9"
)

// redisStockReturned is redis-stock with a compensation: who has not sold the unit that was
// set aside gives it back, by its token, so that it is given back once. Who has died does
// not (F42). And a write of which no answer came counts as not made: A gives the unit
// back, B gets it and reads that it is left, A's write arrives, B writes (F44).
var redisStockReturned = variant(redisStock, Strategy{
	Name:     "redis-stock-returned",
	Title:    "redis-stock, which gives back what it has not sold",
	Claims:   catalog.ClaimsOf("returned"),
	InSearch: []SearchClaim{}, // it gives the unit back
	Breaks:   []string{"F42", "F43", "F44"},
	New:      func(env Env) (Locker, error) { return newStockLocker(env, true) },
})

//go:embed redis_stock_return.lua
var redisStockReturnLua string

var stockReturn = redis.NewScript(redisStockReturnLua)
