package check_test

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/check"
	"grablab/internal/order"
)

// randomRecords is the number of random records for each test. The checkers sort a record and go
// through it once. The tests compare them with definitions that examine every pair. There are only
// few orders, drivers and times, so that events often coincide.
const randomRecords = 3000

func instant(r *rand.Rand) time.Duration { return time.Duration(r.IntN(8)) }

func randomSpan(r *rand.Rand) check.Span {
	from := instant(r)
	return check.Span{
		Order: 1 + r.Int64N(2), Driver: 1 + r.Int64N(9), Instance: string(rune('A' + r.IntN(2))),
		Fence: r.Uint64N(6), From: from, To: from + instant(r),
	}
}

// randomly returns up to six elements, each made by the function one.
func randomly[T any](r *rand.Rand, one func() T) []T {
	all := make([]T, r.IntN(7))
	for i := range all {
		all[i] = one()
	}
	return all
}

// pairs reports whether f returns true for any two elements, in either order.
func pairs[T any](all []T, f func(a, b T) bool) bool {
	for i, a := range all {
		for j, b := range all {
			if i != j && f(a, b) {
				return true
			}
		}
	}
	return false
}

// TestFenceByDefinition compares the check of fencing tokens with its definition. For an order, no
// two tokens may be equal. A token that was requested after another token had been received must be
// higher.
func TestFenceByDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range randomRecords {
		holds := randomly(r, func() check.Hold {
			h := check.Hold{Span: randomSpan(r)}
			h.AcquireCalled = max(0, h.From-instant(r))
			return h
		})
		fallsBack := pairs(holds, func(a, b check.Hold) bool {
			return a.Order == b.Order && a.Fence > 0 && b.Fence > 0 &&
				(a.From < b.AcquireCalled && b.Fence <= a.Fence || a.Fence == b.Fence)
		})
		tokens := slices.ContainsFunc(holds, func(h check.Hold) bool { return h.Fence > 0 })
		want := check.Pass
		switch {
		case fallsBack:
			want = check.Fail
		case !tokens:
			want = check.Unknown
		}
		if v := verdict(t, catalog.FenceMonotone, check.Evidence{Record: &check.Record{Holds: holds}}); v.Result != want {
			t.Fatalf("got %s: %q, want %s of %+v", v.Result, v.Why, want, holds)
		}
	}
}

// TestOverlapsByDefinition compares the overlaps of random holds with their definition. A hold
// overlaps if it began during an earlier hold that the lock must exclude. Of several holds that
// begin together, all but one overlap. Each overlap must name the earlier hold that lasts longest.
func TestOverlapsByDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for n := range randomRecords {
		excludes := []catalog.Exclusion{catalog.Global, catalog.PerProcess, catalog.NoExclusion}[n%3]
		holds := randomly(r, func() check.Hold { return check.Hold{Span: randomSpan(r), Closed: true} })
		var spans []check.Span
		for _, h := range holds {
			spans = append(spans, h.Span)
		}
		group := func(s check.Span) string {
			if excludes == catalog.PerProcess {
				return fmt.Sprint(s.Order, s.Instance)
			}
			return fmt.Sprint(s.Order)
		}
		slices.SortFunc(spans, func(a, b check.Span) int {
			return cmp.Or(cmp.Compare(group(a), group(b)), cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To), cmp.Compare(a.Driver, b.Driver))
		})
		var want []check.Overlap
		for i, s := range spans {
			var longest check.Span
			for _, before := range spans[:i] {
				if group(before) == group(s) && before.To > max(s.From, longest.To) {
					longest = before
				}
			}
			if longest.To > 0 && excludes != catalog.NoExclusion {
				want = append(want, check.Overlap{First: longest, Second: s})
			}
		}
		if got := check.Overlaps(holds, excludes); !slices.EqualFunc(got, want, sameTimes) {
			t.Fatalf("%s: got %+v, want %+v of %+v", excludes, got, want, spans)
		}
	}
}

// sameTimes reports whether two overlaps have the same orders and times. It ignores the drivers,
// because holds that begin and end together may be reported in any order.
func sameTimes(a, b check.Overlap) bool {
	same := func(s, t check.Span) bool { return s.Order == t.Order && s.From == t.From && s.To == t.To }
	return same(a.First, b.First) && same(a.Second, b.Second)
}

