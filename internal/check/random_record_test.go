package check_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/check"
	"grablab/internal/history"
	"grablab/internal/order"
)

// writer generates a random history of two instances, together with the record that a scan of it
// must return. Attempts run concurrently, processes are killed and restarted, and events are lost.
type writer struct {
	*rand.Rand
	untilClaim bool
	now        time.Duration
	events     []history.Event
	want       check.Record
	taken      map[int64]check.Span
	processes  [2]process
}

type process struct {
	incarnation int
	seq         uint64
	known       bool // whether the scan knows the number of an earlier event, so that it can detect lost events
	last        time.Duration
	running     []*try
}

// try is the state of one attempt.
type try struct {
	check.Span             // From is when the grab was called
	step       string      // what happens next
	hold       *check.Hold // nil before the acquire
	claimed    time.Duration
	effect     check.Effect
	wrote      bool
}

// event adds an event of an attempt and returns its time.
func (w *writer) event(p *process, a *try, kind history.Kind, op string, code history.Code) time.Duration {
	w.now++
	p.seq++
	if w.IntN(40) == 0 { // simulate that events before this one are lost
		n := 1 + w.Uint64N(2)
		p.seq += n
		if p.known {
			w.want.MissingEvents += int(n)
		}
	}
	p.last, p.known = w.now, true
	e := history.Event{
		T: w.now, Seq: p.seq, Incarnation: p.incarnation, Instance: a.Instance, Kind: kind, Op: op, Code: code,
		Order: a.Order, Driver: a.Driver, Token: a.Token, Fence: a.Fence,
	}
	if op == history.Grab && kind == history.Invoke {
		e.Token, e.Fence = "", 0
	}
	w.events = append(w.events, e)
	return w.now
}

// closeHold ends the attempt's hold, unless it has already ended.
func (a *try) closeHold(at time.Duration) {
	if !a.hold.Closed {
		a.hold.To, a.hold.Closed = at, true
	}
}

// knows records when the holder first learned that it had lost the lock.
func (a *try) knows(at time.Duration) {
	if a.hold.LossKnownAt == 0 {
		a.hold.LossKnownAt = at
	}
}

// advance takes the next step of an attempt. It returns false after the last one.
func (w *writer) advance(p *process, a *try) bool {
	span := func(from, to time.Duration) check.Span {
		s := a.Span
		s.From, s.To = from, to
		return s
	}
	switch a.step {
	case "":
		a.From = w.event(p, a, history.Invoke, history.Grab, "")
		a.step = "acquire"
	case "acquire":
		if w.IntN(4) == 0 {
			w.event(p, a, history.Fail, history.Acquire, history.Busy)
			a.step = "answer"
			break
		}
		at := w.event(p, a, history.OK, history.Acquire, "")
		a.hold = &check.Hold{Span: span(at, 0), AcquireCalled: a.From}
		a.step = "read"
	case "read":
		switch w.IntN(4) {
		case 0:
			a.knows(w.event(p, a, history.Info, history.Lost, ""))
		case 1:
			a.knows(w.event(p, a, history.Fail, history.Read, history.Stale))
			w.want.NearMisses[a.Order]++
			a.step = "release"
		default:
			at := w.event(p, a, history.OK, history.Read, "")
			a.hold.ReadAt, a.step = at, "claim"
		}
	case "claim":
		a.claimed = w.event(p, a, history.Invoke, history.Claim, "")
		if w.untilClaim {
			a.closeHold(a.claimed)
		}
		a.step = "claimed"
	case "claimed":
		switch w.IntN(5) {
		case 0:
			code := []history.Code{history.Stale, history.Taken}[w.IntN(2)]
			a.knows(w.event(p, a, history.Fail, history.Claim, code))
			w.want.NearMisses[a.Order]++
		case 1:
			w.event(p, a, history.Fail, history.Claim, "dependency")
		case 2:
			a.effect, a.wrote = check.Effect{Span: span(a.claimed, w.event(p, a, history.Info, history.Claim, "dependency"))}, true
		default:
			a.effect, a.wrote = check.Effect{Span: span(a.claimed, w.event(p, a, history.OK, history.Claim, "")), Sure: true}, true
		}
		a.claimed, a.step = 0, "release"
	case "release":
		a.closeHold(w.event(p, a, history.Invoke, history.Release, ""))
		a.step = "released"
	case "released":
		if w.IntN(4) > 0 {
			w.event(p, a, history.OK, history.Release, "")
		} else {
			a.knows(w.event(p, a, history.Fail, history.Release, history.LeaseLost))
		}
		w.keep(a)
		a.hold, a.step = nil, "answer"
	case "answer":
		// The record of a grab has neither a token nor a fence, because its call has none.
		op := check.Op{Span: check.Span{Order: a.Order, Driver: a.Driver, Instance: a.Instance, From: a.From, To: never}, Outcome: check.MayHave}
		switch w.IntN(4) {
		case 0:
			op.To, op.Outcome = w.event(p, a, history.OK, history.Grab, ""), check.Won
			w.want.Ops = append(w.want.Ops, op)
		case 1:
			w.event(p, a, history.Info, history.Grab, "dependency")
			w.want.Ops = append(w.want.Ops, op)
		case 2:
			w.event(p, a, history.Fail, history.Grab, history.Busy)
		default:
			op.To = w.event(p, a, history.Fail, history.Grab, history.Taken)
			if _, known := w.taken[a.Order]; !known { // keep the first one, because only this one is recorded
				w.taken[a.Order] = op.Span
			}
		}
		w.keep(a)
		return false
	}
	return true
}

