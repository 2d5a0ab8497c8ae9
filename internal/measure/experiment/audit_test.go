package experiment

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/check"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/history"
	"grablab/internal/order"
	"grablab/internal/testbed/fault"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/load"
	"grablab/internal/testbed/target"
)

// checkTold checks that the cell has a result for every property, and that it has a timeline only
// if it is not safe. The timeline must explain a double-grab, with the events of its order.
func checkTold(t *testing.T, c Cell) {
	t.Helper()
	if n := len(catalog.PropertiesBy(catalog.Run)); len(c.Checks) != n {
		t.Errorf("%d checks, want one for each of the %d properties", len(c.Checks), n)
	}
	if c.Verdict == catalog.Safe {
		if c.Timeline != nil {
			t.Errorf("a safe cell has a timeline: %+v", c.Timeline)
		}
		for _, k := range c.Checks {
			if k.Result == check.Fail {
				t.Errorf("%s fails: %s", k.Property, k.Why)
			}
		}
		return
	}
	if c.Timeline == nil {
		t.Fatalf("a cell that is %s has no timeline", c.Verdict)
	}
	if s, _ := lock.Find(c.Strategy); !slices.Contains(s.Breaks, c.Timeline.Mode) {
		t.Errorf("the timeline shows failure mode %q, but %s has only %s", c.Timeline.Mode, c.Strategy, s.Breaks)
	}
	last := c.Timeline.Steps[len(c.Timeline.Steps)-1]
	if last.Believed != "has won the order" || !strings.Contains(last.True, " times: by driver ") {
		t.Errorf("the timeline ends with %+v", last)
	}
	if len(c.Timeline.Rows) < 2 {
		t.Errorf("the order has %d rows in the ledger", len(c.Timeline.Rows))
	}
	for _, e := range c.Timeline.Events {
		if e.Order != c.Timeline.Order {
			t.Errorf("the timeline of order %d contains an event of order %d", c.Timeline.Order, e.Order)
		}
	}
	for _, op := range []string{history.Grab, history.Acquire, history.Read, history.Claim} {
		called := func(e history.Event) bool { return e.Op == op && (e.Kind == history.Invoke || op == history.Read) }
		if !slices.ContainsFunc(c.Timeline.Events, called) {
			t.Errorf("no %s among the %d events of the timeline", op, len(c.Timeline.Events))
		}
	}
}

