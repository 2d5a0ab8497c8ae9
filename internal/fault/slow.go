package fault

import (
	"time"

	"grablab/internal/grab/lock"
)

// slow is work that lasts longer than the lease (F11). The process lives, and
// may renew, or learn that it has lost.
var slow = Fault{
	Name:     lock.Slow,
	About:    "the work lasts longer than the lease",
	Aim:      afterRead,
	TTL:      time.Second,
	Patience: 1.5,
	Prepare:  staged(func(Target) []Act { return []Act{{}} }),
}
