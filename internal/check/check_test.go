package check_test

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/check"
	"grablab/internal/history"
	"grablab/internal/order"
)

var errGone = errors.New("the database is gone")

// rows returns a ledger with a row for each pair of an order and a driver.
func rows(pairs ...check.Pair) []order.Grab { return check.Rows(pairs) }

// verdict returns the verdict on one property. The test fails if the verdict's reason is missing or
// ungrammatical.
func verdict(t *testing.T, property string, e check.Evidence) check.Verdict {
	t.Helper()
	verdicts := check.Judge(e, property)
	if len(verdicts) != 1 || verdicts[0].Property != property || verdicts[0].Why == "" {
		t.Fatalf("got %+v, want one verdict on %s with a reason", verdicts, property)
	}
	if why := verdicts[0].Why; strings.Contains(why, "%!") || !countsInGrammar(why) {
		t.Fatalf("the reason %q has a formatting or grammar error", why)
	}
	return verdicts[0]
}

var counted = regexp.MustCompile(`(?:(\w+) )?\b(\d+) (?:promised )?(orders?|grabs?|holds?|tokens?|claims?|events?|rows?|drivers?)\b(?: (was|were|has|have|stands?|gives?)\b)?`)

// countsInGrammar reports whether each counted noun in text, and its verb, are singular or plural
// as the count demands.
func countsInGrammar(text string) bool {
	for _, m := range counted.FindAllStringSubmatch(text, -1) {
		before, one, noun, verb := m[1], m[2] == "1", m[3], m[4]
		if before == "order" || before == "driver" || before == "token" { // the number is an ID, not a count
			continue
		}
		plural := slices.Contains([]string{"were", "have", "stand", "give"}, verb)
		if strings.HasSuffix(noun, "s") == one || verb != "" && plural == one {
			return false
		}
	}
	return true
}

