package fault

import (
	"context"
	"syscall"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/stack"
)

// pause stops a process for longer than the lease, as a garbage collector or a
// hypervisor does (F11): it can renew nothing and learn nothing meanwhile.
var pause = Fault{
	Name:     lock.Pause,
	About:    "SIGSTOP for longer than the lease, then SIGCONT",
	Aim:      afterRead,
	TTL:      time.Second,
	Patience: 1.5,
	Prepare: staged(func(t Target) []Act {
		return []Act{{Strike: func(context.Context, time.Duration) (stack.Heal, error) {
			return func() error { return t.Victim.Signal(syscall.SIGCONT) }, t.Victim.Signal(syscall.SIGSTOP)
		}}}
	}),
}
