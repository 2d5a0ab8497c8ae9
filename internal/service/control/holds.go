package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"grablab/internal/tap"
)

// Hold is a breakpoint, which says which calls to stop and at which point. A renewal that serves
// several orders belongs to no single grab. Its keys contain the ids of the orders in braces, so
// it counts as a call of each of them.
type Hold struct {
	First   int64   `json:"first"`             // id of the first order whose calls stop
	Count   int     `json:"count"`             // number of consecutive orders
	Drivers []int64 `json:"drivers,omitempty"` // drivers whose calls stop; empty for all drivers
	// At is the point at which calls stop. The zero Point stops them before they are sent, and a
	// stopped call returns when its deadline passes. At any other point, a stopped call ignores
	// its context, as in a stopped process.
	At Point `json:"at"`
	// Outcome may be Delivered or Refused. In that case the hold does not stop its calls. It lists
	// them and gives them this outcome at once.
	Outcome Outcome `json:"outcome,omitempty"`
	// Strike marks the held calls as hit by a fault. Holds.Note is called for each of them before
	// it stops.
	Strike bool `json:"strike,omitempty"`
}

// Point is a place in a grab: before a call is sent, after its reply has arrived, or at the end of
// a phase.
type Point struct {
	Phase tap.Phase `json:"phase,omitempty"`
	N     int       `json:"n,omitempty"` // number of the call; 0 with After means the end of the phase
	After bool      `json:"after,omitempty"`
}

// String formats the point, as in "before claim 1" or "after read".
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

// ParsePoint parses the output of String.
func ParsePoint(text string) (p Point, err error) {
	side, rest, _ := strings.Cut(text, " ")
	bad := fmt.Errorf("control: %q is no point of a grab; one is \"before claim 1\", or \"after read\", or of a service \"before mysql UPDATE orders 1\"", text)
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

// Call identifies one call of a driver on an order. N counts the calls of the same phase to the
// same target, starting at 1, while a hold covers the order. If a script is sent again because the
// server did not know it, that is the same call. The end of a phase has N 0 and no target.
type Call struct {
	Order  int64     `json:"order"`
	Driver int64     `json:"driver"`
	Phase  tap.Phase `json:"phase"`
	N      int       `json:"n"`
	Target string    `json:"target"`
}

// Held is a call that a hold has met, whether or not it is still held.
type Held struct {
	Call
	State State `json:"state"`
	// Cancelled reports whether the context of the call's caller has ended.
	Cancelled bool `json:"cancelled,omitempty"`
	// Shared reports whether the call belongs to no single grab and may serve several.
	Shared bool `json:"shared,omitempty"`
}

// State says how far a call has got.
type State string

// The states of a call.
const (
	Waiting  State = "waiting"  // held before it is sent
	Replied  State = "replied"  // sent, and its reply is held
	Released State = "released" // released, or given up by its caller
	Expired  State = "expired"  // missed its deadline while it was held
)

// Outcome says what happens to a call when it is released.
type Outcome string

// The possible outcomes. Release accepts ReplyDelivered for a held reply, and the other outcomes
// for a call that was not sent yet. Remove applies Delivered and Close applies Refused to both.
// The caller of a refused reply gets an error.
const (
	Delivered      Outcome = "delivered"       // the call is sent, and its caller gets the reply
	ReplyLost      Outcome = "reply lost"      // the call is sent, and its caller gets an error
	ReplyDelayed   Outcome = "reply delayed"   // the call is sent, and its reply is held
	Refused        Outcome = "refused"         // the call is not sent, and its caller gets an error
	ReplyDelivered Outcome = "reply delivered" // the caller gets the reply that was held
)

var (
	// ErrNoHold is the error for an unknown name of a hold.
	ErrNoHold = errors.New("control: no such hold")
	// ErrNotHeld is the error for releasing a call that the hold does not hold.
	ErrNotHeld = errors.New("control: no such call is held")
	// ErrRefused is the error that the caller of a refused call gets.
	ErrRefused = errors.New("control: refused")
	// ErrReplyLost is the error that the caller of a call with a lost reply gets.
	ErrReplyLost = errors.New("control: the reply is lost")
	// ErrExpired is the error of a call that missed its deadline while it was held.
	ErrExpired = errors.New("control: the deadline passed while the call was held")
)

// Holds is a set of breakpoints. An instance passes all of its remote calls through Do. The zero
// value is an empty set.
type Holds struct {
	// Note is called before a hold with Strike stops a call. It may be nil. Calls of Note do not
	// overlap.
	Note func(Call, Point)
	// Ended is called when such a call is released, unless the call is refused. It may be nil.
	// Calls of Ended do not overlap.
	Ended func(Call, Point)

	mu     sync.Mutex
	set    []*hold
	counts map[Call]int   // number of calls so far on covered orders; in the keys, N is 0
	resent map[Call]*call // calls whose script will be sent again; in the keys, N is 0
}

type hold struct {
	Hold
	name    string
	ended   func(Call, Point) // Holds.Ended; may be nil
	calls   []*call
	changed chan struct{} // closed when the hold meets another call or is removed
}

type call struct {
	Held
	orders   []int64 // the orders of the call that a hold covers
	ctx      context.Context
	by       *hold // the hold that stops the call; nil if none does
	outcome  Outcome
	refused  bool          // whether a hold with the outcome Refused matched the call
	released chan struct{} // closed when the call is released; a new channel if its reply is held later
	answered chan struct{} // closed once answer is set
	answer   error
}

// Set sets a hold. It replaces an existing hold of that name and releases the calls which that
// hold has stopped.
func (h *Holds) Set(name string, what Hold) {
	_ = h.Remove(name)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.counts == nil {
		h.counts, h.resent = map[Call]int{}, map[Call]*call{}
	}
	h.set = append(h.set, &hold{Hold: what, name: name, ended: h.Ended, changed: make(chan struct{})})
}

// Remove removes a hold and lets the calls that it holds continue. It returns ErrNoHold if there
// is no such hold.
func (h *Holds) Remove(name string) error {
	return h.with(name, func(l *hold) { h.removeLocked(l, Delivered) })
}

// Close removes every hold and refuses the calls that are held, so that the instance can stop.
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
		c.releaseLocked(l, as)
	}
	close(l.changed)
	if len(h.set) == 0 {
		clear(h.counts)
		clear(h.resent)
	}
}

