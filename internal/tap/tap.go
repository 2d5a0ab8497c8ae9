// Package tap calls a function, the tap, around every remote call in a grab. The tap can record a
// call, hold it, refuse it, or lose its reply.
//
// Strategies do not know about the tap. They call their clients, and the clients contain the tap.
// Redis installs the tap in go-redis, Connector in database/sql, Etcd in gRPC, and Around in a
// ZooKeeper client.
//
// An Op describes the call to the tap. The context tells to which grab the call belongs: the
// service enters the phases of a Scope, and OpFrom reads them from the context. Start reading at
// Tap.
package tap

import (
	"context"
	"sync/atomic"
)

// Phase is a part of a grab.
type Phase string

// These are the phases of a grab. Renew stands for all lock calls between the acquire and the
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

// DB is the target of database calls.
const DB = "db"

// Op describes one remote call.
type Op struct {
	Instance string
	Order    int64 // 0 if the call belongs to no grab
	Driver   int64
	Phase    Phase
	Target   string // the server: "redis", "redlock-3", DB, …
}

// Tap is called instead of a remote call. To make the call, it calls send. It may wait first, or
// not call send at all. The caller receives the error that Tap returns. A Tap must be safe for
// concurrent use.
type Tap func(ctx context.Context, op Op, send func(context.Context) error) error

// do calls t. If t is nil, it makes the call directly.
func (t Tap) do(ctx context.Context, op Op, send func(context.Context) error) error {
	if t == nil {
		return send(ctx)
	}
	return t(ctx, op, send)
}

// Scope identifies the grab to which a remote call belongs.
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

// Enter returns a context for a phase's calls, and a function that ends the phase. A call that
// still uses the acquire phase's context after its end counts as a renewal.
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

// Around returns a function that makes a call through t, for clients that do not support hooks. It
// ignores the key. If t is nil, Around returns nil.
func Around(t Tap, instance, target string) func(ctx context.Context, key string, call func() error) error {
	if t == nil {
		return nil
	}
	return func(ctx context.Context, _ string, call func() error) error {
		return t(ctx, OpFrom(ctx, Op{Instance: instance, Target: target}), func(context.Context) error { return call() })
	}
}