// keep adds the attempt's hold and write to the expected record.
func (w *writer) keep(a *try) {
	if a.hold != nil {
		w.want.Holds = append(w.want.Holds, *a.hold)
	}
	if a.wrote {
		w.want.Effects = append(w.want.Effects, a.effect)
		a.wrote = false
	}
}

// abandon adds an unfinished attempt to the expected record. Its write and its grab may still
// happen.
func (w *writer) abandon(a *try) {
	w.keep(a)
	if a.claimed > 0 {
		s := a.Span
		s.From, s.To = a.claimed, never
		w.want.Effects = append(w.want.Effects, check.Effect{Span: s})
	}
	if a.From > 0 {
		w.want.Ops = append(w.want.Ops, check.Op{
			Span:    check.Span{Order: a.Order, Driver: a.Driver, Instance: a.Instance, From: a.From, To: never},
			Outcome: check.MayHave,
		})
	}
}

// kill simulates that a process is killed and restarted. Its holds end with its last event.
func (w *writer) kill(p *process) {
	for _, a := range p.running {
		if a.hold != nil {
			a.closeHold(p.last)
		}
		w.abandon(a)
	}
	p.running = nil
	if p.seq <= 3 || w.IntN(3) > 0 { // after so few events, lost events could hide a restart if the incarnation stayed the same
		p.incarnation++
	}
	p.seq = 0
}

// begin starts an attempt at an instance.
func (w *writer) begin(i int) *try {
	w.now++ // so that no two attempts have the same driver or token
	a := &try{Span: check.Span{
		Order: 1 + w.Int64N(2), Driver: int64(w.now), Instance: string(rune('A' + i)), Token: fmt.Sprint("t", w.now), Fence: w.Uint64N(3),
	}}
	w.processes[i].running = append(w.processes[i].running, a)
	return a
}

