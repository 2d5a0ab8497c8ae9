package fault

import (
	"cmp"
	"fmt"
	"strings"

	"grablab/internal/service/control"
	"grablab/internal/tap"
)

// Role describes the activity of a driver and the state of its order when a fault strikes.
type Role string

// The roles.
const (
	// Alone means that no other driver has arrived yet.
	Alone Role = ""
	// Waiting means that the driver arrived while another driver held the lock, which has
	// since released it without a write.
	Waiting Role = "waiting"
	// HandingOver means that the driver's claim was refused, and that it releases to a
	// waiting driver.
	HandingOver Role = "handing over"
)

// A Point is a place in a grab at which a fault strikes. A driver with that role is held
// there. Parallel calls of a grab to the nodes of a quorum are one point.
type Point struct {
	Role Role
	control.Point
	// Background means that the grab does not wait for the call, such as a renewal.
	Background bool
	// Part is the phase to which a call of a service seems to belong. The call itself is
	// known by its name on the wire. If Part is empty, the phase of the point counts.
	Part tap.Phase
	// Moment is a time since the grab was sent, used if the calls of the grab are unknown.
	// It is empty for a point.
	Moment string
}

// part returns the phase of the grab that contains the point.
func (p Point) part() tap.Phase { return cmp.Or(p.Part, p.Phase) }

// Work is the phase between the read and the claim. Only a service has it as a separate
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

// ParsePoint parses the output of String.
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

// A Reach says which points a fault can strike, and why it cannot strike the others.
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
