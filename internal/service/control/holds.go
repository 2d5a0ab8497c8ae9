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

// Hold is a breakpoint: it says which calls stop, and where. A call that belongs to
// no single grab and has orders in its keys, in braces (batched renewals), counts as
// one of each of them.
type Hold struct {
	First   int64   `json:"first"`             // id of the first order
	Count   int     `json:"count"`             // of consecutive orders
	Drivers []int64 `json:"drivers,omitempty"` // whose calls they are; none: any driver's
	// At is where calls are held. The zero Point is before every call; a call
	// that is held there leaves when its deadline passes. At any other, a held
	// call ignores its context, as a stopped process does.
	At Point `json:"at"`
	// Outcome, if there is one, is what becomes of the calls at once: Delivered or
	// Refused. They are listed, and not held by this hold.
	Outcome Outcome `json:"outcome,omitempty"`
	// Strike: a fault strikes the calls that are held. Each is recorded before.
	Strike bool `json:"strike,omitempty"`
}

// Point is a place in a grab: before a call is sent, after its reply has come,
// or after a whole phase.
type Point struct {
	Phase tap.Phase `json:"phase,omitempty"`
	N     int       `json:"n,omitempty"` // as in Call; 0, with After: the end of the phase
	After bool      `json:"after,omitempty"`
}

// String is "before claim 1", "after read".
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

// ParsePoint reads what String writes.
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
	onWire := name != "" && slices.Contains([]string{"redis", "redlock", "mysql"}, kind)
	if !onWire && !slices.Contains(tap.Phases, p.Phase) {
		return Point{}, bad
	}
	if p.N, err = strconv.Atoi(rest[end+1:]); err != nil || p.N < 1 {
		return Point{}, bad
	}
	return p, nil
}

// Call names one call: the Nth of its driver on its order, in its phase, to its
// target, from 1, counted while a hold covers the order. A script that is sent
// twice, because the server did not know it, is one call. The end of a phase
// has N 0 and no target.
type Call struct {
	Order  int64     `json:"order"`
	Driver int64     `json:"driver"`
	Phase  tap.Phase `json:"phase"`
	N      int       `json:"n"`
	Target string    `json:"target"`
}

// Held is a call that a hold has met.
type Held struct {
	Call
	State State `json:"state"`
	// Cancelled: the caller's context has ended.
	Cancelled bool `json:"cancelled,omitempty"`
	// Shared: it belongs to no single grab, and may serve several.
	Shared bool `json:"shared,omitempty"`
}

// State is how far a call has come.
type State string

// The states.
const (
	Waiting  State = "waiting"  // it is held, and not sent
	Replied  State = "replied"  // it was sent, and its reply is held
	Released State = "released" // it went on, or its caller took it back
	Expired  State = "expired"  // its deadline passed while it was held
)

// Outcome is what becomes of a call that is released.
type Outcome string

// The outcomes. Release takes ReplyDelivered for a held reply, and the others for a
// call that was not sent. Remove and Close give Delivered and Refused to both: the
// caller of a refused reply gets an error.
const (
	Delivered      Outcome = "delivered"       // it is sent, its caller gets the reply
	ReplyLost      Outcome = "reply lost"      // it is sent, its caller gets an error
	ReplyDelayed   Outcome = "reply delayed"   // it is sent, its reply is held
	Refused        Outcome = "refused"         // it is never sent, its caller gets an error
	ReplyDelivered Outcome = "reply delivered" // its caller gets the reply
)

var (
	// ErrNoHold says that no hold of that name is set.
	ErrNoHold = errors.New("control: no such hold")
	// ErrNotHeld says that a hold does not hold such a call.
	ErrNotHeld = errors.New("control: no such call is held")
	// ErrRefused is what a call with the outcome Refused comes to.
	ErrRefused = errors.New("control: refused")
	// ErrReplyLost is what the caller of a call with the outcome ReplyLost gets.
	ErrReplyLost = errors.New("control: the reply is lost")
	// ErrExpired is what a held call comes to whose deadline passes.
	ErrExpired = errors.New("control: the deadline passed while the call was held")
)

// Holds holds calls. Its Do is the tap of an instance. The zero value holds none.
type Holds struct {
	// Note is called for each call that a hold with Strike meets, before it is held,
	// by one goroutine at a time; nil: not at all.
	Note func(Call, Point)
	// Ended is likewise called when such a call goes on; not for one that is refused.
	Ended func(Call, Point)

	mu     sync.Mutex
	set    []*hold
	counts map[Call]int   // of calls whose orders are covered, by name with N 0
	resent map[Call]*call // to be sent again, by name with N 0
}

type hold struct {
	Hold
	name    string
	ended   func(Call, Point) // of a strike; nil: it is not asked for
	calls   []*call
	changed chan struct{} // closes when another call comes, or the hold is removed
}

