package fault

import (
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
)

// lateRelease makes a driver release its lock too late, when another grab of the same driver
// already holds the lock. This must not let a third driver in (F5, F6, F35, F36).
var lateRelease = Fault{
	Name:           catalog.LateRelease,
	Hits:           locks &^ lock.SQLLocks,
	Reach:          leaves,
	Course:         Released,
	TTL:            2 * time.Second,
	ContendFor:     1.3,
	HoldContenders: true,
	Prepare:        ready(func(Target) []Strike { return []Strike{{}} }),
}

// cancel makes a client disconnect while its grab acquires the lock. The instance must leave no
// lock behind (F14, F22).
var cancel = Fault{
	Name:       catalog.Cancel,
	Hits:       locks,
	Reach:      acquires,
	Course:     HungUp,
	TTL:        time.Second,
	ContendFor: 1.5,
	Prepare:    ready(func(Target) []Strike { return []Strike{{}} }),
}
