package fault

import (
	"context"
	"syscall"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/stack"
)

// crash kills a process with its locks, and starts it again (F3, F4).
var crash = Fault{
	Name:     lock.Crash,
	About:    "SIGKILL while it holds, and started again",
	Aim:      afterRead,
	Course:   Killed,
	TTL:      time.Second,
	Patience: 1.5,
	Prepare: staged(func(t Target) []Act {
		return []Act{{Strike: func(ctx context.Context, _ time.Duration) (stack.Heal, error) {
			if err := t.Victim.Signal(syscall.SIGKILL); err != nil {
				return nil, err
			}
			return nil, t.Victim.Restart(ctx)
		}}}
	}),
}