func TestVerdicts(t *testing.T) {
	p := func(order, driver int64) check.Pair { return check.Pair{Order: order, Driver: driver} }
	hex := func(number int64) string { return fmt.Sprintf("%#x", number) }
	for _, tt := range []struct {
		name    string
		checker string
		e       check.Evidence
		want    check.Result
		why     string // part of the reason
	}{
		{"no grabs", "one-winner", check.Evidence{}, check.Pass, "0 orders"},
		{"one winner each", "one-winner", check.Evidence{Ledger: rows(p(1, 1), p(2, 1))}, check.Pass, "2 orders"},
		{"two winners", "one-winner", check.Evidence{Ledger: rows(p(1, 1), p(2, 1), p(2, 2), p(2, 3))}, check.Fail, "order 2 has 3 rows"},
		{"one driver twice", "one-winner", check.Evidence{Ledger: rows(p(1, 1), p(1, 1))}, check.Fail, "order 1"},
		{"no ledger, no doubt by the answers", "one-winner", check.Evidence{LedgerErr: errGone, Promised: []check.Pair{p(1, 1)}}, check.Unknown, "the database is gone"},
		{"no ledger, two were told", "one-winner", check.Evidence{LedgerErr: errGone, Promised: []check.Pair{p(1, 1), p(1, 2)}}, check.Fail, "order 1 was promised 2 times"},
		{"foreign, one was told", "one-winner", check.Evidence{FromAnswers: true, Promised: []check.Pair{p(1, 1)}}, check.Pass, "1 order was promised, each to one driver"},
		{"foreign, two were told", "one-winner", check.Evidence{FromAnswers: true, Promised: []check.Pair{p(1, 1), p(1, 2)}}, check.Fail, "order 1 was promised 2 times"},
		{"foreign, a second may have won", "one-winner", check.Evidence{FromAnswers: true, Promised: []check.Pair{p(1, 1)}, Unsure: []check.Pair{p(1, 2)}}, check.Unknown, "order 1"},
		{"foreign, two may have won", "one-winner", check.Evidence{FromAnswers: true, Unsure: []check.Pair{p(1, 1), p(1, 2)}}, check.Unknown, "order 1"},
		{"foreign, doubt on another order", "one-winner", check.Evidence{FromAnswers: true, Promised: []check.Pair{p(1, 1)}, Unsure: []check.Pair{p(2, 2)}}, check.Pass, "1 order"},

		{"as many as there are", "one-winner", check.Evidence{Units: 2, Ledger: rows(p(1, 1), p(1, 2), p(2, 1))}, check.Pass, "2 orders were sold, and no order was sold more than 2 times"},
		{"one unit too many", "one-winner", check.Evidence{Units: 2, Ledger: rows(p(1, 1), p(2, 1), p(2, 2), p(2, 3))}, check.Fail, "order 2 has 2 units, but was sold 3 times"},
		{"several units, no doubt by the answers", "one-winner", check.Evidence{Units: 2, LedgerErr: errGone, Promised: []check.Pair{p(1, 1), p(1, 2)}}, check.Unknown, "the database is gone"},
		{"several units, one too many was told", "one-winner", check.Evidence{Units: 2, LedgerErr: errGone, Promised: []check.Pair{p(1, 1), p(1, 2), p(1, 3)}}, check.Fail, "promised too often"},
		{"foreign, one more may have won", "one-winner", check.Evidence{Units: 2, FromAnswers: true, Promised: []check.Pair{p(1, 1), p(1, 2)}, Unsure: []check.Pair{p(1, 3)}}, check.Unknown, "order 1 (2 units)"},
		{"foreign, one of several may have won", "one-winner", check.Evidence{Units: 2, FromAnswers: true, Promised: []check.Pair{p(1, 1)}, Unsure: []check.Pair{p(1, 3)}}, check.Pass, "1 order"},

		{"one after the other, two units", "linearizable", check.Evidence{Units: 2, Record: &check.Record{Ops: []check.Op{
			{Span: check.Span{Order: 1, Driver: 1, From: 1, To: 2}, Outcome: check.Won},
			{Span: check.Span{Order: 1, Driver: 2, From: 3, To: 4}, Outcome: check.Won},
			{Span: check.Span{Order: 1, Driver: 3, From: 3, To: 5}, Outcome: check.Taken},
		}}}, check.Pass, "the first 2 win"},
		{"three won two units", "linearizable", check.Evidence{Units: 2, Record: &check.Record{MissingEvents: 1, Ops: []check.Op{
			{Span: check.Span{Order: 1, Driver: 1, From: 1, To: 9}, Outcome: check.Won},
			{Span: check.Span{Order: 1, Driver: 2, From: 1, To: 9}, Outcome: check.Won},
			{Span: check.Span{Order: 1, Driver: 3, From: 1, To: 9}, Outcome: check.Won},
		}}}, check.Fail, "order 1"},
		{"refused while a unit was left", "linearizable", check.Evidence{Units: 2, Record: &check.Record{Ops: []check.Op{
			{Span: check.Span{Order: 1, Driver: 1, From: 1, To: 2}, Outcome: check.Won},
			{Span: check.Span{Order: 1, Driver: 2, From: 3, To: 4}, Outcome: check.Taken},
			{Span: check.Span{Order: 1, Driver: 3, From: 5, To: 6}, Outcome: check.Won},
		}}}, check.Fail, "order 1"},
		{"refused while a unit may have been sold", "linearizable", check.Evidence{Units: 2, Record: &check.Record{Ops: []check.Op{
			{Span: check.Span{Order: 1, Driver: 1, From: 1, To: 2}, Outcome: check.Won},
			{Span: check.Span{Order: 1, Driver: 2, From: 3, To: 4}, Outcome: check.Taken},
			{Span: check.Span{Order: 1, Driver: 3, From: 1, To: never}, Outcome: check.MayHave},
		}}}, check.Pass, "1 order"},
		{"claims of several units", "writes-exclusive", check.Evidence{Units: 2, Excludes: catalog.NoExclusion, Record: &check.Record{Effects: []check.Effect{
			{Span: check.Span{Order: 1, Driver: 1, From: 1, To: 3}, Sure: true}, {Span: check.Span{Order: 1, Driver: 2, From: 2, To: 4}, Sure: true},
		}}}, check.Unknown, "several units"},
		{"claims of several units under a lock", "writes-exclusive", check.Evidence{Units: 2, Excludes: catalog.Global, Record: &check.Record{Effects: []check.Effect{
			{Span: check.Span{Order: 1, Driver: 1, From: 1, To: 3}, Sure: true}, {Span: check.Span{Order: 1, Driver: 2, From: 2, To: 4}, Sure: true},
		}}}, check.Fail, "1 claim wrote"},

		{"as told", "answers-agree", check.Evidence{Ledger: rows(p(1, 1)), Promised: []check.Pair{p(1, 1)}}, check.Pass, "1 promised grab"},
		{"a service that writes nothing", "answers-agree", check.Evidence{Promised: []check.Pair{p(1, 1), p(2, 3)}}, check.Fail, "driver 1 was told that it had won order 1"},
		{"the wrong driver was told", "answers-agree", check.Evidence{Ledger: rows(p(1, 1)), Promised: []check.Pair{p(1, 2)}}, check.Fail, "driver 2"},
		{"told twice, written once", "answers-agree", check.Evidence{Ledger: rows(p(1, 1)), Promised: []check.Pair{p(1, 1), p(1, 1)}}, check.Fail, "1 grab was promised"},
		{"the winner was told taken", "answers-agree", check.Evidence{Ledger: rows(p(1, 1))}, check.Fail, "the ledger names driver 1"},
		{"the winner got no answer", "answers-agree", check.Evidence{Ledger: rows(p(1, 1)), Unsure: []check.Pair{p(1, 1)}}, check.Pass, ""},
		{"a lost answer excuses one row", "answers-agree", check.Evidence{Ledger: rows(p(1, 1), p(1, 1)), Unsure: []check.Pair{p(1, 1)}}, check.Fail, "1 grab was denied"},
		{"no ledger", "answers-agree", check.Evidence{LedgerErr: errGone, Promised: []check.Pair{p(1, 1)}}, check.Unknown, "the database is gone"},
		{"foreign", "answers-agree", check.Evidence{FromAnswers: true, Promised: []check.Pair{p(1, 1)}}, check.Unknown, "no ledger"},

		{"all answered", "stuck", check.Evidence{}, check.Pass, ""},
		{"a lock that never lets go, of a service", "stuck", check.Evidence{Stuck: []int64{4}, OrderText: hex}, check.Fail, "1 order is stuck, because a new driver got no final answer; for example, order 0x4"},
		{"a winner without a row, of a service", "answers-agree", check.Evidence{Promised: []check.Pair{p(10, 2)}, OrderText: hex}, check.Fail,
			"1 grab was promised that the ledger does not have; for example, driver 2 was told that it had won order 0xa"},
		{"two winners, of a service", "one-winner", check.Evidence{Ledger: rows(p(11, 1), p(11, 2)), OrderText: hex}, check.Fail,
			"1 order was grabbed more than once; for example, order 0xb has 2 rows"},
		{"a lock that never lets go", "stuck", check.Evidence{Stuck: []int64{9, 4}}, check.Fail, "2 orders are stuck, because a new driver got no final answer; for example, order 4"},
		{"not probed", "stuck", check.Evidence{ProbeErr: errGone}, check.Unknown, "the database is gone"},
		{"some stuck, some not probed", "stuck", check.Evidence{ProbeErr: errGone, Stuck: []int64{4}}, check.Fail, "1 order is stuck"},

		{"no lock", "holders-exclusive", check.Evidence{Excludes: catalog.NoExclusion, Record: &check.Record{}}, check.Unknown, "no lock"},
		{"together", "holders-exclusive", check.Evidence{Excludes: catalog.Global, Record: &check.Record{Holds: []check.Hold{
			{Span: check.Span{Order: 1, Driver: 1, Instance: "A", From: 10 * time.Millisecond, To: 40 * time.Millisecond}},
			{Span: check.Span{Order: 1, Driver: 2, Instance: "B", From: 15 * time.Millisecond, To: 50 * time.Millisecond}},
		}}}, check.Fail, "driver 2 (instance B) entered 25ms before driver 1 (instance A) left"},
		{"foreign, no record", "holders-exclusive", check.Evidence{Excludes: catalog.NoExclusion, Foreign: true}, check.Unknown, "the service's lock is not visible"},
		{"no record", "holders-exclusive", check.Evidence{Excludes: catalog.Global}, check.Unknown, "do not say who held the lock"},

		{"lower than two that were got before", "fence", check.Evidence{Record: &check.Record{Holds: []check.Hold{
			{Span: check.Span{Order: 1, Driver: 1, Instance: "A", Fence: 7, From: 1}},
			{Span: check.Span{Order: 1, Driver: 2, Instance: "A", Fence: 8, From: 2}},
			{Span: check.Span{Order: 1, Driver: 3, Instance: "B", Fence: 6, From: 4}, AcquireCalled: 3},
		}}}, check.Fail, "order 1 decreased: driver 1 (instance A) got 7, and later driver 3 (instance B) got 6"},

		{"two won, and events were lost", "linearizable", check.Evidence{Record: &check.Record{MissingEvents: 1, Ops: []check.Op{
			{Span: check.Span{Order: 1, Driver: 1, From: 1, To: 2}, Outcome: check.Won},
			{Span: check.Span{Order: 1, Driver: 2, From: 3, To: 4}, Outcome: check.Won},
		}}}, check.Fail, "1 order"},
		{"taken before anybody grabbed it, or the events of who did were lost", "linearizable", check.Evidence{Record: &check.Record{MissingEvents: 2, Ops: []check.Op{
			{Span: check.Span{Order: 1, Driver: 1, From: 1, To: 2}, Outcome: check.Taken},
			{Span: check.Span{Order: 1, Driver: 2, From: 3, To: 4}, Outcome: check.Won},
		}}}, check.Unknown, "2 events were lost"},
	} {
		t.Run(tt.checker+"/"+tt.name, func(t *testing.T) {
			got := verdict(t, tt.checker, tt.e)
			if got.Result != tt.want || !strings.Contains(got.Why, tt.why) {
				t.Errorf("verdict: got %s: %q, want %s: …%s…", got.Result, got.Why, tt.want, tt.why)
			}
		})
	}
}