type call struct {
	Held
	orders   []int64 // that it belongs to
	ctx      context.Context
	by       *hold // that holds it; nil: none has
	outcome  Outcome
	refused  bool          // by a hold that holds nothing
	released chan struct{} // closes when the call, or later its reply, goes on
	answered chan struct{} // closes when there is an answer
	answer   error
}

// Set sets a hold, in place of one that has its name, whose calls are released.
func (h *Holds) Set(name string, what Hold) {
	_ = h.Remove(name)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.counts == nil {
		h.counts, h.resent = map[Call]int{}, map[Call]*call{}
	}
	h.set = append(h.set, &hold{Hold: what, name: name, ended: h.Ended, changed: make(chan struct{})})
}

// Remove removes a hold, and delivers what it holds. Its error is ErrNoHold.
func (h *Holds) Remove(name string) error {
	return h.with(name, func(l *hold) { h.removeLocked(l, Delivered) })
}

// Close removes every hold and refuses what they hold, so that the instance can end.
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

// with calls do with the named hold, under the lock. Its error is ErrNoHold.
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

// Await returns the calls that a hold has met, whatever has become of them, once
// there are n of them or ctx ends. Its error is ErrNoHold.
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

// All returns the calls that each hold has met, by its name.
func (h *Holds) All() map[string][]Held {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make(map[string][]Held, len(h.set))
	for _, l := range h.set {
		all[l.name] = l.metLocked()
	}
	return all
}

// metLocked is what Await returns.
func (l *hold) metLocked() (met []Held) {
	for _, c := range l.calls {
		c.Cancelled = c.ctx.Err() != nil
		met = append(met, c.Held)
	}
	return met
}

// Release lets a held call go, or its held reply, and returns once there is an
// answer, which it returns too. Its own errors are ErrNoHold, ErrNotHeld and
// that of ctx.
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

// releaseLocked is false for a call that the hold does not hold, or no longer.
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

// Do is a tap.Tap: it makes a call when and as the holds say.
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

// PhaseEnded tells that a phase of a grab has ended well, and returns once the
// grab may go on.
func (h *Holds) PhaseEnded(phase tap.Phase, order, driver int64) {
	c := newCall(context.Background(), Call{Order: order, Driver: driver, Phase: phase}, order)
	_ = h.awaitReply(context.Background(), c, nil) // what has ended cannot be refused
}

func newCall(ctx context.Context, name Call, orders ...int64) *call {
	return &call{Held: Held{Call: name, State: Released}, orders: orders, ctx: ctx, answered: make(chan struct{})}
}

// begin names a call and has it held, if a hold is set for it. It is nil where
// no hold covers the order.
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

// nameLocked is a call's name without its number, and the orders that it belongs to
// of those that a hold covers; none: it is not to be held. A call of several has the
// name of the first.
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

// coveringLocked is the first hold that covers an order; nil: none does.
func (h *Holds) coveringLocked(order int64) *hold {
	for _, l := range h.set {
		if l.covers(order) {
			return l
		}
	}
	return nil
}

// orderIn is the order whose id stands in a key, in braces; 0: none does.
func orderIn(key string) int64 {
	_, rest, _ := strings.Cut(key, "{")
	digits, _, _ := strings.Cut(rest, "}")
	id, _ := strconv.ParseInt(digits, 10, 64)
	return id
}

func (h *Hold) covers(order int64) bool { return order >= h.First && order < h.First+int64(h.Count) }

// meetLocked lists a call with the holds that it meets, and says whether one of
// them holds it. after: it has been answered.
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

// takes says whether the call is one that l is about, wherever it is.
func (l *hold) takes(c *call) bool {
	if !slices.ContainsFunc(c.orders, l.covers) {
		return false
	}
	return c.Shared || len(l.Drivers) == 0 || slices.Contains(l.Drivers, c.Driver)
}

// awaitRelease returns once a call may be sent, with the context to send it on.
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
		ctx = context.WithoutCancel(ctx) // it was on its way before its caller left
	}
	return ctx, nil
}

// done is closed when the caller of a held call no longer waits for it.
func (c *call) done(ctx context.Context) <-chan struct{} {
	if c.ignoresContext() {
		return nil
	}
	return ctx.Done()
}

func (c *call) ignoresContext() bool { return c.by.At != Point{} }

// leave is for a held call whose context has ended. A deadline takes any call
// back, a caller that hangs up only a statement that was not sent: a command to
// another server may be on its way by then. nil: the call stays held.
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

// sendAgain keeps the name and the outcome of a call for its next attempt.
func (h *Holds) sendAgain(c *call) {
	h.mu.Lock()
	defer h.mu.Unlock()
	name := c.Call
	name.N = 0
	h.resent[name] = c
}

// gaveUp says whether a call came to nothing because its caller stopped waiting. Any
// other error may be a reply: go-redis' nil, ZooKeeper's "no node".
func gaveUp(ctx context.Context, err error) bool { return err != nil && ctx.Err() != nil }

// awaitReply takes the answer to a call, and returns what its caller is told,
// once it may be.
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
