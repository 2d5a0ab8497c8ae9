package load

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"time"

	"grablab/internal/testbed/wait"

	"golang.org/x/sys/unix"
)

// timer wakes a sleeper to within tens of microseconds, where the runtime's
// timers are up to a millisecond late. It is a timer that the kernel reports as
// it reports the arrival of a packet, so that no thread blocks.
type timer struct {
	fd   int
	file *os.File
}

func newTimer() (*timer, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("load: timer: %w", err)
	}
	return &timer{fd, os.NewFile(uintptr(fd), "timerfd")}, nil
}

// sleep waits for d > 0; false: ctx was done first.
func (t *timer) sleep(ctx context.Context, d time.Duration) bool {
	at := unix.ItimerSpec{Value: unix.NsecToTimespec(d.Nanoseconds())}
	if err := unix.TimerfdSettime(t.fd, 0, &at, nil); err != nil {
		return wait.For(ctx, d)
	}
	stop := func() bool { return true }
	if d > 100*time.Millisecond { // a shorter sleep is over soon anyway
		stop = context.AfterFunc(ctx, func() { t.file.SetReadDeadline(time.Now()) })
	}
	defer stop()
	var expirations [8]byte
	_, err := t.file.Read(expirations[:])
	return err == nil && binary.NativeEndian.Uint64(expirations[:]) > 0 && ctx.Err() == nil
}

func (t *timer) close() { t.file.Close() }
