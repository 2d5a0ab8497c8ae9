package fault

import (
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
)

// lateRelease makes a driver release a lock after the lease has expired, while a second grab of the
// same driver (a double tap) holds the lock. The release must not let a third driver in (F5, F6,
// F35, F36). The first attempt has written nothing, because its claim is refused. In a foreign
// service, its connection to the database is broken instead.
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

// cancel makes a client give up while its grab acquires the lock. The instance learns of this while
// one of its calls is held, and must leave no lock behind (F14, F22). A foreign service may also
// finish the grab.
var cancel = Fault{
	Name:       catalog.Cancel,
	Hits:       locks,
	Reach:      acquires,
	Course:     HungUp,
	TTL:        time.Second,
	ContendFor: 1.5,
	Prepare:    ready(func(Target) []Strike { return []Strike{{}} }),
}