// TestRepeatedRows checks the verdict on ledgers in which an order and driver have several rows. If
// the ledger comes from the user's own query, the query may have repeated rows, so they prove no
// violation. Repeated rows must not hide a second driver.
func TestRepeatedRows(t *testing.T) {
	one, again, other := check.Pair{Order: 1, Driver: 1}, check.Pair{Order: 1, Driver: 1}, check.Pair{Order: 1, Driver: 2}
	third, elsewhere := check.Pair{Order: 1, Driver: 3}, []check.Pair{{Order: 2, Driver: 1}, {Order: 2, Driver: 2}}
	for _, tt := range []struct {
		name          string
		ledger        []order.Grab
		units         int
		ours, foreign check.Result
	}{
		{"one row", rows(one), 1, check.Pass, check.Pass},
		{"a repeated row", rows(one, again), 1, check.Fail, check.Unknown},
		{"a second driver", rows(one, other), 1, check.Fail, check.Fail},
		{"a repeated row and a second driver", rows(one, again, other), 1, check.Fail, check.Fail},
		{"a repeated row, and a second driver of another order", rows(append(elsewhere, one, again)...), 1, check.Fail, check.Fail},
		{"two units, and a repeated row", rows(one, again), 2, check.Pass, check.Pass},
		{"two units, and a repeated row too many", rows(one, again, other), 2, check.Fail, check.Unknown},
		{"two units, and three drivers", rows(one, other, third), 2, check.Fail, check.Fail},
	} {
		for foreign, want := range map[bool]check.Result{false: tt.ours, true: tt.foreign} {
			v := verdict(t, catalog.OneWinner, check.Evidence{Ledger: tt.ledger, Units: tt.units, Foreign: foreign})
			if v.Result != want {
				t.Errorf("%s, foreign %v: %s (%s), want %s", tt.name, foreign, v.Result, v.Why, want)
			}
		}
	}
}

