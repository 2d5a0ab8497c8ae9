package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"grablab/internal/history"
	"grablab/internal/tap"
)

// Hold is a breakpoint. It stops an instance's calls to servers for certain orders.
type Hold struct {
	First   int64   `json:"first"`             // ID of the first order whose calls stop
	Count   int     `json:"count"`             // number of consecutive orders
	Drivers []int64 `json:"drivers,omitempty"` // drivers whose calls stop; empty for all drivers
	// At is the point at which calls stop. At the zero Point, they stop before they are sent, and
	// their deadline still applies. At any other point, they ignore their context, as if the process were paused.
	At Point `json:"at"`
	// Outcome, if set, decides the outcome of the calls in advance, so that they do not stop. It
	// may be Delivered or Refused.
	Outcome Outcome `json:"outcome,omitempty"`
	// Strike means that a fault hits the stopped calls, so Holds records an event when each of them
	// stops and when it continues.
	Strike bool `json:"strike,omitempty"`
}

// Point is a moment in a grab request: before a call to a server, after the call's reply, or at the
// end of a phase.
type Point struct {
	Phase tap.Phase `json:"phase,omitempty"`
	N     int       `json:"n,omitempty"` // number of the call; 0 with After means the end of the phase
	After bool      `json:"after,omitempty"`
}

// String returns the point as a text, such as "before claim 1" or "after read".
func (p Point) String() string {
	text := "before " + string(p.Phase)
	if p.After {
		text = "after " + string(p.Phase)
	}
	if p.N > 0 {
		text += fmt.Sprintf(" %d", p.N)
	}
	return text
}

// ParsePoint parses the text that Point.String returns.
func ParsePoint(text string) (p Point, err error) {
	side, rest, _ := strings.Cut(text, " ")
	bad := fmt.Errorf("control: %q is not a point of a grab: use \"before claim 1\", \"after read\" or, in a service, \"before mysql UPDATE orders 1\"", text)
	if side != "before" && side != "after" {
		return p, bad
	}
	p.After = side == "after"
	if p.Phase = tap.Phase(rest); p.After && slices.Contains(tap.Phases, p.Phase) {
		return p, nil
	}
	end := strings.LastIndexByte(rest, ' ')
	p.Phase = tap.Phase(rest[:max(end, 0)])
	kind, name, _ := strings.Cut(string(p.Phase), " ")
	onWire := name != "" && slices.Contains([]string{"redis", "redlock", "mysql", "postgres"}, kind)
	if !onWire && !slices.Contains(tap.Phases, p.Phase) {
		return Point{}, bad
	}
	if p.N, err = strconv.Atoi(rest[end+1:]); err != nil || p.N < 1 {
		return Point{}, bad
	}
	return p, nil
}

// Call identifies a driver's call for an order. N counts the calls with the same phase and target
// from 1. It is 0 for the end of a phase. If a client sends a script again, N stays the same.
type Call struct {
	Order  int64     `json:"order"`
	Driver int64     `json:"driver"`
	Phase  tap.Phase `json:"phase"`
	N      int       `json:"n"`
	Target string    `json:"target"`
}

// IsAt reports whether the call is the one before or after which the point lies.
func (c Call) IsAt(p Point) bool { return c.Phase == p.Phase && c.N == p.N }

// Held is a call that has reached a breakpoint. It may have continued since then.
type Held struct {
	Call
	State State `json:"state"`
	// Cancelled means that the caller's context has ended.
	Cancelled bool `json:"cancelled,omitempty"`
}

// State says whether a call at a breakpoint is still stopped.
type State string

// These are the states of a call at a breakpoint.
const (
	Waiting  State = "waiting"  // the call is stopped before it is sent
	Replied  State = "replied"  // the call was sent, and its reply is held back
	Released State = "released" // the call continues, or its caller gave up
	Expired  State = "expired"  // the deadline passed while the call was stopped
)

// Outcome determines how a stopped call continues.
type Outcome string

