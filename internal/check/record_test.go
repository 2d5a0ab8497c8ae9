package check_test

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"grablab/internal/check"
	"grablab/internal/history"
)

const never = time.Duration(1<<63 - 1)

// span returns a span of driver 1 on order 7 at instance A.
func span(from, to time.Duration, token string) check.Span {
	return check.Span{Order: 7, Driver: 1, Instance: "A", Token: token, From: from, To: to}
}

// TestRecordIsASnapshot scans random events, and requests a record after each. Each record must
// equal that of a new scan of the events so far, and must not change later. Requesting records must
// not affect the last record.
func TestRecordIsASnapshot(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 7))
	kinds := []history.Kind{history.Invoke, history.OK, history.Fail, history.Info}
	ops := []string{history.Grab, history.Acquire, history.Read, history.Claim, history.Release}
	for range 500 {
		var events []history.Event
		var taken []*check.Record
		seqs, scan := map[string]uint64{}, new(check.Scan)
		for n := range 40 {
			e := history.Event{
				T: time.Duration(n + 1), Kind: kinds[r.IntN(len(kinds))], Op: ops[r.IntN(len(ops))], Order: 1, Driver: 1 + r.Int64N(2),
				Instance: string(rune('A' + r.IntN(2))), Incarnation: 1, Token: string(rune('a' + r.IntN(2))),
			}
			if e.Kind == history.Fail {
				e.Code = history.Stale
			}
			seqs[e.Instance]++
			e.Seq = seqs[e.Instance]
			events = append(events, e)
			scan.Add(e)
			taken = append(taken, scan.Record())
		}
		alone := new(check.Scan)
		for i, e := range events {
			fresh := new(check.Scan)
			for _, before := range events[:i+1] {
				fresh.Add(before)
			}
			if want := fresh.Record(); !reflect.DeepEqual(taken[i], want) {
				t.Fatalf("after %d events: %+v, want %+v", i+1, taken[i], want)
			}
			alone.Add(e)
		}
		if want := alone.Record(); !reflect.DeepEqual(scan.Record(), want) {
			t.Fatalf("after all events: %+v, want %+v", scan.Record(), want)
		}
	}
}

