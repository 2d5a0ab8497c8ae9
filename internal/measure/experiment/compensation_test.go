package experiment

import (
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/check"
	"grablab/internal/order"
	"grablab/internal/testbed/target"
)

// TestCompensation checks which double-grabs count: those that the service takes back too late, but not
// those that it takes back in time.
func TestCompensation(t *testing.T) {
	t.Parallel()
	for within, want := range map[time.Duration]catalog.Verdict{8 * time.Second: catalog.Safe, 100 * time.Millisecond: catalog.Unsafe} {
		if want == catalog.Unsafe && !proving { // TestTakeBacksByDefinition covers this case without servers
			continue
		}
		cfg := ticketRun(t, "none takes-back", target.Spec{}, catalog.NoFault)
		cfg.Target.Compensation, cfg.Settle = within, 2*time.Second
		c := decide(t, &cfg).Cells[0]
		if c.Verdict != want {
			t.Errorf("within %v: %s (%s), want %s", within, c.Verdict, c.Reason, want)
		}
		// The longest time is an upper limit, which a busy machine raises.
		if longest := value(c.LongestCompensationMS); want == catalog.Safe && (value(c.CompensatedOrders) == 0 || longest < 950 || longest > millis(within)) {
			t.Errorf("%d orders were taken back within %v ms; want at least one, within about 1000 ms", value(c.CompensatedOrders), longest)
		}
	}
}

// TestTakeBacks checks orders whose surplus row was taken back. The ledger is read at intervals, so
// the duration is known only between two bounds. If the bounds do not decide whether this was in
// time, there must be an error.
func TestTakeBacks(t *testing.T) {
	row := func(driver int64) order.Grab { return order.Grab{Order: 1, Driver: driver} }
	one, two := []order.Grab{row(7)}, []order.Grab{row(7), row(8)}
	shape, _, err := target.Spec{Path: "/{order_uuid}/{driver}", OpenOrders: []string{"/orders {} -> .id"}}.Compile()
	if err == nil {
		_, err = shape.IDs.Add([]string{"o-1"})
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name      string
		readings  map[int][]order.Grab // rows by the time in ms at which the reading begins; each reading takes 10 ms
		counted   int                  // rows that must count
		told      int
		longest   float64 // upper bound of the duration in ms; 0 if nothing was taken back in time
		undecided bool
	}{
		{"in time", map[int][]order.Grab{0: one, 100: two, 200: two, 300: one}, 1, 1, 310, false},
		{"too late", map[int][]order.Grab{0: one, 100: two, 1100: two, 1200: two, 1300: one}, 2, 2, 0, false},
		{"not at all", map[int][]order.Grab{0: one, 100: two, 200: two}, 2, 2, 0, false},
		{"too few readings", map[int][]order.Grab{0: one, 100: two, 1300: one}, 1, 1, 1310, true},
		{"between two readings", map[int][]order.Grab{0: one, 100: one, 200: one}, 1, 1, 0, true},
		{"twice", map[int][]order.Grab{0: one, 100: two, 300: one, 400: two, 650: one}, 1, 1, 360, false},
	} {
		began := time.Now()
		b := &takeBacks{
			within: time.Second, interval: 50 * time.Millisecond, units: 1, clean: began, seen: map[check.Pair]bool{}, over: map[int64]overbooking{}, ended: map[int64][2]time.Duration{},
			stop: func() {},
		}
		var last []order.Grab
		for _, ms := range slices.Sorted(maps.Keys(tt.readings)) {
			last = tt.readings[ms]
			at := began.Add(time.Duration(ms) * time.Millisecond)
			b.note(at, at.Add(10*time.Millisecond), last)
		}
		a := &accounting{shape: shape, told: []check.Pair{{Order: 1, Driver: 7}, {Order: 1, Driver: 8}}}
		c := &Cell{}
		rows, err := b.settle(c, a, new(probes), last)
		if len(rows) != tt.counted || len(a.told) != tt.told || value(c.LongestCompensationMS) != tt.longest || (err != nil) != tt.undecided {
			t.Errorf("%s: %d rows, %d told, %v ms, %v", tt.name, len(rows), len(a.told), value(c.LongestCompensationMS), err)
		}
		remedy := map[string]string{"too few readings": "use a longer -compensation", "between two readings": "Keep each row for at least 100ms, which is twice the read interval"}[tt.name]
		if err != nil && (!strings.Contains(err.Error(), "order o-1") || !strings.Contains(err.Error(), remedy)) {
			t.Errorf("%s: %v; want order o-1, and …%s…", tt.name, err, remedy)
		}
		b.failed = errors.New("no answer")
		if _, err := b.settle(&Cell{}, a, new(probes), last); err == nil {
			t.Errorf("%s: no error although the ledger cannot be read", tt.name)
		}
	}
}