// TestWorst checks which order and property the timeline explains: those that decided the verdict,
// or a failure of the lock if there are none.
func TestWorst(t *testing.T) {
	double := check.Evidence{Ledger: check.Rows([]check.Pair{{Order: 4, Driver: 1}, {Order: 5, Driver: 1}, {Order: 5, Driver: 2}}), Stuck: []int64{9, 8}}
	overlap := check.Evidence{Record: &check.Record{Holds: []check.Hold{
		{Span: check.Span{Order: 7, Driver: 1, From: 1, To: 9}}, {Span: check.Span{Order: 7, Driver: 2, From: 5, To: 10}},
	}}}
	sold := check.Evidence{Units: 2, Ledger: check.Rows([]check.Pair{{Order: 5, Driver: 1}, {Order: 5, Driver: 2}, {Order: 6, Driver: 1}, {Order: 6, Driver: 2}, {Order: 6, Driver: 3}})}
	refused := check.Evidence{Record: &check.Record{NearMisses: map[int64]int{4: 1, 5: 1}}}
	stuck := overlap
	stuck.Stuck = []int64{9, 8}
	setnx, err := lock.Find("setnx")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		cell Cell
		e    check.Evidence
		of   []failed
		want failed
	}{
		{"nothing", Cell{DoubleGrabs: new(0), Overlaps: new(0), StuckOrders: new(0)}, check.Evidence{}, nil, failed{}},
		{"a unit too many under a fault", Cell{Fault: catalog.Pause, Sale: &Sale{Stock: 2}, DoubleGrabs: new(1)}, sold, []failed{{6, catalog.OneWinner}}, failed{6, catalog.OneWinner}},
		{"a unit too many of many drivers at once", Cell{Fault: catalog.NoFault, Sale: &Sale{Stock: 2}, DoubleGrabs: new(1)}, sold, nil, failed{}},
		{"nothing was counted", Cell{}, check.Evidence{}, nil, failed{}},
		{"a double-grab before all", Cell{DoubleGrabs: new(1), Overlaps: new(1), StuckOrders: new(2)}, double, nil, failed{5, catalog.OneWinner}},
		{"a stuck order before an overlap", Cell{DoubleGrabs: new(0), Overlaps: new(1), ExpectedExclusive: new(Yes)}, stuck, nil, failed{8, catalog.StuckOrder}},
		{"the first point", Cell{DoubleGrabs: new(0)}, stuck, []failed{{3, catalog.HoldersExclusive}, {9, catalog.StuckOrder}, {8, catalog.StuckOrder}}, failed{9, catalog.StuckOrder}},
		{"a refused write among points without one", Cell{DoubleGrabs: new(0)}, refused, []failed{{3, catalog.HoldersExclusive}, {4, catalog.HoldersExclusive}}, failed{4, lateWrite}},
		{"no refused write", Cell{DoubleGrabs: new(0)}, refused, []failed{{3, catalog.HoldersExclusive}}, failed{}},
		{"no record", Cell{DoubleGrabs: new(0)}, check.Evidence{}, []failed{{3, catalog.HoldersExclusive}}, failed{}},
		{"an overlap that was not to be", Cell{DoubleGrabs: new(0), Overlaps: new(1), ExpectedExclusive: new(Yes)}, overlap, nil, failed{7, catalog.HoldersExclusive}},
		{"an overlap that was to be expected", Cell{DoubleGrabs: new(0), Overlaps: new(1), ExpectedExclusive: new(No)}, overlap, nil, failed{}},
	} {
		if got := worstOf(&tt.cell, setnx, tt.e, tt.of); got != tt.want {
			t.Errorf("%s: worstOf: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

// TestPointByDefinition compares the figures and the verdict of a point with their definitions, for
// random orders at two points. Only the orders of the point must count.
func TestPointByDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(12, 1))
	for range 2000 {
		units := 1 + r.IntN(2)
		in := &injection{w: &worker{cfg: Config{Stock: units}}, strategy: lock.Strategy{Excludes: catalog.Global}, cell: &Cell{}, responses: newResponses()}
		e := check.Evidence{Units: units, Record: &check.Record{NearMisses: map[int64]int{}}}
		if r.IntN(4) == 0 {
			e.LedgerErr = errors.New("no ledger")
		}
		if r.IntN(4) == 0 {
			e.ProbeErr = errors.New("no probe")
		}
		type figures struct{ struck, double, left, stuck, overlaps, misses int }
		of := map[string]*figures{"here": {}, "there": {}}
		for id := range int64(r.IntN(6)) {
			c := &contest{point: fault.Point{Moment: []string{"here", "there"}[r.IntN(2)]}, order: id, struck: true}
			c.contenders = []load.Request{{Order: id, Driver: 2}, {Order: id, Driver: 3}}
			for _, contender := range c.contenders {
				in.responses.got[contender] = response{outcome: grab.Taken}
			}
			in.contests = append(in.contests, c)
			rows := max(0, units-1+r.IntN(3)-r.IntN(2)*r.IntN(3))
			for driver := range rows {
				e.Ledger = append(e.Ledger, order.Grab{Order: id, Driver: int64(driver)})
			}
			want := of[c.point.Moment]
			want.struck++
			want.double += max(0, rows-units)
			want.left += max(0, units-rows)
			if r.IntN(8) == 0 {
				e.Stuck = append(e.Stuck, id)
				want.stuck++
			}
			holds := r.IntN(3)
			for n := range holds {
				e.Record.Holds = append(e.Record.Holds, check.Hold{Span: check.Span{Order: id, Driver: int64(n), From: 1, To: 3}})
			}
			want.overlaps += max(0, holds-1)
			e.Record.NearMisses[id] = r.IntN(3)
			want.misses += e.Record.NearMisses[id]
		}
		for name, want := range of {
			p := judgement{in: in, evidence: e}.row(fault.Point{Moment: name})
			got := figures{p.Struck, value(p.DoubleGrabs), value(p.Unsold), value(p.StuckOrders), value(p.Overlaps), value(p.NearMisses)}
			verdict := catalog.Safe
			switch {
			case want.double > 0:
				verdict = catalog.Unsafe
			case want.stuck > 0:
				verdict = catalog.Stuck
			case want.struck == 0 || units > 1 && want.left > 0 || e.LedgerErr != nil || e.ProbeErr != nil:
				verdict = catalog.Unknown
			}
			counted := e.LedgerErr == nil || want.double > 0
			if units == 1 || !counted { // an order of one unit is allowed to stay open
				want.left = 0
			}
			if got != *want || p.Verdict != verdict || (p.DoubleGrabs != nil) != counted || (p.Unsold != nil) != (units > 1 && counted) || (p.StuckOrders == nil) != (e.ProbeErr != nil && want.stuck == 0) {
				t.Fatalf("%s, %d units: %s, %+v; want %s, %+v", name, units, p.Verdict, got, verdict, *want)
			}
		}
	}
}

// TestPointsWithMissingRows checks that a point is not safe if the ledger lacks a promised grab of
// one of its orders.
func TestPointsWithMissingRows(t *testing.T) {
	in := &injection{w: &worker{}, cell: &Cell{}}
	told := []check.Pair{{Order: 1, Driver: 1}, {Order: 2, Driver: 1}}
	for n, name := range []string{"written", "missing"} {
		in.contests = append(in.contests, &contest{point: fault.Point{Moment: name}, order: int64(n + 1), struck: true, repeated: true})
	}
	for name, want := range map[string]catalog.Verdict{"written": catalog.Safe, "missing": catalog.Unknown} {
		p := judgement{in: in, evidence: check.Evidence{Foreign: true, Promised: told, Ledger: check.Rows(told[:1])}}.row(fault.Point{Moment: name})
		if p.Verdict != want {
			t.Errorf("verdict of the point %s: %s, want %s", name, p.Verdict, want)
		}
	}
}

// TestFailureOf checks how many double-grabs and unsold units an order has, and which property it
// violates, for orders of one or two units.
func TestFailureOf(t *testing.T) {
	setnx, err := lock.Find("setnx")
	if err != nil {
		t.Fatal(err)
	}
	e := check.Evidence{Units: 2, Stuck: []int64{2}, Ledger: check.Rows([]check.Pair{
		{Order: 1, Driver: 1}, {Order: 1, Driver: 2}, {Order: 2, Driver: 1}, {Order: 3, Driver: 1}, {Order: 3, Driver: 2}, {Order: 3, Driver: 3},
	})}
	for _, tt := range []struct {
		order        int64
		double, left int
		property     string
	}{{1, 0, 0, ""}, {2, 0, 1, catalog.StuckOrder}, {3, 1, 0, catalog.OneWinner}, {4, 0, 2, ""}} {
		f := failureOf(tt.order, setnx, e)
		if f.property != tt.property || doubleGrabs(e, tt.order) != tt.double || unsoldOf(e, tt.order) != tt.left {
			t.Errorf("order %d: %q, %d too many, %d left", tt.order, f.property, doubleGrabs(e, tt.order), unsoldOf(e, tt.order))
		}
	}
	e.Units = 0
	if n := doubleGrabs(e, 1); n != 1 {
		t.Errorf("of one unit: %d too many, want 1", n)
	}
	if n := unsoldOf(e, 4); n != 1 {
		t.Errorf("of one unit without a row: %d left, want 1", n)
	}
}

// TestRepeatedPromises checks responses that tell a driver several times that it has won an order.
// From the user's service, they count as one promise, or as one for each unit that the driver is
// allowed to have. Our own instances must promise an order only once.
func TestRepeatedPromises(t *testing.T) {
	told := func(drivers ...int64) (all []check.Pair) {
		for _, d := range drivers {
			all = append(all, check.Pair{Order: 1, Driver: d})
		}
		return all
	}
	for _, tt := range []struct {
		name              string
		told, rows        []check.Pair
		change            func(*auditor)
		phantom, double   int
		unacknowledged    int
		counted, disagree string
	}{
		{name: "told twice, one row", told: told(4, 4), rows: told(4)},
		{name: "told twice, one row, idempotent", told: told(4, 4), rows: told(4), change: func(au *auditor) { au.cfg.Target.Idempotent = true }},
		{name: "told twice, two rows", told: told(4, 4), rows: told(4, 4), double: 1},
		{name: "told once, two rows", told: told(4), rows: told(4, 4), double: 1, unacknowledged: 1},
		{name: "told once, another driver's row", told: told(4), rows: told(4, 5), double: 1, unacknowledged: 1, disagree: "1 grab was denied"},
		{name: "told twice, two rows, idempotent", told: told(4, 4), rows: told(4, 4), change: func(au *auditor) { au.cfg.Target.Idempotent = true }},
		{name: "told twice, no row", told: told(4, 4), phantom: 1, disagree: "1 grab was promised"},
		{name: "told twice, another driver's row", told: told(4, 4), rows: told(5), phantom: 1, unacknowledged: 1, disagree: "1 grab was promised"},
		{name: "two drivers told, one of them twice, one row", told: told(4, 4, 5), rows: told(5), phantom: 1, double: 1, counted: fromAnswers, disagree: "1 grab was promised"},
		{name: "two units for each driver, told three times, two rows", told: told(4, 4, 4), rows: told(4, 4), change: func(au *auditor) { au.cfg.Stock, au.cfg.PerDriver = 2, 2 }},
		{name: "two units for each driver, told three times, one row", told: told(4, 4, 4), rows: told(4), change: func(au *auditor) { au.cfg.Stock, au.cfg.PerDriver = 2, 2 }, phantom: 1, disagree: "1 grab was promised"},
		{name: "no ledger, told twice", told: told(4, 4), change: func(au *auditor) { au.ledger = false }, counted: fromAnswers},
		{name: "no ledger, two drivers told, one of them twice", told: told(4, 4, 5), change: func(au *auditor) { au.ledger = false }, double: 1, counted: fromAnswers},
		{name: "our instance told twice, one row", told: told(4, 4), rows: told(4), change: func(au *auditor) { au.fleet.Ours = true }, phantom: 1, disagree: "1 grab was promised"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			au := &auditor{fleet: fleet.New(fleet.Config{Instances: 2}, nil, 0), ledger: true}
			au.fleet.Ours, au.fleet.Foreign, au.fleet.Shape = false, true, target.Own
			if tt.change != nil {
				tt.change(au)
			}
			c := Cell{Orders: 1, StuckOrders: new(0)}
			m := measured{accounting: newAccounting(5, nil, target.Own)}
			m.told, m.units = slices.Clone(tt.told), au.cfg.units()
			m.evidence = check.Evidence{Units: au.cfg.units(), Foreign: !au.fleet.Ours, FromAnswers: !au.ledger}
			au.count(t.Context(), &c, m.accounting, 1, check.Rows(tt.rows), probes{}, &m.evidence)
			au.doubt(t.Context(), &c, &m, true)
			want := tt.counted
			if want == "" {
				want = fromLedger
			}
			if value(c.PhantomGrabs) != tt.phantom || value(c.UnacknowledgedGrabs) != tt.unacknowledged || value(c.DoubleGrabs) != tt.double || c.CountedFrom != want {
				t.Errorf("%d phantoms, %d unacknowledged, %d double-grabs by the %s; want %d, %d, %d by the %s",
					value(c.PhantomGrabs), value(c.UnacknowledgedGrabs), value(c.DoubleGrabs), c.CountedFrom, tt.phantom, tt.unacknowledged, tt.double, want)
			}
			m.evidence.FromAnswers = !au.ledger
			for _, v := range check.Judge(m.evidence, catalog.AnswersAgree) {
				if (v.Result == check.Fail) != (tt.disagree != "") || !strings.Contains(v.Why, tt.disagree) {
					t.Errorf("answers-agree: %s: %s; want …%s…", v.Result, v.Why, tt.disagree)
				}
			}
		})
	}
}

