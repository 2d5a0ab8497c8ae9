package order

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"grablab/internal/catalog"
)

// TestFactsOfGuards compares the properties of each guard with a table. The test fails for a guard that is
// missing from the table.
func TestFactsOfGuards(t *testing.T) {
	type facts struct{ needsFence, looksFirst, limitsDrivers, setsCounter, writesAnyway, sellsUnits bool }
	want := map[Guard]facts{
		Naive:      {looksFirst: true, setsCounter: true, writesAnyway: true, sellsUnits: true},
		Guarded:    {limitsDrivers: true, sellsUnits: true},
		FenceWrite: {needsFence: true, limitsDrivers: true, setsCounter: true, sellsUnits: true},
		Fenced:     {needsFence: true, limitsDrivers: true, setsCounter: true, sellsUnits: true},
		Decrement:  {writesAnyway: true, sellsUnits: true},
		Unique:     {limitsDrivers: true, setsCounter: true, writesAnyway: true},
	}
	for _, g := range Guards {
		got := facts{g.NeedsFence(), g.LooksFirst(), g.LimitsDrivers(), g.setsCounter(), g.writesAnyway(), g.RefusesUnits(2) == ""}
		if known, ok := want[g]; !ok || got != known {
			t.Errorf("properties of the guard %s: %+v, want %+v", g, got, known)
		}
		if g.RefusesUnits(1) != "" || (g.Shows() == catalog.FenceAtWrite) != (g == FenceWrite) || (g.Shows() == 0) == (g == FenceWrite) {
			t.Errorf("%s: refuses one unit, %q; shows %v", g, g.RefusesUnits(1), g.Shows())
		}
		if (Claim{PerDriver: 1}).checksLimit(g) || (Claim{Stock: 1}).checksLimit(g) != g.LimitsDrivers() {
			t.Errorf("%s: the write must check the limit per driver only for an order of several units", g)
		}
		if parsed, err := ParseGuard(string(g)); err != nil || parsed != g {
			t.Errorf("%s is read as %s, %v", g, parsed, err)
		}
	}
	if _, err := ParseGuard("Naive"); err == nil {
		t.Error("an unknown guard is accepted")
	}
	err := (Claim{Token: "t", Stock: 1}).validate(Unique)
	if want := "order: " + Unique.RefusesUnits(MaxStock); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("several units with the guard unique: got %v, want %q", err, want)
	}
}

// TestErrorsNameTheirCause checks the text of errors that wrap another error. The text must name each of the two
// errors once, and begin with the error that says what happened to the call.
func TestErrorsNameTheirCause(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	driver := errors.New("bad connection")
	for _, tt := range []struct {
		got  error
		want string
		is   []error
	}{
		{notWritten(driver), ErrNotWritten.Error() + ": bad connection", []error{ErrNotWritten, driver}},
		{withCause(t.Context(), driver), "bad connection", []error{driver}},
		{withCause(ended, driver), "context canceled: bad connection", []error{context.Canceled, driver}},
		{withCause(ended, fmt.Errorf("read: %w", context.Canceled)), "read: context canceled", []error{context.Canceled}},
	} {
		if tt.got.Error() != tt.want {
			t.Errorf("the error is %q, want %q", tt.got, tt.want)
		}
		for _, wrapped := range tt.is {
			if !errors.Is(tt.got, wrapped) {
				t.Errorf("%q does not wrap %q", tt.got, wrapped)
			}
		}
	}
}

// TestEndOfASession makes a session wait for a lock of each kind, and ends the wait in each possible way. It
// then checks which session has the lock, and that the calls of an ended session fail.
func TestEndOfASession(t *testing.T) {
	const wait = time.Second
	type locker func(context.Context, Tx) (bool, error)
	lockers := map[string]locker{
		"row":  func(ctx context.Context, tx Tx) (bool, error) { return tx.LockRow(ctx, 1, wait) },
		"name": func(ctx context.Context, tx Tx) (bool, error) { return tx.LockName(ctx, "n", wait) },
	}
	for kind, lock := range lockers {
		for end, way := range map[string]struct {
			do       func(m *Mem, holder, waiter Tx, hangUp func())
			ok       bool  // whether the waiter gets the lock
			err      error // its error
			sessions int   // how many sessions are left
		}{
			"holder ends": {func(_ *Mem, holder, _ Tx, _ func()) { holder.Close(t.Context()) }, true, nil, 1},
			"waiter ends": {func(_ *Mem, _, waiter Tx, _ func()) { waiter.Close(t.Context()) }, false, errMemLost, 1},
			"restart":     {func(m *Mem, _, _ Tx, _ func()) { m.Restart() }, false, errMemLost, 0},
			"hangs up":    {func(_ *Mem, _, _ Tx, hangUp func()) { hangUp() }, false, context.Canceled, 2},
			"time passes": {func(*Mem, Tx, Tx, func()) { time.Sleep(wait) }, false, nil, 2},
		} {
			synctest.Test(t, func(t *testing.T) {
				m := &Mem{}
				if _, err := m.Create(t.Context(), 1, 1); err != nil {
					t.Fatal(err)
				}
				holder, err1 := m.Begin(t.Context())
				waiter, err2 := m.Begin(t.Context())
				if err := errors.Join(err1, err2); err != nil || m.Sessions() != 2 {
					t.Fatal(err, m.Sessions())
				}
				for range 2 { // a session can get its own lock again
					if ok, err := lock(t.Context(), holder); !ok || err != nil {
						t.Fatal(ok, err)
					}
				}
				ctx, hangUp := context.WithCancel(t.Context())
				defer hangUp()
				var ok bool
				var err error
				done := make(chan struct{})
				go func() { defer close(done); ok, err = lock(ctx, waiter) }()
				synctest.Wait()
				begin := time.Now()
				way.do(m, holder, waiter, hangUp)
				<-done
				if atOnce := time.Since(begin) == 0; atOnce == (end == "time passes") || ok != way.ok || !errors.Is(err, way.err) || m.Sessions() != way.sessions {
					t.Errorf("%s, %s: the waiter got %v, %v; %d sessions are left", kind, end, ok, err, m.Sessions())
				}
				var again error
				if way.sessions == 0 { // the lock is free, but an ended session must not take it
					_, again = lock(t.Context(), waiter)
				}
				third, err := m.Begin(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if free, err := lock(t.Context(), third); free != (way.sessions == 0) || err != nil {
					t.Errorf("%s, %s: a third session got the lock: %v, %v", kind, end, free, err)
				}
				if way.sessions == 0 {
					_, read := waiter.Read(t.Context(), 1, 0)
					_, held := waiter.Held(t.Context(), 1, 1)
					for i, err := range []error{read, held, again, waiter.Claim(t.Context(), Claim{Order: 1, Driver: 1}, Naive), waiter.Close(t.Context())} {
						if !errors.Is(err, errMemLost) {
							t.Errorf("%s, %s: call %d of an ended session: %v", kind, end, i, err)
						}
					}
					if o, err := m.Read(t.Context(), 1, 0); err != nil || o.Status != Open || o.Fence != 0 {
						t.Errorf("%s, %s: an ended session has written: %+v, %v", kind, end, o, err)
					}
				}
			})
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	m := &Mem{}
	if _, err := m.Begin(ended); !errors.Is(err, context.Canceled) || m.Sessions() != 0 {
		t.Errorf("a session of a client that has gone: %v, %d sessions", err, m.Sessions())
	}
}