// TestRecordByDefinition scans random histories. The record must be the one that the writer
// expects. It must be the same if the events of one instance are scanned after those of the other.
func TestRecordByDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 8))
	for n := range 600 {
		w := &writer{Rand: r, untilClaim: n%2 == 1, taken: map[int64]check.Span{}, want: check.Record{NearMisses: map[int64]int{}}}
		scan := check.Scan{UntilClaim: w.untilClaim}
		if r.IntN(2) == 0 {
			scan.Since = map[string]uint64{"A": 5, "B": 9}
			w.processes[0].seq, w.processes[1].seq, w.processes[0].known, w.processes[1].known = 5, 9, true, true
		}
		for range 10 + r.IntN(60) {
			i := r.IntN(2)
			p := &w.processes[i]
			switch {
			case r.IntN(25) == 0:
				w.kill(p)
				w.advance(p, w.begin(i)) // the restart shows in the next event
			case len(p.running) < 3 && r.IntN(3) == 0:
				w.begin(i)
			case len(p.running) > 0:
				k := r.IntN(len(p.running))
				if !w.advance(p, p.running[k]) {
					p.running = slices.Delete(p.running, k, k+1)
				}
			}
		}
		end := time.Duration(0)
		if len(w.events) > 0 {
			end = w.events[len(w.events)-1].T
		}
		for i := range w.processes {
			for _, a := range w.processes[i].running {
				if a.hold != nil && !a.hold.Closed {
					a.hold.To = end
				}
				w.abandon(a)
			}
		}
		for _, span := range w.taken {
			w.want.Ops = append(w.want.Ops, check.Op{Span: span, Outcome: check.Taken})
		}
		for _, e := range w.events {
			scan.Add(e)
		}
		got := *scan.Record()
		if len(w.events) == 0 {
			continue
		}
		apart := check.Scan{UntilClaim: w.untilClaim, Since: scan.Since}
		first := byte('A' + n/2%2)
		for _, ofFirst := range []bool{true, false} { // scan one instance's events, and then the other's
			for _, e := range w.events {
				if (e.Instance[0] == first) == ofFirst {
					apart.Add(e)
				}
			}
		}
		gotApart := *apart.Record()
		for _, rec := range []*check.Record{&got, &gotApart, &w.want} {
			byTime := func(a, b check.Span) int {
				return cmp.Or(cmp.Compare(a.From, b.From), strings.Compare(a.Token, b.Token))
			}
			slices.SortFunc(rec.Holds, func(a, b check.Hold) int { return byTime(a.Span, b.Span) })
			slices.SortFunc(rec.Effects, func(a, b check.Effect) int { return byTime(a.Span, b.Span) })
			slices.SortFunc(rec.Ops, func(a, b check.Op) int { return byTime(a.Span, b.Span) })
		}
		if !reflect.DeepEqual(got, w.want) {
			t.Fatalf("history %d:\n%+v\ngot  %+v\nwant %+v", n, w.events, got, w.want)
		}
		if !reflect.DeepEqual(gotApart, w.want) {
			t.Fatalf("history %d, one instance after the other:\n%+v\ngot  %+v\nwant %+v", n, w.events, gotApart, w.want)
		}
	}
}

// TestDeathEndsEveryAttempt restarts a process during several attempts that share a driver and a
// token. The hold of each attempt must end with the last event before the restart, and each write
// and grab must be recorded.
func TestDeathEndsEveryAttempt(t *testing.T) {
	for n := range 4 * 2 {
		attempts, driver := n/2, int64(1+n%2*2) // driver 1, which also made the attempts before the restart, or a new driver
		var r tape
		for range attempts {
			for _, e := range []struct {
				kind history.Kind
				op   string
			}{{history.Invoke, history.Grab}, {history.OK, history.Acquire}, {history.Invoke, history.Claim}} {
				r.add(len(r.events)+1, "A", e.kind, e.op, 7, 1, "driver-1", "")
			}
		}
		last := time.Duration(len(r.events))
		r.add(len(r.events)+1, "B", history.Invoke, history.Grab, 7, 2, "", "")
		if attempts > 0 {
			r.restart("A")
		}
		r.add(50, "A", history.Invoke, history.Grab, 7, driver, "", "")
		r.add(51, "A", history.OK, history.Grab, 7, driver, "", "")
		rec := r.scan.Record()
		won := slices.DeleteFunc(slices.Clone(rec.Ops), func(op check.Op) bool { return op.Outcome != check.Won })
		if len(won) != 1 || won[0].From != 50 || won[0].To != 51 {
			t.Errorf("%d attempts: driver %d of the new process has won by %+v", attempts, driver, won)
		}
		if len(rec.Holds) != attempts || len(rec.Effects) != attempts || len(rec.Ops) != attempts+2 {
			t.Errorf("%d attempts: %+v", attempts, rec)
		}
		for _, h := range rec.Holds {
			if !h.Closed || h.To != last {
				t.Errorf("%d attempts: %+v does not end at %d", attempts, h, last)
			}
		}
	}
}

