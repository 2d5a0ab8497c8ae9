//go:build unix

package history

import (
	"time"

	"golang.org/x/sys/unix"
)

// Clock returns a clock that reads CLOCK_MONOTONIC of the host, which all
// its processes share. Go's own monotonic reading is the same clock from an
// origin of its own, at a fifth of the price of the system call, so only the
// distance of the two is measured: once, as tightly as a few attempts can.
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
			panic("history: CLOCK_MONOTONIC: " + err.Error()) // every supported system has it
		}
		if took := time.Since(before); took < best {
			best = took
			origin, atOrigin = before, time.Duration(ts.Nano())-took/2
		}
	}
	return func() time.Duration { return atOrigin + time.Since(origin) }
}
