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