// inSequence reports whether any sequence explains the outcomes of the grabs. A grab that began
// after another had ended must come later in the sequence. Each grab gets a unit until none is
// left, and "taken" after that. A grab with an unknown outcome may have had no effect.
func inSequence(ops []check.Op, units int) bool {
	if len(ops) == 0 {
		return true
	}
	for i, op := range ops {
		if slices.ContainsFunc(ops, func(earlier check.Op) bool { return earlier.To < op.From }) {
			continue
		}
		rest := slices.Delete(slices.Clone(ops), i, i+1)
		wins := op.Outcome != check.Taken && units > 0 && inSequence(rest, units-1)
		if wins || op.Outcome == check.MayHave && inSequence(rest, units) || op.Outcome == check.Taken && units == 0 && inSequence(rest, 0) {
			return true
		}
	}
	return false
}

// TestLinearizableByDefinition compares the check for linearizability with inSequence, for random
// grabs.
func TestLinearizableByDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 3))
	outcomes := []check.Outcome{check.Won, check.Taken, check.Taken, check.MayHave}
	for range randomRecords / 3 {
		ops := randomly(r, func() check.Op { return check.Op{Span: randomSpan(r), Outcome: outcomes[r.IntN(4)]} })
		units := 1 + r.IntN(3)
		want := check.Pass
		for id := range int64(3) {
			if of := catalog.Filter(ops, func(op check.Op) bool { return op.Order == id }); !inSequence(of, units) {
				want = check.Fail
			}
		}
		if v := verdict(t, catalog.Linearizable, check.Evidence{Units: units, Record: &check.Record{Ops: ops}}); v.Result != want {
			t.Fatalf("%d units: got %s: %q, want %s of %+v", units, v.Result, v.Why, want, ops)
		}
	}
}

// TestWritesExclusiveByDefinition compares the check for concurrent writes with its definition. Two
// claims that certainly wrote must not be in flight together. If one of them may not have written,
// or events are missing, the result is unknown. If the call of a claim is missing, only its reply
// proves that it was in flight.
func TestWritesExclusiveByDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 4))
	for n := range randomRecords {
		rec := check.Record{MissingEvents: n % 2}
		rec.Effects = randomly(r, func() check.Effect {
			e := check.Effect{Span: randomSpan(r), Sure: r.IntN(2) == 0}
			e.To++ // every claim takes some time
			return e
		})
		together := func(both bool) bool {
			from := func(e check.Effect) time.Duration {
				if both && e.From == 0 {
					return e.To
				}
				return e.From
			}
			return pairs(rec.Effects, func(a, b check.Effect) bool {
				return a.Order == b.Order && (!both || a.Sure && b.Sure) && from(a) < b.To && from(b) < a.To
			})
		}
		want := check.Pass
		switch {
		case together(true):
			want = check.Fail
		case rec.MissingEvents > 0 || together(false):
			want = check.Unknown
		}
		if v := verdict(t, catalog.WritesExclusive, check.Evidence{Record: &rec}); v.Result != want {
			t.Fatalf("got %s: %q, want %s of %+v", v.Result, v.Why, want, rec)
		}
	}
}

// TestStaleWriteByDefinition compares the check for stale writes with its definition. A claim is
// stale if the database had already seen a higher token of its order in an answered claim. With the
// guard Fenced, answered reads count too. If the claim may not have written, or events are missing,
// the result is unknown.
func TestStaleWriteByDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 5))
	for n := range randomRecords {
		guard := []order.Guard{order.Fenced, order.FenceWrite}[n%2]
		rec := check.Record{MissingEvents: n / 2 % 2}
		rec.Holds = randomly(r, func() check.Hold { return check.Hold{Span: randomSpan(r), ReadAt: instant(r)} })
		rec.Effects = randomly(r, func() check.Effect { return check.Effect{Span: randomSpan(r), Sure: r.IntN(2) == 0} })
		want := check.Pass
		if rec.MissingEvents > 0 {
			want = check.Unknown
		}
		for _, e := range rec.Effects {
			stale := slices.ContainsFunc(rec.Holds, func(h check.Hold) bool {
				return guard == order.Fenced && h.ReadAt > 0 && h.Order == e.Order && h.ReadAt < e.From && h.Fence > e.Fence
			}) || slices.ContainsFunc(rec.Effects, func(b check.Effect) bool {
				return b.Sure && b.Order == e.Order && b.To < e.From && b.Fence > e.Fence
			})
			if stale && e.Sure {
				want = check.Fail
			} else if stale && want == check.Pass {
				want = check.Unknown
			}
		}
		if v := verdict(t, catalog.StaleWrite, check.Evidence{Record: &rec, Guard: guard}); v.Result != want {
			t.Fatalf("%s: got %s: %q, want %s of %+v", guard, v.Result, v.Why, want, rec)
		}
	}
}

