package tap_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"grablab/internal/tap"
)

var beforeClaim = tap.Point{Phase: tap.Claim, N: 1}

// drivers are those whose calls were sent.
type drivers struct {
	mu  sync.Mutex
	who []int64
}

func (d *drivers) add(driver int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.who = append(d.who, driver)
}

func (d *drivers) all() []int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.who)
}

// grabOf makes the call of a grab at a point of its phase, and says on the
// channel what it came to.
func grabOf(ctx context.Context, traps *tap.Traps, order, driver int64, phase tap.Phase, sent *drivers) <-chan error {
	ended := make(chan error, 1)
	go func() {
		scope := &tap.Scope{Order: order, Driver: driver}
		ctx, end := scope.Enter(ctx, phase)
		defer end()
		ended <- tap.Do(ctx, traps, tap.OpFrom(ctx, tap.Op{}), func(context.Context) error {
			sent.add(driver)
			return nil
		})
	}()
	return ended
}

func TestTrapHoldsTheFirstOfEachOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var noted []string
		traps := &tap.Traps{Note: func(op tap.Op, p tap.Point) { noted = append(noted, p.String()) }}
		traps.Set("here", tap.Trap{Point: beforeClaim, First: 7, Count: 2})
		var sent drivers

		// A held call minds no context.
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		first := grabOf(gone, traps, 7, 1, tap.Claim, &sent)
		synctest.Wait()
		for _, other := range []struct {
			order, driver int64
			phase         tap.Phase
		}{{7, 2, tap.Claim}, {9, 3, tap.Claim}, {8, 4, tap.Read}} {
			if err := <-grabOf(t.Context(), traps, other.order, other.driver, other.phase, &sent); err != nil {
				t.Errorf("driver %d: %v", other.driver, err)
			}
		}
		second := grabOf(t.Context(), traps, 8, 5, tap.Claim, &sent)
		caught, err := traps.Await(t.Context(), "here", 2)
		if want := []tap.Caught{{Order: 7, Driver: 1}, {Order: 8, Driver: 5}}; err != nil || !slices.Equal(caught, want) {
			t.Errorf("caught %v, %v, want %v", caught, err, want)
		}
		time.Sleep(time.Hour)
		if !slices.Equal(sent.all(), []int64{2, 3, 4}) {
			t.Fatalf("sent by %v, want none of those held", sent.all())
		}
		if _, err := traps.Lift("here", nil); err != nil {
			t.Error(err)
		}
		if err := errors.Join(<-first, <-second); err != nil {
			t.Error(err)
		}
		if len(sent.all()) != 5 {
			t.Errorf("sent by %v, want all five", sent.all())
		}
		if want := []string{"before claim 1", "before claim 1"}; !slices.Equal(noted, want) {
			t.Errorf("noted %v, want %v", noted, want)
		}
	})
}

func TestTrapRefuses(t *testing.T) {
	for _, after := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			traps := new(tap.Traps)
			traps.Set("here", tap.Trap{Point: tap.Point{Phase: tap.Claim, N: 1, After: after}, First: 7, Count: 1})
			var sent drivers
			ended := grabOf(t.Context(), traps, 7, 1, tap.Claim, &sent)
			synctest.Wait()
			traps.LiftAll()
			if err := <-ended; !errors.Is(err, tap.ErrRefused) {
				t.Errorf("%v, want it refused", err)
			}
			if was := len(sent.all()) == 1; was != after {
				t.Errorf("after %v: sent %v", after, was)
			}
		})
	}
}

// A grab that one trap has let go is not caught again by another.
func TestTrapCatchesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		traps := new(tap.Traps)
		traps.Set("seen", tap.Trap{Point: tap.Point{Phase: tap.Read, N: 1, After: true}, First: 7, Count: 1, Pass: true})
		traps.Set("held", tap.Trap{Point: beforeClaim, First: 7, Count: 1})
		var sent drivers
		for _, phase := range []tap.Phase{tap.Read, tap.Claim} {
			if err := <-grabOf(t.Context(), traps, 7, 1, phase, &sent); err != nil {
				t.Error(err)
			}
		}
		rival := grabOf(t.Context(), traps, 7, 2, tap.Claim, &sent)
		if caught, err := traps.Await(t.Context(), "held", 1); err != nil || caught[0].Driver != 2 {
			t.Errorf("held %v, %v", caught, err)
		}
		// It may still be seen.
		traps.Set("gone", tap.Trap{Point: tap.Point{Phase: tap.Release, N: 1}, First: 7, Count: 1, Pass: true})
		if err := <-grabOf(t.Context(), traps, 7, 1, tap.Release, &sent); err != nil {
			t.Error(err)
		}
		if caught, err := traps.Lift("gone", nil); err != nil || len(caught) != 1 {
			t.Errorf("seen %v, %v", caught, err)
		}
		traps.LiftAll()
		<-rival
	})
}

func TestTrapLetsPassWhatFailed(t *testing.T) {
	traps := new(tap.Traps)
	traps.Set("here", tap.Trap{Point: tap.Point{Phase: tap.Read, N: 1, After: true}, First: 7, Count: 1})
	op := tap.Op{Order: 7, Driver: 1, Phase: tap.Read, N: 1}
	if err := traps.After(t.Context(), op, errFault); !errors.Is(err, errFault) {
		t.Errorf("%v, want the call's own error", err)
	}
	if caught, err := traps.Lift("here", nil); len(caught) > 0 || err != nil {
		t.Errorf("caught %v, %v", caught, err)
	}
}

func TestAwaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		traps := new(tap.Traps)
		if _, err := traps.Await(t.Context(), "nowhere", 1); !errors.Is(err, tap.ErrNoTrap) {
			t.Errorf("%v, want no such trap", err)
		}
		if _, err := traps.Lift("nowhere", nil); !errors.Is(err, tap.ErrNoTrap) {
			t.Errorf("%v, want no such trap", err)
		}
		traps.Set("here", tap.Trap{Point: beforeClaim, First: 7, Count: 1})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if caught, err := traps.Await(ctx, "here", 1); len(caught) > 0 || err != nil {
			t.Errorf("%v, %v, want nobody", caught, err)
		}
		lifted := make(chan struct{})
		go func() {
			defer close(lifted)
			traps.Await(t.Context(), "here", 1)
		}()
		synctest.Wait()
		traps.LiftAll()
		<-lifted
	})
}

func TestTrapBehindAPhase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		traps := new(tap.Traps)
		point := tap.Point{Phase: tap.Read, After: true}
		if point.String() != "after read" {
			t.Errorf("%q", point)
		}
		traps.Set("here", tap.Trap{Point: point, First: 7, Count: 1})
		var sent drivers
		if err := <-grabOf(t.Context(), traps, 7, 1, tap.Read, &sent); err != nil {
			t.Error(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			traps.Ended(tap.Read, 7, 1)
		}()
		if caught, err := traps.Await(t.Context(), "here", 1); err != nil || len(caught) != 1 {
			t.Errorf("caught %v, %v", caught, err)
		}
		traps.LiftAll()
		<-ended
	})
}