// These are the outcomes for a stopped call. ReplyDelivered is for a call whose reply is held back.
// All others are for calls that have not been sent yet.
const (
	Delivered      Outcome = "delivered"       // the call is sent, and its caller gets the reply
	ReplyLost      Outcome = "reply lost"      // the call is sent, and its caller gets an error
	ReplyDelayed   Outcome = "reply delayed"   // the call is sent, and its reply is held back
	Refused        Outcome = "refused"         // the call is not sent, and its caller gets an error
	ReplyDelivered Outcome = "reply delivered" // the caller gets the reply that was held back
)

var (
	// ErrNoHold means that there is no breakpoint with this name.
	ErrNoHold = errors.New("control: there is no such breakpoint")
	// ErrNotHeld means that the call is not stopped at this breakpoint.
	ErrNotHeld = errors.New("control: this call is not paused")
	// ErrRefused is the error that a caller gets if a breakpoint refuses its call.
	ErrRefused = errors.New("control: refused")
	// ErrReplyLost is the error that a caller gets if its call was sent but a fault dropped the
	// reply.
	ErrReplyLost = errors.New("control: a fault dropped the reply")
	// ErrExpired means that a call's deadline passed while a breakpoint stopped it.
	ErrExpired = errors.New("control: the call's deadline passed while a fault delayed it")
)

// Holds is a set of breakpoints. Every call from an instance to a server goes through Do. The zero
// value has no breakpoints.
type Holds struct {
	// Recorder records the events of breakpoints with Strike set. Without such breakpoints, it may
	// be nil.
	Recorder history.Recorder

	mu     sync.Mutex
	set    []*hold
	counts map[Call]int   // number of calls so far for orders with a breakpoint; in the keys, N is 0
	resent map[Call]*call // calls whose script will be sent again; in the keys, N is 0
}

type hold struct {
	Hold
	name    string
	calls   []*call
	changed chan struct{} // closed when a call reaches the breakpoint or the breakpoint is removed
}

type call struct {
	Held
	ctx      context.Context
	by       *hold // the breakpoint that stops the call; nil if none does
	outcome  Outcome
	refused  bool          // whether a breakpoint has refused the call
	released chan struct{} // closed when the call may continue; a new channel if its reply is held back later
	answered chan struct{} // closed once answer is set
	answer   error         // the error that sending the call returned, or ErrRefused
}

// Set sets a breakpoint. If the name is already in use, Set first removes the old breakpoint.
func (h *Holds) Set(name string, what Hold) {
	_ = h.Remove(name)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.counts == nil {
		h.counts, h.resent = map[Call]int{}, map[Call]*call{}
	}
	h.set = append(h.set, &hold{Hold: what, name: name, changed: make(chan struct{})})
}

// Remove removes a breakpoint and lets its stopped calls continue. It returns ErrNoHold if there is
// no such breakpoint.
func (h *Holds) Remove(name string) error {
	return h.withHold(name, func(l *hold) { h.removeLocked(l, Delivered) })
}

// Close removes every breakpoint and refuses the stopped calls, so that the instance can exit.
func (h *Holds) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(h.set) > 0 {
		h.removeLocked(h.set[0], Refused)
	}
}

func (h *Holds) removeLocked(l *hold, as Outcome) {
	h.set = slices.DeleteFunc(h.set, func(o *hold) bool { return o == l })
	for _, c := range l.calls {
		h.releaseLocked(c, l, as)
	}
	close(l.changed)
	if len(h.set) == 0 {
		clear(h.counts)
		clear(h.resent)
	}
}

// withHold locks h.mu and calls do with the named breakpoint, or returns ErrNoHold if there is
// none.
func (h *Holds) withHold(name string, do func(*hold)) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range h.set {
		if l.name == name {
			do(l)
			return nil
		}
	}
	return fmt.Errorf("%w: %q", ErrNoHold, name)
}