// TestRowsThatAnswersDeny compares the ledger rows of one driver with the answers to this driver. If
// the ledger comes from the user's own query, the query may repeat the row of a driver who was told
// that it had won. Each lost answer explains one row.
func TestRowsThatAnswersDeny(t *testing.T) {
	for n := range 3 * 3 * 3 * 2 {
		written, told, unsure, foreign := n%3, n/3%3, n/9%3, n/27 == 1
		p := []check.Pair{{Order: 1, Driver: 1}}
		e := check.Evidence{Ledger: rows(slices.Repeat(p, written)...), Promised: slices.Repeat(p, told), Unsure: slices.Repeat(p, unsure), Foreign: foreign}
		fails := told > written || written-told > unsure && !(foreign && told > 0)
		if v := verdict(t, catalog.AnswersAgree, e); (v.Result == check.Fail) != fails {
			t.Errorf("%d rows, %d promises, %d lost answers, foreign %v: %s (%s)", written, told, unsure, foreign, v.Result, v.Why)
		}
	}
}

func TestCountGrabs(t *testing.T) {
	ledger := rows(
		check.Pair{Order: 3, Driver: 1}, check.Pair{Order: 3, Driver: 2}, check.Pair{Order: 3, Driver: 3},
		check.Pair{Order: 1, Driver: 1}, check.Pair{Order: 1, Driver: 4}, check.Pair{Order: 1, Driver: 5},
		check.Pair{Order: 2, Driver: 1})
	for units, want := range map[int]check.Grabs{
		0: {Rows: 7, Orders: 3, DoubleGrabs: 4, OrdersDouble: 2, Most: 1, MostRows: 3},
		1: {Rows: 7, Orders: 3, DoubleGrabs: 4, OrdersDouble: 2, Most: 1, MostRows: 3},
		2: {Rows: 7, Orders: 3, DoubleGrabs: 2, OrdersDouble: 2, Most: 1, MostRows: 3},
		3: {Rows: 7, Orders: 3, Most: 1, MostRows: 3},
	} {
		if got := check.CountGrabs(ledger, units); got != want {
			t.Errorf("of %d units: got %+v, want %+v", units, got, want)
		}
	}
}

