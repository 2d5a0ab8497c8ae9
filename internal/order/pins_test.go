package order_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"grablab/internal/order"
)

// TestBeginWaitsForASession checks that sessions use at most three quarters of the connections. A client
// that wants another session must wait, but calls without a session must still work.
func TestBeginWaitsForASession(t *testing.T) {
	s := connect(t, mariaDSN(t), order.Options{MaxConns: 4})
	id, err := s.Create(t.Context(), 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	var pinned []order.Tx
	for range 3 {
		tx, err := s.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		pinned = append(pinned, tx)
	}
	hasty, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.Begin(hasty); !errors.Is(err, order.ErrExhausted) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a session too many: %v", err)
	}
	if _, err := s.Read(t.Context(), id, 0); err != nil {
		t.Errorf("a read meanwhile: %v", err)
	}

	waiting := make(chan error, 1)
	go func() {
		tx, err := s.Begin(t.Context())
		if err == nil {
			err = tx.Close(t.Context())
		}
		waiting <- err
	}()
	for i, tx := range pinned {
		if err := tx.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if i == 0 {
			if err := <-waiting; err != nil {
				t.Errorf("after another session was closed: %v", err)
			}
		}
	}
}

// TestCallsReturnTheirConnections repeats each call more often than the store has connections, with and
// without an error. A call that keeps its connection would make a later one wait until its deadline.
func TestCallsReturnTheirConnections(t *testing.T) {
	const none = 1_000_000 // an order that does not exist
	for _, db := range stores {
		t.Run(db.name, func(t *testing.T) {
			s := connect(t, db.dsn(t), order.Options{MaxConns: 2})
			id, err := s.Create(t.Context(), 1, 1)
			if err != nil {
				t.Fatal(err)
			}
			read := func(id int64, fence func() uint64) func(context.Context) error {
				return func(ctx context.Context) error { _, err := s.Read(ctx, id, fence()); return err }
			}
			fence := uint64(10)
			plain, stale := func() uint64 { return 0 }, func() uint64 { return 1 }
			rising := func() uint64 { fence++; return fence }
			claim := func(id int64, g order.Guard) func(context.Context) error {
				return func(ctx context.Context) error {
					return s.Claim(ctx, order.Claim{Order: id, Driver: 1, Token: "token"}, g)
				}
			}
			for _, call := range []struct {
				name string
				do   func(context.Context) error
				want error
			}{
				{"create", func(ctx context.Context) error { _, err := s.Create(ctx, 1, 1); return err }, nil},
				{"read", read(id, plain), nil},
				{"read of no order", read(none, plain), order.ErrNotFound},
				{"read with a token", read(id, rising), nil},
				{"read with an old token", read(id, stale), order.ErrStale},
				{"read of no order with a token", read(none, rising), order.ErrNotFound},
				{"claim", claim(id, order.Naive), nil},
				{"refused claim", claim(id, order.Guarded), order.ErrTaken},
				{"claim of no order", claim(none, order.Naive), order.ErrNotFound},
				{"claim without a token", claim(id, order.Fenced), order.ErrNotWritten},
				{"held", func(ctx context.Context) error { _, err := s.Held(ctx, id, 1); return err }, nil},
				{"ledger", func(ctx context.Context) error { _, err := s.Ledger(ctx, id, 1); return err }, nil},
				{"version", func(ctx context.Context) error { _, err := s.Version(ctx); return err }, nil},
				{"session", func(ctx context.Context) error {
					tx, err := s.Begin(ctx)
					if errors.Is(err, order.ErrUnsupported) {
						return nil
					}
					if err == nil {
						_, err = tx.LockRow(ctx, id, 0)
						err = errors.Join(err, tx.Close(ctx))
					}
					return err
				}, nil},
			} {
				gone, cancel := context.WithCancel(t.Context())
				cancel()
				for range 3 {
					_ = call.do(gone)
				}
				for n := range 3 {
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
					err := call.do(ctx)
					cancel()
					if !errors.Is(err, call.want) {
						t.Fatalf("%s, call %d: %v, want %v", call.name, n+1, err, call.want)
					}
				}
			}
		})
	}
}
