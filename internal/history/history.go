// Package history records the events of a run. All processes on the host use the same clock, so
// that the times of their events can be compared.
package history

import "time"

// ProbeDriver is the lowest id of a driver that only makes test grabs. The drivers of the load have
// lower ids.
const ProbeDriver = 1_000_000_000

// Kind says whether an operation has just started, or how it ended. The values come from Jepsen.
type Kind string

// These are the kinds of events. After Fail, the operation had no effect. After Info, it may have
// had one.
const (
	Invoke Kind = "invoke"
	OK     Kind = "ok"
	Fail   Kind = "fail"
	Info   Kind = "info"
)

// These are the operations that events describe.
const (
	Grab    = "grab"    // a whole grab, from its request to its answer
	Acquire = "acquire" // acquiring the lock; the OK event begins the hold
	Renew   = "renew"   // renewing the lease in the background; only confirmed renewals are recorded
	Read    = "read"    // reading the order
	Claim   = "claim"   // writing the winner
	Release = "release" // releasing the lock; the Invoke event ends the hold
	Lost    = "lost"    // the holder learns that its lease is lost
	Cell    = "cell"    // the beginning of a cell in the file of a run; a cell is one strategy under one fault, which the note names
	Strike  = "strike"  // a fault stops or hits a grab, and the note says at which point; OK means that the grab continues
)

// Code tells programs why an operation failed, as opposed to Note, which is for people. For a
// successful read, Code says whether the order was open or taken.
type Code string

// These are the codes that programs need to judge events. Reads in old files have no code.
const (
	Open      Code = "open"       // the order was open at the time of the read
	Busy      Code = "busy"       // the driver did not get the lock within its waiting time
	Taken     Code = "taken"      // another driver has the order
	Stale     Code = "stale"      // the database has seen a newer fencing token
	LeaseLost Code = "lease_lost" // the driver no longer held its lock
)

// Endless is the value of Lease for a lock that never expires.
const Endless time.Duration = -1

// Event is one recorded fact.
type Event struct {
	Seq      uint64        `json:"seq"`  // numbers the events of an instance; a gap means that an event was lost
	T        time.Duration `json:"t_ns"` // the time on the host's CLOCK_MONOTONIC
	Instance string        `json:"instance"`
	// Incarnation counts the starts of the instance. It is needed because Seq begins at 1 after
	// each start.
	Incarnation int    `json:"incarnation,omitempty"`
	Kind        Kind   `json:"kind"`
	Op          string `json:"op"`
	Order       int64  `json:"order"`
	Driver      int64  `json:"driver"`
	Strategy    string `json:"strategy,omitempty"`
	Token       string `json:"token,omitempty"` // the token of the attempt
	Fence       uint64 `json:"fence,omitempty"`
	Code        Code   `json:"code,omitempty"`
	// Lease is how long the lease will last without renewal, as far as the holder knows. It is
	// Endless if the lease never expires, and 0 if the duration is unknown.
	Lease time.Duration `json:"lease_ns,omitempty"`
	Note  string        `json:"note,omitempty"`
}

// Recorder records events, and sets their Seq, T and Instance. It is safe for concurrent use.
type Recorder interface {
	Record(Event)
}

// Discard is a Recorder that records nothing.
var Discard Recorder = discard{}

type discard struct{}

func (discard) Record(Event) {}