// TestVerdictsNameTheFirstOrder violates each property on two orders, in either sequence. The
// reason must give the count 2, where it has a count, and must name the order with the lower ID.
func TestVerdictsNameTheFirstOrder(t *testing.T) {
	span := func(id, driver int64, from, to time.Duration, fence uint64) check.Span {
		return check.Span{Order: id, Driver: driver, Instance: "A", From: from, To: to, Fence: fence}
	}
	told := func(ids []int64, driver int64) (all []check.Pair) {
		for _, id := range ids {
			all = append(all, check.Pair{Order: id, Driver: driver})
		}
		return all
	}
	two := func(ids []int64) []check.Pair { return slices.Concat(told(ids, 1), told(ids, 2)) }
	record := func(ids []int64, add func(*check.Record, int64)) *check.Record {
		rec := new(check.Record)
		for _, id := range ids {
			add(rec, id)
		}
		return rec
	}
	for _, tt := range []struct {
		name, property string
		e              func(ids []int64) check.Evidence
		want           check.Result
		both           string // the count in the reason; empty if the reason has no count
	}{
		{"ledger", catalog.OneWinner, func(ids []int64) check.Evidence { return check.Evidence{Ledger: check.Rows(two(ids))} }, check.Fail, "2 orders were"},
		{"answers", catalog.OneWinner, func(ids []int64) check.Evidence { return check.Evidence{FromAnswers: true, Promised: two(ids)} }, check.Fail, "2 orders were"},
		{"units", catalog.OneWinner, func(ids []int64) check.Evidence {
			return check.Evidence{Units: 2, Ledger: check.Rows(slices.Concat(two(ids), told(ids, 3)))}
		}, check.Fail, "2 orders were"},
		{"phantoms", catalog.AnswersAgree, func(ids []int64) check.Evidence { return check.Evidence{Promised: told(ids, 1)} }, check.Fail, "2 grabs were"},
		{"denied", catalog.AnswersAgree, func(ids []int64) check.Evidence { return check.Evidence{Ledger: check.Rows(told(ids, 1))} }, check.Fail, "2 grabs were"},
		{"stuck", catalog.StuckOrder, func(ids []int64) check.Evidence { return check.Evidence{Stuck: ids} }, check.Fail, "2 orders are stuck"},
		{"holders", catalog.HoldersExclusive, func(ids []int64) check.Evidence {
			return check.Evidence{Excludes: catalog.Global, Record: record(ids, func(r *check.Record, id int64) {
				r.Holds = append(r.Holds, check.Hold{Span: span(id, 1, 1, 5, 0)}, check.Hold{Span: span(id, 2, 2, 4, 0)})
			})}
		}, check.Fail, "2 holds began"},
		{"writes", catalog.WritesExclusive, func(ids []int64) check.Evidence {
			return check.Evidence{Record: record(ids, func(r *check.Record, id int64) {
				r.Effects = append(r.Effects, check.Effect{Span: span(id, 1, 1, 5, 0), Sure: true}, check.Effect{Span: span(id, 2, 2, 4, 0), Sure: true})
			})}
		}, check.Fail, "2 claims wrote"},
		{"writes in doubt", catalog.WritesExclusive, func(ids []int64) check.Evidence {
			return check.Evidence{Record: record(ids, func(r *check.Record, id int64) {
				r.Effects = append(r.Effects, check.Effect{Span: span(id, 1, 1, 5, 0), Sure: true}, check.Effect{Span: span(id, 2, 2, 4, 0)})
			})}
		}, check.Unknown, ""},
		{"sequences", catalog.Linearizable, func(ids []int64) check.Evidence {
			return check.Evidence{Record: record(ids, func(r *check.Record, id int64) {
				r.Ops = append(r.Ops, check.Op{Span: span(id, 1, 1, 2, 0), Outcome: check.Won}, check.Op{Span: span(id, 2, 3, 4, 0), Outcome: check.Won})
			})}
		}, check.Fail, "2 orders"},
		{"tokens", catalog.FenceMonotone, func(ids []int64) check.Evidence {
			return check.Evidence{Record: record(ids, func(r *check.Record, id int64) {
				r.Holds = append(r.Holds, check.Hold{Span: span(id, 1, 2, 3, 9), AcquireCalled: 1}, check.Hold{Span: span(id, 2, 5, 6, 8), AcquireCalled: 4})
			})}
		}, check.Fail, ""},
	} {
		for _, ids := range [][]int64{{3, 8}, {8, 3}} {
			v := verdict(t, tt.property, tt.e(ids))
			if v.Result != tt.want || !strings.Contains(v.Why, "order 3") || strings.Contains(v.Why, "order 8") || !strings.Contains(v.Why, tt.both) {
				t.Errorf("%s of orders %v: %s: %q, want %s with %q and order 3", tt.name, ids, v.Result, v.Why, tt.want, tt.both)
			}
		}
	}
}

