// Package wait sleeps and polls under a context.
package wait

import (
	"context"
	"time"
)

// For sleeps for d. It returns false if ctx ended first.
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

// Until checks the condition at the given interval until it holds, it fails, or the time
// within has passed. It returns the last result. It checks at least once. The error is the
// condition's error or the cause of ctx.
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
