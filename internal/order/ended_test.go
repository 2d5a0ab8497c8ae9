package order_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"sync"
	"testing"

	"grablab/internal/order"
)

// An endingContext ends with the error err when the test calls end.
type endingContext struct {
	context.Context
	done chan struct{}
	end  func()
	err  error
}

func newEndingContext(t *testing.T, err error) *endingContext {
	done := make(chan struct{})
	return &endingContext{t.Context(), done, sync.OnceFunc(func() { close(done) }), err}
}

func (c *endingContext) Done() <-chan struct{} { return c.done }

func (c *endingContext) Err() error {
	select {
	case <-c.done:
		return c.err
	default:
		return nil
	}
}

// endsAt returns a function that ends the context at the nth statement from now, before the
// statement is sent or after it took effect. The caller of the statement then gets the error of the
// context, as if its driver had stopped waiting. It stores the statement in struck, which stays
// empty if there are fewer than n statements.
func (c *endingContext) endsAt(n int, sent bool, struck *string) around {
	count := 0
	return func(ctx context.Context, query string, send func(context.Context) (driver.Result, error)) (driver.Result, error) {
		if count++; count != n {
			return send(ctx)
		}
		*struck = query
		if sent {
			if _, err := send(context.WithoutCancel(ctx)); err != nil {
				return nil, err
			}
		}
		c.end()
		return nil, c.err
	}
}

// TestContextEndsAtEveryStatement ends the context of a claim at each of its statements, by a deadline or
// a cancellation. The store must still roll back, look for the row, and free the session. The claim must
// therefore report the outcome, which must match the ledger.
func TestContextEndsAtEveryStatement(t *testing.T) {
	for _, db := range stores {
		for _, over := range []string{"store", "session"} {
			if over == "session" && db.name == "SQLite" {
				continue // it has no sessions
			}
			t.Run(db.name+"/"+over, func(t *testing.T) {
				lossy := &lossy{}
				s := connect(t, db.dsn(t), order.Options{Wrap: lossy.wrap})
				ends := func(n int, sent bool, ctxErr error) (struck string) {
					id, err := s.Create(t.Context(), 1, 1)
					if err != nil {
						t.Fatal(err)
					}
					ctx := newEndingContext(t, ctxErr)
					var rows order.Rows = s
					if over == "session" {
						tx, err := s.Begin(t.Context())
						if err != nil {
							t.Fatal(err)
						}
						rows = tx
					}
					lossy.around = ctx.endsAt(n, sent, &struck)
					err = rows.Claim(ctx, order.Claim{Order: id, Driver: 1, Token: "mine"}, order.Guarded)
					lossy.around = nil
					written := struck == "" || struck == "COMMIT" && sent
					if known := err == nil && written || errors.Is(err, order.ErrNotWritten) && errors.Is(err, ctxErr) && !written; !known {
						t.Errorf("%v at statement %d, %s, sent %v: %v, want it written: %v", ctxErr, n, struck, sent, err, written)
					}
					if tx, ok := rows.(order.Tx); ok {
						if err := tx.Close(ctx); err != nil && struck == "" {
							t.Error("close:", err)
						}
					}
					if grabs, err := s.Ledger(t.Context(), id, 1); err != nil || (len(grabs) == 1) != written {
						t.Errorf("%v at statement %d, %s, sent %v: the ledger has %v, %v", ctxErr, n, struck, sent, grabs, err)
					}
					// The claim must leave no lock behind.
					if err := s.Claim(t.Context(), order.Claim{Order: id, Driver: 2, Token: "next"}, order.Naive); err != nil {
						t.Error("next claim:", err)
					}
					return struck
				}
				for _, ctxErr := range []error{context.Canceled, context.DeadlineExceeded} {
					for _, sent := range []bool{false, true} {
						last := ""
						for n := 1; ; n++ {
							struck := ends(n, sent, ctxErr)
							if struck == "" {
								break
							}
							last = struck
						}
						if last != "COMMIT" {
							t.Errorf("the last statement is %q, want COMMIT", last)
						}
					}
				}
			})
		}
	}
}
