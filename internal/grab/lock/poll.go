package lock

import (
	"context"
	"time"
)

// backoff is how often a lock whose release is not published is polled: after
// first, then after twice as long each time, up to most. Every pause is spread by
// half of itself to either side, so that clients that failed together do not come
// back together.
type backoff struct{ first, most time.Duration }

// pollBackoff is that of a lock which is asked for with one command.
var pollBackoff = backoff{first: 2 * time.Millisecond, most: 100 * time.Millisecond}

// pause is the nth pause, from 0; random is uniform in [0,1).
func (b backoff) pause(n int, random float64) time.Duration {
	d := b.most
	if n < 32 && b.first<<n < b.most {
		d = b.first << n
	}
	return d/2 + time.Duration(random*float64(d))
}

// poll calls try until it is true or fails, for at most wait: then it returns
// ErrBusy. The last try is at the end of the wait.
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
		if err := sleep(ctx, min(b.pause(n, random()), left)); err != nil {
			return err
		}
	}
}

// sleep waits for d. The error is the context's, if that ends before.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
