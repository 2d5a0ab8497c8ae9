// Package tap is the one seam of the project: a hook around every remote call.
// A tap records, springs aimed faults and, in the explorer, decides who moves
// next. Strategies know nothing of it: they call their clients, and the clients
// carry the tap.
package tap

import (
	"context"
	"sync/atomic"
)

// Phase is the part of a grab during which a call is made.
type Phase string

// The phases. Renew is what calls are that a lease makes between its acquire
// and its release; most of them come from its background work, which does not
// enter it.
const (
	Acquire Phase = "acquire"
	Read    Phase = "read"
	Claim   Phase = "claim"
	Release Phase = "release"
	Renew   Phase = "renew"
)

// Op names one remote call.
type Op struct {
	Instance string
	Order    int64 // 0: the call belongs to no grab, or to several (batched renewals: see Keys)
	Driver   int64
	Phase    Phase
	N        int      // the Nth call of its phase in its grab, from 1
	Target   string   // which server: "redis", "redlock-3", "db", …
	Keys     []string // the keys it touches, where it names any
}

// Tap stands around remote calls. It must be safe for concurrent use.
type Tap interface {
	// Before may wait, or refuse: then the call is not sent and fails with the error.
	Before(context.Context, Op) error
	// After gets the call's outcome and returns what the caller is told. It may
	// delay a reply, or lose it by returning an error in place of nil.
	After(context.Context, Op, error) error
}

// Do makes one call through t. A nil tap makes it straight.
func Do(ctx context.Context, t Tap, op Op, call func(context.Context) error) error {
	if t == nil {
		return call(ctx)
	}
	if sender, ok := t.(Sender); ok {
		return sender.Send(ctx, op, call)
	}
	if err := t.Before(ctx, op); err != nil {
		return err
	}
	return t.After(ctx, op, call(ctx))
}

// Scope is one grab, as its remote calls see it.
type Scope struct {
	Order  int64
	Driver int64

	calls [4]atomic.Int32 // by phase: acquire and its renewals apart
	renew atomic.Int32
}

type phaseKey struct{}

type phase struct {
	scope *Scope
	name  Phase
	over  atomic.Bool
}

// Enter returns a context whose calls belong to the named phase of s, and a
// function that ends the phase. Calls made with the acquire context after its
// end are renewals: a lease's background work keeps the context it began with.
func (s *Scope) Enter(ctx context.Context, name Phase) (context.Context, func()) {
	p := &phase{scope: s, name: name}
	return context.WithValue(ctx, phaseKey{}, p), func() { p.over.Store(true) }
}

// OpFrom completes an Op with what the context knows of its grab, and counts
// the call.
func OpFrom(ctx context.Context, op Op) Op {
	op, scope := within(ctx, op)
	if scope != nil {
		op.N = int(scope.counter(op.Phase).Add(1))
	}
	return op
}

// Within is OpFrom for what is made of several calls, and is none itself: N
// stays as it is.
func Within(ctx context.Context, op Op) Op {
	op, _ = within(ctx, op)
	return op
}

func within(ctx context.Context, op Op) (Op, *Scope) {
	p, ok := ctx.Value(phaseKey{}).(*phase)
	if !ok {
		return op, nil
	}
	op.Order, op.Driver, op.Phase = p.scope.Order, p.scope.Driver, p.name
	if p.name == Acquire && p.over.Load() {
		op.Phase = Renew
	}
	return op, p.scope
}

func (s *Scope) counter(p Phase) *atomic.Int32 {
	switch p {
	case Acquire:
		return &s.calls[0]
	case Read:
		return &s.calls[1]
	case Claim:
		return &s.calls[2]
	case Release:
		return &s.calls[3]
	default:
		return &s.renew
	}
}
