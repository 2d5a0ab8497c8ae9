package lock

import (
	"context"
	"time"
)

// pace is how often a lock that nobody announces is looked at again: after
// first, then after twice as long each time, up to most. Every pause is spread
// by half of itself to either side, so that waiters that failed together do
// not come back together.
type pace struct{ first, most time.Duration }

// pause is the nth pause, from 0; random is uniform in [0,1).
func (p pace) pause(n int, random float64) time.Duration {
	d := p.most
	if n < 32 && p.first<<n < p.most {
		d = p.first << n
	}
	return d/2 + time.Duration(random*float64(d))
}

// poll calls try until it is true or fails, for at most wait: then it returns
// ErrBusy. The last try is at the end of the wait.
func poll(ctx context.Context, wait time.Duration, p pace, random func() float64, try func() (bool, error)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	end := time.Now().Add(wait)
	var timer *time.Timer
	for n := 0; ; n++ {
		if ok, err := try(); ok || err != nil {
			return err
		}
		left := time.Until(end)
		if left <= 0 {
			return ErrBusy
		}
		pause := min(p.pause(n, random()), left)
		if timer == nil {
			timer = time.NewTimer(pause)
			defer timer.Stop()
		} else {
			timer.Reset(pause)
		}
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
