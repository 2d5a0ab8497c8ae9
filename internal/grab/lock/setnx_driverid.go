package lock

import (
	"context"
	"strconv"

	"grablab/internal/catalog"
)

// setnxDriverID stores the driver's id and not a token of the attempt. The
// driver's first attempt runs out; the second one, a double tap, locks with the
// same value; the first releases and finds its own value; C locks: the second
// attempt and C are inside (F36, internal/explore/testdata/F36.txt). The article's
// SETNX has done its part when it answers 1, however late that comes (F12).
var setnxDriverID = variant(setnx, Strategy{
	Name:   "setnx-driverid",
	Title:  "setnx, with the driver's id as the token",
	Source: "the source articles: SETNX key driver_id",
	Claims: catalog.ClaimsOf("del"),
	Breaks: []string{"F12", "F36"},
	New:    redisKeyLock{set: setDriver, unset: compareAndDelete, believesLate: true}.New,
})

type driverKey struct{}

// WithDriver says for which driver ctx acquires. Without it each acquire is that of
// another driver.
func WithDriver(ctx context.Context, driver int64) context.Context {
	return context.WithValue(ctx, driverKey{}, driver)
}

func setDriver(ctx context.Context, l *redisKeyLease) (bool, error) {
	if driver, ok := ctx.Value(driverKey{}).(int64); ok {
		l.value = strconv.FormatInt(driver, 10)
	}
	return setPX(ctx, l)
}
