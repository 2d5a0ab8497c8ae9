package fleet

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"grablab/internal/history"
	"grablab/internal/service/control"
	"grablab/internal/testbed/wire"
)

// TestAwaitQuietByDefinition makes two instances send statements of random duration at random times.
// AwaitQuiet checks regularly whether any statement has run recently. It must return true at the first
// check that finds none, and false if there is no such check in time.
func TestAwaitQuietByDefinition(t *testing.T) {
	const long, within = 300 * time.Millisecond, 3 * time.Second
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	results := map[bool]int{}
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 10))
			f := &Fleet{service: &Service{}}
			for range 2 {
				f.Instances = append(f.Instances, &Instance{wires: &wires{
					database: "mysql", naming: newNaming(), holds: control.NewServer("a", 0, history.Discard),
				}})
			}
			began := time.Now()
			type statement struct{ from, to time.Duration }
			var all []statement
			var sending sync.WaitGroup
			defer sending.Wait()
			for range 1 + r.IntN(24) {
				s := statement{from: ms(1 + 2*r.IntN(2000))} // at odd times, because AwaitQuiet looks at even times
				s.to = s.from + ms(2*(1+r.IntN(100)))
				if r.IntN(4) == 0 {
					s.to += 2 * long
				}
				all = append(all, s)
				w := f.Instances[r.IntN(2)].wires
				sending.Go(func() {
					time.Sleep(s.from)
					_ = w.tap(t.Context(), wire.Event{Server: "db", Text: "UPDATE orders"}, func(context.Context) error {
						time.Sleep(s.to - s.from)
						return nil
					})
				})
			}
			start := ms(2 * r.IntN(1000))
			want, wantAt := false, start
			for ; ; wantAt += long / 10 {
				want = true
				for _, s := range all {
					want = want && (s.from > wantAt || s.to <= wantAt-long)
				}
				if want || wantAt-start >= within {
					break
				}
			}
			results[want]++
			time.Sleep(start)
			quiet := f.Proxied().AwaitQuiet(t.Context(), long, within)
			if at := time.Since(began); quiet != want || at != wantAt {
				t.Errorf("seed %d: statements %v: from %v on, %v at %v; want %v at %v", seed, all, start, quiet, at, want, wantAt)
			}
		})
	}
	if results[true] < 20 || results[false] < 20 {
		t.Errorf("results %v; want at least 20 of each", results)
	}
}

// TestAwaitsDatabase checks when an instance awaits the database. This is so only while a statement
// runs that may wait for a row lock, and only once it has run long enough.
func TestAwaitsDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := newFleet("").newInstance(0)
		if in.AwaitsDatabase(0) {
			t.Error("an instance without proxies awaits the database")
		}
		in.wires = &wires{database: "mysql", naming: newNaming(), holds: control.NewServer("a", 0, history.Discard)}
		time.Sleep(time.Second)
		var sending sync.WaitGroup
		sending.Go(func() {
			_ = in.wires.tap(t.Context(), wire.Event{Server: "db", Text: "UPDATE orders"}, func(context.Context) error {
				time.Sleep(100 * time.Millisecond)
				return nil
			})
		})
		time.Sleep(50 * time.Millisecond)
		if !in.AwaitsDatabase(50*time.Millisecond) || in.AwaitsDatabase(51*time.Millisecond) {
			t.Error("the statement has run for 50ms")
		}
		sending.Wait()
		if in.AwaitsDatabase(0) {
			t.Error("the statement has ended")
		}
		for text, want := range map[string]bool{
			"SELECT SLEEP": false, "SELECT PG_ADVISORY_LOCK": false, "SELECT orders": false, "COMMIT": false, "BEGIN + SELECT orders": false,
			"SELECT orders FOR UPDATE": true, "BEGIN + UPDATE orders": true, "SELECT GRAB()": true, "DO BLOCK": true, "INSERT wins": true,
		} {
			_ = in.wires.tap(t.Context(), wire.Event{Server: "db", Text: text}, func(context.Context) error {
				if got := in.AwaitsDatabase(0); got != want {
					t.Errorf("%s: AwaitsDatabase: %v, want %v", text, got, want)
				}
				return nil
			})
		}
	})
}
