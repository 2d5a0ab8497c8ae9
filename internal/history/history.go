// Package history records the events of a run. Their times come from a clock that is the same in all
// processes on the host.
package history

import "time"

// ProbeDriver is the id of the first driver for test grabs. No load uses this id or a higher one.
const ProbeDriver = 1_000_000_000

// Kind says whether an operation has started or how it ended, as in Jepsen.
type Kind string

// These are the kinds of events. Fail means that an operation had no effect. Info means that the
// operation may have had an effect.
const (
	Invoke Kind = "invoke"
	OK     Kind = "ok"
	Fail   Kind = "fail"
	Info   Kind = "info"
)

// These are the operations to which an event can belong.
const (
	Grab    = "grab"    // a whole grab, from request to answer
	Acquire = "acquire" // the acquire of the lock; its OK begins the hold
	Renew   = "renew"   // a renewal of the lease in the background; only confirmed renewals are recorded
	Read    = "read"    // the read of the order
	Claim   = "claim"   // the write of the winner
	Release = "release" // the release of the lock; its Invoke ends the hold
	Lost    = "lost"    // the holder learns that it has lost its lease
	Cell    = "cell"    // the start of a cell in the file of a run; the note names the fault of the cell
	Strike  = "strike"  // a fault stops or hits a grab, and the note says where; OK means that the grab continues
)

// Code tells programs why an operation failed. Note tells people. For a successful read, Code says
// whether the order was open or taken.
type Code string

// These codes are needed to judge events. In old files, reads have no code.
const (
	Open      Code = "open"       // the order was open when the database read it
	Busy      Code = "busy"       // the lock was not obtained within the wait
	Taken     Code = "taken"      // another driver has the order
	Stale     Code = "stale"      // the database has seen a newer fencing token
	LeaseLost Code = "lease_lost" // the driver no longer held the lock
)

// Endless is the Lease of a lock that never expires.
const Endless time.Duration = -1

// Event is one fact.
type Event struct {
	Seq      uint64        `json:"seq"`  // counts the events of an instance; a gap means that an event was lost
	T        time.Duration `json:"t_ns"` // time on the host's CLOCK_MONOTONIC
	Instance string        `json:"instance"`
	// Incarnation counts the starts of an instance. Seq begins at 1 after each start.
	Incarnation int    `json:"incarnation,omitempty"`
	Kind        Kind   `json:"kind"`
	Op          string `json:"op"`
	Order       int64  `json:"order"`
	Driver      int64  `json:"driver"`
	Strategy    string `json:"strategy,omitempty"`
	Token       string `json:"token,omitempty"` // the token of the attempt
	Fence       uint64 `json:"fence,omitempty"`
	Code        Code   `json:"code,omitempty"`
	// Lease is how long the holder believes that its lease lasts without renewal. It is Endless if
	// the lease never expires, and 0 if that is unknown.
	Lease time.Duration `json:"lease_ns,omitempty"`
	Note  string        `json:"note,omitempty"`
}

// Recorder records events. It sets Seq, T and Instance. It is safe for concurrent use.
type Recorder interface {
	Record(Event)
}

// Discard records nothing.
var Discard Recorder = discard{}

type discard struct{}

func (discard) Record(Event) {}
