// Package wait provides sleeping and polling that end early if a context ends.
package wait

import (
	"context"
	"time"
)

// For sleeps for the duration d. It returns false if ctx ends first.
func For(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// IsOver reports whether a channel is closed that carries no values.
func IsOver(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Until calls condition at the given interval until it returns true or an error, or until the time
// within has passed. It calls condition at least once, and returns the last result. The error is
// that of condition, or the cause of ctx.
func Until(ctx context.Context, interval, within time.Duration, condition func() (bool, error)) (bool, error) {
	for end := time.Now().Add(within); ; {
		ok, err := condition()
		if err != nil || ok || !time.Now().Before(end) {
			return ok, err
		}
		if !For(ctx, interval) {
			return false, context.Cause(ctx)
		}
	}
}
