package fault

import (
	"time"

	"grablab/internal/catalog"
)

// slow makes the work or a call of a grab last longer than the lease (F11). The process keeps
// running, so it can renew the lease or notice its loss.
var slow = Fault{
	Name:       catalog.Slow,
	Reach:      foreground,
	NotForeign: "only the service itself could make its work last longer; see pause, and hang",
	TTL:        time.Second,
	ContendFor: 1.5,
	Prepare:    ready(func(Target) []Strike { return []Strike{{}} }),
}

// hang makes the work of a grab last forever, while its process keeps running (F15).
var hang = Fault{
	Name:       catalog.Hang,
	Reach:      work,
	Course:     Never,
	TTL:        time.Second,
	ContendFor: 1.5,
	Prepare:    ready(func(Target) []Strike { return []Strike{{}} }),
}
