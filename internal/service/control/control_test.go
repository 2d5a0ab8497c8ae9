package control_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/history"
	"grablab/internal/service/control"
	"grablab/internal/tap"
)

// A harness learns what a call was answered, and from the code whether its
// deadline had passed.
func TestAnswers(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want control.Answer
	}{
		{nil, control.Answer{}},
		{errors.New("refused"), control.Answer{Error: "refused"}},
		{fmt.Errorf("lock: %w", context.DeadlineExceeded), control.Answer{Error: "lock: context deadline exceeded", Code: control.Deadline}},
		{fmt.Errorf("read: %w", os.ErrDeadlineExceeded), control.Answer{Error: "read: i/o timeout", Code: control.Deadline}},
	} {
		s := control.NewServer("8004", 0, history.Discard)
		c := s.Client()
		if err := c.SetHold(t.Context(), "all", control.Hold{First: 7, Count: 1, Drivers: []int64{1}}); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error)
		go func() {
			op := tap.Op{Order: 7, Driver: 1, Phase: tap.Acquire, Target: "redis"}
			ended <- s.Do(t.Context(), op, func(context.Context) error { return tt.err })
		}()
		held, err := c.Held(t.Context(), "all", 1, time.Minute)
		if err != nil || len(held) != 1 {
			t.Fatalf("held %v, %v", held, err)
		}
		if a, err := c.Release(t.Context(), "all", held[0].Call, control.Delivered); err != nil || a != tt.want {
			t.Errorf("%v: %+v, %v, want %+v", tt.err, a, err, tt.want)
		}
		if err := <-ended; err != tt.err {
			t.Errorf("the caller got %v, want %v", err, tt.err)
		}
	}
}

// TestEventsThatEndAPhase records an event of each kind while breakpoints wait at the end of every phase. Only the end of
// a grab's own phase may stop it. A renewal runs in the background, so it belongs to no phase.
func TestEventsThatEndAPhase(t *testing.T) {
	for _, op := range append([]string{history.Grab, history.Lost, history.Strike}, catalog.Map(tap.Phases, func(p tap.Phase) string { return string(p) })...) {
		for _, kind := range []history.Kind{history.Invoke, history.OK, history.Fail, history.Info} {
			s := control.NewServer("8004", 0, history.Discard)
			for _, p := range tap.Phases {
				s.Set(string(p), control.Hold{First: 7, Count: 1, At: control.Point{Phase: p, After: true}})
			}
			recorded := make(chan struct{})
			go func() {
				s.Record(history.Event{Kind: kind, Op: op, Order: 7, Driver: 1})
				close(recorded)
			}()
			stops := kind == history.OK && slices.Contains(tap.Phases, tap.Phase(op)) && op != history.Renew
			if stops {
				held, err := s.Await(t.Context(), op, 1)
				if err != nil || len(held) != 1 || held[0].Driver != 1 {
					t.Errorf("%s %s: %v, %v", op, kind, held, err)
				}
				s.Close()
			}
			select {
			case <-recorded:
			case <-time.After(10 * time.Second):
				t.Fatalf("%s %s stops the grab", op, kind)
			}
		}
	}
}