// Await waits until n calls have reached a breakpoint or ctx ends. It returns these calls, even
// those that have continued since. If there is no such breakpoint, it returns ErrNoHold.
func (h *Holds) Await(ctx context.Context, name string, n int) (met []Held, err error) {
	for {
		var changed chan struct{}
		err := h.withHold(name, func(l *hold) {
			met, changed = l.metLocked(), l.changed
		})
		if err != nil || len(met) >= n || ctx.Err() != nil {
			return met, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// All returns the calls that have reached each breakpoint, by breakpoint name.
func (h *Holds) All() map[string][]Held {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make(map[string][]Held, len(h.set))
	for _, l := range h.set {
		all[l.name] = l.metLocked()
	}
	return all
}

// metLocked returns the calls that have reached the breakpoint. The caller must hold the mutex.
func (l *hold) metLocked() (met []Held) {
	for _, c := range l.calls {
		c.Cancelled = c.ctx.Err() != nil
		met = append(met, c.Held)
	}
	return met
}

// Release lets a stopped call or its reply continue, and returns the error with which the server
// answered, or nil. The second error is ErrNoHold, ErrNotHeld or ctx's error.
func (h *Holds) Release(ctx context.Context, name string, which Call, as Outcome) (answer, err error) {
	var released *call
	err = h.withHold(name, func(l *hold) {
		for _, c := range l.calls {
			if c.Call == which && (c.State == Replied) == (as == ReplyDelivered) && h.releaseLocked(c, l, as) {
				released = c
			}
		}
	})
	switch {
	case err != nil:
		return nil, err
	case released == nil:
		return nil, ErrNotHeld
	}
	select {
	case <-released.answered:
		return released.answer, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// releaseLocked lets a call continue. It returns false if this breakpoint does not stop the call.
func (h *Holds) releaseLocked(c *call, by *hold, as Outcome) bool {
	if c.by != by || c.State != Waiting && c.State != Replied {
		return false
	}
	c.State, c.outcome = Released, as
	if by.Strike && as != Refused {
		h.recordStrike(history.OK, c.Call, by.At)
	}
	close(c.released)
	return true
}

func (h *Holds) recordStrike(kind history.Kind, c Call, at Point) {
	h.Recorder.Record(history.Event{Kind: kind, Op: history.Strike, Order: c.Order, Driver: c.Driver, Note: at.String()})
}

// Do implements tap.Tap. If a breakpoint stops the call, Do waits until the call is released. Then
// it sends the call.
func (h *Holds) Do(ctx context.Context, op tap.Op, send func(context.Context) error) error {
	c := h.begin(ctx, op)
	if c == nil {
		return send(ctx)
	}
	ctx, err := h.awaitRelease(ctx, c)
	if err != nil {
		return err
	}
	if c.outcome == Refused || c.refused {
		c.answer = ErrRefused
		close(c.answered)
		return ErrRefused
	}
	err = send(ctx)
	if err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") {
		h.sendAgain(c)
		return err
	}
	return h.awaitReply(ctx, c, err)
}

// PhaseEnded must be called after each phase. It waits while a breakpoint stops the grab at the end
// of that phase.
func (h *Holds) PhaseEnded(phase tap.Phase, order, driver int64) {
	c := newCall(context.Background(), Call{Order: order, Driver: driver, Phase: phase})
	_ = h.awaitReply(context.Background(), c, nil) // ignore the error, because a finished phase cannot be refused
}

func newCall(ctx context.Context, name Call) *call {
	return &call{Held: Held{Call: name, State: Released}, ctx: ctx, answered: make(chan struct{})}
}

// begin counts a call and checks whether a breakpoint stops it. If no breakpoint covers the call's
// order, it returns nil.
func (h *Holds) begin(ctx context.Context, op tap.Op) *call {
	h.mu.Lock()
	defer h.mu.Unlock()
	name := Call{Order: op.Order, Driver: op.Driver, Phase: op.Phase, Target: op.Target}
	if !slices.ContainsFunc(h.set, func(l *hold) bool { return l.covers(op.Order) }) {
		delete(h.resent, name) // its breakpoint was removed before the client sent the script again
		return nil
	}
	if c := h.resent[name]; c != nil {
		delete(h.resent, name)
		return c
	}
	h.counts[name]++
	c := newCall(ctx, name)
	c.N = h.counts[name]
	if h.meetLocked(c, false) {
		c.State, c.released = Waiting, make(chan struct{})
	}
	return c
}

func (h *Hold) covers(order int64) bool { return order >= h.First && order < h.First+int64(h.Count) }

// meetLocked records that a call has reached breakpoints, and reports whether one of them stops it.
// after means that the call already has its reply.
func (h *Holds) meetLocked(c *call, after bool) bool {
	for _, l := range h.set {
		if !l.At.matches(c.Call, after) || !l.appliesTo(c) {
			continue
		}
		if l.Strike {
			h.recordStrike(history.Info, c.Call, l.At)
		}
		l.calls = append(l.calls, c)
		close(l.changed)
		l.changed = make(chan struct{})
		if l.Outcome == "" {
			c.by = l
			return true
		}
		c.refused = c.refused || l.Outcome == Refused
	}
	return false
}

func (p Point) matches(c Call, after bool) bool {
	return p == Point{c.Phase, c.N, after} || p == Point{} && !after
}

func (l *hold) appliesTo(c *call) bool {
	return l.covers(c.Order) && (len(l.Drivers) == 0 || slices.Contains(l.Drivers, c.Driver))
}

// awaitRelease waits until no breakpoint stops the call, and returns the context with which to send
// it.
func (h *Holds) awaitRelease(ctx context.Context, c *call) (context.Context, error) {
	if c.released == nil {
		return ctx, nil
	}
	select {
	case <-c.released:
	case <-c.done(ctx):
		if err := h.leave(ctx, c); err != nil {
			return nil, err
		}
		<-c.released
	}
	if !c.ignoresContext() && errors.Is(ctx.Err(), context.Canceled) {
		ctx = context.WithoutCancel(ctx) // treat the call as if it had been sent before its caller cancelled it
	}
	return ctx, nil
}

// done returns a channel that is closed when the caller's context ends, or nil if the call must
// ignore its context.
func (c *call) done(ctx context.Context) <-chan struct{} {
	if c.ignoresContext() {
		return nil
	}
	return ctx.Done()
}

func (c *call) ignoresContext() bool { return c.by.At != Point{} }

// leave is called when a stopped call's context ends. If the call ends too, leave returns the error for
// the caller. If the call stays stopped, it returns nil. A missed deadline ends any call that was not
// sent yet, but a cancellation ends only database statements.
func (h *Holds) leave(ctx context.Context, c *call) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	expired := errors.Is(ctx.Err(), context.DeadlineExceeded)
	switch {
	case c.State == Waiting && expired:
		c.State = Expired
		return fmt.Errorf("%w: %w", ErrExpired, ctx.Err())
	case c.State == Waiting && c.Target == tap.DB:
		c.State = Released
		return ctx.Err()
	default:
		return nil
	}
}

// sendAgain remembers a call whose script the client will send again, so that the retry has the
// same number and outcome.
func (h *Holds) sendAgain(c *call) {
	h.mu.Lock()
	defer h.mu.Unlock()
	name := c.Call
	name.N = 0
	h.resent[name] = c
}

// gaveUp reports whether a call failed because its caller stopped waiting. An error alone does not
// show that, because some errors are normal replies, such as go-redis's Nil.
func gaveUp(ctx context.Context, err error) bool { return err != nil && ctx.Err() != nil }

// awaitReply stores the server's answer, waits while a breakpoint holds it back, and returns the
// error that the caller gets.
func (h *Holds) awaitReply(ctx context.Context, c *call, answer error) error {
	h.mu.Lock()
	c.answer = answer
	close(c.answered)
	lost := c.outcome == ReplyLost
	held := c.outcome == ReplyDelayed || !lost && !gaveUp(ctx, answer) && h.meetLocked(c, true)
	if held {
		c.State, c.released = Replied, make(chan struct{})
	}
	h.mu.Unlock()
	switch {
	case lost:
		return ErrReplyLost
	case !held:
		return answer
	}
	select {
	case <-c.released:
	case <-c.done(ctx):
		return ctx.Err()
	}
	if c.outcome == Refused {
		return ErrRefused
	}
	return answer
}
