package tap

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Sender makes a call itself: it alone knows when one is sent.
type Sender interface {
	// Send makes one call, or returns why it was not made.
	Send(ctx context.Context, op Op, call func(context.Context) error) error
}

// DB is the target of the calls to the database. A statement that is given up is
// not sent any more; a command to another server may be on its way by then.
const DB = "db"

// Hold says whose calls a Gate holds: every one of some drivers on one order.
type Hold struct {
	Order   int64   `json:"order"`
	Drivers []int64 `json:"drivers"`
	// Background is the driver whose calls those are that belong to no grab but
	// have the order in a key, in braces: batched renewals.
	Background int64 `json:"background"`
}

// Call names one that a Gate holds: the Nth of its driver in its phase to its
// target, from 1. What had to be sent again, because the server did not know a
// script, is one call.
type Call struct {
	Driver int64  `json:"driver"`
	Phase  Phase  `json:"phase"`
	N      int    `json:"n"`
	Target string `json:"target"`
}

// Fate is what becomes of a call that is let go.
type Fate string

// The fates.
const (
	Goes    Fate = "goes"     // it is sent, and its caller told of the answer
	Loses   Fate = "loses"    // it is sent, and its caller told of an error
	Lingers Fate = "lingers"  // it is sent, and its caller told when the reply is let go
	GivenUp Fate = "given up" // it is never sent, and its caller told of an error
)

// Standing is a call at the gate.
type Standing struct {
	Call
	Replied bool `json:"replied,omitempty"` // its reply stands there, and not itself
	// Cancelled: its caller has hung up, and does not take it back.
	Cancelled bool `json:"cancelled,omitempty"`
}

var (
	// ErrLostReply is what the caller of a call with fate Loses is told.
	ErrLostReply = errors.New("tap: the reply is lost")
	// ErrNotStanding says that no such call stands at the gate.
	ErrNotStanding = errors.New("tap: no such call stands at the gate")
	// ErrTooLate says that the deadline of a call passed while it was held.
	ErrTooLate = errors.New("tap: its deadline passed at the gate")
)

// Gate is a Tap at which every call waits until it is let go by its name, or
// its deadline passes. Its zero value is open, and holds nothing.
type Gate struct {
	mu    sync.Mutex
	hold  *Hold   // nil: open
	slots []*slot // in the order in which they were first taken
	late  []Call  // whose deadline passed here
}

// slot is the place of one call, by its name. A call that is to be sent again
// leaves it to the one that follows, with its fate.
type slot struct {
	Call
	vacant bool
	stands bool // its call is neither let go nor gone
	ctx    context.Context
	fate   Fate
	let    chan struct{} // closes when there is a fate
	done   chan struct{} // closes when it has been answered, or never will be
	answer error
	reply  chan struct{} // closes when a reply that lingers is let go; nil: none does
}

// Shut has the calls of h wait from now on, in place of what was held before.
func (g *Gate) Shut(h Hold) {
	g.Open()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hold, g.slots, g.late = &h, nil, nil
}

// Open lets everything go, and nothing wait any more.
func (g *Gate) Open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hold = nil
	for _, s := range g.slots {
		if s.stands {
			s.release(Goes)
		}
		s.hear()
	}
}

// release and hear are called with the gate's mu held.
func (s *slot) release(f Fate) {
	s.fate, s.stands = f, false
	close(s.let)
}

func (s *slot) hear() {
	if s.reply != nil {
		close(s.reply)
		s.reply = nil
	}
}

// Stand lists the calls and the replies at the gate, and the calls that have left
// it because their deadline had passed.
func (g *Gate) Stand() (line []Standing, late []Call) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.slots {
		if s.stands || s.reply != nil {
			line = append(line, Standing{Call: s.Call, Replied: !s.stands, Cancelled: s.ctx.Err() != nil})
		}
	}
	return line, slices.Clone(g.late)
}

