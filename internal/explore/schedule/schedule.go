// Package schedule is the text of a schedule: which actors take part in a grab of
// one order, and what happens, one step a line, in the order in which it happens.
// Parse reads a text, Schedule.String writes it. The explorer finds schedules and
// runs them again, package replay forces them on real servers, and people read,
// compare and edit them.
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
// A call is named by its actor, the phase of the grab, its number among the
// actor's calls of that phase to that server, and the server: so the same step
// can be found in the run of another strategy. Blank lines, and what follows a
// "#", mean nothing. "B@2/A" is an actor that tries once more for the driver of A.
package schedule

import (
	"fmt"
	"time"
)

// Schedule is one course of events.
type Schedule struct {
	Strategy string
	Guard    string // "": the strategy's own
	OnLost   string // "": abort
	Actors   []Actor
	Nodes    []string // the lock servers, without the database, which is always there and named db
	TTL      time.Duration
	Work     time.Duration // between the read and the claim
	Wait     time.Duration // how long an acquire waits; 0 tries once
	Stock    int           // units of the order; 0: 1
	Property string        // the one that is violated; "": none is
	Mode     string        // the failure mode that shows, "F11"; "": none is named
	Steps    []Step
}

// Actor is one grab of a driver, by way of an instance.
type Actor struct {
	Name     string // a capital letter
	Instance int    // from 1
	As       string // the actor before it whose driver tries once more; "": a driver of its own
}

// DB is the target of the calls that go to the database, Locks in a CutOff all servers
// but that.
const (
	DB    = "db"
	Locks = "locks"
)

// Kind is what a step does.
type Kind int

// The kinds of steps.
const (
	Begins         Kind = iota + 1 // the actor's request arrives at its instance
	Call                           // a call is sent, applied and answered
	ReplyLost                      // a call is sent and applied; its caller is told of an error
	ReplyLate                      // a call is sent and applied; its caller hears later
	Hears                          // the late reply arrives
	GivenUp                        // a call's caller is told of an error while it is still on its way
	ArrivesLate                    // a call that its caller has given up is applied after all
	MessageLost                    // a call is sent, applied and answered; the messages that it publishes reach no subscriber
	MessageTwice                   // a call is sent, applied and answered; the messages that it publishes come twice
	MessageLate                    // a call is sent, applied and answered; the messages that it publishes are held
	Paused                         // the actor's process stops, as by SIGSTOP
	Resumes                        // and goes on
	Hangs                          // the actor's work does not return; its process goes on, and so do its renewals
	Dies                           // nothing of the actor is sent any more
	Cancelled                      // the actor's client hangs up
	InstanceDies                   // every actor on the instance dies
	ClientClock                    // the wall clock of an instance is off by so much
	Passes                         // so much time passes
	NextTimer                      // time passes until an actor has something to do
	LeaseEnd                       // time passes until the next lease has just run out
	Restarts                       // a server comes back with nothing of what it knew; the database without its sessions
	FailsOver                      // a server's replica takes over, which has heard of nothing since the schedule began
	Evicts                         // a server that is out of memory drops all keys
	Down                           // a server cannot be reached
	Up                             // and can again
	MessagesArrive                 // the messages that a server has held reach its subscribers
	CutOff                         // an instance\'s calls to the database, or to all "locks", do not get through
	Reaches                        // and do again
	NodeClock                      // the clock of a server jumps by so much
)

// Step is one line. Which fields count depends on the kind.
type Step struct {
	Kind     Kind
	Actor    string
	Phase    string // "acquire", "read", "claim", "release", "renew"
	N        int    // the Nth call of the actor in this phase to this target, from 1
	Target   string // "redis", "redlock-2", "db"
	Instance int
	Duration time.Duration
}

// IsCall says whether the step is about one call.
func (k Kind) IsCall() bool { return k >= Call && k <= MessageLate }

// CallName is the name of the call that the step is about, without its actor:
// "acquire 1 redis".
func (s Step) CallName() string { return fmt.Sprintf("%s %d %s", s.Phase, s.N, s.Target) }

// InstanceOf is the instance of the named actor; 0: there is no such actor.
func (s Schedule) InstanceOf(actor string) int {
	for _, a := range s.Actors {
		if a.Name == actor {
			return a.Instance
		}
	}
	return 0
}
