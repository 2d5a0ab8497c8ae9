package experiment

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/check"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/order"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/target"
)

// modelAuditor returns an auditor of a model with three orders: one is open, one is sold, and one
// is locked permanently.
func modelAuditor(t *testing.T) (*model, *auditor, int64) {
	m := &model{}
	au := &auditor{cfg: Config{TTL: 20 * time.Millisecond, Settle: time.Millisecond}, fleet: m.start(t), orders: m, ledger: true, progress: &workerProgress{progress: newProgress(Config{})}}
	first, _ := m.Create(t.Context(), 3, 1)
	m.rows = check.Rows([]check.Pair{{Order: first + 1, Driver: 7}})
	m.of(first + 2).token = 1
	return m, au, first
}

// TestProbesOfEachState probes an order in each state. Each response must be counted correctly.
func TestProbesOfEachState(t *testing.T) {
	t.Parallel()
	m, au, first := modelAuditor(t)
	for n, state := range []string{"open", "sold", "locked"} {
		id := first + int64(n)
		p, err := au.probeAll(t.Context(), &Cell{Orders: 1}, &accounting{}, id, m.rows)
		if err != nil {
			t.Fatal(err)
		}
		probe := []check.Pair{{Order: id, Driver: au.fleet.ProbeDriver(0)}}
		var won, refused []check.Pair
		var stuck []int64
		switch state {
		case "open":
			won = probe
		case "sold":
			refused = probe
		default:
			stuck = []int64{id}
		}
		if !slices.Equal(p.won, won) || !slices.Equal(p.refused, refused) || !slices.Equal(p.stuck, stuck) || p.busy[id] != (stuck != nil) || p.lost != (state != "open") {
			t.Errorf("probes of an order that is %s: %+v", state, p)
		}
	}
}

