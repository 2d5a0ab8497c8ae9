package check

import (
	"cmp"
	"math"
	"time"

	"grablab/internal/history"
)

// Span is something that one driver's attempt on an order did, from one instant
// to another.
type Span struct {
	Order, Driver   int64
	Instance, Token string
	Fence           uint64
	From, To        time.Duration // CLOCK_MONOTONIC; To is never where no end was seen
}

// never is the end of what was not seen to end.
const never = time.Duration(math.MaxInt64)

// spanOf is a span of the attempt that e belongs to.
func spanOf(e history.Event, from, to time.Duration) Span {
	return Span{Order: e.Order, Driver: e.Driver, Instance: e.Instance, Token: e.Token, Fence: e.Fence, From: from, To: to}
}

// compare sorts spans by order and beginning.
func (s Span) compare(t Span) int {
	return cmp.Or(cmp.Compare(s.Order, t.Order), cmp.Compare(s.From, t.From), cmp.Compare(s.Driver, t.Driver))
}

// Hold is one holder inside its critical section: from the return of its
// acquire to the call of its release, or of a claim that lets go. The lock is
// held for longer than that on either side, so that two holds which overlap
// surely did.
type Hold struct {
	Span
	Asked  time.Duration // no later than the call of the acquire; 0: any time
	Closed bool          // false: its end was not seen; To is then the latest possible
	Read   time.Duration // return of the read; 0: it did not succeed
	Knew   time.Duration // when the holder learned that it had lost the lock; 0: never
}

// Effect is one claim that wrote, or may have, from its call to its return.
type Effect struct {
	Span
	Sure bool // false: whether it wrote is unknown
}

// Outcome of a grab, as far as it tells about its order.
type Outcome string

// The outcomes. A grab that surely came to nothing, and says nothing of its
// order, has none.
const (
	Won     Outcome = "won"
	Taken   Outcome = "taken"   // another driver has it
	MayHave Outcome = "unknown" // may have won
)

// Op is one grab as its order saw it, from request to answer.
type Op struct {
	Span
	Outcome Outcome
}

// Record is what the events of some orders come to.
type Record struct {
	Holds   []Hold
	Effects []Effect
	// Ops has of each order all grabs that won or may have, and of the drivers
	// who were told that it is taken the first one told: what holds for that one
	// holds for all of them.
	Ops           []Op
	NearMisses    map[int64]int // by order: stale or second writes that a guard or a fence refused
	MissingEvents int           // events that are known to be missing, or not to say enough
}

// CountNearMisses counts those of all orders.
func (r *Record) CountNearMisses() (n int) {
	for _, of := range r.NearMisses {
		n += of
	}
	return n
}
