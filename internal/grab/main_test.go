package grab_test

import (
	"syscall"
	"testing"
	"time"

	"grablab/internal/testbed/stack/stacktest"
)

func TestMain(m *testing.M) { stacktest.Main(m) }

// cpuTime returns the processor time that this process has used.
func cpuTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(err) // cannot fail for a running process
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
