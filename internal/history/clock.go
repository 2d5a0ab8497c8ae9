package history

import (
	"time"

	"golang.org/x/sys/unix"
)

// Clock returns the time on CLOCK_MONOTONIC, the clock that all processes on the host share. Go's own
// monotonic clock begins at zero in each process.
func Clock() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic("history: CLOCK_MONOTONIC: " + err.Error()) // cannot happen, because every supported system has this clock
	}
	return time.Duration(ts.Nano())
}
