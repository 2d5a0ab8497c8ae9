package fault

import (
	"time"

	"grablab/internal/catalog"
)

// slow makes a part of a request take longer than the TTL (F11 in docs/failure-modes.md). The
// process keeps running, so it can renew the lease or notice that it has expired.
var slow = Fault{
	Name:       catalog.Slow,
	Reach:      foreground,
	NotForeign: "only your service itself can make its work take longer: use the faults pause or hang, which are similar",
	TTL:        time.Second,
	ContendFor: 1.5,
	Prepare:    ready(func(Target) []Strike { return []Strike{{}} }),
}

// hang makes a request's work never end, although its process keeps running (F15 in
// docs/failure-modes.md).
var hang = Fault{
	Name:       catalog.Hang,
	Reach:      work,
	Course:     Never,
	TTL:        time.Second,
	ContendFor: 1.5,
	Prepare:    ready(func(Target) []Strike { return []Strike{{}} }),
}
