package instance

import (
	"context"
	"database/sql"
	"errors"
	"net/http"

	"grablab/internal/order"
	"grablab/internal/tap"
)

// labTap is the tap of an instance with -traps: calls come to the gate first.
type labTap struct {
	*tap.Traps
	gate *tap.Gate
}

// Send implements tap.Sender.
func (t labTap) Send(ctx context.Context, op tap.Op, call func(context.Context) error) error {
	return t.gate.Send(ctx, op, func(ctx context.Context) error { return tap.Do(ctx, t.Traps, op, call) })
}

// GateState is the body of the answers about the gate: what stands there, and
// what has left it because its deadline had passed.
type GateState struct {
	Standing []tap.Standing `json:"standing"`
	Late     []tap.Call     `json:"late"`
}

func (l *lab) gateState(*http.Request) (any, error) {
	standing, late := l.gate.Stand()
	return GateState{standing, late}, nil
}

func (l *lab) shutGate(r *http.Request) (any, error) {
	var hold tap.Hold
	if err := readJSON(r, &hold); err != nil {
		return nil, err
	}
	l.gate.Shut(hold)
	return GateState{}, nil
}

func (l *lab) openGate(*http.Request) (any, error) {
	l.gate.Open()
	return GateState{}, nil
}

// Going is the body of POST /lab/gate/calls: which call is let go, and how. With
// no fate it is the reply of the call that is let go.
type Going struct {
	tap.Call
	Fate tap.Fate `json:"fate,omitempty"`
}

// Gone is the body of its answer: what the call came to, "" if to no error.
type Gone struct {
	Answer string `json:"answer"`
}

// letGo answers once the call has been answered.
func (l *lab) letGo(r *http.Request) (any, error) {
	var going Going
	if err := readJSON(r, &going); err != nil {
		return nil, err
	}
	if going.Fate == "" {
		return Gone{}, l.gate.LetReply(going.Call)
	}
	answer, err := l.gate.Let(r.Context(), going.Call, going.Fate)
	if err != nil || answer == nil {
		return Gone{}, err
	}
	return Gone{answer.Error()}, nil
}

// orders are those of store, each call of a grab brought to the gate.
func (l *lab) orders(store *order.SQL, instance string) order.Store {
	through := func(ctx context.Context, c *order.Call, send func(context.Context) error) error {
		err := l.gate.Send(ctx, tap.Within(ctx, tap.Op{Instance: instance, Target: tap.DB}), send)
		if c.Kind == order.ClaimCall && (errors.Is(err, tap.ErrRefused) || errors.Is(err, tap.ErrTooLate)) {
			err = errors.Join(order.ErrNotWritten, err) // it was never sent
		}
		return err
	}
	return pooled{order.Intercept(store, through), store}
}

// pooled is a Store that also gives away its pool of connections, to the
// strategy that must not use them as it does.
type pooled struct {
	order.Store
	pool interface{ DB() *sql.DB }
}

// DB returns the pool.
func (p pooled) DB() *sql.DB { return p.pool.DB() }