// FuzzAnswersBalance checks the equation in the comment of CompareAnswers for arbitrary answers and
// ledgers. No grab may be both phantom and unacknowledged.
func FuzzAnswersBalance(f *testing.F) {
	f.Add([]byte{1, 1, 2}, []byte{1, 3})
	f.Fuzz(func(t *testing.T, told, written []byte) {
		pairs := func(b []byte) []check.Pair {
			ps := make([]check.Pair, len(b))
			for i, x := range b {
				ps[i] = check.Pair{Order: int64(x >> 4), Driver: int64(x & 15)}
			}
			return ps
		}
		phantom, unacknowledged := check.CompareAnswers(pairs(told), check.Rows(pairs(written)))
		if len(told)+len(unacknowledged)-len(phantom) != len(written) {
			t.Errorf("%d told + %d unacknowledged - %d phantom is not %d rows", len(told), len(unacknowledged), len(phantom), len(written))
		}
		for _, p := range phantom {
			if slices.Contains(unacknowledged, p) {
				t.Errorf("%v is phantom and unacknowledged", p)
			}
		}
	})
}

// tape is a hand-written history. Its methods add events, whose times are in steps.
type tape struct {
	scan   check.Scan
	seq    map[string]uint64
	events []history.Event
}

func stepsOf(t int) time.Duration { return time.Duration(t) * time.Millisecond }

