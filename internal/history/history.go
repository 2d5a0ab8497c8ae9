// Package history records what happened in a run. Each Event has a time from a clock that all
// processes of the host share.
package history

import "time"

// ProbeDriver is the first driver id for test grabs. No load uses these ids.
const ProbeDriver = 1_000_000_000

// Kind says how far an operation has come, as in Jepsen.
type Kind string

// The kinds of events. An operation that ends with Fail had no effect. One that ends with Info may
// have had an effect.
const (
	Invoke Kind = "invoke"
	OK     Kind = "ok"
	Fail   Kind = "fail"
	Info   Kind = "info"
)

// The operations of events.
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

// Code tells programs why an operation failed, while the note is for people. For a read that
// succeeded, it says what was read: Open or Taken.
type Code string

// Codes that are needed to judge events. In old files, reads have no code.
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
	T        time.Duration `json:"t_ns"` // CLOCK_MONOTONIC of the host
	Instance string        `json:"instance"`
	// Incarnation counts the starts of an instance. Each begins with a Seq of 1.
	Incarnation int    `json:"incarnation,omitempty"`
	Kind        Kind   `json:"kind"`
	Op          string `json:"op"`
	Order       int64  `json:"order"`
	Driver      int64  `json:"driver"`
	Strategy    string `json:"strategy,omitempty"`
	Token       string `json:"token,omitempty"` // the token of the attempt
	Fence       uint64 `json:"fence,omitempty"`
	Code        Code   `json:"code,omitempty"`
	// Lease is how long the lease lasts without renewal, according to its holder. It is Endless if
	// it never expires, and 0 if unknown.
	Lease time.Duration `json:"lease_ns,omitempty"`
	Note  string        `json:"note,omitempty"`
}

// Recorder takes events. It fills in Seq, T and Instance. It is safe for concurrent use.
type Recorder interface {
	Record(Event)
}

// Discard records nothing.
var Discard Recorder = discard{}

type discard struct{}

func (discard) Record(Event) {}