// TestTakeBacksByDefinition reads random ledgers of three orders, each of which can have too many
// rows several times. An order counts as taken back in time only if each of its surplus periods was
// short. The longest of these periods must be reported.
func TestTakeBacksByDefinition(t *testing.T) {
	const orders, within, takes = 3, 500 * time.Millisecond, 10 * time.Millisecond
	type period struct{ shortest, longest time.Duration } // bounds of a surplus period, because it is seen only at readings
	began := time.Unix(1000, 0)
	r := rand.New(rand.NewPCG(10, 2))
	for n := range 3000 {
		b := &takeBacks{
			within: within, interval: 50 * time.Millisecond, units: 1, clean: began,
			seen: map[check.Pair]bool{}, over: map[int64]overbooking{}, ended: map[int64][2]time.Duration{}, stop: func() {},
		}
		var asked []time.Duration
		var rows [orders][]int // the number of rows at each reading
		var last []order.Grab
		for at := time.Duration(0); len(asked) < 8; at += takes + time.Duration(1+r.IntN(300))*time.Millisecond {
			asked, last = append(asked, at), nil
			for id := range orders {
				drivers := 1 // the first reading comes before the load, so it finds no surplus row
				if len(asked) > 1 {
					drivers += r.IntN(2)
				}
				rows[id] = append(rows[id], drivers)
				for driver := range drivers {
					last = append(last, order.Grab{Order: int64(id), Driver: int64(driver)})
				}
			}
			b.note(began.Add(at), began.Add(at+takes), last)
		}
		wantRows, compensated, undecided, longest := len(last), 0, false, time.Duration(0)
		for id := range orders {
			var worst period
			periods := 0
			for i := 1; i < len(asked); i++ {
				first := i
				for i < len(asked) && rows[id][i] > 1 {
					i++
				}
				if i == first || i == len(asked) {
					continue
				}
				periods++
				worst.shortest = max(worst.shortest, asked[i-1]-(asked[first]+takes))
				worst.longest = max(worst.longest, asked[i]+takes-asked[first-1])
			}
			switch {
			case periods == 0:
			case worst.shortest > within:
				wantRows += 2 - rows[id][len(asked)-1] // the second driver's row counts, even if it was taken back
			default:
				compensated, longest = compensated+1, max(longest, worst.longest)
				undecided = undecided || worst.longest > within
			}
		}
		c := &Cell{}
		got, err := b.settle(c, &accounting{shape: target.Own}, new(probes), last)
		if len(got) != wantRows || (err != nil) != undecided || value(c.CompensatedOrders) != compensated || value(c.LongestCompensationMS) != millis(longest) {
			t.Fatalf("case %d, readings at %v with %v rows: %d rows, %d orders undone, the longest after %v ms, %v; want %d rows, %d orders, %v, undecided: %v",
				n, asked, rows, len(got), value(c.CompensatedOrders), value(c.LongestCompensationMS), err, wantRows, compensated, longest, undecided)
		}
	}
}

// TestPromisesThatWereUndone settles random orders. A promise of a row that was undone in time no longer counts, for
// drivers of the load and for probes. A row that was undone too late counts. If a promised row never
// appeared in an order with a winner, it is not known whether it was undone in time.
func TestPromisesThatWereUndone(t *testing.T) {
	const within = time.Second
	r := rand.New(rand.NewPCG(12, 17))
	for range 2000 {
		b := &takeBacks{within: within, seen: map[check.Pair]bool{}, ended: map[int64][2]time.Duration{}, stop: func() {}}
		var left []order.Grab
		told, won := []check.Pair{}, []check.Pair{}
		wantTold, wantWon := []check.Pair{}, []check.Pair{}
		wantRows, undecided := 0, false
		for id := range int64(3) {
			late := r.IntN(3) == 0
			if b.ended[id] = [2]time.Duration{1, 2}; late {
				b.ended[id] = [2]time.Duration{within + 1, within + 2}
			}
			var appeared, stays [3]bool
			for driver := range appeared {
				appeared[driver] = r.IntN(2) == 0
				stays[driver] = appeared[driver] && r.IntN(2) == 0
				p := check.Pair{Order: id, Driver: int64(driver)}
				if appeared[driver] {
					b.seen[p] = true
				}
				if stays[driver] {
					left = append(left, check.Rows([]check.Pair{p})...)
				}
				if stays[driver] || appeared[driver] && late {
					wantRows++
				}
			}
			for driver := range appeared {
				p := check.Pair{Order: id, Driver: int64(driver)}
				counts := stays[driver] || late || appeared == [3]bool{}
				for _, promises := range []struct{ of, want *[]check.Pair }{{&told, &wantTold}, {&won, &wantWon}} {
					if r.IntN(2) == 0 {
						continue
					}
					*promises.of = append(*promises.of, p)
					if counts {
						*promises.want = append(*promises.want, p)
					}
					undecided = undecided || !counts && !appeared[driver]
				}
			}
		}
		a, p := &accounting{shape: target.Own, told: told}, &probes{won: won}
		rows, err := b.settle(&Cell{}, a, p, left)
		if len(rows) != wantRows || !slices.Equal(a.told, wantTold) || !slices.Equal(p.won, wantWon) || (err != nil) != undecided {
			t.Fatalf("of %v, which ended as %v: %d rows, told %v, probes %v, %v; want %d, %v, %v, undecided: %v", b.seen, b.ended, len(rows), a.told, p.won, err, wantRows, wantTold, wantWon, undecided)
		}
	}
}

// TestRepeatedRowsAreNoSurplus reads rows of two drivers for one order. If the service may repeat rows,
// a driver's rows count only up to the number of units that it may have.
func TestRepeatedRowsAreNoSurplus(t *testing.T) {
	for n := range 3 * 3 * 4 * 4 {
		units, perDriver, rows := 1+n%3, n/3%3, [2]int{n / 9 % 4, n / 36}
		b := &takeBacks{units: units, perDriver: perDriver, seen: map[check.Pair]bool{}, over: map[int64]overbooking{}, ended: map[int64][2]time.Duration{}}
		var ledger []order.Grab
		count := 0
		for driver, of := range rows {
			ledger = append(ledger, slices.Repeat([]order.Grab{{Order: 1, Driver: int64(driver)}}, of)...)
			if perDriver > 0 {
				of = min(of, perDriver)
			}
			count += of
		}
		b.note(time.Now(), time.Now(), ledger)
		if got := len(b.over) > 0; got != (count > units) {
			t.Errorf("%d units, %d for each driver, rows %v: too many %v", units, perDriver, rows, got)
		}
	}
}
