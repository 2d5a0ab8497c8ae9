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

// timer sleeps more precisely than a Go runtime timer, which may be a millisecond late. It uses a
// timerfd, because a timerfd does not block a thread.
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

// sleep waits for d, which must be positive. It returns false if ctx ends first.
func (t *timer) sleep(ctx context.Context, d time.Duration) bool {
	at := unix.ItimerSpec{Value: unix.NsecToTimespec(d.Nanoseconds())}
	if err := unix.TimerfdSettime(t.fd, 0, &at, nil); err != nil {
		return wait.For(ctx, d)
	}
	stop := context.AfterFunc(ctx, func() { t.file.SetReadDeadline(time.Now()) })
	defer stop()
	var expirations [8]byte
	_, err := t.file.Read(expirations[:])
	return err == nil && binary.NativeEndian.Uint64(expirations[:]) > 0 && ctx.Err() == nil
}

func (t *timer) close() { t.file.Close() }
