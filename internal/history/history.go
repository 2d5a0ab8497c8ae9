// Package history records the events of a run. All processes on the host use the same clock, so
// their event times are comparable.
package history

import (
	"time"

	"golang.org/x/sys/unix"
)

// ProbeDriver is the lowest ID of drivers that only make test grabs. The load uses lower driver
// IDs.
const ProbeDriver = 1_000_000_000

// Kind says whether an operation has just started, or how it ended. The values come from Jepsen.
type Kind string

// These are the kinds of events. Fail means that the operation had no effect. Info means that it
// may have had one.
const (
	Invoke Kind = "invoke"
	OK     Kind = "ok"
	Fail   Kind = "fail"
	Info   Kind = "info"
)

// These are the operations that events describe.
const (
	Grab    = "grab"    // a whole grab, from its request to its answer
	Acquire = "acquire" // acquire the lock; the OK event begins the hold
	Renew   = "renew"   // renew the lease in the background; only confirmed renewals are recorded
	Read    = "read"    // read the order
	Claim   = "claim"   // write the winner
	Release = "release" // release the lock; the Invoke event ends the hold
	Lost    = "lost"    // the holder learns that its lease is lost
	Cell    = "cell"    // a cell begins in the file of a run; Strategy names its strategy, and Note its fault
	Strike  = "strike"  // a fault strikes a grab at the point in the note; OK means that the grab continues
)

// Code tells programs why an operation failed, whereas Note is for people. After a successful read,
// Code says whether the order was open or taken.
type Code string

// These are the codes that programs need to judge events.
const (
	Open      Code = "open"       // the order was open at the time of the read
	Busy      Code = "busy"       // the driver did not get the lock within its wait time
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
	// Incarnation counts the instance's starts. It is needed because Seq restarts at 1 each time.
	Incarnation int    `json:"incarnation,omitempty"`
	Kind        Kind   `json:"kind"`
	Op          string `json:"op"`
	Order       int64  `json:"order"`
	Driver      int64  `json:"driver"`
	Strategy    string `json:"strategy,omitempty"`
	Token       string `json:"token,omitempty"` // the attempt's token
	Fence       uint64 `json:"fence,omitempty"`
	Code        Code   `json:"code,omitempty"`
	// Lease is how long the lease lasts without renewal, as far as the holder knows: Endless if it
	// never expires, 0 if unknown.
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

// Clock returns the time on CLOCK_MONOTONIC, the clock that all processes on the host share. Go's own
// monotonic clock begins at zero in each process.
func Clock() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic("history: CLOCK_MONOTONIC: " + err.Error()) // cannot happen, because every supported system has this clock
	}
	return time.Duration(ts.Nano())
}
