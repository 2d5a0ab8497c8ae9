package experiment

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/check"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/order"
	"grablab/internal/testbed/fault"
	"grablab/internal/testbed/load"
	"grablab/internal/testbed/target"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

// driverReply is an instance's response to a driver, or the failure to get a response, together
// with how the accounting must count it.
type driverReply struct {
	code    uint16
	failure string // kind of the failure if code is 0
	outcome grab.Outcome
	kind    string // the kind of error; empty if it is not an error
	unsure  bool
}

var everyReply = []driverReply{
	{code: 200, outcome: grab.Grabbed}, {code: 409, outcome: grab.Taken}, {code: 423, outcome: grab.Busy},
	{code: 404, outcome: grab.Failed, kind: "http 404"},
	{code: 500, outcome: grab.Failed, kind: "http 500", unsure: true},
	{code: 504, outcome: grab.Timeout, kind: "http 504", unsure: true},
	{failure: load.Timeout, outcome: grab.Timeout, kind: load.Timeout, unsure: true},
	{failure: load.Reset, outcome: grab.Failed, kind: load.Reset, unsure: true},
	{failure: load.Refused, outcome: grab.Failed, kind: load.Refused},
	{failure: load.Interrupted, outcome: grab.Failed, kind: load.Interrupted, unsure: true},
}

// answered is a request with its response.
type answered struct {
	load.Request
	driverReply
	due, sent, end time.Time
	seq            uint64
	text           string
}

// TestAccountingByDefinition counts random responses of two instances to the drivers of some
// orders, in random order. Half of the loads are interrupted. Each count must equal the count in
// the list of responses.
func TestAccountingByDefinition(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(6, 1))
	for n := range repetitions(40, 120) {
		const orders, drivers = 4, 3
		a := newAccounting(drivers, map[string]string{"http://a": "8004", "http://b": "8005"}, target.Own)
		var all []answered
		for id := range int64(orders) {
			for d := range int64(drivers) {
				x := answered{Request: load.Request{Target: []string{"http://a", "http://b"}[r.IntN(2)], Order: id + 1, Driver: d + 1}, driverReply: everyReply[r.IntN(len(everyReply))]}
				if r.IntN(3) == 0 {
					x.driverReply = everyReply[1+r.IntN(2)]
				}
				x.due = a.began.Add(time.Duration(r.IntN(5)) * time.Second)
				x.sent = x.due.Add(time.Duration(r.IntN(3)) * time.Second)
				x.end = x.sent.Add(time.Duration(1+r.IntN(5)) * time.Second)
				if x.code != 0 && r.IntN(2) == 0 {
					x.text = fmt.Sprintf("text of order %d for driver %d", x.Order, x.Driver)
				}
				all = append(all, x)
			}
		}
		r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		if n%2 == 0 {
			all = all[:r.IntN(len(all))]
		}
		for i := range all {
			x := &all[i]
			x.seq = uint64(i)
			result := &vegeta.Result{Code: x.code, Timestamp: x.sent, Latency: x.end.Sub(x.sent), Seq: x.seq, URL: x.URL([]byte("/orders/1/grab")), Body: []byte(x.text)}
			if x.failure != "" {
				result.Error = `Post "http://a": ` + x.failure + ": it failed"
			}
			if err := a.add(result, x.due); err != nil {
				t.Fatal(err)
			}
		}
		var first *orderState
		if a.first != nil {
			kept := *a.first
			first = &kept
		}
		a.finish()
		checkAccounting(t, a, first, all, drivers)
		if t.Failed() {
			t.Fatalf("the accounting is wrong for the replies %+v", all)
		}
	}
}

