package lock

import (
	"context"
	"strconv"

	"grablab/internal/order"
)

// setnxDriverID stores the driver's id and not a token of the attempt. The
// driver's first attempt runs out; his second, a double tap, locks with the
// same value; the first releases and finds it to be his own; C locks: the
// second attempt and C are inside (F36).
var setnxDriverID = Strategy{
	Name:     "setnx-driverid",
	Title:    "setnx, with the driver's id as the token",
	Family:   "redis",
	Source:   "the source articles: SETNX key driver_id",
	Needs:    Redis,
	Guard:    order.Naive,
	Expect:   setnx.Expect,
	Excludes: Global,
	Survives: setnx.Survives,
	Breaks:   []string{"F36"},
	New:      keyLock{set: setDriver, unset: compareAndDelete}.New,
}

type driverKey struct{}

// WithDriver says for which driver ctx acquires. Without it each acquire is a
// driver's of its own.
func WithDriver(ctx context.Context, driver int64) context.Context {
	return context.WithValue(ctx, driverKey{}, driver)
}

func setDriver(ctx context.Context, l *keyLease) (bool, error) {
	if driver, ok := ctx.Value(driverKey{}).(int64); ok {
		l.value = strconv.FormatInt(driver, 10)
	}
	return setPX(ctx, l)
}
