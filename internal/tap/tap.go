// Package tap puts a function around every remote call that a grab makes. The function can
// record a call, hold it, refuse it, or lose its reply. Strategies do not know about it:
// they call their clients, and the clients contain the tap. Redis installs it in go-redis,
// Connector in database/sql, Etcd in gRPC, and Around in a ZooKeeper client.
//
// The tap learns about a call through an Op. The context says which grab the call belongs
// to: the service enters the phases of a Scope, and OpFrom finds them there. Start reading
// at Tap.
package tap

import (
	"context"
	"sync/atomic"
)

// Phase is a part of a grab.
type Phase string

// These are the phases of a grab. Renew covers all calls of a lease between its acquire and its
// release.
const (
	Acquire Phase = "acquire"
	Read    Phase = "read"
	Claim   Phase = "claim"
	Release Phase = "release"
	Renew   Phase = "renew"
)

// Phases lists all phases.
var Phases = []Phase{Acquire, Read, Claim, Release, Renew}

// DB is the target of calls to the database.
const DB = "db"

// Op describes one remote call.
type Op struct {
	Instance string
	Order    int64 // 0 if the call belongs to no grab or to several grabs (a batch of renewals; see Keys)
	Driver   int64
	Phase    Phase
	Target   string   // the server: "redis", "redlock-3", DB, …
	Keys     []string // the keys that the call names, if any
}

// Tap is called instead of a remote call. It makes the call by calling send. It may wait before that,
// or not send at all. The caller gets the error that Tap returns. A Tap must be safe for concurrent
// use. A nil Tap only sends.
type Tap func(ctx context.Context, op Op, send func(context.Context) error) error

// do makes one call through t.
func (t Tap) do(ctx context.Context, op Op, send func(context.Context) error) error {
	if t == nil {
		return send(ctx)
	}
	return t(ctx, op, send)
}

// Scope is the grab that a remote call belongs to.
type Scope struct {
	Order  int64
	Driver int64
}

type phaseKey struct{}

type phase struct {
	scope *Scope
	name  Phase
	ended atomic.Bool
}

// Enter returns a context for the calls of a phase, and a function that ends the phase. After the end
// of the phase acquire, calls with its context count as renewals.
func (s *Scope) Enter(ctx context.Context, name Phase) (context.Context, func()) {
	p := &phase{scope: s, name: name}
	return context.WithValue(ctx, phaseKey{}, p), func() { p.ended.Store(true) }
}

// OpFrom adds the order, the driver and the phase from the context to op.
func OpFrom(ctx context.Context, op Op) Op {
	p, ok := ctx.Value(phaseKey{}).(*phase)
	if !ok {
		return op
	}
	op.Order, op.Driver, op.Phase = p.scope.Order, p.scope.Driver, p.name
	if p.name == Acquire && p.ended.Load() {
		op.Phase = Renew
	}
	return op
}
