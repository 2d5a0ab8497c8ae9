// Package tap is the one seam of the project: a function around every remote
// call that a grab makes. It can note a call, hold it, refuse it, or lose its
// reply. Strategies know nothing of it: they call their clients, and the clients
// have the tap built in, by Redis (a hook of go-redis), Connector (database/sql),
// Etcd (gRPC) and Around (ZooKeeper).
//
// What a tap is told of a call is its Op. Whose grab the call belongs to comes
// through the context: the service enters the phases of a Scope, and OpFrom
// finds it there. Begin at Tap.
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

// Phases lists them.
var Phases = []Phase{Acquire, Read, Claim, Release, Renew}

// DB is the target of the calls to the database.
const DB = "db"

// Op says what is known of one remote call.
type Op struct {
	Instance string
	Order    int64 // 0: the call belongs to no grab, or to several (batched renewals: see Keys)
	Driver   int64
	Phase    Phase
	Target   string   // which server: "redis", "redlock-3", DB, …
	Keys     []string // the keys it touches, where it names any
}

// Tap stands in the place of a remote call, which it makes by send. It may wait
// before and after that, not send at all, or return another error than send
// has: the caller is told what Tap returns. It is called by many goroutines at a
// time. A nil Tap sends.
type Tap func(ctx context.Context, op Op, send func(context.Context) error) error

// do makes one call through t.
func (t Tap) do(ctx context.Context, op Op, send func(context.Context) error) error {
	if t == nil {
		return send(ctx)
	}
	return t(ctx, op, send)
}

// Scope is one grab, as its remote calls see it.
type Scope struct {
	Order  int64
	Driver int64
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

// OpFrom completes an Op with what the context knows of its grab.
func OpFrom(ctx context.Context, op Op) Op {
	p, ok := ctx.Value(phaseKey{}).(*phase)
	if !ok {
		return op
	}
	op.Order, op.Driver, op.Phase = p.scope.Order, p.scope.Driver, p.name
	if p.name == Acquire && p.over.Load() {
		op.Phase = Renew
	}
	return op
}