// TestClaimsTogether checks the verdict on two claims that were in flight together, for every kind
// of lock. They violate the property, unless the order has several units and no lock excludes
// concurrent claims.
func TestClaimsTogether(t *testing.T) {
	rec := &check.Record{Effects: []check.Effect{
		{Span: check.Span{Order: 1, Driver: 1, From: 1, To: 5}, Sure: true}, {Span: check.Span{Order: 1, Driver: 2, From: 2, To: 4}, Sure: true},
	}}
	for units := range 4 {
		for _, until := range []bool{false, true} {
			for _, excludes := range []catalog.Exclusion{catalog.Global, catalog.PerProcess, catalog.NoExclusion} {
				want := check.Fail
				if units > 1 && (until || excludes == catalog.NoExclusion) {
					want = check.Unknown
				}
				e := check.Evidence{Units: units, UntilClaim: until, Excludes: excludes, Guard: order.Naive, Record: rec}
				if v := verdict(t, catalog.WritesExclusive, e); v.Result != want {
					t.Errorf("%d units, until the claim %v, %s: %s (%s), want %s", units, until, excludes, v.Result, v.Why, want)
				}
			}
		}
	}
}

// TestLostRepliesOfAnEarlierAttempt loses the last events of an attempt. The next attempt with the same token reads and
// writes, which must count for its own hold and its own write.
func TestLostRepliesOfAnEarlierAttempt(t *testing.T) {
	for lost := 1; lost <= 3; lost++ {
		var r tape
		attempt := func(at int) {
			r.add(at, "A", history.OK, history.Acquire, 7, 1, "driver-1", "")
			r.add(at+1, "A", history.OK, history.Read, 7, 1, "driver-1", "")
			r.add(at+2, "A", history.Invoke, history.Claim, 7, 1, "driver-1", "")
		}
		attempt(10)
		for range lost {
			r.lose("A")
		}
		attempt(20)
		r.add(23, "A", history.OK, history.Claim, 7, 1, "driver-1", "")
		rec := r.scan.Record()
		if len(rec.Holds) != 2 || rec.Holds[0].ReadAt != 11 || rec.Holds[1].ReadAt != 21 || rec.MissingEvents != lost {
			t.Errorf("%d lost events: holds %+v, %d are missing", lost, rec.Holds, rec.MissingEvents)
		}
		if len(rec.Effects) != 2 || rec.Effects[0].Sure || rec.Effects[0].From != 12 || !rec.Effects[1].Sure || rec.Effects[1].From != 22 || rec.Effects[1].To != 23 {
			t.Errorf("%d lost events: writes %+v", lost, rec.Effects)
		}
	}
}
