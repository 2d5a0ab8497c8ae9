package fault

import (
	"cmp"
	"fmt"
	"strings"

	"grablab/internal/service/control"
	"grablab/internal/tap"
)

// Role describes what a driver is doing, and in which state its order is, when a fault is injected.
type Role string

// The roles.
const (
	// Alone means that no other driver has arrived yet.
	Alone Role = ""
	// Waiting means that the driver arrived while another driver held the lock, which has
	// since released it without a write.
	Waiting Role = "waiting"
	// HandingOver means that the driver's claim was refused, and that it is releasing the lock to a
	// waiting driver.
	HandingOver Role = "handing over"
)

// A Point is a place in a grab at which a fault is injected, while a driver with the given role is
// held there. Parallel calls of a grab to the nodes of a quorum count as one point.
type Point struct {
	Role Role
	control.Point
	// Background means that the grab does not wait for the call. For example, this is true of a
	// renewal.
	Background bool
	// Part is the phase to which a call of a service seems to belong, because the name of such a
	// call on the wire does not tell. If Part is empty, the phase of the point itself counts.
	Part tap.Phase
	// Moment names a time after the grab was sent. It replaces the point if the calls of the grab
	// are unknown, and is otherwise empty.
	Moment string
}

// part returns the phase of the grab to which the point belongs.
func (p Point) part() tap.Phase { return cmp.Or(p.Part, p.Phase) }

// Work is the phase between the read and the claim. Only grabs of a service have it as a separate
// phase.
const Work tap.Phase = "work"

// String returns text such as "before claim 1" or "waiting: after acquire 2".
func (p Point) String() string {
	if p.Moment != "" {
		return p.Moment
	}
	if p.Role == Alone {
		return p.Point.String()
	}
	return string(p.Role) + ": " + p.Point.String()
}

// ParsePoint parses a text that Point.String returned.
func ParsePoint(text string) (p Point, err error) {
	if role, rest, ok := strings.Cut(text, ": "); ok {
		if p.Role = Role(role); p.Role != Waiting && p.Role != HandingOver {
			return p, fmt.Errorf("fault: no driver is %q when a fault strikes it; one may be %q or %q", role, Waiting, HandingOver)
		}
		text = rest
	}
	p.Point, err = control.ParsePoint(text)
	return p, err
}

// AfterRead is the end of the read. It is a separate point because the work follows it.
// After any other phase, the next call follows directly.
var AfterRead = control.Point{Phase: tap.Read, After: true}

// A Reach says at which points a fault can be injected, and why it cannot be injected elsewhere.
type Reach struct {
	Meets func(Point) bool
	Why   string // part of a sentence, without a full stop
}

// The reaches.
var (
	work       = &Reach{func(p Point) bool { return p.Point == AfterRead || p.Part == Work && p.After }, "the work lies between the read and the claim"}
	foreground = &Reach{func(p Point) bool { return !p.Background }, "the renewals of the holder come in time"}
	replies    = &Reach{func(p Point) bool { return !p.After }, "it strikes the reply to a call that is yet to be sent"}
	grants     = &Reach{
		func(p Point) bool {
			return !p.After && p.part() != tap.Read && p.part() != tap.Claim && p.part() != Work
		},
		"it strikes the reply to a call to the lock's servers that is yet to be sent",
	}
	acquires = &Reach{
		func(p Point) bool { return p.part() == tap.Acquire && p.Role != HandingOver },
		"the client gives up while it acquires",
	}
	leaves = &Reach{
		func(p Point) bool { return p.Role == Alone && p.part() != tap.Claim && !p.Background },
		"the first driver, whose claim is refused, comes alone",
	}
)