// checkAccounting compares the accounting with counts that it computes from the list of responses.
func checkAccounting(t *testing.T, a *accounting, first *orderState, all []answered, drivers int) {
	outcomes, errors, servedBy, hiding, samples := noOutcomes(), map[string]int{}, map[string]int{}, map[string]int{}, map[string]string{}
	competed := map[string]bool{}
	var told, unsure []check.Pair
	var lastEnd, lastDue time.Time
	var lastSeq uint64
	series, scheduled, sent := load.NewSeries(), load.NewHistogram(), load.NewHistogram()
	byOrder := map[int64][]answered{}
	var complete []int64 // orders with a response for each driver, in the order of their last responses
	texts := 0
	for _, x := range all {
		pair := check.Pair{Order: x.Order, Driver: x.Driver}
		scheduled.Add(x.end.Sub(x.due))
		sent.Add(x.end.Sub(x.sent))
		series.Add(x.due.Sub(a.began), x.end.Sub(x.due), x.end.Sub(x.sent))
		outcomes[x.outcome]++
		reachedLock := x.code == 200 || x.code == 409 || x.code == 423
		if name := map[string]string{"http://a": "8004", "http://b": "8005"}[x.Target]; x.code != 0 {
			servedBy[name]++
			if reachedLock {
				competed[name] = true
			}
		}
		if x.kind != "" {
			if errors[x.kind]++; samples[x.kind] == "" && x.text != "" {
				samples[x.kind] = x.text
			}
		}
		if x.code == 200 {
			if told = append(told, pair); x.text != "" {
				texts++
			}
		}
		if x.unsure {
			unsure = append(unsure, pair)
			hiding[x.kind]++
		}
		if x.end.After(lastEnd) {
			lastEnd = x.end
		}
		if x.due.After(lastDue) {
			lastDue, lastSeq = x.due, x.seq
		}
		if byOrder[x.Order] = append(byOrder[x.Order], x); len(byOrder[x.Order]) == drivers {
			complete = append(complete, x.Order)
		}
	}
	tried, contended := 0, 0
	var unclaimed []int64
	for id, of := range byOrder {
		won, lost, together := false, false, false
		for i, x := range of {
			won, lost = won || x.code == 200, lost || x.code == 409
			for _, y := range of[:i] {
				inLock := func(x answered) bool { return x.code == 200 || x.code == 409 || x.code == 423 }
				together = together || inLock(x) && inLock(y) && x.sent.Before(y.end) && y.sent.Before(x.end)
			}
		}
		if won || lost {
			tried++
		}
		if together {
			contended++
		}
		if lost && !won {
			unclaimed = append(unclaimed, id)
		}
	}
	slices.Sort(unclaimed)
	slices.Sort(a.unclaimed)
	for name, same := range map[string]bool{
		"requests": a.requests == len(all), "outcomes": maps.Equal(a.outcomes, outcomes), "errors": maps.Equal(a.errors, errors), "servedBy": maps.Equal(a.servedBy, servedBy),
		"competed": maps.Equal(a.competed, competed), "told": slices.Equal(a.told, told), "unsure": slices.Equal(a.unsure, unsure), "hiding": maps.Equal(a.hiding, hiding),
		"samples": maps.Equal(a.samples, samples), "texts": a.texts == texts, "tried": a.tried == tried, "contended": a.contended == contended,
		"unclaimed": slices.Equal(a.unclaimed, unclaimed), "lastEnd": a.lastEnd.Equal(lastEnd), "lastDue": a.lastDue.Equal(lastDue), "lastSeq": a.lastSeq == lastSeq,
		"latency":           reflect.DeepEqual(a.scheduled.Latency(), scheduled.Latency()) && reflect.DeepEqual(a.sent.Latency(), sent.Latency()),
		"latency over time": reflect.DeepEqual(a.series.OverTime(), series.OverTime()),
		"open":              len(a.open) == 0, "first": (first == nil) == (len(complete) == 0),
	} {
		if !same {
			t.Errorf("%s differs from the list of responses: %+v", name, a)
		}
	}
	if first == nil || t.Failed() {
		return
	}
	var won, taken, doubtful, refused int
	for _, x := range byOrder[complete[0]] {
		switch {
		case x.code == 200:
			won++
		case x.code == 409:
			taken++
		case x.unsure:
			doubtful++
		case x.outcome == grab.Failed && x.kind != load.Refused:
			refused++
		}
	}
	if first.id != complete[0] || first.grabbed != won || first.taken != taken || first.unsure != doubtful || first.refused != refused {
		t.Errorf("the first order is %+v, want order %d with %d, %d, %d, %d", first, complete[0], won, taken, doubtful, refused)
	}
}

