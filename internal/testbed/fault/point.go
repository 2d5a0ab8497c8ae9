package fault

import (
	"cmp"
	"fmt"
	"strings"

	"grablab/internal/service/control"
	"grablab/internal/tap"
)

// Role is what a driver does, and where its order stands, when a fault strikes it.
type Role string

// The roles.
const (
	// Alone: no other driver has come yet.
	Alone Role = ""
	// Waiting: it has come while another driver had the lock, which has since
	// released it without a write.
	Waiting Role = "waiting"
	// HandingOver: its claim was refused, and it releases to a driver that waits.
	HandingOver Role = "handing over"
)

// Point is a place in a grab at which a fault strikes: the driver is in that role,
// and held there. Calls that a grab makes at once, to the nodes of a quorum, are
// one point.
type Point struct {
	Role Role
	control.Point
	// Background: the grab does not wait for the call, a renewal.
	Background bool
	// Part is the phase to which a call of a service seems to belong, which itself is known
	// by its name on the wire; "": the point's own.
	Part tap.Phase
	// Moment is a time since the grab was sent, where its calls are not known; "": it is a point.
	Moment string
}

// part is the phase of the grab in which the point lies.
func (p Point) part() tap.Phase { return cmp.Or(p.Part, p.Phase) }

// Work: between the read and the claim, in a part of its own: only a service has that.
const Work tap.Phase = "work"

// String is "before claim 1", "waiting: after acquire 2".
func (p Point) String() string {
	if p.Moment != "" {
		return p.Moment
	}
	if p.Role == Alone {
		return p.Point.String()
	}
	return string(p.Role) + ": " + p.Point.String()
}

// ParsePoint reads what String writes.
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

// AfterRead is the end of a phase that is a point of its own: the work comes next.
// What follows the end of any other phase is the next call.
var AfterRead = control.Point{Phase: tap.Read, After: true}

// Reach says which points a fault can meet, and why no others.
type Reach struct {
	Meets func(Point) bool
	Why   string // in a sentence
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
