package history

import (
	"time"

	"golang.org/x/sys/unix"
)

// Clock returns a clock that all processes on the host share (CLOCK_MONOTONIC). To be fast, it
// reads Go's monotonic clock and adds the offset of the shared clock, which it measures only once.
func Clock() func() time.Duration {
	var (
		origin   time.Time
		atOrigin time.Duration
		best     = time.Duration(1<<63 - 1)
	)
	for range 100 {
		before := time.Now()
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
			panic("history: CLOCK_MONOTONIC: " + err.Error()) // cannot happen, because every supported system has this clock
		}
		if took := time.Since(before); took < best {
			best = took
			origin, atOrigin = before, time.Duration(ts.Nano())-took/2
		}
	}
	return func() time.Duration { return atOrigin + time.Since(origin) }
}
