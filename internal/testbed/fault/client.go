package fault

import (
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
)

// lateRelease is a driver whose lease runs out and who releases all the same, while
// a second driver has the lock: the same driver again, by a double tap. A third one
// must not get in (F5, F6, F35, F36). The first has not written: its claim is refused,
// as it is for a driver who gives up.
var lateRelease = Fault{
	Name:           catalog.LateRelease,
	NotForeign:     "only the service itself could refuse a claim",
	Hits:           locks &^ lock.SQLLocks,
	Reach:          leaves,
	Course:         Released,
	TTL:            2 * time.Second,
	ContendFor:     1.3,
	HoldContenders: true,
	Prepare:        ready(func(Target) []Strike { return []Strike{{}} }),
}

// cancel is a client that gives up while it acquires. The instance hears of it
// while a call is held, and must leave no lock behind (F14, F22).
var cancel = Fault{
	Name:       catalog.Cancel,
	NotForeign: "whether a client that hangs up cancels its grab is up to the service",
	Hits:       locks,
	Reach:      acquires,
	Course:     HungUp,
	TTL:        time.Second,
	ContendFor: 1.5,
	Prepare:    ready(func(Target) []Strike { return []Strike{{}} }),
}