// with calls do on the named hold while h.mu is locked. It returns ErrNoHold if there is no such
// hold.
func (h *Holds) with(name string, do func(*hold)) error {
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

// Await returns the calls that a hold has met so far, including released ones. It waits until
// there are n calls or ctx ends. It returns ErrNoHold if there is no such hold.
func (h *Holds) Await(ctx context.Context, name string, n int) (met []Held, err error) {
	for {
		var changed chan struct{}
		err := h.with(name, func(l *hold) {
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

// All returns the calls that every hold has met so far, by the name of the hold.
func (h *Holds) All() map[string][]Held {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make(map[string][]Held, len(h.set))
	for _, l := range h.set {
		all[l.name] = l.metLocked()
	}
	return all
}

// metLocked returns the calls that the hold has met so far. The caller must have locked the mutex.
func (l *hold) metLocked() (met []Held) {
	for _, c := range l.calls {
		c.Cancelled = c.ctx.Err() != nil
		met = append(met, c.Held)
	}
	return met
}

// Release lets a held call or a held reply continue, waits for the answer of the call's server and
// returns it. err is ErrNoHold, ErrNotHeld or the error of ctx.
func (h *Holds) Release(ctx context.Context, name string, which Call, as Outcome) (answer, err error) {
	var released *call
	err = h.with(name, func(l *hold) {
		for _, c := range l.calls {
			if c.Call == which && (c.State == Replied) == (as == ReplyDelivered) && c.releaseLocked(l, as) {
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

// releaseLocked releases the call. It returns false if the call is not held, or by another hold.
func (c *call) releaseLocked(by *hold, as Outcome) bool {
	if c.by != by || c.State != Waiting && c.State != Replied {
		return false
	}
	c.State, c.outcome = Released, as
	if by.Strike && by.ended != nil && as != Refused {
		by.ended(c.Call, by.At)
	}
	close(c.released)
	return true
}

// Do implements tap.Tap. It sends a call when the holds allow it, and with the outcome that they
// determine.
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

// PhaseEnded must be called when a phase of a grab has succeeded. It returns when no hold stops
// the grab there.
func (h *Holds) PhaseEnded(phase tap.Phase, order, driver int64) {
	c := newCall(context.Background(), Call{Order: order, Driver: driver, Phase: phase}, order)
	_ = h.awaitReply(context.Background(), c, nil) // ignore the error, because a finished phase cannot be refused
}

func newCall(ctx context.Context, name Call, orders ...int64) *call {
	return &call{Held: Held{Call: name, State: Released}, orders: orders, ctx: ctx, answered: make(chan struct{})}
}

// begin counts a call and marks it as held if a hold matches. It returns nil if no hold covers any
// of the call's orders.
func (h *Holds) begin(ctx context.Context, op tap.Op) *call {
	h.mu.Lock()
	defer h.mu.Unlock()
	name, orders := h.nameLocked(op)
	if len(orders) == 0 {
		return nil
	}
	if c := h.resent[name]; c != nil {
		delete(h.resent, name)
		return c
	}
	h.counts[name]++
	c := newCall(ctx, name, orders...)
	c.N, c.Shared = h.counts[name], op.Order == 0
	if h.meetLocked(c, false) {
		c.State, c.released = Waiting, make(chan struct{})
	}
	return c
}

// nameLocked returns the identity of a call without its number, and those of its orders that a
// hold covers. A call on several orders is identified by the first covered one.
func (h *Holds) nameLocked(op tap.Op) (c Call, orders []int64) {
	c = Call{Order: op.Order, Driver: op.Driver, Phase: op.Phase, Target: op.Target}
	if op.Order != 0 {
		if h.coveringLocked(op.Order) != nil {
			orders = []int64{op.Order}
		}
		return c, orders
	}
	for _, key := range op.Keys {
		id := orderIn(key)
		l := h.coveringLocked(id)
		if l == nil {
			continue
		}
		if orders = append(orders, id); len(orders) == 1 {
			c.Order, c.Phase = id, tap.Renew
			if len(l.Drivers) > 0 {
				c.Driver = l.Drivers[0]
			}
		}
	}
	return c, orders
}

// coveringLocked returns the first hold that covers an order, or nil if there is none.
func (h *Holds) coveringLocked(order int64) *hold {
	for _, l := range h.set {
		if l.covers(order) {
			return l
		}
	}
	return nil
}

// orderIn returns the order id that a key contains in braces, or 0.
func orderIn(key string) int64 {
	_, rest, _ := strings.Cut(key, "{")
	digits, _, _ := strings.Cut(rest, "}")
	id, _ := strconv.ParseInt(digits, 10, 64)
	return id
}

func (h *Hold) covers(order int64) bool { return order >= h.First && order < h.First+int64(h.Count) }

// meetLocked adds a call to the holds that match it, and reports whether one of them stops the
// call. after reports whether the call has its reply already.
func (h *Holds) meetLocked(c *call, after bool) bool {
	for _, l := range h.set {
		if !l.At.matches(c.Call, after) || !l.takes(c) {
			continue
		}
		if l.Strike && h.Note != nil {
			h.Note(c.Call, l.At)
		}
		l.calls = append(l.calls, c)
		close(l.changed)
		l.changed = make(chan struct{})
		if l.Outcome == "" {
			c.by = l
			return true
		}
		c.refused = l.Outcome == Refused
	}
	return false
}

func (p Point) matches(c Call, after bool) bool {
	return p == Point{c.Phase, c.N, after} || p == Point{} && !after
}

// takes reports whether the hold applies to the orders and the driver of the call, whatever its
// point.
func (l *hold) takes(c *call) bool {
	if !slices.ContainsFunc(c.orders, l.covers) {
		return false
	}
	return c.Shared || len(l.Drivers) == 0 || slices.Contains(l.Drivers, c.Driver)
}

// awaitRelease waits until a call may be sent. It returns the context with which to send it.
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

// done returns a channel that is closed when the caller's context ends. It returns nil if the call
// ignores its context while it is held.
func (c *call) done(ctx context.Context) <-chan struct{} {
	if c.ignoresContext() {
		return nil
	}
	return ctx.Done()
}

func (c *call) ignoresContext() bool { return c.by.At != Point{} }

// leave decides what happens when the context of a held call ends. It returns nil if the call
// stays held. After a deadline, every unsent call is given up. After a cancellation, only an
// unsent database statement is, because a command to another server may already be on its way.
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

// sendAgain remembers a call whose script will be sent again, so that the next attempt has the
// same number and outcome.
func (h *Holds) sendAgain(c *call) {
	h.mu.Lock()
	defer h.mu.Unlock()
	name := c.Call
	name.N = 0
	h.resent[name] = c
}

// gaveUp reports whether a call failed because its caller stopped waiting. Other errors may be
// regular replies, such as go-redis's Nil or ZooKeeper's "no node".
func gaveUp(ctx context.Context, err error) bool { return err != nil && ctx.Err() != nil }

// awaitReply stores the answer of a call's server, waits while a hold delays it, and returns the
// error for the caller.
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
