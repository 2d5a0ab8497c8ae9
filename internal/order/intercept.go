package order

import (
	"context"
	"errors"
	"time"
)

// CallKind names a method of a Store or a Tx.
type CallKind string

// The kinds of calls.
const (
	ReadCall     CallKind = "read"
	ClaimCall    CallKind = "claim"
	LockRowCall  CallKind = "lock row"
	LockNameCall CallKind = "lock name"
	CloseCall    CallKind = "close"
	HeldCall     CallKind = "held"
)

// Call is one call from a grab to its store: the arguments and, after the call, the result.
// It is one step of a schedule, however many statements it consists of.
type Call struct {
	Kind CallKind
	Over Tx // the session of the call; nil if the store picks one

	// The arguments.
	Fence uint64 // of a ReadCall
	Claim Claim  // of a ClaimCall, with its guard
	Guard Guard
	Name  string // of a LockNameCall

	// The result.
	Order  Order // of a ReadCall
	Held   int   // of a HeldCall
	Locked bool  // of a LockRowCall or a LockNameCall
	Err    error
}

// Around is a function that is called in place of a store's method. Its argument send makes the
// call and fills in the result. The caller gets the error that Around returns.
type Around func(ctx context.Context, c *Call, send func(context.Context) error) error

// Intercept returns a Store whose reads and claims go through around, as do all calls of the
// sessions that it begins. Begin itself does not, because no other client can see whether a
// session has begun. Create and Ledger do not, because they belong to no grab.
func Intercept(s Store, around Around) Store {
	return interceptedStore{interceptedRows{s, nil, around}, s}
}

type interceptedStore struct {
	interceptedRows
	s Store
}

func (s interceptedStore) Create(ctx context.Context, count int) (int64, error) {
	return s.s.Create(ctx, count)
}

func (s interceptedStore) CreateStock(ctx context.Context, count, units int) (int64, error) {
	return s.s.CreateStock(ctx, count, units)
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
	err := x.around.call(ctx, c, func(ctx context.Context) (err error) {
		c.Locked, err = x.tx.LockRow(ctx, id, wait)
		return err
	})
	return c.Locked, err
}

func (x interceptedTx) LockName(ctx context.Context, name string, wait time.Duration) (bool, error) {
	c := &Call{Kind: LockNameCall, Over: x.tx, Name: name}
	err := x.around.call(ctx, c, func(ctx context.Context) (err error) {
		c.Locked, err = x.tx.LockName(ctx, name, wait)
		return err
	})
	return c.Locked, err
}

func (x interceptedTx) Close(ctx context.Context) error {
	return x.around.call(ctx, &Call{Kind: CloseCall, Over: x.tx}, x.tx.Close)
}

type interceptedRows struct {
	rows   Rows
	over   Tx // nil without a session
	around Around
}

// Read returns the order even if it also returns an error.
func (r interceptedRows) Read(ctx context.Context, id int64, fence uint64) (Order, error) {
	c := &Call{Kind: ReadCall, Over: r.over, Fence: fence}
	err := r.around.call(ctx, c, func(ctx context.Context) (err error) {
		c.Order, err = r.rows.Read(ctx, id, fence)
		return err
	})
	return c.Order, err
}

func (r interceptedRows) Held(ctx context.Context, id, driver int64) (int, error) {
	c := &Call{Kind: HeldCall, Over: r.over}
	err := r.around.call(ctx, c, func(ctx context.Context) (err error) {
		c.Held, err = r.rows.Held(ctx, id, driver)
		return err
	})
	return c.Held, err
}

func (r interceptedRows) Claim(ctx context.Context, claim Claim, g Guard) error {
	return r.around.call(ctx, &Call{Kind: ClaimCall, Over: r.over, Claim: claim, Guard: g}, func(ctx context.Context) error {
		return r.rows.Claim(ctx, claim, g)
	})
}

func (a Around) call(ctx context.Context, c *Call, send func(context.Context) error) error {
	err := a(ctx, c, func(ctx context.Context) error {
		c.Err = send(ctx)
		return c.Err
	})
	if err != nil && !errors.Is(err, c.Err) { // a lost reply carries no result
		c.Order, c.Held, c.Locked = Order{}, 0, false
	}
	return err
}
