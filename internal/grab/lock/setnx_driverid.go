package lock

import (
	"context"
	"strconv"

	"grablab/internal/catalog"
)

// setnxDriverID stores the driver's id instead of a token for each attempt. The lease of the
// driver's first attempt expires. The second attempt, a double tap, locks with the same
// value. The first attempt releases, because it finds its own value. C locks, so the second
// attempt and C are both inside (F36, internal/explore/testdata/F36.txt). The article
// accepts the reply 1 of SETNX however late it arrives (F12).
var setnxDriverID = variant(setnx, Strategy{
	Name:   "setnx-driverid",
	Title:  "setnx, with the driver's id as the token",
	Source: "the source articles: SETNX key driver_id",
	Claims: catalog.ClaimsOf("del"),
	Breaks: []string{"F12", "F36"},
	New:    redisKeyLock{set: setDriver, unset: compareAndDelete, believesLate: true}.New,
})

type driverKey struct{}

// WithDriver returns a context that tells acquires the driver's id. Without it, each acquire counts
// as a different driver.
func WithDriver(ctx context.Context, driver int64) context.Context {
	return context.WithValue(ctx, driverKey{}, driver)
}

func setDriver(ctx context.Context, l *redisKeyLease) (bool, error) {
	if driver, ok := ctx.Value(driverKey{}).(int64); ok {
		l.value = strconv.FormatInt(driver, 10)
	}
	return setPX(ctx, l)
}
