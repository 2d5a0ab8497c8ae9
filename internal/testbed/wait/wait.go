// Package wait provides functions that sleep or poll until a condition is true.
package wait

import (
	"context"
	"time"
)

// For sleeps for d. It returns false if ctx ends first.
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

// IsOver reports whether the channel is closed. Do not use it for channels that carry values.
func IsOver(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Until polls condition until it returns true or an error, or until the timeout within has passed.
// It returns the last result or, if ctx ends first, the cause.
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
