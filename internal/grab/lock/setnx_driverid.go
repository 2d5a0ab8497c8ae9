package lock

import (
	"context"
	"strconv"

	"grablab/internal/catalog"
)

// setnxDriverID stores the driver ID instead of a unique token. If a driver tries twice, its first
// attempt may therefore delete its second attempt's lock. The strategy has a second mistake: a
// client uses the lock even if the grant took longer than the TTL.
var setnxDriverID = variant(setnx, Strategy{
	Name:   "setnx-driverid",
	Title:  "setnx with the driver ID as its token",
	Source: "the source articles: SETNX key driver_id",
	Claims: catalog.ClaimsOf("del"),
	Breaks: []string{"F12", "F36"},
	New:    redisKeyLock{set: setDriver, unset: compareAndDelete, acceptsLate: true}.New,
})

type driverKey struct{}

// WithDriver returns a context that passes the driver ID to an acquire. Without an ID, each acquire
// counts as a new driver.
func WithDriver(ctx context.Context, driver int64) context.Context {
	return context.WithValue(ctx, driverKey{}, driver)
}

func setDriver(ctx context.Context, l *redisKeyLease) (bool, error) {
	if driver, ok := ctx.Value(driverKey{}).(int64); ok {
		l.value = strconv.FormatInt(driver, 10)
	}
	return setPX(ctx, l)
}