// TestPointsByAnswers checks a cell whose double-grabs are counted from the responses, because the
// ledger keeps only the last winner or cannot be read. The verdict of each point must then depend
// on the responses too.
func TestPointsByAnswers(t *testing.T) {
	told := []check.Pair{{Order: 1, Driver: 4}, {Order: 1, Driver: 4}, {Order: 1, Driver: 5}, {Order: 2, Driver: 6}, {Order: 2, Driver: 6}}
	for _, tt := range []struct {
		name     string
		ledger   []order.Grab
		noLedger error
	}{
		{"the ledger keeps the last winner", check.Rows([]check.Pair{{Order: 1, Driver: 5}, {Order: 2, Driver: 6}}), nil},
		{"the ledger cannot be read", nil, context.DeadlineExceeded},
	} {
		t.Run(tt.name, func(t *testing.T) {
			au := &auditor{fleet: fleet.New(fleet.Config{Instances: 2}, nil, 0), ledger: true}
			au.fleet.Ours, au.fleet.Foreign, au.fleet.Shape = false, true, target.Own
			c := Cell{Orders: 2, StuckOrders: new(0)}
			m := measured{accounting: newAccounting(5, nil, target.Own)}
			m.told = told
			m.evidence = check.Evidence{Foreign: true, LedgerErr: tt.noLedger, Promised: told}
			au.count(t.Context(), &c, m.accounting, 1, tt.ledger, probes{}, &m.evidence)
			au.doubt(t.Context(), &c, &m, true)
			if c.CountedFrom != fromAnswers || value(c.DoubleGrabs) != 1 {
				t.Fatalf("%d double-grabs by the %s, want 1 by the answers", value(c.DoubleGrabs), c.CountedFrom)
			}
			in := &injection{w: &worker{}, cell: &c}
			for n, name := range []string{"guilty", "innocent"} {
				in.contests = append(in.contests, &contest{point: fault.Point{Moment: name}, order: int64(n + 1), struck: true, repeated: true})
			}
			if p := (judgement{in: in, evidence: m.evidence}).row(fault.Point{Moment: "guilty"}); p.Verdict != catalog.Unsafe || value(p.DoubleGrabs) != 1 {
				t.Errorf("guilty: %s with %d double-grabs, want unsafe with 1", p.Verdict, value(p.DoubleGrabs))
			}
			if p := (judgement{in: in, evidence: m.evidence}).row(fault.Point{Moment: "innocent"}); p.Verdict == catalog.Unsafe || value(p.DoubleGrabs) != 0 {
				t.Errorf("innocent: %s with %d double-grabs", p.Verdict, value(p.DoubleGrabs))
			}
		})
	}
}

