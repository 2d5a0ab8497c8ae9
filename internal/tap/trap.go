package tap

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// Point is a place in a grab: before a call is sent, after its reply has come,
// or after a whole phase.
type Point struct {
	Phase Phase `json:"phase"`
	N     int   `json:"n,omitempty"` // the Nth call of the phase, from 1; 0: all of them
	After bool  `json:"after,omitempty"`
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

// Trap waits at a point for the first grab of each of some orders. A grab is
// held once at most, and a call that has failed is not caught at all.
type Trap struct {
	Point
	First int64 `json:"first"` // id of the first order
	Count int   `json:"count"` // of consecutive orders
	// Pass lets the grab go on at once, and no other trap holds it later: it is
	// only seen to have come by.
	Pass bool `json:"pass,omitempty"`
}

func (t Trap) covers(op Op, after bool) bool {
	return t.Point == Point{op.Phase, op.N, after} && op.Order >= t.First && op.Order < t.First+int64(t.Count)
}

// Caught is a grab that has come into a trap.
type Caught struct {
	Order  int64 `json:"order"`
	Driver int64 `json:"driver"`
}

var (
	// ErrRefused is what a call comes to that was not let go on: one that was
	// held before it was sent never is; of one that was held after, the reply is lost.
	ErrRefused = errors.New("tap: refused by a trap")
	// ErrNoTrap says that no trap of that name is set.
	ErrNoTrap = errors.New("tap: no such trap")
)

// Traps is a Tap that holds calls where it is told to. A held call minds no
// context: a process that lies still minds none either.
type Traps struct {
	// Note hears of every catch, before it is held; nil: nobody does. It is
	// called by one goroutine at a time.
	Note func(Op, Point)

	mu     sync.Mutex
	set    map[string]*trap
	caught map[Caught]bool // by any trap
}

type trap struct {
	Trap
	caught []Caught
	more   chan struct{} // closes at the next catch
	gone   chan struct{} // closes when those who are held may go on
	fate   error         // of theirs, once gone is closed
}

// Set sets a trap, in place of one that has its name, whose catch goes on.
func (t *Traps) Set(name string, what Trap) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if old, ok := t.set[name]; ok {
		close(old.gone)
	}
	if t.set == nil {
		t.set, t.caught = map[string]*trap{}, map[Caught]bool{}
	}
	t.set[name] = &trap{Trap: what, more: make(chan struct{}), gone: make(chan struct{})}
}

// Await returns whom the trap has caught once they are n, or whom it has by the
// time at which ctx ends or it is lifted. Its error is ErrNoTrap.
func (t *Traps) Await(ctx context.Context, name string, n int) ([]Caught, error) {
	for {
		t.mu.Lock()
		tr, ok := t.set[name]
		if !ok {
			t.mu.Unlock()
			return nil, fmt.Errorf("%w: %q", ErrNoTrap, name)
		}
		caught, more := slices.Clone(tr.caught), tr.more
		t.mu.Unlock()
		if len(caught) >= n {
			return caught, nil
		}
		select {
		case <-more:
		case <-tr.gone:
			return caught, nil
		case <-ctx.Done():
			return caught, nil
		}
	}
}

// Lift takes a trap away and lets its catch go on, each call with the given
// fate: nil, or the error that it comes to. It returns whom the trap has caught.
func (t *Traps) Lift(name string, fate error) ([]Caught, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	tr, ok := t.set[name]
	if !ok {
		return nil, fmt.Errorf("%w: %q", ErrNoTrap, name)
	}
	delete(t.set, name)
	tr.fate = fate
	close(tr.gone)
	return tr.caught, nil
}

// LiftAll takes every trap away and refuses what they hold.
func (t *Traps) LiftAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, tr := range t.set {
		tr.fate = ErrRefused
		close(tr.gone)
	}
	clear(t.set)
}

// Before implements Tap.
func (t *Traps) Before(_ context.Context, op Op) error { return t.come(op, false) }

// After implements Tap.
func (t *Traps) After(_ context.Context, op Op, err error) error {
	if err != nil {
		return err
	}
	return t.come(op, true)
}

// Ended tells that a phase of a grab has ended well. Calls know nothing of that,
// for their number depends on the server, and on what it was asked before.
func (t *Traps) Ended(phase Phase, order, driver int64) {
	_ = t.come(Op{Order: order, Driver: driver, Phase: phase}, true) // nothing is left to be refused
}

// come returns the fate of a call that has come to a point, at once if no trap
// waits there for it.
func (t *Traps) come(op Op, after bool) error {
	tr := t.catch(op, after)
	if tr == nil || tr.Pass {
		return nil
	}
	<-tr.gone
	return tr.fate
}

func (t *Traps) catch(op Op, after bool) *trap {
	t.mu.Lock()
	defer t.mu.Unlock()
	who := Caught{op.Order, op.Driver}
	for _, tr := range t.set {
		if !tr.covers(op, after) || tr.has(op.Order) || t.caught[who] && !tr.Pass {
			continue
		}
		t.caught[who] = true
		if t.Note != nil {
			t.Note(op, tr.Point)
		}
		tr.caught = append(tr.caught, who)
		close(tr.more)
		tr.more = make(chan struct{})
		return tr
	}
	return nil
}

// has says whether the trap has caught a grab of the order.
func (t *trap) has(order int64) bool {
	return slices.ContainsFunc(t.caught, func(c Caught) bool { return c.Order == order })
}
