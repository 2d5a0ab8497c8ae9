package check

import (
	"math"
	"time"
)

// Hold is one holder inside its critical section: from the return of its
// acquire to the call of its release, or of a claim that lets go. The lock is held for longer than that
// on either side, so that two holds which overlap surely did.
type Hold struct {
	Order, Driver int64
	Instance      string
	Token         string
	Fence         uint64
	Asked         time.Duration // no later than the call of the acquire; 0: any time
	From, To      time.Duration // CLOCK_MONOTONIC
	Closed        bool          // false: nobody saw it end; To is then the latest possible
	Read          time.Duration // return of the read; 0: it did not succeed
	Knew          time.Duration // when the holder learned that the lock was no longer his; 0: never
	fromSeq       uint64
	toSeq         uint64
}

// Effect is one claim that wrote, or may have, from its call to its return.
type Effect struct {
	Order, Driver   int64
	Instance, Token string
	Fence           uint64
	From, To        time.Duration // CLOCK_MONOTONIC; To is never where nobody saw it return
	Sure            bool          // false: whether it wrote is unknown
}

// Outcome of a grab, as far as it tells about its order.
type Outcome string

// The outcomes. A grab that surely came to nothing, and says nothing of its
// order, has none.
const (
	Won     Outcome = "won"
	Taken   Outcome = "taken"   // somebody else has it
	MayHave Outcome = "unknown" // may have won
)

// Op is one grab as its order saw it, from request to answer.
type Op struct {
	Order, Driver int64
	Instance      string
	From, To      time.Duration // CLOCK_MONOTONIC; To is never where nobody saw it end
	Outcome       Outcome
}

// never is the end of what nobody saw end.
const never = time.Duration(math.MaxInt64)

// Record is what the events of some orders come to.
type Record struct {
	Holds   []Hold
	Effects []Effect
	// Ops has of each order all grabs that won or may have, and of those who
	// were told that it is taken the one who was told first: what holds for
	// him holds for all of them.
	Ops        []Op
	NearMisses int // writes that a guard or a fence refused
	Lost       int // events that are known to be missing
}