// TestCheckWins checks when the program doubts the wins that it counted, in every combination of
// these conditions:
//   - The user gave no rule for a win.
//   - No driver was told that it had lost.
//   - There were more wins than units.
//   - No probe was told that it had lost, or every winner's response had a text.
//   - The winners of one order got different texts.
//   - A probe was told that it had won, but has no row.
func TestCheckWins(t *testing.T) {
	bools := []bool{false, true}
	for n := range 3 * 4 * 4 * 2 * 16 {
		pick := func(of int) (k int) {
			k, n = n%of, n/of
			return k
		}
		loser, texts, won, units := []grab.Outcome{"", grab.Taken, grab.Busy}[pick(3)], pick(4), pick(4), 1+pick(2)
		assumed, probeLost, differ, withoutRow := bools[pick(2)], bools[pick(2)], bools[pick(2)], bools[pick(2)]
		shape := *target.Own
		shape.AssumesGrabbed = assumed
		a := newAccounting(3, nil, &shape)
		a.units, a.tried, a.texts, a.outcomes[grab.Grabbed], a.outcomes[grab.Failed] = units, 1, texts, won, 4
		a.competed["8004"] = true
		a.first, a.sales, a.soldOut, a.inOrder = new(orderState), []time.Duration{1}, 2, 3
		for d := range won {
			a.told = append(a.told, check.Pair{Order: 1, Driver: int64(d)})
		}
		if loser != "" {
			a.outcomes[loser] = 1
		}
		if differ {
			a.differing = `"yes" and "no"`
		}
		var want string
		switch {
		case !assumed:
		case withoutRow:
			want = "came too late"
		case won <= units:
		case loser == "" && !(probeLost && texts < won):
			want = "every response was "
		case loser != "" && differ:
			want = `different texts: "yes" and "no"`
		}
		kind := "http " + shape.Says().Grabbed
		name := fmt.Sprintf("assumed %v, loser %q, probe lost %v, %d of %d wins with text, %d units, differ %v, without row %v", assumed, loser, probeLost, texts, won, units, differ, withoutRow)
		if got := a.checkWins(probeLost, withoutRow); got != (want != "") || (a.unreadable != "") != got || !strings.Contains(a.unreadable, want) {
			t.Errorf("%s: checkWins: %v, %q", name, got, a.unreadable)
			continue
		}
		moved := 0
		if want != "" {
			moved = won
		}
		cleared := len(a.competed) == 0 && a.tried == 0 && a.first == nil && a.sales == nil && a.soldOut == 0 && a.inOrder == 0
		kept := len(a.competed) == 1 && a.tried == 1 && a.first != nil && len(a.sales) == 1 && a.soldOut == 2 && a.inOrder == 3
		if a.outcomes[grab.Grabbed] != won-moved || a.outcomes[grab.Failed] != 4+moved || a.errors[kind] != moved || a.hiding[kind] != moved ||
			len(a.unsure) != moved || len(a.told) != won-moved || (want != "") != cleared || (want != "") == kept {
			t.Errorf("accounting after checkWins, %s: %+v", name, a)
		}
	}
}

