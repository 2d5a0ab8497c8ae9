package fault

import (
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
)

// lateRelease delays a lock's release until the same driver holds the lock again. The delayed
// release must not free the new lock (F5, F6, F35 and F36 in docs/failure-modes.md).
var lateRelease = Fault{
	Name:           catalog.LateRelease,
	Hits:           locks &^ lock.SQLLocks,
	Reach:          leaves,
	Course:         Released,
	TTL:            time.Second, // shorter than the timeouts of most clients, which would otherwise give up the release
	ContendFor:     1.3,
	HoldContenders: true,
	Prepare:        ready(func(Target) []Strike { return []Strike{{}} }),
}

// cancel makes a client disconnect while its request acquires a lock. The service must not leave
// the lock behind (F14 and F22 in docs/failure-modes.md).
var cancel = Fault{
	Name:       catalog.Cancel,
	Hits:       locks,
	Reach:      acquires,
	Course:     HungUp,
	TTL:        time.Second,
	ContendFor: 1.5,
	Prepare:    ready(func(Target) []Strike { return []Strike{{}} }),
}
