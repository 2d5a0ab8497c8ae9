// Package schedule reads and writes schedules as text. A schedule says which actors take part
// in a grab of one order, and what happens, one step per line, in the order of events.
//
// Parse reads a text, and Schedule.String writes it. The explorer finds and replays
// schedules, package replay forces them on real servers, and people read, compare and edit
// them.
//
//	strategy setnx
//	guard naive
//	actors A@1 B@2
//	nodes redis
//	ttl 3s
//	property one-winner
//
//	A begins
//	A acquire 1 redis
//	time to lease end
//
// A call is named by its actor, the phase of the grab, its number, and the server. It is
// numbered among the actor's calls of that phase to that server. The same step can therefore
// be found in the run of another strategy. Blank lines and the text after a "#" are ignored.
// "B@2/A" is an actor that makes a second attempt for the driver of A.
package schedule

import (
	"fmt"
	"time"
)

// Schedule is one sequence of events.
type Schedule struct {
	Strategy string
	Guard    string // if empty, the strategy's own guard
	OnLost   string // if empty, abort
	Actors   []Actor
	Nodes    []string // the lock servers; the database is always there, and is named db
	TTL      time.Duration
	Work     time.Duration // how long an actor works between its read and its claim
	Wait     time.Duration // how long an acquire waits; 0 tries once
	Stock    int           // the units of the order; 0 means 1
	Property string        // the property that the schedule breaks, or empty
	Mode     string        // the failure mode that the schedule shows, such as "F11", or empty
	Steps    []Step
}

// Actor is one attempt by one driver to grab the order, through one instance.
type Actor struct {
	Name     string // one capital letter, such as A
	Instance int    // the number of the instance, from 1
	As       string // an earlier actor whose driver tries again; if empty, the actor has its own driver
}

// These are the targets of calls: the database, and any other server.
const (
	DB    = "db"
	Locks = "locks"
)

// Kind says what happens in a step: for example, a call is made or a server fails.
type Kind int

// These are the kinds of steps.
const (
	Begins         Kind = iota + 1 // the actor's request arrives at its instance
	Call                           // a call is sent, applied and answered
	ReplyLost                      // a call is sent and applied, but its caller gets an error
	SentTwice                      // a call is sent and applied, its reply is lost, and the client sends it again by itself
	ReplyLate                      // a call is sent and applied, but its reply is late
	Hears                          // the late reply arrives
	GivenUp                        // the caller of a call gets an error while the call is still on its way
	ArrivesLate                    // a call that its caller has given up is applied after all
	MessageLost                    // a call is sent, applied and answered, but the messages that it publishes reach no subscriber
	MessageTwice                   // a call is sent, applied and answered, but the messages that it publishes arrive twice
	MessageLate                    // a call is sent, applied and answered, but the messages that it publishes are delayed
	Paused                         // the actor's process stops, as by SIGSTOP
	Resumes                        // the paused process continues
	Hangs                          // the actor's work does not return; its process and its renewals continue
	Dies                           // the actor's process dies and sends nothing more
	Cancelled                      // the client that sent the actor's request disconnects
	InstanceDies                   // every actor on the instance dies
	ClientClock                    // the wall clock of an instance jumps by a duration
	Passes                         // a duration of time passes
	NextTimer                      // time passes until an actor has something to do
	LeaseEnd                       // time passes until the next lease has just expired
	Restarts                       // a server restarts and loses its data; the database loses only its sessions
	FailsOver                      // a server's replica takes over without any of the data since the schedule began
	Evicts                         // a server that is out of memory drops all keys
	Down                           // a server cannot be reached
	Up                             // a server can be reached again
	MessagesArrive                 // the delayed messages of a server reach its subscribers
	CutOff                         // an instance cannot reach the database, or all other servers ("locks")
	Reaches                        // an instance can reach these servers again
	NodeClock                      // the clock of a server jumps by a duration
)

// Step is one line of a schedule. Its kind determines which of the other fields are used.
type Step struct {
	Kind     Kind
	Actor    string
	Phase    string // "acquire", "read", "claim", "release", "renew"
	N        int    // the Nth call of the actor in this phase to this target, from 1
	Target   string // "redis", "redlock-2", "db"
	Instance int
	Duration time.Duration
}

// IsCall reports whether a step of this kind is about one call or one message.
func (k Kind) IsCall() bool { return k >= Call && k <= MessageLate }

// CallName returns the name of the call that the step is about, such as "acquire 1 redis". It does
// not contain the actor.
func (s Step) CallName() string { return fmt.Sprintf("%s %d %s", s.Phase, s.N, s.Target) }

// InstanceOf returns the instance of an actor, or 0 if there is no such actor.
func (s Schedule) InstanceOf(actor string) int {
	for _, a := range s.Actors {
		if a.Name == actor {
			return a.Instance
		}
	}
	return 0
}