func (tp *tape) add(t int, instance string, kind history.Kind, op string, order, driver int64, token, note string) {
	tp.play(history.Event{
		Seq: tp.next(instance), T: time.Duration(t), Instance: instance, Kind: kind, Op: op,
		Order: order, Driver: driver, Token: token, Note: note,
	})
}

func (tp *tape) fails(t int, instance, op string, order, driver int64, token string, code history.Code, note string) {
	tp.play(history.Event{
		Seq: tp.next(instance), T: time.Duration(t), Instance: instance, Kind: history.Fail, Op: op,
		Order: order, Driver: driver, Token: token, Code: code, Note: note,
	})
}

// next returns the sequence number of an instance's next event.
func (tp *tape) next(instance string) uint64 {
	if tp.seq == nil {
		tp.seq = map[string]uint64{}
	}
	tp.seq[instance]++
	return tp.seq[instance]
}

func (tp *tape) play(e history.Event) {
	tp.events = append(tp.events, e)
	tp.scan.Add(e)
}

func (tp *tape) enter(t int, instance string, order, driver int64, token string) {
	tp.add(t, instance, history.OK, history.Acquire, order, driver, token, "")
}

func (tp *tape) leave(t int, instance string, order, driver int64, token string) {
	tp.add(t, instance, history.Invoke, history.Release, order, driver, token, "")
}

// lose simulates that the next event of an instance is lost.
func (tp *tape) lose(instance string) { tp.next(instance) }

// restart simulates a restart of an instance: its sequence numbers begin again.
func (tp *tape) restart(instance string) { tp.seq[instance] = 0 }