// TestExpectedOfEachSetting changes one setting at a time. The registry states the expected verdicts
// for certain settings. A verdict must be expected only with these settings.
func TestExpectedOfEachSetting(t *testing.T) {
	setnx, err := lock.Find("setnx")
	if err != nil {
		t.Fatal(err)
	}
	usual := Config{Scenario: "rush", OnLost: grab.Abort, TTL: time.Second, Work: time.Millisecond, Instances: 2}
	for name, change := range map[string]func(*Config, *lock.Strategy){
		"nothing":           func(*Config, *lock.Strategy) {},
		"its own guard":     func(cfg *Config, s *lock.Strategy) { cfg.Guard = s.Guard },
		"another guard":     func(cfg *Config, _ *lock.Strategy) { cfg.Guard = order.FenceWrite },
		"a search":          func(cfg *Config, _ *lock.Strategy) { cfg.Scenario = "peak" },
		"one point":         func(cfg *Config, _ *lock.Strategy) { cfg.At = new(fault.Point) },
		"a loss is ignored": func(cfg *Config, _ *lock.Strategy) { cfg.OnLost = grab.Ignore },
		"a clock ahead":     func(cfg *Config, _ *lock.Strategy) { cfg.ClockOffset = time.Nanosecond },
		"a clock back":      func(cfg *Config, _ *lock.Strategy) { cfg.ClockOffset = -time.Nanosecond },
		"work of one lease": func(cfg *Config, _ *lock.Strategy) { cfg.Work = cfg.TTL },
		"almost a lease":    func(cfg *Config, _ *lock.Strategy) { cfg.Work = cfg.TTL - 1 },
		"a foreign lock":    func(_ *Config, s *lock.Strategy) { s.New = nil },
		"one instance":      func(cfg *Config, _ *lock.Strategy) { cfg.Instances = 1 },
	} {
		for _, f := range []catalog.Fault{catalog.NoFault, catalog.Pause} {
			cfg, s := usual, setnx
			change(&cfg, &s)
			claimed := slices.Contains([]string{"nothing", "its own guard", "almost a lease", "one instance"}, name) && s.Expected(f) != catalog.Unknown
			v, exclusive := cfg.expected(s, f)
			if (v != nil) != claimed || (exclusive != nil) != claimed || claimed && (*v != s.Expected(f) || (*exclusive == Yes) != s.ExclusiveUnder(f)) {
				t.Errorf("expected: %s, %s: %v, %v", name, f, v, exclusive)
			}
		}
	}
}

// TestOrdersWithoutWinner checks the explanation for orders that are taken but have no winner in
// the ledger.
func TestOrdersWithoutWinner(t *testing.T) {
	const advice = "If another table names the winner"
	for _, foreign := range []bool{false, true} {
		for _, ids := range [][]int64{nil, {3}, {3, 8}} {
			m := measured{accounting: &accounting{winnerless: ids}, evidence: check.Evidence{Foreign: foreign}}
			got := m.withoutWinner()
			if (got != "") != (len(ids) > 0) || strings.Contains(got, "order 3 is taken") != (len(ids) > 0) || strings.Contains(got, advice) != (foreign && len(ids) > 0) {
				t.Errorf("foreign %v, orders %v: %q", foreign, ids, got)
			}
		}
	}
	if got := (measured{}).withoutWinner(); got != "" {
		t.Errorf("without answers: %q", got)
	}
}

// TestIDsAreNoDifference compares the texts of two answers to different drivers, in different formats.
// Two texts are alike if they differ only in the driver's ID, in a time or in a token. Texts with
// different codes are not alike.
func TestIDsAreNoDifference(t *testing.T) {
	for _, format := range []string{"%d", "driver %d", `{"driver":%d}`, `{"driver": "%d"}`, "%d: won", "[%d] %[1]d"} {
		if a, b := withoutIDs(fmt.Sprintf(format, 7), 7), withoutIDs(fmt.Sprintf(format, 1234), 1234); a != b {
			t.Errorf("%q and %q differ", a, b)
		}
		if a, b := withoutIDs(fmt.Sprintf(format, 3), 7), withoutIDs(fmt.Sprintf(format, 4), 7); a == b {
			t.Errorf("%q: another number is no difference", a)
		}
	}
	for _, token := range []string{"12.5", "2026-11-30T02:00:00Z", "a1b2c3d4", "1764468000"} {
		if got := withoutIDs(`{"at":"`+token+`"}`, 7); strings.Contains(got, token) {
			t.Errorf("%q is left in %q", token, got)
		}
	}
}
