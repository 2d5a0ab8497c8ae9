// Package schedule reads and writes schedules as text. A schedule lists the actors that try to grab
// an order, and then the events of the test, one step per line. An actor is one attempt by one
// driver.
//
// Parse reads a text, and Schedule.String writes it. The explorer finds and replays schedules, and
// package replay runs them on real servers.
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
// A step names a call by its actor, the phase of the grab, a number, and the server. The number
// counts the actor's calls in that phase to that server, so a call keeps its name even if another
// strategy runs the schedule.
//
// The actor B@2/A runs on instance 2 and makes a second attempt for A's driver. Parse ignores blank
// lines and the text after a "#".
package schedule

import (
	"fmt"
	"time"

	"grablab/internal/catalog"
)

// Schedule is one sequence of events.
type Schedule struct {
	Strategy string
	Guard    string // if empty, the strategy's own guard
	OnLost   string // what the instance does when it loses its lease; if empty, it aborts
	Actors   []Actor
	Nodes    []string // the lock servers; the database always takes part, and its name is db
	TTL      time.Duration
	Work     time.Duration // how long an actor works between its read and its claim
	Wait     time.Duration // how long an acquire waits; 0 means a single attempt
	Stock    int           // the order's number of units; 0 means 1
	Property string        // the property that the schedule breaks; otherwise empty
	Mode     string        // the failure mode that the schedule shows, such as "F11", or empty
	Steps    []Step
}

// Actor is one attempt by one driver to grab the order through one instance.
type Actor struct {
	Name     string // one capital letter, such as A
	Instance int    // the instance's number, from 1
	As       string // the earlier actor whose driver tries again; if empty, this actor has a driver of its own
}

// DB is the database's name in a schedule. Locks stands for all lock servers together.
const (
	DB    = "db"
	Locks = "locks"
)

// Kind is the kind of event in a step, such as a call or the failure of a server.
type Kind int

// These are the kinds of steps.
const (
	Begins         Kind = iota + 1 // the actor's request arrives at its instance
	Call                           // a call is sent and applied, and its reply arrives
	ReplyLost                      // a call is sent and applied, but its caller gets an error
	RequestLost                    // a call does not reach its server, and its caller gets an error
	SentTwice                      // a call is sent and applied, its reply is lost, and the client automatically retries the call
	ReplyLate                      // a call is sent and applied, but its reply is late
	Hears                          // the actor receives a late reply
	GivenUp                        // the caller stops waiting and gets an error while the call is still on its way
	ArrivesLate                    // a server applies a call after its caller has stopped waiting
	MessageLost                    // a normal call, but no subscriber receives the messages that it publishes
	MessageTwice                   // a normal call, but the messages that it publishes arrive twice
	MessageLate                    // a normal call, but the messages that it publishes are delayed
	MessagesArrive                 // a server's delayed messages reach its subscribers
	Paused                         // the actor's process stops, as by SIGSTOP
	Resumes                        // the paused process continues
	Hangs                          // the actor's work does not return, while its process and its renewals continue
	Dies                           // the actor's process dies and sends nothing more
	Cancelled                      // the client that sent the actor's request disconnects
	InstanceDies                   // every actor on the instance dies
	CutOff                         // an instance cannot reach the database, or all other servers ("locks")
	Reaches                        // an instance that was cut off can reach the servers again
	ClientClock                    // an instance's wall clock jumps by a duration
	Passes                         // a duration of time passes
	NextTimer                      // time passes until an actor has something to do
	LeaseEnd                       // time passes until the next lease has just expired
	Restarts                       // a server restarts and loses its data; the database loses only its sessions
	FailsOver                      // a server's replica takes over without the data that was written since the schedule began
	Evicts                         // a server that is out of memory drops all keys
	Down                           // a server cannot be reached
	Up                             // a server can be reached again
	NodeClock                      // a server's clock jumps by a duration
)

// Step is one line of a schedule. Its Kind determines which of the other fields it uses.
type Step struct {
	Kind     Kind
	Actor    string
	Phase    string // "acquire", "read", "claim", "release", "renew"
	N        int    // counts the actor's calls in this phase to this target, from 1
	Target   string // "redis", "redlock-2", "db"
	Instance int
	Duration time.Duration
}

// IsCall reports whether steps of this kind affect a single call or message.
func (k Kind) IsCall() bool { return k >= Call && k <= MessageLate }

// CallName returns the name of the step's call without the actor, such as "acquire 1 redis".
func (s Step) CallName() string { return fmt.Sprintf("%s %d %s", s.Phase, s.N, s.Target) }

// InstanceOf returns the number of an actor's instance, or 0 if there is no such actor.
func (s Schedule) InstanceOf(actor string) int {
	return catalog.First(s.Actors, func(a Actor) bool { return a.Name == actor }).Instance
}
