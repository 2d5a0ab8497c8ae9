package check_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"grablab/internal/catalog"
	"grablab/internal/check"
	"grablab/internal/history"
	"grablab/internal/order"
)

// scene is a hand-written history of a few orders, together with the other evidence about them.
// Times are in steps.
type scene struct {
	tape
	check.Evidence
	incarnation int // the incarnation in the events of all instances
}

func (s *scene) evidence() check.Evidence {
	e := s.Evidence
	e.Record = s.scan.Record()
	return e
}

// event adds an event of an attempt. The driver's number is the attempt's token.
func (s *scene) event(t int, instance string, kind history.Kind, op string, id, driver int64, fence uint64, note string) {
	token := fmt.Sprint(driver)
	if op == history.Grab && kind == history.Invoke {
		token = ""
	}
	var code history.Code
	if op == history.Read && kind == history.OK {
		code = history.Open
	}
	s.play(history.Event{
		Seq: s.next(instance), T: stepsOf(t), Instance: instance, Incarnation: s.incarnation, Kind: kind, Op: op,
		Order: id, Driver: driver, Token: token, Fence: fence, Code: code, Note: note,
	})
}

// fails adds the end of an operation that certainly had no effect.
func (s *scene) fails(t int, instance, op string, id, driver int64, fence uint64, code history.Code, note string) {
	s.play(history.Event{
		Seq: s.next(instance), T: stepsOf(t), Instance: instance, Incarnation: s.incarnation, Kind: history.Fail, Op: op,
		Order: id, Driver: driver, Token: fmt.Sprint(driver), Fence: fence, Code: code, Note: note,
	})
}

// enters adds the events from the request to the read of the order.
func (s *scene) enters(t int, instance string, id, driver int64, fence uint64) {
	s.event(t, instance, history.Invoke, history.Grab, id, driver, 0, "")
	s.event(t+1, instance, history.OK, history.Acquire, id, driver, fence, "")
	s.event(t+2, instance, history.OK, history.Read, id, driver, fence, "")
}

// claims records a successful claim: its events, from the call to the answer, and its ledger row.
func (s *scene) claims(t, returns int, instance string, id, driver int64, fence uint64) {
	s.event(t, instance, history.Invoke, history.Claim, id, driver, fence, "")
	s.Ledger = append(s.Ledger, order.Grab{Order: id, Driver: driver, Fence: fence, Instance: instance, Token: fmt.Sprint(driver)})
	s.event(returns, instance, history.OK, history.Claim, id, driver, fence, "")
	s.leaves(returns+1, instance, id, driver, fence)
	s.event(returns+3, instance, history.OK, history.Grab, id, driver, fence, "")
	s.Promised = append(s.Promised, check.Pair{Order: id, Driver: driver})
}

func (s *scene) leaves(t int, instance string, id, driver int64, fence uint64) {
	s.event(t, instance, history.Invoke, history.Release, id, driver, fence, "")
	s.event(t+1, instance, history.OK, history.Release, id, driver, fence, "")
}

// loses adds a complete grab that is answered "taken".
func (s *scene) loses(t int, instance string, id, driver int64, fence uint64) {
	s.enters(t, instance, id, driver, fence)
	s.leaves(t+3, instance, id, driver, fence)
	s.fails(t+5, instance, history.Grab, id, driver, fence, history.Taken, order.ErrTaken.Error())
}

// sound returns a history of order 1 with a correct fenced lock: driver 1 wins, and driver 2 comes
// later.
func sound() *scene {
	s := &scene{Evidence: check.Evidence{Excludes: catalog.Global, Guard: order.Fenced}}
	s.enters(0, "A", 1, 1, 1)
	s.claims(10, 12, "A", 1, 1, 1)
	s.loses(20, "B", 1, 2, 2)
	return s
}