// Let lets a call go and returns once it has been answered, with the error that
// it came to. Its own errors are ErrNotStanding and that of ctx.
func (g *Gate) Let(ctx context.Context, c Call, f Fate) (answer, err error) {
	s := g.give(c, f)
	if s == nil {
		return nil, ErrNotStanding
	}
	select {
	case <-s.done:
		return s.answer, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (g *Gate) give(c Call, f Fate) *slot {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.IndexFunc(g.slots, func(s *slot) bool { return s.Call == c && s.stands })
	if i < 0 {
		return nil
	}
	g.slots[i].release(f)
	return g.slots[i]
}

// LetReply lets the caller of a call with fate Lingers hear of its answer, or
// returns ErrNotStanding.
func (g *Gate) LetReply(c Call) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.IndexFunc(g.slots, func(s *slot) bool { return s.Call == c && s.reply != nil })
	if i < 0 {
		return ErrNotStanding
	}
	g.slots[i].hear()
	return nil
}

// Send implements Sender.
func (g *Gate) Send(ctx context.Context, op Op, call func(context.Context) error) error {
	s := g.arrive(ctx, op)
	if s == nil {
		return call(ctx)
	}
	if err := g.wait(ctx, s); err != nil {
		return err
	}
	if s.fate == GivenUp {
		g.finish(s, ErrRefused)
		return ErrRefused
	}
	err := call(onItsWay(ctx))
	if g.comesAgain(s, err) {
		return err
	}
	reply := g.finish(s, err)
	switch s.fate {
	case Loses:
		return ErrLostReply
	case Lingers:
		return linger(ctx, err, reply)
	default:
		return err
	}
}

// arrive gives a call its place; nil: it is not held.
func (g *Gate) arrive(ctx context.Context, op Op) *slot {
	g.mu.Lock()
	defer g.mu.Unlock()
	c, ok := g.hold.name(op)
	if !ok {
		return nil
	}
	for _, s := range g.slots {
		if s.Driver != c.Driver || s.Phase != c.Phase || s.Target != c.Target {
			continue
		}
		if s.vacant {
			s.vacant, s.ctx = false, ctx
			return s
		}
		c.N++
	}
	s := &slot{Call: c, stands: true, ctx: ctx, let: make(chan struct{}), done: make(chan struct{})}
	g.slots = append(g.slots, s)
	return s
}

// name is that of the first call like op; false: its like is not held.
func (h *Hold) name(op Op) (Call, bool) {
	if h == nil {
		return Call{}, false
	}
	c := Call{Driver: op.Driver, Phase: op.Phase, N: 1, Target: op.Target}
	if op.Order == h.Order {
		return c, slices.Contains(h.Drivers, op.Driver)
	}
	tag := "{" + strconv.FormatInt(h.Order, 10) + "}"
	ours := op.Order == 0 && slices.ContainsFunc(op.Keys, func(key string) bool { return strings.Contains(key, tag) })
	c.Driver, c.Phase = h.Background, Renew
	return c, ours
}

// wait returns nil once the call is let go.
func (g *Gate) wait(ctx context.Context, s *slot) error {
	gone := ctx.Done()
	for {
		select {
		case <-s.let:
			return nil
		case <-gone:
		}
		if err := g.leave(ctx, s); err != nil {
			return err
		}
		gone = nil
	}
}

// leave is nil for a call that its caller cannot take back.
func (g *Gate) leave(ctx context.Context, s *slot) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	expired := errors.Is(ctx.Err(), context.DeadlineExceeded)
	if !s.stands || !expired && s.Target != DB {
		return nil
	}
	s.stands = false
	if expired {
		g.late = append(g.late, s.Call)
		return fmt.Errorf("%w: %w", ErrTooLate, ctx.Err())
	}
	return ctx.Err()
}

// comesAgain says whether a call is to be sent again as another, for the server
// did not know a script.
func (g *Gate) comesAgain(s *slot, err error) bool {
	if err == nil || !strings.HasPrefix(err.Error(), "NOSCRIPT") {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s.vacant = true
	return true
}

// finish notes what a call has come to. It returns what its caller waits for if
// the reply is to linger.
func (g *Gate) finish(s *slot, answer error) (reply chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s.answer = answer
	if s.fate == Lingers {
		s.reply = make(chan struct{})
		reply = s.reply
	}
	close(s.done)
	return reply
}

// linger returns the answer once it is let go. Whoever has given up hears of
// that instead.
func linger(ctx context.Context, answer error, reply chan struct{}) error {
	select {
	case <-reply:
		return answer
	case <-ctx.Done():
		return ctx.Err()
	}
}

// onItsWay is for a call that came to the gate before its caller hung up.
func onItsWay(ctx context.Context) context.Context {
	if errors.Is(ctx.Err(), context.Canceled) {
		return context.WithoutCancel(ctx)
	}
	return ctx
}