// TestWinnersThatDisappear compares the winners that the ledger showed during the load with its
// rows at the end. A missing winner makes the verdict unknown, unless the ledger is ours, may take
// rows back, or cannot be read. The reason must say how to tell the program that rows may be taken back.
func TestWinnersThatDisappear(t *testing.T) {
	pairs := []check.Pair{{Order: 1, Driver: 1}, {Order: 1, Driver: 2}, {Order: 2, Driver: 1}}
	some := func(bits int) (all []check.Pair) {
		for n, p := range pairs {
			if bits>>n&1 != 0 {
				all = append(all, p)
			}
		}
		return all
	}
	for shown := range 1 << len(pairs) {
		for last := range 1 << len(pairs) {
			for bits := range 1 << 3 {
				in := &injection{w: &worker{fleet: &fleet.Fleet{Ours: bits&1 != 0, Shape: target.Own}}, shown: some(shown)}
				e := check.Evidence{Ledger: check.Rows(some(last))}
				if bits&2 != 0 {
					in.w.cfg.Target.Compensation = time.Second
				}
				if bits&4 != 0 {
					e.LedgerErr = errors.New("no answer")
				}
				gone := some(shown &^ last)
				text := judgement{in: in, evidence: e}.overwritten()
				if (text != "") != (len(gone) > 0 && bits == 0) {
					t.Fatalf("%03b: shown %v, at the end %v: %q", bits, some(shown), some(last), text)
				}
				if text == "" {
					continue
				}
				left := slices.ContainsFunc(some(last), func(p check.Pair) bool { return p.Order == gone[0].Order })
				if !strings.Contains(text, fmt.Sprintf("named driver %d for order %d ", gone[0].Driver, gone[0].Order)) || strings.Contains(text, "no driver") == left || !strings.HasSuffix(text, "add -compensation") {
					t.Fatalf("shown %v, at the end %v: %q", some(shown), some(last), text)
				}
			}
		}
	}
}