func TestHoldersApart(t *testing.T) {
	for _, tt := range []struct {
		name     string
		among    catalog.Exclusion
		tape     func(*tape)
		overlaps int
		want     check.Result
		why      string
	}{
		{"nothing happened", catalog.Global, func(*tape) {}, 0, check.Pass, "0 holds"},
		{"one after the other", catalog.Global, func(r *tape) {
			r.enter(1, "A", 7, 1, "a")
			r.leave(2, "A", 7, 1, "a")
			r.enter(3, "B", 7, 2, "b")
			r.leave(4, "B", 7, 2, "b")
		}, 0, check.Pass, "2 holds"},
		{"one the instant after the other", catalog.Global, func(r *tape) {
			r.enter(1, "A", 7, 1, "a")
			r.leave(2, "A", 7, 1, "a")
			r.enter(2, "B", 7, 2, "b")
			r.leave(3, "B", 7, 2, "b")
		}, 0, check.Pass, "2 holds"},
		{"one who left at once, at the instant the other entered", catalog.Global, func(r *tape) {
			r.enter(1, "B", 7, 2, "b")
			r.leave(1, "B", 7, 2, "b")
			r.enter(1, "A", 7, 1, "a")
			r.leave(3, "A", 7, 1, "a")
		}, 0, check.Pass, "2 holds"},
		{"together, on two orders", catalog.Global, func(r *tape) {
			r.enter(1, "A", 7, 1, "a")
			r.enter(2, "B", 8, 2, "b")
			r.leave(3, "A", 7, 1, "a")
			r.leave(4, "B", 8, 2, "b")
		}, 0, check.Pass, "2 holds"},
		{"together, in two instances", catalog.Global, func(r *tape) {
			r.enter(1, "A", 7, 1, "a")
			r.enter(2, "B", 7, 2, "b")
			r.leave(3, "A", 7, 1, "a")
			r.leave(4, "B", 7, 2, "b")
		}, 1, check.Fail, "order 7, driver 2 (instance B)"},
		{"together, in two instances that need not exclude each other", catalog.PerProcess, func(r *tape) {
			r.enter(1, "A", 7, 1, "a")
			r.enter(2, "B", 7, 2, "b")
			r.leave(3, "A", 7, 1, "a")
			r.leave(4, "B", 7, 2, "b")
		}, 0, check.Pass, "2 holds"},
		{"together, in one instance", catalog.PerProcess, func(r *tape) {
			r.enter(1, "A", 7, 1, "")
			r.enter(2, "A", 7, 2, "")
			r.leave(3, "A", 7, 1, "")
			r.leave(4, "A", 7, 2, "")
		}, 1, check.Fail, "order 7, driver 2 (instance A)"},
		{"the long one overlaps all the short ones", catalog.Global, func(r *tape) {
			r.enter(1, "A", 7, 1, "a")
			for i := range 3 {
				r.enter(2+2*i, "B", 7, 2, "b")
				r.leave(3+2*i, "B", 7, 2, "b")
			}
			r.leave(9, "A", 7, 1, "a")
		}, 3, check.Fail, "3 holds"},
		{"one driver's two attempts with one token", catalog.Global, func(r *tape) {
			r.enter(1, "A", 7, 1, "driver-1")
			r.enter(2, "A", 7, 1, "driver-1")
			r.leave(3, "A", 7, 1, "driver-1")
			r.leave(4, "A", 7, 1, "driver-1")
		}, 1, check.Fail, "1 hold began"},
		{"never left", catalog.Global, func(r *tape) {
			r.enter(1, "A", 7, 1, "a")
			r.enter(5, "B", 7, 2, "b")
			r.leave(6, "B", 7, 2, "b")
		}, 1, check.Fail, "driver 2"},
		{"died inside, started anew", catalog.Global, func(r *tape) {
			r.enter(1, "A", 7, 1, "a")
			r.enter(5, "B", 7, 2, "b")
			r.leave(6, "B", 7, 2, "b")
			r.restart("A")
			r.enter(8, "A", 7, 3, "c")
			r.leave(9, "A", 7, 3, "c")
		}, 0, check.Pass, "3 holds"},
		{"a release was lost", catalog.Global, func(r *tape) {
			r.enter(1, "A", 7, 1, "a")
			r.lose("A")
			r.enter(5, "A", 7, 2, "b")
			r.leave(6, "A", 7, 2, "b")
		}, 1, check.Unknown, "1 event was lost"},
		{"an acquire was lost", catalog.Global, func(r *tape) {
			r.leave(1, "A", 7, 1, "a")
		}, 0, check.Unknown, "1 event was lost"},
		{"events were lost, and two overlap all the same", catalog.Global, func(r *tape) {
			r.enter(1, "A", 7, 1, "a")
			r.enter(2, "B", 7, 2, "b")
			r.leave(3, "A", 7, 1, "a")
			r.leave(4, "B", 7, 2, "b")
			r.lose("B")
			r.enter(9, "B", 7, 3, "c")
		}, 1, check.Fail, "driver 2"},
		{"lost before the process began to tell", catalog.Global, func(r *tape) {
			r.scan.Since = map[string]uint64{"A": 10}
			r.seq = map[string]uint64{"A": 12}
			r.enter(1, "A", 7, 1, "a")
			r.leave(2, "A", 7, 1, "a")
		}, 0, check.Unknown, "2 events were lost"},
		{"failed acquires hold nothing", catalog.Global, func(r *tape) {
			r.enter(1, "A", 7, 1, "a")
			r.fails(2, "B", history.Acquire, 7, 2, "", "dependency", "lock: busy")
			r.leave(3, "A", 7, 1, "a")
		}, 0, check.Pass, "1 hold,"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var r tape
			tt.tape(&r)
			rec := r.scan.Record()
			if got := check.Overlaps(rec.Holds, tt.among); len(got) != tt.overlaps {
				t.Errorf("%d overlaps, want %d: %+v", len(got), tt.overlaps, got)
			}
			v := verdict(t, "holders-exclusive", check.Evidence{Record: rec, Excludes: tt.among})
			if v.Result != tt.want || !strings.Contains(v.Why, tt.why) {
				t.Errorf("verdict: got %s: %q, want %s: …%s…", v.Result, v.Why, tt.want, tt.why)
			}
		})
	}
}

