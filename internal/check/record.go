package check

import (
	"cmp"
	"math"
	"time"

	"grablab/internal/history"
)

// Span is a period of time in a driver's attempt to grab an order.
type Span struct {
	Order, Driver   int64
	Instance, Token string        // Token is the unique name of the lease
	Fence           uint64        // fencing token; 0 if there is none
	From, To        time.Duration // by CLOCK_MONOTONIC; To is endUnseen if no end was recorded
}

// endUnseen is the end of a period whose real end was not recorded.
const endUnseen = time.Duration(math.MaxInt64)

func spanOf(e history.Event, from, to time.Duration) Span {
	return Span{Order: e.Order, Driver: e.Driver, Instance: e.Instance, Token: e.Token, Fence: e.Fence, From: from, To: to}
}

// compare is for sorting spans by order ID, then by start time, and then by driver.
func (s Span) compare(t Span) int {
	return cmp.Or(cmp.Compare(s.Order, t.Order), cmp.Compare(s.From, t.From), cmp.Compare(s.Driver, t.Driver))
}

// Hold is a period during which a client certainly held the lock. It begins when acquire returns
// and ends when release is called.
type Hold struct {
	Span
	AcquireCalled time.Duration // the time of the acquire call or an earlier time; 0 if unknown
	Closed        bool          // whether its end was recorded; otherwise, To is the latest possible end
	ReadAt        time.Duration // when the read returned; 0 if the read did not succeed
	LossKnownAt   time.Duration // when the holder learned that it had lost the lock; 0 if it never did
}

// Effect is a write that happened or may have happened, with its time. From is 0 if the call is
// missing from the record.
type Effect struct {
	Span
	Sure bool // whether the write certainly happened
}

// Outcome is the effect of a grab on its order, as far as it is known.
type Outcome string

// These are the possible outcomes. A grab that shows nothing about the order is not recorded.
const (
	Won     Outcome = "won"
	Taken   Outcome = "taken"   // another driver has the order
	MayHave Outcome = "unknown" // the driver may have won
)

// Op is one grab, from its request to its answer.
type Op struct {
	Span
	Outcome Outcome
}

// Record summarizes the events of a set of orders. A [Scan] builds it.
type Record struct {
	Holds   []Hold
	Effects []Effect
	// Ops contains all grabs that may have won, and the first grab that found the order taken.
	Ops           []Op
	NearMisses    map[int64]int // the number of stale or second writes that a guard or a fencing token refused, by order
	MissingEvents int           // the number of events that are known to be missing or incomplete
}

// CountNearMisses returns how many stale or second writes the database refused, for all orders
// together.
func (r *Record) CountNearMisses() (n int) {
	for _, of := range r.NearMisses {
		n += of
	}
	return n
}