// TestStaleWriteNames checks that the reason gives the token of the write and the higher token seen
// before.
func TestStaleWriteNames(t *testing.T) {
	rec := check.Record{Effects: []check.Effect{
		{Span: check.Span{Order: 3, Driver: 1, From: 1, To: 2, Fence: 9}, Sure: true},
		{Span: check.Span{Order: 3, Driver: 2, From: 3, To: 4, Fence: 5}, Sure: true},
	}}
	v := verdict(t, catalog.StaleWrite, check.Evidence{Record: &rec, Guard: order.FenceWrite})
	want := "driver 2 wrote order 3 with token 5 after the database had seen token 9"
	if v.Result != check.Fail || v.Why != want {
		t.Errorf("verdict %s: %q, want %q", v.Result, v.Why, want)
	}
}

// TestLedgerByDefinition uses random rows of a few orders and drivers. It compares the verdicts that
// depend only on the ledger, the answers and the probes with their definitions.
func TestLedgerByDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 6))
	for n := range randomRecords {
		pair := func() check.Pair { return check.Pair{Order: 1 + r.Int64N(2), Driver: 1 + r.Int64N(3)} }
		e := check.Evidence{
			Promised: randomly(r, pair), Unsure: randomly(r, pair), Ledger: check.Rows(randomly(r, pair)), Units: n % 4,
			FromAnswers: r.IntN(4) == 0, Stuck: randomly(r, func() int64 { return 1 + r.Int64N(3) }),
		}
		if r.IntN(2) == 0 {
			e.Unsure, e.Ledger, e.Stuck = nil, check.Rows(e.Promised), nil
		}
		if r.IntN(4) == 0 {
			e.LedgerErr, e.ProbeErr = errors.New("no ledger"), errors.New("no probe")
		}
		most := func(pairs ...check.Pair) (rows int) {
			for id := range int64(3) {
				of := 0
				for _, p := range pairs {
					if p.Order == id {
						of++
					}
				}
				rows = max(rows, of)
			}
			return rows
		}
		var written []check.Pair
		for _, g := range e.Ledger {
			written = append(written, check.Pair{Order: g.Order, Driver: g.Driver})
		}
		units := max(e.Units, 1)
		winner := check.Pass
		switch {
		case !e.FromAnswers && e.LedgerErr == nil:
			if most(written...) > units {
				winner = check.Fail
			}
		case most(e.Promised...) > units:
			winner = check.Fail
		case e.LedgerErr != nil && !e.FromAnswers, most(slices.Concat(e.Promised, e.Unsure)...) > units:
			winner = check.Unknown
		}
		// A driver must have one row of an order for each win that was confirmed to it. Each answer
		// that may have been lost allows one more row.
		agree := check.Pass
		for _, p := range slices.Concat(e.Promised, written) {
			count := func(pairs []check.Pair) (n int) {
				for _, q := range pairs {
					if q == p {
						n++
					}
				}
				return n
			}
			told, rows, unsure := count(e.Promised), count(written), count(e.Unsure)
			if told > rows || rows > told+unsure {
				agree = check.Fail
			}
		}
		if e.FromAnswers || e.LedgerErr != nil {
			agree = check.Unknown
		}
		stuck := check.Pass
		switch {
		case len(e.Stuck) > 0:
			stuck = check.Fail
		case e.ProbeErr != nil:
			stuck = check.Unknown
		}
		for property, want := range map[string]check.Result{catalog.OneWinner: winner, catalog.AnswersAgree: agree, catalog.StuckOrder: stuck} {
			if v := verdict(t, property, e); v.Result != want {
				t.Fatalf("%s: got %s: %q, want %s of %+v", property, v.Result, v.Why, want, e)
			}
		}
	}
}
