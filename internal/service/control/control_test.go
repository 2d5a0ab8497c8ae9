package control_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/history"
	"grablab/internal/order"
	"grablab/internal/service/control"
	"grablab/internal/tap"
)

// TestAnswers checks that Release returns the error of the call. A code must say whether the deadline
// had passed.
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
			t.Fatalf("Held returned %v, %v", held, err)
		}
		if a, err := c.Release(t.Context(), "all", held[0].Call, control.Delivered); err != nil || a != tt.want {
			t.Errorf("%v: Release: %+v, %v, want %+v", tt.err, a, err, tt.want)
		}
		if err := <-ended; err != tt.err {
			t.Errorf("the caller got %v, want %v", err, tt.err)
		}
	}
}

// TestEventsThatEndAPhase records an event of each kind while there are breakpoints at the end of every
// phase. Only the successful end of a phase must stop the grab. A renewal runs in the background, so its
// end must not stop the grab.
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
					t.Errorf("Await: %s %s: %v, %v", op, kind, held, err)
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

// TestEveryRoute sends each request of a client to a server, and checks what the server does and records.
func TestEveryRoute(t *testing.T) {
	var recorded []history.Event
	s := control.NewServer("8004", time.Hour, recorderFunc(func(e history.Event) { recorded = append(recorded, e) }))
	c := s.Client()
	if ahead := time.Until(s.Now()); ahead < 59*time.Minute || ahead > time.Hour {
		t.Errorf("the clock is %s ahead, want 1h", ahead)
	}
	if err := c.SetClock(t.Context(), -time.Minute); err != nil || time.Until(s.Now()) > -time.Minute {
		t.Errorf("the clock is %s ahead, want -1m; %v", time.Until(s.Now()), err)
	}
	point := control.Point{Phase: tap.Claim, N: 1}
	if err := c.SetHold(t.Context(), "a", control.Hold{First: 7, Count: 1, At: point, Strike: true}); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() {
		scope := &tap.Scope{Order: 7, Driver: 1}
		ctx, end := scope.Enter(t.Context(), tap.Claim)
		defer end()
		ended <- s.Do(ctx, tap.OpFrom(ctx, tap.Op{Target: tap.DB}), func(context.Context) error { return nil })
	}()
	held, err := c.Held(t.Context(), "a", 1, time.Minute)
	if err != nil || len(held) != 1 || held[0].Driver != 1 || held[0].State != control.Waiting {
		t.Fatalf("Held returned %+v, %v", held, err)
	}
	if all, err := c.Holds(t.Context()); err != nil || len(all) != 1 || !slices.Equal(all["a"], held) {
		t.Errorf("all breakpoints: %+v, %v", all, err)
	}
	other := held[0].Call
	other.Driver = 2
	if a, err := c.Release(t.Context(), "a", other, control.Delivered); err != nil || a.Code != control.NotHeld || a.Error == "" {
		t.Errorf("release of another call: %+v, %v", a, err)
	}
	if a, err := c.Release(t.Context(), "a", held[0].Call, control.Delivered); err != nil || a != (control.Answer{}) {
		t.Errorf("release: %+v, %v", a, err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for i, want := range []history.Kind{history.Info, history.OK} {
		if e := recorded[i]; len(recorded) != 2 || e.Kind != want || e.Op != history.Strike || e.Order != 7 || e.Driver != 1 || e.Note != point.String() {
			t.Errorf("event %d of %d: %+v", i, len(recorded), e)
		}
	}
	if err := c.RemoveHold(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	if all, err := c.Holds(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("breakpoints that are left: %+v, %v", all, err)
	}

	// The breakpoint is gone, so each request that names it fails.
	_, held1 := c.Held(t.Context(), "a", 1, time.Minute)
	_, released := c.Release(t.Context(), "a", held[0].Call, control.Delivered)
	for _, err := range []error{held1, released, c.RemoveHold(t.Context(), "a")} {
		if !errors.Is(err, control.ErrNoHold) {
			t.Errorf("error is %v, want %v", err, control.ErrNoHold)
		}
	}
	if err := c(t.Context(), http.MethodPut, "/lab/clock", map[string]int{"typo": 1}, new(struct{})); err == nil || !strings.Contains(err.Error(), "HTTP 400") || !strings.Contains(err.Error(), "typo") {
		t.Errorf("an unknown field: %v", err)
	}
	if err := c(t.Context(), http.MethodGet, "/orders", nil, new(struct{})); !errors.Is(err, control.ErrNoHold) {
		t.Errorf("another handler's path: %v", err)
	}
}

type recorderFunc func(history.Event)

func (f recorderFunc) Record(e history.Event) { f(e) }

// TestStoreAtBreakpoints refuses calls of a store at a breakpoint. Only the error of a claim must also be
// ErrNotWritten.
func TestStoreAtBreakpoints(t *testing.T) {
	store := &order.Mem{}
	first, err := store.Create(t.Context(), 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, phase := range []tap.Phase{tap.Read, tap.Claim} {
		s := control.NewServer("8004", 0, history.Discard)
		s.Set("all", control.Hold{First: first, Count: 1, Outcome: control.Refused})
		scope := &tap.Scope{Order: first, Driver: 1}
		ctx, end := scope.Enter(t.Context(), phase)
		through := s.Orders(store)
		if phase == tap.Read {
			_, err = through.Read(ctx, first, 0)
		} else {
			err = through.Claim(ctx, order.Claim{Order: first, Driver: 1}, order.Naive)
		}
		end()
		if !errors.Is(err, control.ErrRefused) || errors.Is(err, order.ErrNotWritten) != (phase == tap.Claim) {
			t.Errorf("refused call in the phase %s: error %v", phase, err)
		}
	}
}