// TestNearMisses checks which failures count as near misses. These are only operations that the
// database refused because another driver came first: a write, or a read that records a fencing token.
func TestNearMisses(t *testing.T) {
	var r tape
	want := map[int64]int{}
	n := 0
	for _, op := range []string{history.Grab, history.Acquire, history.Read, history.Claim, history.Release} {
		for _, code := range []history.Code{history.Busy, history.Taken, history.Stale, history.LeaseLost, "dependency"} {
			n++
			r.fails(n, "A", op, int64(n), 1, "a", code, string(code))
			switch op + " " + string(code) {
			case "claim taken", "claim stale", "read stale":
				want[int64(n)] = 1
			}
		}
	}
	r.fails(n, "A", history.Claim, int64(n), 2, "b", history.Taken, "")
	r.fails(n, "A", history.Claim, int64(n), 3, "c", history.Stale, "")
	want[int64(n)] = 2
	r.add(n, "A", history.OK, history.Claim, 7, 6, "f", "")
	// A write with an unknown outcome must not count as a near miss, whatever its code.
	for driver, code := range []history.Code{history.Stale, history.Taken} {
		r.play(history.Event{
			Seq: r.next("A"), T: time.Duration(n), Instance: "A", Kind: history.Info, Op: history.Claim,
			Order: 7, Driver: int64(7 + driver), Token: "g", Code: code,
		})
	}
	rec := r.scan.Record()
	if !maps.Equal(rec.NearMisses, want) || rec.CountNearMisses() != 5 {
		t.Errorf("got near misses %v, %d in total; want %v, 5 in total", rec.NearMisses, rec.CountNearMisses(), want)
	}
}

// TestRecordTwice checks that the record can be requested before the last event. A hold that is
// still open then ends at the latest event.
func TestRecordTwice(t *testing.T) {
	var r tape
	r.enter(1, "A", 7, 1, "a")
	r.enter(2, "B", 8, 2, "b")
	if h := r.scan.Record().Holds[0]; h.To != 2 || h.Closed {
		t.Errorf("an open hold is %+v, want it open until 2", h)
	}
	r.leave(5, "A", 7, 1, "a")
	if h := r.scan.Record().Holds[0]; h.To != 5 || !h.Closed {
		t.Errorf("a closed hold is %+v, want it closed at 5", h)
	}
}

// TestJudge checks that Judge returns exactly one verdict for each property that, according to the
// catalog, a run checks.
func TestJudge(t *testing.T) {
	var judged []string
	for _, v := range check.Judge(check.Evidence{}) {
		judged = append(judged, v.Property)
	}
	want := catalog.PropertiesBy(catalog.Run)
	slices.Sort(judged)
	slices.Sort(want)
	if !slices.Equal(judged, want) {
		t.Errorf("Judge judged %q, want %q", judged, want)
	}
}

// TestFailureWithoutCode checks a failure from an old record, which has no codes. As it may have
// been a near miss, it must count as a missing event.
func TestFailureWithoutCode(t *testing.T) {
	var r tape
	r.enter(1, "A", 7, 1, "a")
	r.add(2, "A", history.Fail, history.Claim, 7, 1, "a", order.ErrTaken.Error())
	r.leave(3, "A", 7, 1, "a")
	rec := r.scan.Record()
	if rec.CountNearMisses() != 0 || rec.MissingEvents != 1 {
		t.Errorf("%d near misses and %d events lost, want 0 and 1", rec.CountNearMisses(), rec.MissingEvents)
	}
	if v := verdict(t, catalog.HoldersExclusive, check.Evidence{Record: rec, Excludes: catalog.Global}); v.Result != check.Unknown {
		t.Errorf("got %+v, want unknown", v)
	}
}
