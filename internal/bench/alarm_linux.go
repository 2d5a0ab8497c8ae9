package bench

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// alarm wakes a sleeper to within tens of microseconds, where the runtime's
// timers are up to a millisecond late. It is a timer that the kernel reports as
// it reports the arrival of a packet, so that no thread waits for it.
type alarm struct {
	fd   int
	file *os.File
}

func newAlarm() (*alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("bench: timer: %w", err)
	}
	return &alarm{fd, os.NewFile(uintptr(fd), "timerfd")}, nil
}

// sleep waits for d > 0; false: ctx was done first.
func (a *alarm) sleep(ctx context.Context, d time.Duration) bool {
	at := unix.ItimerSpec{Value: unix.NsecToTimespec(d.Nanoseconds())}
	if err := unix.TimerfdSettime(a.fd, 0, &at, nil); err != nil {
		return rest(ctx, d)
	}
	stop := func() bool { return true }
	if d > 100*time.Millisecond { // a shorter sleep is over before anybody grows impatient
		stop = context.AfterFunc(ctx, func() { a.file.SetReadDeadline(time.Now()) })
	}
	defer stop()
	var expirations [8]byte
	_, err := a.file.Read(expirations[:])
	return err == nil && binary.NativeEndian.Uint64(expirations[:]) > 0 && ctx.Err() == nil
}

func (a *alarm) close() { a.file.Close() }
