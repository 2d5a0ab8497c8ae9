package fault

import (
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
)

// lateRelease makes a driver release a lock whose lease has expired, while the same driver holds
// it again through a double tap. A third driver must not get in (F5, F6, F35, F36). The first
// attempt has written nothing, because its claim is refused. A service of others loses its
// connection to the database instead.
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

// cancel makes a client give up during its acquire. The instance learns about it while a call is
// held, and must leave no lock behind (F14, F22). A service of others may also finish the grab.
var cancel = Fault{
	Name:       catalog.Cancel,
	Hits:       locks,
	Reach:      acquires,
	Course:     HungUp,
	TTL:        time.Second,
	ContendFor: 1.5,
	Prepare:    ready(func(Target) []Strike { return []Strike{{}} }),
}
