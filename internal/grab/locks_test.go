package grab_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/check"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/order"
)

// fight makes ten drivers on each of two instances grab one order at the same time. It returns the
// evidence for the checks.
func fight(t *testing.T, strategy string) check.Evidence {
	t.Helper()
	ctx := t.Context()
	began := time.Now()
	store := new(order.Mem)
	first, err := store.Create(ctx, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	var (
		mu       sync.Mutex
		told     []check.Pair
		tokens   int
		wg       sync.WaitGroup
		memories []*memory
	)
	for i, name := range []string{"8004", "8005"} {
		events := &memory{instance: name, now: func() time.Duration { return time.Since(began) }}
		memories = append(memories, events)
		s, err := grab.New(grab.Config{
			Instance: name, Orders: store, Strategy: strategy, Work: time.Second, History: events,
			Lock: lock.Env{Node: name, TTL: time.Minute, Wait: time.Minute, Token: func() string {
				mu.Lock()
				defer mu.Unlock()
				tokens++
				return fmt.Sprint(tokens)
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			wg.Wait()
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}()
		for driver := range 10 {
			req := grab.Request{Order: first, Driver: int64(10*i + driver + 1)}
			wg.Go(func() {
				if ans := s.Grab(context.WithoutCancel(ctx), req); ans.Outcome == grab.Grabbed {
					mu.Lock()
					defer mu.Unlock()
					told = append(told, check.Pair{Order: req.Order, Driver: req.Driver})
				}
			})
		}
	}
	wg.Wait()

	e := check.Evidence{Promised: told, Excludes: catalog.Global}
	if e.Ledger, err = store.Ledger(ctx, first, 1); err != nil {
		t.Fatal(err)
	}
	var scan check.Scan
	for _, m := range memories {
		for _, event := range m.Events() {
			scan.Add(event)
		}
	}
	e.Record = scan.Record()
	return e
}

// TestLocksAtWork checks the verdicts if the drivers use no lock, or a lock that works only within one
// process. Both break one-winner. The second one passes holders-exclusive only if it promises no more
// than exclusion per process.
func TestLocksAtWork(t *testing.T) {
	for _, tt := range []struct {
		strategy string
		excludes catalog.Exclusion
		winners  int
		overlaps int
		want     map[string]check.Result
	}{
		{"none", catalog.Global, 20, 19, map[string]check.Result{
			catalog.OneWinner: check.Fail, catalog.AnswersAgree: check.Pass, catalog.HoldersExclusive: check.Fail, catalog.Linearizable: check.Fail}},
		{"mutex", catalog.Global, 2, 1, map[string]check.Result{
			catalog.OneWinner: check.Fail, catalog.AnswersAgree: check.Pass, catalog.HoldersExclusive: check.Fail, catalog.Linearizable: check.Fail}},
		{"mutex", catalog.PerProcess, 2, 0, map[string]check.Result{
			catalog.OneWinner: check.Fail, catalog.AnswersAgree: check.Pass, catalog.HoldersExclusive: check.Pass}},
	} {
		t.Run(tt.strategy+"/"+string(tt.excludes), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := fight(t, tt.strategy)
				e.Excludes = tt.excludes
				if len(e.Ledger) != tt.winners {
					t.Errorf("%d winners, want %d", len(e.Ledger), tt.winners)
				}
				if n := len(check.Overlaps(e.Record.Holds, e.Excludes)); n != tt.overlaps {
					t.Errorf("%d overlaps, want %d", n, tt.overlaps)
				}
				got := map[string]check.Verdict{}
				for _, v := range check.Judge(e) {
					got[v.Property] = v
				}
				for name, want := range tt.want {
					if got[name].Result != want {
						t.Errorf("result for %s: %+v, want %s", name, got[name], want)
					}
				}
			})
		})
	}
}

// closingLock counts the calls of Close. Close returns err.
type closingLock struct {
	lock.Locker
	closed int
	err    error
}

func (l *closingLock) Close() error {
	l.closed++
	return l.err
}

// TestCloseEndsEveryLock checks that Close also closes locks that are no longer in use, even if
// closing another lock fails.
func TestCloseEndsEveryLock(t *testing.T) {
	locks := map[string]*closingLock{"first": {err: errors.New("first")}, "second": {err: errors.New("second")}, "third": {}}
	s, err := grab.New(grab.Config{Strategy: "first", Find: func(name string) (lock.Strategy, error) {
		return lock.Strategy{Name: name, Guard: order.Naive, New: func(lock.Env) (lock.Locker, error) { return locks[name], nil }}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"second", "third"} {
		if err := s.Switch(name); err != nil {
			t.Fatal(err)
		}
	}
	err = s.Close()
	for name, l := range locks {
		if l.closed != 1 {
			t.Errorf("the lock %s was closed %d times", name, l.closed)
		}
		if l.err != nil && !errors.Is(err, l.err) {
			t.Errorf("Close returned %v, without the error of the lock %s", err, name)
		}
	}
}