// TestRecord checks which holds, effects and grabs a scan records for the events of one or two
// attempts.
func TestRecord(t *testing.T) {
	// does adds an event of driver 1 on order 7 at instance A.
	does := func(r *tape, t int, kind history.Kind, op, token string) { r.add(t, "A", kind, op, 7, 1, token, "") }
	for _, tt := range []struct {
		name string
		tape func(*tape)
		want check.Record
	}{
		{"a grab that wins", func(r *tape) {
			does(r, 1, history.Invoke, history.Grab, "")
			does(r, 2, history.OK, history.Acquire, "a")
			does(r, 3, history.OK, history.Read, "a")
			does(r, 4, history.Invoke, history.Claim, "a")
			does(r, 5, history.OK, history.Claim, "a")
			does(r, 6, history.Invoke, history.Release, "a")
			does(r, 7, history.OK, history.Release, "a")
			does(r, 8, history.OK, history.Grab, "a")
		}, check.Record{
			Holds:   []check.Hold{{Span: span(2, 6, "a"), AcquireCalled: 1, Closed: true, ReadAt: 3}},
			Effects: []check.Effect{{Span: span(4, 5, "a"), Sure: true}},
			Ops:     []check.Op{{Span: span(1, 8, ""), Outcome: check.Won}},
		}},
		{"all calls are missing", func(r *tape) {
			does(r, 5, history.OK, history.Claim, "a")
			does(r, 6, history.Invoke, history.Release, "a")
			does(r, 8, history.OK, history.Grab, "a")
		}, check.Record{
			Effects:       []check.Effect{{Span: span(0, 5, "a"), Sure: true}},
			Ops:           []check.Op{{Span: span(0, 8, "a"), Outcome: check.Won}},
			MissingEvents: 1, // only the missing acquire is counted
		}},
		{"a claim without an answer", func(r *tape) {
			does(r, 1, history.Invoke, history.Grab, "")
			does(r, 4, history.Invoke, history.Claim, "a")
			does(r, 5, history.Info, history.Claim, "a")
			does(r, 8, history.Info, history.Grab, "a")
		}, check.Record{
			Effects: []check.Effect{{Span: span(4, 5, "a")}},
			Ops:     []check.Op{{Span: span(1, never, ""), Outcome: check.MayHave}},
		}},
		{"what has not returned may yet write", func(r *tape) {
			does(r, 1, history.Invoke, history.Grab, "")
			does(r, 4, history.Invoke, history.Claim, "a")
		}, check.Record{
			Effects: []check.Effect{{Span: span(4, never, "a")}},
			Ops:     []check.Op{{Span: span(1, never, ""), Outcome: check.MayHave}},
		}},
		{"two attempts of one token: the first to begin is the first to end", func(r *tape) {
			does(r, 1, history.Invoke, history.Grab, "")
			does(r, 2, history.Invoke, history.Grab, "")
			does(r, 3, history.OK, history.Acquire, "a")
			does(r, 4, history.OK, history.Acquire, "a")
			does(r, 5, history.OK, history.Read, "a")
			does(r, 6, history.Invoke, history.Claim, "a")
			does(r, 7, history.Invoke, history.Claim, "a")
			does(r, 8, history.OK, history.Claim, "a")
			does(r, 9, history.OK, history.Claim, "a")
			does(r, 10, history.Invoke, history.Release, "a")
			does(r, 11, history.Invoke, history.Release, "a")
			does(r, 12, history.OK, history.Grab, "a")
			does(r, 13, history.OK, history.Grab, "a")
		}, check.Record{
			Holds: []check.Hold{
				{Span: span(3, 10, "a"), AcquireCalled: 1, Closed: true, ReadAt: 5},
				{Span: span(4, 11, "a"), AcquireCalled: 1, Closed: true},
			},
			Effects: []check.Effect{{Span: span(6, 8, "a"), Sure: true}, {Span: span(7, 9, "a"), Sure: true}},
			Ops:     []check.Op{{Span: span(1, 12, ""), Outcome: check.Won}, {Span: span(2, 13, ""), Outcome: check.Won}},
		}},
		{"two attempts of one token, and the end of the first is lost", func(r *tape) {
			does(r, 1, history.OK, history.Acquire, "a")
			does(r, 2, history.Invoke, history.Claim, "a")
			for range 3 { // lose the reply to the claim, and the call and reply of the release
				r.lose("A")
			}
			does(r, 6, history.OK, history.Acquire, "a")
			does(r, 7, history.Invoke, history.Claim, "a")
			does(r, 8, history.OK, history.Claim, "a")
			does(r, 9, history.Invoke, history.Release, "a")
		}, check.Record{
			Holds:         []check.Hold{{Span: span(1, 9, "a")}, {Span: span(6, 9, "a"), Closed: true}},
			Effects:       []check.Effect{{Span: span(2, never, "a")}, {Span: span(7, 8, "a"), Sure: true}},
			MissingEvents: 3,
		}},
		{"of those who are told taken, the first", func(r *tape) {
			for _, told := range []int{5, 3, 4} {
				r.add(told-1, "A", history.Invoke, history.Grab, 7, 1, "", "")
				r.fails(told, "A", history.Grab, 7, 1, "", history.Taken, "")
			}
		}, check.Record{Ops: []check.Op{{Span: span(2, 3, ""), Outcome: check.Taken}}}},
		{"who fails for another reason tells nothing of the order", func(r *tape) {
			does(r, 1, history.Invoke, history.Grab, "")
			r.fails(2, "A", history.Acquire, 7, 1, "", history.Busy, "")
			r.fails(3, "A", history.Grab, 7, 1, "", history.Busy, "")
		}, check.Record{}},
		{"a process that is started anew lets go at its last event", func(r *tape) {
			does(r, 2, history.OK, history.Acquire, "a")
			does(r, 4, history.Invoke, history.Claim, "a")
			r.restart("A")
			does(r, 9, history.OK, history.Acquire, "b")
			does(r, 10, history.Invoke, history.Release, "b")
		}, check.Record{
			Holds:   []check.Hold{{Span: span(2, 4, "a"), Closed: true}, {Span: span(9, 10, "b"), Closed: true}},
			Effects: []check.Effect{{Span: span(4, never, "a")}},
		}},
		{"a process that is started anew and whose first events are lost", func(r *tape) {
			does(r, 2, history.OK, history.Acquire, "a")
			does(r, 3, history.Invoke, history.Release, "a")
			does(r, 4, history.OK, history.Release, "a")
			r.restart("A")
			r.lose("A")
			r.lose("A")
			does(r, 9, history.OK, history.Acquire, "b")
		}, check.Record{
			Holds:         []check.Hold{{Span: span(2, 3, "a"), Closed: true}, {Span: span(9, 9, "b")}},
			MissingEvents: 2,
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var r tape
			tt.tape(&r)
			got := r.scan.Record()
			if got.CountNearMisses() != 0 {
				t.Errorf("near misses %v, want none", got.NearMisses)
			}
			tt.want.NearMisses = got.NearMisses
			if !reflect.DeepEqual(*got, tt.want) {
				t.Errorf("record: got  %+v\nwant %+v", *got, tt.want)
			}
		})
	}
}

// TestRecordIsACopy checks that a record does not change if its scan continues, because another
// goroutine may be reading it.
func TestRecordIsACopy(t *testing.T) {
	var r tape
	r.enter(1, "A", 7, 1, "a")
	before := r.scan.Record()
	want := *before
	want.Holds = []check.Hold{before.Holds[0]}
	r.leave(5, "A", 7, 1, "a")
	if !reflect.DeepEqual(before.Holds, want.Holds) {
		t.Errorf("the record changed to %+v from %+v", before.Holds, want.Holds)
	}
}