// TestCountByDefinition counts random ledgers of three orders. A probe's win counts only if other
// drivers had won all units of its order, according to the ledger or the responses. The probe's row
// then counts too, and so does each row of an order with too many rows. If the service may repeat rows,
// a driver's rows count only up to the number of units that it may have.
func TestCountByDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(12, 19))
	for range 300 {
		au := &auditor{fleet: fleet.New(fleet.Config{Instances: 2}, nil, 0), ledger: true}
		au.fleet.Ours, au.fleet.Foreign, au.fleet.Shape = false, true, target.Own
		units := 1 + r.IntN(2)
		au.cfg.Stock, au.cfg.PerDriver, au.cfg.Target.Idempotent = units, 1+r.IntN(units), r.IntN(2) == 0
		unreadable := r.IntN(4) == 0
		var rows, counted []order.Grab
		told, probes, promised := []check.Pair{}, probes{}, map[check.Pair]int{}
		var want struct{ rows, orders, double, doubled, repeated, probeWins, phantom, unacknowledged int }
		for id := range int64(3) {
			var of []order.Grab
			load, answers := 0, 0
			for driver := range int64(3) {
				g := order.Grab{Order: id, Driver: driver}
				n := r.IntN(3) * r.IntN(2)
				rows = append(rows, slices.Repeat([]order.Grab{g}, n)...)
				if over := n - au.cfg.PerDriver; over > 0 {
					if want.repeated += over; au.cfg.Target.Idempotent {
						n -= over
					}
				}
				load += n
				of = append(of, slices.Repeat([]order.Grab{g}, n)...)
				if r.IntN(3) == 0 {
					answers++
					told = append(told, check.Pair{Order: id, Driver: driver})
					promised[check.Pair{Order: id, Driver: driver}]++
				}
			}
			probe := order.Grab{Order: id, Driver: au.fleet.ProbeDriver(0)}
			wins, hasRow := r.IntN(2) == 0, r.IntN(2) == 0
			counts := wins && !unreadable && max(load, answers) >= units
			if hasRow {
				rows = append(rows, probe)
			}
			if hasRow && (counts || load+1 > units) {
				of = append(of, probe)
			}
			if wins {
				probes.won = append(probes.won, check.Pair{Order: id, Driver: probe.Driver})
			}
			if counts {
				want.probeWins++
				promised[check.Pair{Order: id, Driver: probe.Driver}]++
			}
			counted = append(counted, of...)
			if want.rows += len(of); len(of) > 0 {
				want.orders++
			}
			if len(of) > units {
				want.double, want.doubled = want.double+len(of)-units, want.doubled+1
			}
		}
		for _, p := range check.Pairs(counted) {
			if promised[p]--; promised[p] < 0 {
				want.unacknowledged++
			}
		}
		for _, n := range promised {
			want.phantom += max(0, n)
		}
		a, c := newAccounting(3, nil, target.Own), Cell{Orders: 3}
		a.told, a.units = told, units
		if unreadable {
			a.unreadable = "every response was 200"
		}
		e := check.Evidence{Units: units, Foreign: true}
		au.count(t.Context(), &c, a, 0, rows, probes, &e)
		got := want
		got.rows, got.orders, got.double, got.doubled = *c.Grabs, *c.OrdersGrabbed, *c.DoubleGrabs, *c.OrdersDoubleGrabbed
		got.repeated, got.probeWins, got.phantom, got.unacknowledged = *c.RepeatedRows, a.probeWins, *c.PhantomGrabs, *c.UnacknowledgedGrabs
		if got != want || !slices.Equal(e.Ledger, counted) || len(e.Promised) != len(told)+want.probeWins {
			t.Fatalf("%d units, %d for each driver, idempotent %v, unreadable %v, rows %v, told %v, probes %v: %+v, want %+v", units, au.cfg.PerDriver, au.cfg.Target.Idempotent, unreadable, rows, told, probes.won, got, want)
		}
	}
}