// subjects lists a correct history, variants with a fault, and variants with uncertain evidence.
// For each of them, want contains the result of every checker: "." for pass, "F" for fail, "?" for
// unknown.
var subjects = []struct {
	name  string
	scene func() *scene
	want  string // results in the order in which Judge returns them
}{
	{"sound", sound, "........"},
	{"a lock that does nothing", func() *scene {
		s := sound()
		s.enters(30, "A", 2, 1, 3)
		s.enters(31, "B", 2, 2, 4)
		s.Guard = order.Naive
		s.claims(40, 44, "A", 2, 1, 3)
		s.claims(41, 45, "B", 2, 2, 4)
		return s
	}, "F.FFF.?."},
	{"a lock whose lease runs out", func() *scene {
		s := sound()
		s.Guard = order.Naive
		s.enters(30, "A", 2, 1, 3)
		s.enters(40, "B", 2, 2, 4)
		s.claims(44, 46, "B", 2, 2, 4)
		s.claims(60, 62, "A", 2, 1, 3)
		return s
	}, "F.F.F.?."},
	{"a lock let go of too early", func() *scene {
		s := sound()
		s.Guard = order.Naive
		s.enters(30, "A", 2, 1, 3)
		s.event(33, "A", history.Invoke, history.Release, 2, 1, 3, "")
		s.event(34, "A", history.OK, history.Release, 2, 1, 3, "")
		s.enters(35, "B", 2, 2, 4)
		s.event(40, "A", history.Invoke, history.Claim, 2, 1, 3, "")
		s.event(41, "B", history.Invoke, history.Claim, 2, 2, 4, "")
		s.event(42, "A", history.OK, history.Claim, 2, 1, 3, "")
		s.event(43, "B", history.OK, history.Claim, 2, 2, 4, "")
		s.Ledger = append(s.Ledger, order.Grab{Order: 2, Driver: 1, Fence: 3}, order.Grab{Order: 2, Driver: 2, Fence: 4})
		s.event(45, "A", history.OK, history.Grab, 2, 1, 3, "")
		s.leaves(46, "B", 2, 2, 4)
		s.event(48, "B", history.OK, history.Grab, 2, 2, 4, "")
		s.Promised = append(s.Promised, check.Pair{Order: 2, Driver: 1}, check.Pair{Order: 2, Driver: 2})
		return s
	}, "F..FF.?."},
	{"a fence that falls back", func() *scene {
		s := sound()
		s.loses(30, "B", 1, 3, 1)
		return s
	}, ".....F.."},
	{"a fence handed out twice at once", func() *scene {
		s := sound()
		s.event(30, "A", history.Invoke, history.Grab, 1, 3, 0, "")
		s.event(30, "B", history.Invoke, history.Grab, 1, 4, 0, "")
		s.event(31, "A", history.OK, history.Acquire, 1, 3, 7, "")
		s.leaves(32, "A", 1, 3, 7)
		s.fails(33, "A", history.Grab, 1, 3, 7, history.Taken, order.ErrTaken.Error())
		s.event(34, "B", history.OK, history.Acquire, 1, 4, 7, "")
		s.leaves(35, "B", 1, 4, 7)
		s.fails(37, "B", history.Grab, 1, 4, 7, history.Taken, order.ErrTaken.Error())
		return s
	}, ".....F.."},
	{"a guard that takes a stale token", func() *scene {
		s := sound()
		s.enters(30, "A", 2, 1, 3)
		s.event(34, "A", history.Invoke, history.Release, 2, 1, 3, "") // because the grab was cancelled
		s.event(35, "A", history.OK, history.Release, 2, 1, 3, "")
		s.enters(40, "B", 2, 2, 4)
		s.leaves(44, "B", 2, 2, 4)
		s.fails(46, "B", history.Grab, 2, 2, 4, "dependency", "context canceled")
		s.event(50, "A", history.Invoke, history.Claim, 2, 1, 3, "")
		s.event(51, "A", history.OK, history.Claim, 2, 1, 3, "")
		s.event(52, "A", history.OK, history.Grab, 2, 1, 3, "")
		s.Ledger = append(s.Ledger, order.Grab{Order: 2, Driver: 1, Fence: 3})
		s.Promised = append(s.Promised, check.Pair{Order: 2, Driver: 1})
		return s
	}, "......F."},
	{"a ledger that loses a row", func() *scene {
		s := sound()
		s.Ledger = nil
		return s
	}, ".F......"},
	{"a ledger that doubles a row", func() *scene {
		s := sound()
		s.Ledger = append(s.Ledger, s.Ledger[0])
		return s
	}, "FF......"},
	{"a client that invents a grab", func() *scene {
		s := sound()
		s.Promised = append(s.Promised, check.Pair{Order: 1, Driver: 2})
		return s
	}, ".F......"},
	{"a service that denies the winner", func() *scene {
		s := sound()
		s.Promised = nil
		return s
	}, ".F......"},
	{"a service that calls taken what is open", func() *scene {
		s := sound()
		s.loses(40, "B", 2, 2, 3)
		s.enters(50, "A", 2, 1, 4)
		s.claims(60, 62, "A", 2, 1, 4)
		return s
	}, "....F..."},
	{"an order that is stuck", func() *scene {
		s := sound()
		s.Stuck = []int64{1}
		return s
	}, ".......F"},

	{"a claim whose outcome is unknown", func() *scene {
		s := sound()
		s.enters(30, "A", 2, 1, 3)
		s.event(33, "A", history.Invoke, history.Claim, 2, 1, 3, "")
		s.event(34, "A", history.Info, history.Claim, 2, 1, 3, "connection lost")
		s.event(35, "A", history.Info, history.Grab, 2, 1, 3, "connection lost")
		s.Unsure = []check.Pair{{Order: 2, Driver: 1}}
		s.leaves(36, "A", 2, 1, 3)
		s.enters(40, "B", 2, 2, 4)
		s.claims(44, 46, "B", 2, 2, 4)
		return s
	}, "........"},
	{"two claims together, one of an unknown outcome", func() *scene {
		s := sound()
		s.Guard = order.Naive
		s.enters(30, "A", 2, 1, 3)
		s.event(33, "A", history.Invoke, history.Claim, 2, 1, 3, "")
		s.leaves(35, "A", 2, 1, 3)
		s.enters(40, "B", 2, 2, 4)
		s.claims(44, 46, "B", 2, 2, 4)
		return s
	}, "...?..?."},
	{"a stale claim of an unknown outcome", func() *scene {
		s := sound()
		s.enters(30, "A", 2, 1, 3)
		s.leaves(34, "A", 2, 1, 3)
		s.enters(40, "B", 2, 2, 4)
		s.leaves(44, "B", 2, 2, 4)
		s.fails(46, "B", history.Grab, 2, 2, 4, "dependency", "context canceled")
		s.event(50, "A", history.Invoke, history.Claim, 2, 1, 3, "")
		s.event(51, "A", history.Info, history.Claim, 2, 1, 3, "connection lost")
		return s
	}, "......?."},
	{"a recorder that loses an event", func() *scene {
		s := sound()
		s.lose("A")
		s.loses(40, "A", 1, 3, 3)
		return s
	}, "..?????."},
	{"nothing was recorded", func() *scene {
		s := sound()
		s.tape = tape{}
		return s
	}, "..?????."},
	{"a database that is gone", func() *scene {
		s := sound()
		s.LedgerErr = errGone
		return s
	}, "??....?."},
	{"probes that get no answer", func() *scene {
		s := sound()
		s.ProbeErr = errGone
		return s
	}, ".......?"},
	{"a lock without tokens", func() *scene {
		s := &scene{Evidence: check.Evidence{Excludes: catalog.Global, Guard: order.Naive}}
		s.enters(0, "A", 1, 1, 0)
		s.claims(10, 12, "A", 1, 1, 0)
		return s
	}, ".....??."},
	{"no lock, and a guard that decides", func() *scene {
		s := &scene{Evidence: check.Evidence{Excludes: catalog.NoExclusion, Guard: order.Guarded}}
		s.enters(0, "A", 1, 1, 0)
		s.enters(1, "B", 1, 2, 0)
		s.event(10, "B", history.Invoke, history.Claim, 1, 2, 0, "")
		s.claims(10, 12, "A", 1, 1, 0)
		s.fails(13, "B", history.Claim, 1, 2, 0, history.Taken, order.ErrTaken.Error())
		s.leaves(14, "B", 1, 2, 0)
		s.fails(16, "B", history.Grab, 1, 2, 0, history.Taken, order.ErrTaken.Error())
		return s
	}, "..?..??."},
}

