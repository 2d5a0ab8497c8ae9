// Package history is the record of what happened: one Event a fact, on the
// clock that all processes of a host share.
package history

import (
	"sync"
	"time"
)

// ProbeDriver is the first driver that belongs to no load: a harness looks by those
// whether an order can still be grabbed.
const ProbeDriver = 1_000_000_000

// Kind says how far an event's operation had come, in Jepsen's terms.
type Kind string

// The kinds. A Fail surely had no effect; an Info may have had one.
const (
	Invoke Kind = "invoke"
	OK     Kind = "ok"
	Fail   Kind = "fail"
	Info   Kind = "info"
)

// What events tell of.
const (
	Grab    = "grab"    // the whole, from request to answer
	Acquire = "acquire" // of the lock; its ok opens the hold
	Renew   = "renew"   // of the lease, by its background work; only what was confirmed
	Read    = "read"
	Claim   = "claim"   // the write of the winner
	Release = "release" // its invoke closes the hold
	Lost    = "lost"    // the holder learns that its lease is gone
	Cell    = "cell"    // in the file of a run: the events of one follow; its fault is the note
	Strike  = "strike"  // a fault holds or hits a grab; the note says where. Its ok: the grab goes on
)

// Code says what came of an operation that did not succeed, for programs; the
// note says it for people. It is the reason that a client is told, or the outcome.
type Code string

// The codes that a judge of events looks at. Every failure has some code: an event
// of one that has none was recorded before there were codes.
const (
	Busy      Code = "busy"       // the lock was not obtained within the wait
	Taken     Code = "taken"      // another driver has the order
	Stale     Code = "stale"      // the database has seen a newer fencing token
	LeaseLost Code = "lease_lost" // the lock was no longer the holder's
)

// Endless is the Lease of a lock that does not end by itself.
const Endless time.Duration = -1

// Event is one fact.
type Event struct {
	Seq      uint64        `json:"seq"`  // per instance, without gaps: a gap is a lost event
	T        time.Duration `json:"t_ns"` // CLOCK_MONOTONIC of the host
	Instance string        `json:"instance"`
	// Incarnation counts the starts of an instance that appends to one file;
	// each begins with a Seq of 1.
	Incarnation int    `json:"incarnation,omitempty"`
	Kind        Kind   `json:"kind"`
	Op          string `json:"op"`
	Order       int64  `json:"order"`
	Driver      int64  `json:"driver"`
	Strategy    string `json:"strategy,omitempty"`
	Token       string `json:"token,omitempty"` // of the attempt
	Fence       uint64 `json:"fence,omitempty"`
	Code        Code   `json:"code,omitempty"`
	// Lease is for how long the lease lives from then on without renewal, as its holder
	// counts; Endless: it does not end by itself; 0: not known.
	Lease time.Duration `json:"lease_ns,omitempty"`
	Note  string        `json:"note,omitempty"`
}

// Recorder takes events. It fills in Seq, T and Instance, and is safe for
// concurrent use.
type Recorder interface {
	Record(Event)
}

// Discard records nothing.
var Discard Recorder = discard{}

type discard struct{}

func (discard) Record(Event) {}

// Memory keeps events in memory, on a clock of the caller's.
type Memory struct {
	Instance string
	Now      func() time.Duration

	mu     sync.Mutex
	events []Event
}

// Record appends e.
func (m *Memory) Record(e Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e.Seq, e.T, e.Instance = uint64(len(m.events)+1), m.Now(), m.Instance
	m.events = append(m.events, e)
}

// Events returns a copy of what was recorded so far.
func (m *Memory) Events() []Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]Event(nil), m.events...)
}
