package sim

import (
	"context"
	"fmt"
	"strings"
	"time"

	"grablab/internal/order"
	"grablab/internal/schedule"
)

// store is the database as one instance sees it: each call a step.
type store struct {
	*order.Mem
	inst *instance
}

func (s store) through(ctx context.Context, text func() string, send func(context.Context) error) error {
	x := s.inst.execution
	return x.through(ctx, s.inst, &call{target: schedule.DB, text: text}, send)
}

func (s store) Read(ctx context.Context, id int64, fence uint64) (order.Order, error) {
	return s.read(ctx, s.Mem, id, fence)
}

func (s store) read(ctx context.Context, rows order.Rows, id int64, fence uint64) (o order.Order, err error) {
	text := func() string {
		return fmt.Sprintf("read the order%s: %s%s%s", fenced(fence), statusOf(o), fenced(o.Fence), failed(err))
	}
	err = s.through(ctx, text, func(ctx context.Context) error {
		o, err = rows.Read(ctx, id, fence)
		return err
	})
	return o, err
}

func statusOf(o order.Order) string {
	if o.Status == order.Open {
		return "open"
	}
	return fmt.Sprintf("grabbed by driver %d", o.Driver)
}

// fenced tells of a token, where there is one.
func fenced(fence uint64) string {
	if fence == 0 {
		return ""
	}
	return fmt.Sprintf(", fence %d", fence)
}

// failed tells why nothing came of it, if nothing did.
func failed(err error) string {
	if err == nil {
		return ""
	}
	return ": refused, " + strings.TrimPrefix(err.Error(), "order: ")
}

func (s store) Claim(ctx context.Context, c order.Claim, g order.Guard) error {
	return s.claim(ctx, s.Mem, c, g)
}

func (s store) claim(ctx context.Context, rows order.Rows, c order.Claim, g order.Guard) error {
	var err error
	text := func() string {
		return fmt.Sprintf("write driver %d as the winner, %s%s%s", c.Driver, g, fenced(c.Fence), failed(err))
	}
	return s.through(ctx, text, func(ctx context.Context) error {
		// As with a real one, a request that has arrived is carried out.
		err = rows.Claim(context.WithoutCancel(ctx), c, g)
		return err
	})
}

// Begin opens a session. It is no step by itself: nobody else can tell.
func (s store) Begin(ctx context.Context) (order.Tx, error) {
	tx, err := s.Mem.Begin(ctx)
	if err != nil {
		return nil, err
	}
	s.inst.sessions = append(s.inst.sessions, tx)
	return session{tx, s}, nil
}

type session struct {
	order.Tx
	store store
}

func (x session) Read(ctx context.Context, id int64, fence uint64) (order.Order, error) {
	return x.store.read(ctx, x.Tx, id, fence)
}

func (x session) Claim(ctx context.Context, c order.Claim, g order.Guard) error {
	return x.store.claim(ctx, x.Tx, c, g)
}

func (x session) LockRow(ctx context.Context, id int64, wait time.Duration) (ok bool, err error) {
	text := func() string { return fmt.Sprintf("lock the row: %t", ok) }
	err = x.store.through(ctx, text, func(ctx context.Context) error {
		ok, err = x.Tx.LockRow(ctx, id, wait)
		return err
	})
	return ok, err
}

func (x session) LockName(ctx context.Context, name string, wait time.Duration) (ok bool, err error) {
	text := func() string { return fmt.Sprintf("lock the name %s: %t", name, ok) }
	err = x.store.through(ctx, text, func(ctx context.Context) error {
		ok, err = x.Tx.LockName(ctx, name, wait)
		return err
	})
	return ok, err
}

func (x session) Close(ctx context.Context) error {
	return x.store.through(ctx, func() string { return "end the session" }, func(ctx context.Context) error { return x.Tx.Close(ctx) })
}