// TestCheckersOnBrokenSubjects checks the results of all checkers on all subjects. Every checker
// must detect at least one fault. With go test -v, the test prints the results as a table.
func TestCheckersOnBrokenSubjects(t *testing.T) {
	marks := map[check.Result]byte{check.Pass: '.', check.Fail: 'F', check.Unknown: '?'}
	caught := map[string]bool{}
	var table strings.Builder
	for _, subject := range subjects {
		s := subject.scene()
		e := s.evidence()
		if len(s.seq) == 0 {
			e.Record = nil
		}
		var row []byte
		for _, v := range check.Judge(e) {
			row = append(row, marks[v.Result])
			if v.Result == check.Fail {
				caught[v.Property] = true
			}
			if v.Why == "" {
				t.Errorf("%s: the verdict on %s has no reason", subject.name, v.Property)
			}
		}
		fmt.Fprintf(&table, "%-48s %s\n", subject.name, strings.Join(strings.Split(string(row), ""), "   "))
		if string(row) != subject.want {
			t.Errorf("%s: the checkers returned %s, want %s\n%s", subject.name, row, subject.want, tell(check.Judge(e)))
		}
	}
	heading := ""
	for i, v := range check.Judge(check.Evidence{}) {
		heading += fmt.Sprintf("%48s %s%s\n", "", strings.Repeat("|   ", i), v.Property)
		if !caught[v.Property] {
			t.Errorf("no subject violates %s", v.Property)
		}
	}
	t.Logf("checker x subject: . pass, F fail, ? unknown\n%s%s", heading, &table)
}

func tell(verdicts []check.Verdict) string {
	var b strings.Builder
	for _, v := range verdicts {
		fmt.Fprintf(&b, "\t%s %s: %s\n", v.Property, v.Result, v.Why)
	}
	return b.String()
}

// TestRecordIgnoresInterleaving checks that the record is the same if the instances' events are
// scanned one instance after the other, beginning with the last.
func TestRecordIgnoresInterleaving(t *testing.T) {
	s := sound()
	byInstance := map[string][]history.Event{}
	for _, e := range s.events {
		byInstance[e.Instance] = append(byInstance[e.Instance], e)
	}
	var backwards check.Scan
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(byInstance))) {
		for _, e := range byInstance[name] {
			backwards.Add(e)
		}
	}
	got, want := backwards.Record(), s.scan.Record()
	if !slices.Equal(got.Effects, want.Effects) || !slices.Equal(got.Ops, want.Ops) || len(got.Holds) != len(want.Holds) {
		t.Errorf("Record: got %+v, want %+v", got, want)
	}
}
