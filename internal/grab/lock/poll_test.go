package lock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestPause(t *testing.T) {
	p := backoff{first: 2 * time.Millisecond, most: 50 * time.Millisecond}
	for _, c := range []struct {
		n      int
		random float64
		want   time.Duration
	}{
		{0, 0.5, 2 * time.Millisecond},
		{0, 0, time.Millisecond},
		{1, 0.5, 4 * time.Millisecond},
		{4, 0.5, 32 * time.Millisecond},
		{5, 0.5, 50 * time.Millisecond},
		{5, 0, 25 * time.Millisecond},
		{1000, 0.5, 50 * time.Millisecond},
	} {
		if got := p.pause(c.n, c.random); got != c.want {
			t.Errorf("pause %d with %v: %v, want %v", c.n, c.random, got, c.want)
		}
	}
}

// TestPausesGrow checks that there is a pause after any number of polls, and that pauses never get
// shorter.
func TestPausesGrow(t *testing.T) {
	for n, before := 0, time.Duration(0); n < 200; n++ {
		got := pollBackoff.pause(n, 0.5)
		if got < max(before, pollBackoff.first) || got > pollBackoff.most {
			t.Errorf("pause %d is %v, after %v", n, got, before)
		}
		before = got
	}
}

func TestPoll(t *testing.T) {
	const wait = time.Second
	p := backoff{first: 2 * time.Millisecond, most: 50 * time.Millisecond}
	middle := func() float64 { return 0.5 }
	broken := errors.New("broken")
	for _, c := range []struct {
		name   string
		wait   time.Duration
		cancel time.Duration // 0 means never
		free   time.Duration // 0 means never
		broken bool
		took   time.Duration
		err    error
	}{
		{name: "free", wait: wait, free: -1},
		{name: "one try", err: ErrBusy},
		{name: "one try, free", free: -1},
		{name: "never free: the last try is at the end", wait: wait, took: wait, err: ErrBusy},
		{name: "free at the end", wait: wait, free: wait, took: wait},
		{name: "free in between", wait: wait, free: 10 * time.Millisecond, took: 14 * time.Millisecond},
		{name: "cancelled", wait: wait, cancel: 100 * time.Millisecond, took: 100 * time.Millisecond, err: context.Canceled},
		{name: "cancelled before", wait: wait, cancel: -1, err: context.Canceled},
		{name: "broken", wait: wait, broken: true, err: broken},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.cancel < 0 {
					cancel()
				} else if c.cancel > 0 {
					defer time.AfterFunc(c.cancel, cancel).Stop()
				}
				began := time.Now()
				err := poll(ctx, c.wait, p, middle, func() (bool, error) {
					if c.broken {
						return false, broken
					}
					return c.free < 0 || c.free > 0 && time.Since(began) >= c.free, nil
				})
				if took := time.Since(began); !errors.Is(err, c.err) || took != c.took {
					t.Errorf("%v after %v, want %v after %v", err, took, c.err, c.took)
				}
			})
		})
	}
}
