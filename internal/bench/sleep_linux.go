package bench

import (
	"time"

	"golang.org/x/sys/unix"
)

// preciseSleep sleeps for d to within tens of microseconds, where the
// runtime's timers wake up to a millisecond late.
func preciseSleep(d time.Duration) {
	ts := unix.NsecToTimespec(d.Nanoseconds())
	for unix.ClockNanosleep(unix.CLOCK_MONOTONIC, 0, &ts, &ts) == unix.EINTR {
	}
}
