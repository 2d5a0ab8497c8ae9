package fault

import (
	"cmp"
	"fmt"
	"strings"

	"grablab/internal/service/control"
	"grablab/internal/tap"
)

// Role says whether the affected driver is alone, has waited for another driver, or hands its lock
// to one.
type Role string

// These are the roles of the affected driver.
const (
	// Alone means that no other driver has sent a request yet.
	Alone Role = ""
	// Waiting means that the driver has waited for another driver, which released the lock without
	// winning the order.
	Waiting Role = "waiting"
	// HandingOver means that the database refused the driver's write, so the driver passes the lock
	// on to a waiting driver.
	HandingOver Role = "handing over"
)

// A Point is the place in a request where a fault is injected. Parallel calls to several nodes
// count as one point. Package experiment injects a fault once at each Point that the fault's Reach allows.
type Point struct {
	Role Role
	control.Point
	// Background means that the request does not wait for this call, such as a renewal.
	Background bool
	// Part is the phase to which a call from a user's service probably belongs. If it is empty,
	// Phase applies.
	Part tap.Phase
	// HoldsLedger means that an open transaction of the request has written to the winners table, or
	// that the request has locked tables. No fault can then lock this table. It is set only for a
	// user's service.
	HoldsLedger bool
	// Moment is how long after the start of the request the fault is injected. It is used if the
	// request's individual calls are unknown.
	Moment string
}

// InWork reports whether the driver of a user's service is at work at this point, after its read.
func (p Point) InWork() bool { return p.Part == Work && p.After }

func (p Point) part() tap.Phase { return cmp.Or(p.Part, p.Phase) }

// Work is the phase between checking the order and writing the winner. Only requests to a user's
// service have it.
const Work tap.Phase = "work"

// String formats the point as a text such as "waiting: after acquire 2".
func (p Point) String() string {
	if p.Moment != "" {
		return p.Moment
	}
	if p.Role == Alone {
		return p.Point.String()
	}
	return string(p.Role) + ": " + p.Point.String()
}

// ParsePoint parses the text of a Point without a Moment, for the flag -at and for explain.
func ParsePoint(text string) (p Point, err error) {
	if role, rest, ok := strings.Cut(text, ": "); ok {
		if p.Role = Role(role); p.Role != Waiting && p.Role != HandingOver {
			return p, fmt.Errorf("fault: %q is not a state of the driver: use %q or %q", role, Waiting, HandingOver)
		}
		text = rest
	}
	p.Point, err = control.ParsePoint(text)
	return p, err
}

// AfterRead is the point between reading an order and the driver's work. Other phases need no such
// point, because the next call follows immediately.
var AfterRead = control.Point{Phase: tap.Read, After: true}

// A Reach defines the points at which a fault is possible, and explains why it is impossible at the
// other points.
type Reach struct {
	Meets func(Point) bool // reports whether the fault is possible at a point
	Why   string           // the reason, as part of a sentence, without a full stop
}

var (
	work       = &Reach{func(p Point) bool { return p.Point == AfterRead || p.InWork() }, "the fault can strike only during the driver's work, between its read and its write"}
	foreground = &Reach{func(p Point) bool { return !p.Background }, "the fault does not delay lease renewals"}
	replies    = &Reach{func(p Point) bool { return !p.After }, "the fault affects a reply, so it must strike before the call is sent"}
	grants     = &Reach{
		func(p Point) bool {
			return !p.After && p.part() != tap.Read && p.part() != tap.Claim && p.part() != Work
		},
		"the fault affects a lock server's reply, so it must strike before the call is sent",
	}
	beforeLedger = &Reach{
		func(p Point) bool { return !p.HoldsLedger },
		"the fault must lock the table, which is impossible while the driver's transaction is open",
	}
	acquires = &Reach{
		func(p Point) bool { return p.part() == tap.Acquire && p.Role != HandingOver },
		"the fault affects only a client that is still waiting for the lock",
	}
	leaves = &Reach{
		func(p Point) bool { return p.Role == Alone && p.part() != tap.Claim && !p.Background },
		"the fault can refuse a driver's write only if no other driver competes with it",
	}
)