// TestProbesAreInterrupted checks that an interrupted audit sends no probes.
func TestProbesAreInterrupted(t *testing.T) {
	t.Parallel()
	m, au, first := modelAuditor(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if p, err := au.probeAll(ctx, &Cell{Orders: 3}, &accounting{}, first, nil); err == nil || p.lost || len(m.asked) > 0 {
		t.Errorf("the interrupted probeAll returned %+v, %v, and the service was asked %v", p, err, m.asked)
	}
}

// TestLateProbe checks the later probe of a sold order, which finds services that forget their
// winners. It must go to the first order whose units are all sold and whose probe was refused, and
// must come from a new driver.
func TestLateProbe(t *testing.T) {
	t.Parallel()
	for units := 1; units <= 2; units++ {
		for sold := range 3 { // number of rows of the second order; the first order has none, and the third has two
			m, au, first := modelAuditor(t)
			au.cfg.Stock = units
			var rows []order.Grab
			for n := range sold {
				rows = append(rows, order.Grab{Order: first + 1, Driver: int64(n)})
			}
			rows = append(rows, order.Grab{Order: first + 2, Driver: 1}, order.Grab{Order: first + 2, Driver: 2})
			p := probes{}
			for n := range int64(3) {
				p.refused = append(p.refused, check.Pair{Order: first + n, Driver: 100 + n})
			}
			m.rows, m.of(first+2).token = nil, 0 // the service has forgotten its winners
			want := check.Pair{Order: first + 2, Driver: 102 + 3}
			if sold >= units {
				want = check.Pair{Order: first + 1, Driver: 101 + 3}
			}
			after, err := au.probeLater(t.Context(), &Cell{Orders: 3}, first, rows, &p)
			if err != nil || !slices.Equal(p.won, []check.Pair{want}) || !slices.Equal(check.Pairs(after), p.won) {
				t.Errorf("%d units, %d sold: %v, want %v; rows %v, %v", units, sold, p.won, want, after, err)
			}
			m.rows = rows // the service knows its winners
			p.won = nil
			if _, err := au.probeLater(t.Context(), &Cell{Orders: 3}, first, rows, &p); err != nil || p.won != nil {
				t.Errorf("%d units, %d sold, and the service knows its winners: %v, %v", units, sold, p.won, err)
			}
		}
	}
}

// TestLedgerIsTrusted checks when one read of the ledger is enough: only for a grabsvc whose
// requests have all ended. Otherwise, the audit must wait until the ledger has settled, and then
// probe a sold order again. It must not do so if it watches for rows that are taken back.
func TestLedgerIsTrusted(t *testing.T) {
	t.Parallel()
	for bits := range 1 << 4 {
		has := func(n int) bool { return bits>>n&1 != 0 }
		known, drained, watched, ledger := has(0), has(1), has(2), has(3)
		m, au, first := modelAuditor(t)
		if known {
			au.fleet.Settings.OnLost = grab.Abort
		}
		au.ledger = ledger
		c := Cell{Orders: 2}
		acc := measured{accounting: newAccounting(1, nil, target.Own)}
		acc.told = check.Pairs(m.rows)
		var back *takeBacks
		if watched {
			au.cfg.Target.Compensation = time.Millisecond
			back = au.watchTakeBacks(t.Context(), first, 2)
		}
		au.audit(t.Context(), lock.Strategy{}, &c, &acc, first, drained, back)
		settles := ledger && !(known && drained)
		asked := 0
		for r, n := range m.asked {
			if r.Order == first+1 {
				asked += n
			}
		}
		later := settles && !watched
		if (c.SettleMS != nil) != settles || asked != map[bool]int{false: 1, true: 2}[later] || acc.invalid != "" || value(c.StuckOrders) != 0 || acc.evidence.Foreign == known {
			t.Errorf("known %v, drained %v, watched %v, ledger %v: settled %v, %d probes of the sold order, invalid %q, %d stuck, foreign %v", known, drained, watched, ledger, c.SettleMS != nil, asked, acc.invalid, value(c.StuckOrders), acc.evidence.Foreign)
		}
		if (c.CompensatedOrders != nil) != (watched && ledger) || ledger && (*c.Grabs != 1 || *c.PhantomGrabs != 0) || (c.CountedFrom == fromLedger) != ledger {
			t.Errorf("known %v, drained %v, watched %v, ledger %v: %s", known, drained, watched, ledger, textOf(c))
		}
	}
}

// changing is a ledger that gets a row at each of the given times.
type changing struct {
	began time.Time
	at    []time.Duration
}

func (l changing) Create(context.Context, int, int) (int64, error) { panic("not used") }

func (l changing) Ledger(context.Context, int64, int) (rows []order.Grab, _ error) {
	for n, at := range l.at {
		if time.Since(l.began) >= at {
			rows = append(rows, order.Grab{Order: 1, Driver: int64(n)})
		}
	}
	return rows, nil
}

// TestSettleLimit changes the ledger every 300 ms, up to various times. If it still changes after
// the limit, there must be an error. Otherwise, the audit must have seen the last change. The default
// limit is 30 s.
func TestSettleLimit(t *testing.T) {
	const every, quiet, late = 300 * time.Millisecond, time.Second, 100 * time.Millisecond // late is the maximum delay until a change is seen
	test := func(t *testing.T, changes int, setting, limit time.Duration) {
		l := changing{began: time.Now()}
		for n := range changes {
			l.at = append(l.at, time.Duration(n+1)*every)
		}
		last := time.Duration(changes) * every
		au := &auditor{cfg: Config{Settle: quiet, settleLimit: setting}, fleet: &fleet.Fleet{Foreign: true}, orders: l, ledger: true, progress: &workerProgress{progress: newProgress(Config{})}}
		c := Cell{Orders: 1}
		rows, err := au.settle(t.Context(), &c, &accounting{}, 1, nil, false)
		took, want := time.Since(l.began), min(last, limit)+quiet
		if failed := last > limit; (err != nil) != failed || !failed && len(rows) != changes || took < want || took > want+2*late || *c.SettleMS != millis(took) {
			t.Errorf("limit %v, %d changes until %v: %d rows after %v (%v ms), want %v: %v", limit, changes, last, len(rows), took, *c.SettleMS, want, err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		for changes := range 16 {
			test(t, changes, 2*time.Second, 2*time.Second)
		}
		for _, changes := range []int{98, 99, 101, 102} {
			test(t, changes, 0, 30*time.Second)
		}
	})
}

// TestTimeToSettle checks for how long the ledger must stay unchanged, depending on the settings.
func TestTimeToSettle(t *testing.T) {
	for _, tt := range []struct {
		settle, ttl, lease, compensation, want time.Duration
	}{
		{want: minSettle},
		{ttl: time.Minute, want: time.Minute},
		{ttl: time.Minute, lease: 3 * time.Second, want: 3 * time.Second},
		{ttl: time.Minute, lease: time.Second, want: minSettle},
		{settle: time.Second, ttl: time.Minute, want: time.Second},
		{settle: time.Second, compensation: 5 * time.Second, want: 5 * time.Second},
		{ttl: time.Minute, compensation: 5 * time.Second, want: time.Minute},
	} {
		au := &auditor{cfg: Config{Settle: tt.settle, TTL: tt.ttl}}
		au.cfg.Target.Compensation = tt.compensation
		c := Cell{}
		if tt.lease > 0 {
			c.LeaseMS = new(millis(tt.lease))
		}
		if got := au.settleFor(&c); got != tt.want {
			t.Errorf("%s: settleFor: %v, want %v", fmt.Sprintf("%+v", tt), got, tt.want)
		}
	}
}

// TestProbeWithoutARow checks when a probe's win casts doubt on the rule for a win. This is so if all
// units of its order have winners, and the ledger does not name the probe.
func TestProbeWithoutARow(t *testing.T) {
	for n := range 2 * 4 * 2 {
		units, sold, named := 1+n%2, n/2%4, n/8 == 1
		var rows []order.Grab
		for driver := range sold {
			rows = append(rows, order.Grab{Order: 7, Driver: int64(driver)}, order.Grab{Order: 8, Driver: 99})
		}
		if named && sold > 0 {
			rows[0].Driver = 99
		}
		p := probes{won: []check.Pair{{Order: 9, Driver: 99}, {Order: 7, Driver: 99}}}
		if got, want := p.wonWithoutRow(rows, units), sold >= units && !named; got != want {
			t.Errorf("%d of %d units sold, the ledger names the probe %v: %v", sold, units, named, got)
		}
	}
}

// TestEventsThatCannotBeRead audits our own instances after their event files were deleted. The first
// reason of the verdict must report this.
func TestEventsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	_, au, first := modelAuditor(t)
	au.fleet.Ours = true
	c, m := Cell{Orders: 1}, measured{accounting: newAccounting(1, nil, target.Own)}
	au.audit(t.Context(), lock.Strategy{Excludes: catalog.Global}, &c, &m, first+1, true, nil)
	if !strings.HasPrefix(m.invalid, "events were lost: ") || c.Overlaps != nil || c.NearMisses != nil {
		t.Errorf("invalid %q, %v overlaps, %v near misses", m.invalid, c.Overlaps, c.NearMisses)
	}
}

// TestLastProbeWins probes several orders. One of them is sold, and another one becomes free during the
// probes. The refusal must count, no matter which order is answered last.
func TestLastProbeWins(t *testing.T) {
	t.Parallel()
	m, au, first := modelAuditor(t)
	time.AfterFunc(10*time.Millisecond, func() { m.locked(func() { m.of(first + 2).token = 0 }) })
	p, err := au.probeAll(t.Context(), &Cell{Orders: 3}, &accounting{}, first, m.rows)
	if err != nil || !p.lost || len(p.refused) != 1 || len(p.won) == 0 {
		t.Errorf("probeAll: %+v, %v", p, err)
	}
}
