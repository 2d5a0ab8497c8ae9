package lock

import (
	"context"
	"time"
)

// A backoff describes the pauses between polls, which double from first to most. A random change of
// up to half a pause keeps clients from retrying at the same time.
type backoff struct{ first, most time.Duration }

// pollBackoff is the backoff for locks that need a single command per attempt.
var pollBackoff = backoff{first: 2 * time.Millisecond, most: 100 * time.Millisecond}

// pause returns the nth pause, counted from 0. random is a number in [0,1).
func (b backoff) pause(n int, random float64) time.Duration {
	d := b.most
	if n < 32 && b.first<<n < b.most {
		d = b.first << n
	}
	return d/2 + time.Duration(random*float64(d))
}

// poll calls try until it returns true or an error. Once wait has passed, poll calls try one last
// time. If that call returns false, poll returns ErrBusy.
func poll(ctx context.Context, wait time.Duration, b backoff, random func() float64, try func() (bool, error)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	end := time.Now().Add(wait)
	for n := 0; ; n++ {
		if ok, err := try(); ok || err != nil {
			return err
		}
		left := time.Until(end)
		if left <= 0 {
			return ErrBusy
		}
		if err := Sleep(ctx, min(b.pause(n, random()), left)); err != nil {
			return err
		}
	}
}

// Sleep pauses for d. It returns an error if ctx ends first.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
