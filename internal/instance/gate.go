package instance

import (
	"context"
	"errors"
	"net/http"
	"time"

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

// gatedStore brings each call of a store to the gate as one, however many
// statements it is made of.
type gatedStore struct {
	*order.SQL
	gate     *tap.Gate
	instance string
}

func (s gatedStore) through(ctx context.Context, call func(context.Context) error) error {
	return s.gate.Send(ctx, tap.Within(ctx, tap.Op{Instance: s.instance, Target: tap.DB}), call)
}

func (s gatedStore) Read(ctx context.Context, id int64, fence uint64) (order.Order, error) {
	return s.read(ctx, s.SQL, id, fence)
}

// read returns the order also with the error that says why it is of no use.
func (s gatedStore) read(ctx context.Context, rows order.Rows, id int64, fence uint64) (o order.Order, err error) {
	err = s.through(ctx, func(ctx context.Context) (err error) {
		o, err = rows.Read(ctx, id, fence)
		return err
	})
	return o, err
}

func (s gatedStore) Claim(ctx context.Context, c order.Claim, g order.Guard) error {
	return s.claim(ctx, s.SQL, c, g)
}

// claim was not sent if it never got past the gate.
func (s gatedStore) claim(ctx context.Context, rows order.Rows, c order.Claim, g order.Guard) error {
	err := s.through(ctx, func(ctx context.Context) error { return rows.Claim(ctx, c, g) })
	if errors.Is(err, tap.ErrRefused) || errors.Is(err, tap.ErrTooLate) {
		err = errors.Join(order.ErrNotWritten, err)
	}
	return err
}

// Begin opens a session, which nobody else can tell: it is no step.
func (s gatedStore) Begin(ctx context.Context) (order.Tx, error) {
	tx, err := s.SQL.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return gatedTx{tx, s}, nil
}

type gatedTx struct {
	order.Tx
	store gatedStore
}

func (x gatedTx) Read(ctx context.Context, id int64, fence uint64) (order.Order, error) {
	return x.store.read(ctx, x.Tx, id, fence)
}

func (x gatedTx) Claim(ctx context.Context, c order.Claim, g order.Guard) error {
	return x.store.claim(ctx, x.Tx, c, g)
}

func (x gatedTx) LockRow(ctx context.Context, id int64, wait time.Duration) (ok bool, err error) {
	err = x.store.through(ctx, func(ctx context.Context) (err error) {
		ok, err = x.Tx.LockRow(ctx, id, wait)
		return err
	})
	return ok, err
}

func (x gatedTx) LockName(ctx context.Context, name string, wait time.Duration) (ok bool, err error) {
	err = x.store.through(ctx, func(ctx context.Context) (err error) {
		ok, err = x.Tx.LockName(ctx, name, wait)
		return err
	})
	return ok, err
}

func (x gatedTx) Close(ctx context.Context) error { return x.store.through(ctx, x.Tx.Close) }
