package order

import (
	"context"
	"errors"
	"time"
)

// CallKind identifies a method of Store or Tx.
type CallKind string

// These are the methods that Intercept can intercept.
const (
	ReadCall     CallKind = "read"
	ClaimCall    CallKind = "claim"
	LockRowCall  CallKind = "lock row"
	LockNameCall CallKind = "lock name"
	CloseCall    CallKind = "close"
	HeldCall     CallKind = "held"
)

// Call is a method call on a Store or a Tx, with its arguments and result.
type Call struct {
	Kind CallKind
	Over Tx // the call's session; nil if the store chooses a connection

	// These fields are the arguments.
	Fence uint64 // the fencing token of a ReadCall
	Claim Claim  // the claim of a ClaimCall, with its guard
	Guard Guard
	Name  string // the lock name in a LockNameCall

	// These fields are the result.
	Order  Order // the result of a ReadCall
	Held   int   // the result of a HeldCall
	Locked bool  // the result of a LockRowCall or a LockNameCall
	Err    error
}

// Around replaces a method call on a Store. It can call send to make the original call, which
// stores its result in c. The method's caller gets the error that Around returns.
type Around func(ctx context.Context, c *Call, send func(context.Context) error) error

// Intercept returns a Store that passes all calls to around, except those of Begin, Create and Ledger.
// Package control and the explorer use it to stop the database calls of a grab.
func Intercept(s Store, around Around) Store {
	return interceptedStore{interceptedRows{s, nil, around}, s}
}

type interceptedStore struct {
	interceptedRows
	s Store
}

func (s interceptedStore) Create(ctx context.Context, count, units int) (int64, error) {
	return s.s.Create(ctx, count, units)
}

func (s interceptedStore) Ledger(ctx context.Context, first int64, count int) ([]Grab, error) {
	return s.s.Ledger(ctx, first, count)
}

func (s interceptedStore) Begin(ctx context.Context) (Tx, error) {
	tx, err := s.s.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return interceptedTx{interceptedRows{tx, tx, s.around}, tx}, nil
}

type interceptedTx struct {
	interceptedRows
	tx Tx
}

func (x interceptedTx) LockRow(ctx context.Context, id int64, wait time.Duration) (bool, error) {
	c := &Call{Kind: LockRowCall, Over: x.tx}
	return intercepted(ctx, x.around, c, &c.Locked, func(ctx context.Context) (bool, error) { return x.tx.LockRow(ctx, id, wait) })
}

func (x interceptedTx) LockName(ctx context.Context, name string, wait time.Duration) (bool, error) {
	c := &Call{Kind: LockNameCall, Over: x.tx, Name: name}
	return intercepted(ctx, x.around, c, &c.Locked, func(ctx context.Context) (bool, error) { return x.tx.LockName(ctx, name, wait) })
}

func (x interceptedTx) Close(ctx context.Context) error {
	return x.around.call(ctx, &Call{Kind: CloseCall, Over: x.tx}, x.tx.Close)
}

type interceptedRows struct {
	rows   Rows
	over   Tx // nil if the call has no session
	around Around
}

// Read returns the order even together with an error, such as ErrStale.
func (r interceptedRows) Read(ctx context.Context, id int64, fence uint64) (Order, error) {
	c := &Call{Kind: ReadCall, Over: r.over, Fence: fence}
	return intercepted(ctx, r.around, c, &c.Order, func(ctx context.Context) (Order, error) { return r.rows.Read(ctx, id, fence) })
}

func (r interceptedRows) Held(ctx context.Context, id, driver int64) (int, error) {
	c := &Call{Kind: HeldCall, Over: r.over}
	return intercepted(ctx, r.around, c, &c.Held, func(ctx context.Context) (int, error) { return r.rows.Held(ctx, id, driver) })
}

func (r interceptedRows) Claim(ctx context.Context, claim Claim, g Guard) error {
	return r.around.call(ctx, &Call{Kind: ClaimCall, Over: r.over, Claim: claim, Guard: g}, func(ctx context.Context) error {
		return r.rows.Claim(ctx, claim, g)
	})
}

// intercepted passes a call to a and returns the result. It stores the result in a field of c, so
// that a can read and change it.
func intercepted[T any](ctx context.Context, a Around, c *Call, result *T, send func(context.Context) (T, error)) (T, error) {
	err := a.call(ctx, c, func(ctx context.Context) (err error) {
		*result, err = send(ctx)
		return err
	})
	return *result, err
}

func (a Around) call(ctx context.Context, c *Call, send func(context.Context) error) error {
	err := a(ctx, c, func(ctx context.Context) error {
		c.Err = send(ctx)
		return c.Err
	})
	if err != nil && !errors.Is(err, c.Err) { // a call whose reply was lost has no result
		c.Order, c.Held, c.Locked = Order{}, 0, false
	}
	return err
}
