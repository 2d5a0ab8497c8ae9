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
	"strings"
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

// A form defines the syntax of one kind of step, and the fault that injects it.
type form struct {
	text  string        // the syntax; words in angle brackets are placeholders, and all others are literal
	fault catalog.Fault // the fault that injects the step; empty if the step is no fault
	shows catalog.Facts // the facts that the step adds to a failure's explanation, such as a lost reply
}

// forms defines the syntax of each kind of step. If a line matches several entries, the first one
// applies.
var forms = []form{
	Begins:         {"<actor> begins", "", 0},
	Call:           {"<actor> <phase> <n> <target>", "", 0},
	ReplyLost:      {"<actor> <phase> <n> <target> reply lost", catalog.ReplyLost, catalog.ReplyWasLost},
	RequestLost:    {"<actor> <phase> <n> <target> request lost", catalog.ReplyLost, 0},
	SentTwice:      {"<actor> <phase> <n> <target> sent twice", catalog.SentTwice, catalog.ReplyWasLost},
	ReplyLate:      {"<actor> <phase> <n> <target> reply late", catalog.Latency, catalog.Delayed},
	Hears:          {"<actor> hears <phase> <n> <target>", "", 0},
	GivenUp:        {"<actor> <phase> <n> <target> given up", catalog.Latency, catalog.Delayed},
	ArrivesLate:    {"<actor> <phase> <n> <target> arrives late", "", 0},
	MessageLost:    {"<actor> <phase> <n> <target> message lost", catalog.MessageLost, catalog.WakeUpLost},
	MessageTwice:   {"<actor> <phase> <n> <target> message twice", catalog.MessageLost, catalog.WakeUpLost},
	MessageLate:    {"<actor> <phase> <n> <target> message late", catalog.MessageLost, catalog.WakeUpLost},
	MessagesArrive: {"<target> messages arrive", "", 0},
	Paused:         {"<actor> paused", catalog.Pause, 0},
	Resumes:        {"<actor> resumes", "", 0},
	Hangs:          {"<actor> hangs", catalog.Hang, catalog.Hung},
	Dies:           {"<actor> dies", catalog.Crash, catalog.Died},
	Cancelled:      {"<actor> cancelled", catalog.Cancel, catalog.Cancelled},
	InstanceDies:   {"instance <instance> dies", catalog.Crash, catalog.Died},
	CutOff:         {"instance <instance> cut off from <target>", catalog.Partition, catalog.CutOff},
	Reaches:        {"instance <instance> reaches <target>", "", 0},
	ClientClock:    {"instance <instance> clock <jump>", catalog.ClientClock, catalog.ClocksApart},
	Passes:         {"time passes <duration>", "", 0},
	NextTimer:      {"time to next timer", "", 0},
	LeaseEnd:       {"time to lease end", "", 0},
	Restarts:       {"<target> restarts", catalog.RedisRestart, 0},
	FailsOver:      {"<target> fails over", catalog.Failover, 0},
	Evicts:         {"<target> evicts", catalog.RedisFull, 0},
	Down:           {"<target> down", catalog.RedisDown, catalog.Unreachable},
	Up:             {"<target> up", "", 0},
	NodeClock:      {"<target> clock <jump>", catalog.NodeClock, 0},
}

// Fault returns the fault that injects steps of this kind. It returns "" for steps that need no
// fault.
func (k Kind) Fault() catalog.Fault { return forms[k].fault }

// Shows returns the facts that steps of this kind reveal about the cause of a failure.
func (k Kind) Shows() catalog.Facts { return forms[k].shows }

// String returns the step as one line of a schedule.
func (s Step) String() string { return forms[s.Kind].print(s) }

func (f form) words() []string { return strings.Fields(f.text) }

func (f form) print(s Step) string {
	words := f.words()
	for i, w := range words {
		if field, ok := fields[w]; ok {
			words[i] = field.print(s)
		}
	}
	return strings.Join(words, " ")
}

// signed formats a duration with its sign, such as "+10s" or "-10s".
func signed(d time.Duration) string {
	if d < 0 {
		return d.String()
	}
	return "+" + d.String()
}

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

// String returns the text of the schedule in the format that Parse reads.
func (s Schedule) String() string {
	var b strings.Builder
	for _, h := range headers {
		if value := h.words.print(s); value != "" {
			fmt.Fprintf(&b, "%s %s\n", h.name, value)
		}
	}
	b.WriteByte('\n')
	for _, step := range s.Steps {
		fmt.Fprintln(&b, step)
	}
	return b.String()
}
