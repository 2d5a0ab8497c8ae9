package order

import (
	"context"
	"time"
)

// CallKind says which call of a Store or a Tx a Call is.
type CallKind string

// The kinds of calls.
const (
	ReadCall     CallKind = "read"
	ClaimCall    CallKind = "claim"
	LockRowCall  CallKind = "lock row"
	LockNameCall CallKind = "lock name"
	CloseCall    CallKind = "close"
)

// Call is one call that a grab makes to its store: what was asked and, once it
// has been made, what came of it. However many statements it is made of, it is
// one step of a schedule.
type Call struct {
	Kind CallKind

	// What was asked.
	Fence uint64 // of a ReadCall
	Claim Claim  // of a ClaimCall, with its guard
	Guard Guard
	Name  string // of a LockNameCall

	// What came of it.
	Order  Order // of a ReadCall
	Locked bool  // of a LockRowCall or a LockNameCall
	Err    error
}

// Around is called in place of a call. send makes the call, and fills in what
// came of it. The error that Around returns is what the caller is told.
type Around func(ctx context.Context, c *Call, send func(context.Context) error) error

// Intercept returns a Store whose reads and claims go through around, and so do
// all calls of the sessions that it begins. Begin itself does not: no other
// client can tell whether a session has begun. Nor do Create and Ledger, which
// belong to no grab.
func Intercept(s Store, around Around) Store { return interceptedStore{s, around} }

type interceptedStore struct {
	Store
	around Around
}

func (s interceptedStore) Read(ctx context.Context, id int64, fence uint64) (Order, error) {
	return s.around.read(ctx, s.Store, id, fence)
}

func (s interceptedStore) Claim(ctx context.Context, c Claim, g Guard) error {
	return s.around.claim(ctx, s.Store, c, g)
}

func (s interceptedStore) Begin(ctx context.Context) (Tx, error) {
	tx, err := s.Store.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return interceptedTx{tx, s.around}, nil
}

type interceptedTx struct {
	Tx
	around Around
}

func (x interceptedTx) Read(ctx context.Context, id int64, fence uint64) (Order, error) {
	return x.around.read(ctx, x.Tx, id, fence)
}

func (x interceptedTx) Claim(ctx context.Context, c Claim, g Guard) error {
	return x.around.claim(ctx, x.Tx, c, g)
}

func (x interceptedTx) LockRow(ctx context.Context, id int64, wait time.Duration) (bool, error) {
	c := &Call{Kind: LockRowCall}
	err := x.around.call(ctx, c, func(ctx context.Context) (err error) {
		c.Locked, err = x.Tx.LockRow(ctx, id, wait)
		return err
	})
	return c.Locked, err
}

func (x interceptedTx) LockName(ctx context.Context, name string, wait time.Duration) (bool, error) {
	c := &Call{Kind: LockNameCall, Name: name}
	err := x.around.call(ctx, c, func(ctx context.Context) (err error) {
		c.Locked, err = x.Tx.LockName(ctx, name, wait)
		return err
	})
	return c.Locked, err
}

func (x interceptedTx) Close(ctx context.Context) error {
	return x.around.call(ctx, &Call{Kind: CloseCall}, x.Tx.Close)
}

// read returns the order also with the error that says why it is of no use.
func (a Around) read(ctx context.Context, rows Rows, id int64, fence uint64) (Order, error) {
	c := &Call{Kind: ReadCall, Fence: fence}
	err := a.call(ctx, c, func(ctx context.Context) (err error) {
		c.Order, err = rows.Read(ctx, id, fence)
		return err
	})
	return c.Order, err
}

func (a Around) claim(ctx context.Context, rows Rows, claim Claim, g Guard) error {
	return a.call(ctx, &Call{Kind: ClaimCall, Claim: claim, Guard: g}, func(ctx context.Context) error {
		return rows.Claim(ctx, claim, g)
	})
}

func (a Around) call(ctx context.Context, c *Call, send func(context.Context) error) error {
	return a(ctx, c, func(ctx context.Context) error {
		c.Err = send(ctx)
		return c.Err
	})
}
