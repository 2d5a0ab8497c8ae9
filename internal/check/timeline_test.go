package check_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/check"
	"grablab/internal/history"
	"grablab/internal/order"
)

// render formats a timeline for comparison, with a line for each step.
func render(s check.Timeline) string {
	var b strings.Builder
	fmt.Fprintf(&b, "order %d %s %s\n", s.Order, s.Property, s.Mode)
	for _, step := range s.Steps {
		fmt.Fprintf(&b, "%g %s/%d %s | %s | %s\n", step.TMS, step.Instance, step.Driver, step.Event, step.Believed, step.True)
	}
	return b.String()
}

func TestExplain(t *testing.T) {
	for _, tt := range []struct {
		name     string
		property string
		excludes catalog.Exclusion
		breaks   string // known failure modes of the lock
		fault    catalog.Fault
		scene    func(*scene)
		want     string
	}{
		{"check, then act", "one-winner", catalog.NoExclusion, "F1", catalog.NoFault, func(s *scene) {
			s.enters(0, "A", 2, 1, 0)
			s.enters(1, "B", 2, 2, 0)
			s.enters(1, "B", 2, 3, 0)
			s.claims(10, 12, "A", 2, 1, 0)
			s.claims(13, 14, "B", 2, 2, 0)
		}, `
order 2 one-winner F1
0 A/1 reads the order | the order is open | order open
1 B/2 reads the order | the order is open | order open
10 A/1 writes itself as the winner | has won the order | order grabbed by driver 1
12 B/2 writes itself as the winner | has won the order | order grabbed 2 times: by driver 1 and driver 2
`},
		{"a pause past the lease", "one-winner", catalog.Global, "F11 F17 F38", catalog.Pause, func(s *scene) {
			s.enters(0, "A", 2, 1, 0)
			s.event(5, "A", history.Info, history.Strike, 2, 1, 0, "read 1 after")
			s.enters(1200, "B", 2, 2, 0)
			s.claims(1210, 1212, "B", 2, 2, 0)
			s.claims(1500, 1502, "A", 2, 1, 0)
		}, `
order 2 one-winner F11
0 A/1 gets the lock | has the lock | driver 1 holds the lock; order open
1 A/1 reads the order | has the lock, the order is open | driver 1 holds the lock; order open
4 A/1 the fault strikes: read 1 after | has the lock, the order is open | driver 1 holds the lock; order open
1200 B/2 gets the lock | has the lock | driver 2 holds the lock; driver 1 inside without the lock; order open
1201 B/2 reads the order | has the lock, the order is open | driver 2 holds the lock; driver 1 inside without the lock; order open
1211 B/2 writes itself as the winner | has won the order | driver 2 holds the lock; driver 1 inside without the lock; order grabbed by driver 2
1501 A/1 writes itself as the winner | has won the order | driver 1 inside without the lock; order grabbed 2 times: by driver 2 and driver 1
`},
		{"a third frees the lock", "one-winner", catalog.Global, "F5 F12", catalog.Slow, func(s *scene) {
			s.enters(0, "A", 2, 1, 0)
			s.enters(1100, "B", 2, 2, 0)
			s.leaves(1110, "A", 2, 1, 0)
			s.enters(1120, "A", 2, 3, 0)
			s.claims(1130, 1131, "B", 2, 2, 0)
			s.claims(1140, 1141, "A", 2, 3, 0)
		}, `
order 2 one-winner F5
0 B/2 gets the lock | has the lock | driver 2 holds the lock; driver 1 inside without the lock; order open
1 B/2 reads the order | has the lock, the order is open | driver 2 holds the lock; driver 1 inside without the lock; order open
10 A/1 releases the lock | has released the lock | driver 2 holds the lock; order open
20 A/3 gets the lock | has the lock | driver 3 holds the lock; driver 2 inside without the lock; order open
21 A/3 reads the order | has the lock, the order is open | driver 3 holds the lock; driver 2 inside without the lock; order open
30 B/2 writes itself as the winner | has won the order | driver 3 holds the lock; driver 2 inside without the lock; order grabbed by driver 2
40 A/3 writes itself as the winner | has won the order | driver 3 holds the lock; order grabbed 2 times: by driver 2 and driver 3
`},
		{"a write under way for long", "one-winner", catalog.Global, "F11 F17 F38", catalog.PartitionDB, func(s *scene) {
			s.enters(0, "A", 2, 1, 0)
			s.event(4, "A", history.Invoke, history.Claim, 2, 1, 0, "")
			s.enters(1200, "B", 2, 2, 0)
			s.claims(1210, 1212, "B", 2, 2, 0)
			s.Ledger = append(s.Ledger, order.Grab{Order: 2, Driver: 1, Instance: "A", Token: "1"})
			s.event(1500, "A", history.OK, history.Claim, 2, 1, 0, "")
		}, `
order 2 one-winner F11
0 A/1 gets the lock | has the lock | driver 1 holds the lock; order open
1 A/1 reads the order | has the lock, the order is open | driver 1 holds the lock; order open
3 A/1 begins its write | has the lock, the order is open | driver 1 holds the lock; order open
1200 B/2 gets the lock | has the lock | driver 2 holds the lock; driver 1 inside without the lock; order open
1201 B/2 reads the order | has the lock, the order is open | driver 2 holds the lock; driver 1 inside without the lock; order open
1211 B/2 writes itself as the winner | has won the order | driver 2 holds the lock; driver 1 inside without the lock; order grabbed by driver 2
1499 A/1 writes itself as the winner | has won the order | driver 1 inside without the lock; order grabbed 2 times: by driver 2 and driver 1
`},
		{"two holders, one winner", "holders-exclusive", catalog.Global, "F11 F18 F19 F21", catalog.Amnesia, func(s *scene) {
			s.enters(0, "A", 2, 1, 0)
			s.enters(3, "B", 2, 2, 0)
			s.claims(13, 14, "B", 2, 2, 0)
		}, `
order 2 holders-exclusive F18
0 A/1 gets the lock | has the lock | driver 1 holds the lock; order open
1 A/1 reads the order | has the lock, the order is open | driver 1 holds the lock; order open
3 B/2 gets the lock | has the lock | driver 2 holds the lock; driver 1 inside without the lock; order open
`},
		{"a holder that died", "stuck", catalog.Global, "F3 F5 F15", catalog.Crash, func(s *scene) {
			s.enters(0, "A", 2, 1, 0)
			s.event(5, "A", history.Info, history.Strike, 2, 1, 0, "read 1 after")
			for i := range 3 {
				s.fails(100+10*i, "B", history.Acquire, 2, int64(10+i), 0, history.Busy, "lock: busy")
			}
		}, `
order 2 stuck F3
0 A/1 gets the lock | has the lock | driver 1 holds the lock; order open
1 A/1 reads the order | has the lock, the order is open | driver 1 holds the lock; order open
4 A/1 the fault strikes: read 1 after | has the lock, the order is open | driver 1 holds the lock; order open
99 B/10 does not get the lock: lock: busy | another driver has the lock | driver 1 holds the lock; order open
119 B/12 does not get the lock: lock: busy | another driver has the lock | driver 1 holds the lock; order open
`},
		{"a holder whose process was started again", "stuck", catalog.Global, "F3 F5 F15", catalog.Crash, func(s *scene) {
			s.enters(0, "A", 2, 1, 0)
			s.event(5, "A", history.Info, history.Strike, 2, 1, 0, "after read")
			s.restart("A")
			s.incarnation = 1
			s.fails(100, "A", history.Acquire, 2, 9, 0, history.Busy, "lock: busy")
		}, `
order 2 stuck F3
0 A/1 gets the lock | has the lock | driver 1 holds the lock; order open
1 A/1 reads the order | has the lock, the order is open | driver 1 holds the lock; order open
4 A/1 the fault strikes: after read | has the lock, the order is open | driver 1 holds the lock; order open
99 A/9 does not get the lock: lock: busy | another driver has the lock | driver 1 died inside; order open
`},
		{"one that died before it knew", "stuck", catalog.Global, "F4 F5 F12", catalog.Crash, func(s *scene) {
			s.loses(0, "B", 2, 7, 0)
			s.event(10, "A", history.Invoke, history.Grab, 2, 1, 0, "")
			s.event(11, "A", history.Info, history.Strike, 2, 1, 0, "acquire 1 after")
			s.fails(90, "B", history.Acquire, 2, 8, 0, history.Busy, "lock: busy")
		}, `
order 2 stuck F4
0 A/1 asks for the order | nothing yet | order open
1 A/1 the fault strikes: acquire 1 after | nothing yet | order open
80 B/8 does not get the lock: lock: busy | another driver has the lock | order open
`},
		{"a release in vain", "stuck", catalog.Global, "F3 F5 F15", catalog.RedisDown, func(s *scene) {
			s.enters(0, "A", 2, 1, 0)
			s.event(5, "A", history.Invoke, history.Claim, 2, 1, 0, "")
			s.fails(6, "A", history.Claim, 2, 1, 0, "dependency", "not written")
			s.event(7, "A", history.Invoke, history.Release, 2, 1, 0, "")
			s.fails(8, "A", history.Release, 2, 1, 0, "dependency", "refused")
		}, `
order 2 stuck F3
0 A/1 gets the lock | has the lock | driver 1 holds the lock; order open
1 A/1 reads the order | has the lock, the order is open | driver 1 holds the lock; order open
5 A/1 writes, but is refused: not written | has the lock, the order is open | driver 1 holds the lock; order open
7 A/1 releases the lock, which it no longer has: refused | has the lock, the order is open | order open
`},
		{"one unit too many", "one-winner", catalog.Global, "F11 F17 F38", catalog.Pause, func(s *scene) {
			s.Units = 2
			s.enters(0, "A", 2, 1, 0)
			s.event(5, "A", history.Info, history.Strike, 2, 1, 0, "read 1 after")
			s.enters(1200, "B", 2, 2, 0)
			s.claims(1210, 1212, "B", 2, 2, 0)
			s.claims(1500, 1502, "A", 2, 1, 0) // A writes that 1 unit is left, because it read 2 before B sold one
			s.enters(1600, "B", 2, 3, 0)
			s.claims(1610, 1612, "B", 2, 3, 0)
			s.enters(1700, "B", 2, 4, 0)
		}, `
order 2 one-winner F11
0 A/1 gets the lock | has the lock | driver 1 holds the lock; none of 2 units sold
1 A/1 reads the order | has the lock, a unit is left | driver 1 holds the lock; none of 2 units sold
4 A/1 the fault strikes: read 1 after | has the lock, a unit is left | driver 1 holds the lock; none of 2 units sold
1200 B/2 gets the lock | has the lock | driver 2 holds the lock; driver 1 inside without the lock; none of 2 units sold
1201 B/2 reads the order | has the lock, a unit is left | driver 2 holds the lock; driver 1 inside without the lock; none of 2 units sold
1211 B/2 writes itself as the winner | has a unit | driver 2 holds the lock; driver 1 inside without the lock; 1 of 2 units sold: to driver 2
1501 A/1 writes itself as the winner | has a unit | driver 1 inside without the lock; 2 of 2 units sold: to driver 2 and driver 1
1600 B/3 gets the lock | has the lock | driver 3 holds the lock; 2 of 2 units sold: to driver 2 and driver 1
1601 B/3 reads the order | has the lock, a unit is left | driver 3 holds the lock; 2 of 2 units sold: to driver 2 and driver 1
1611 B/3 writes itself as the winner | has a unit | driver 3 holds the lock; 3 of 2 units sold: to driver 2 and driver 1 and driver 3
`},
		{"as many winners as units", "one-winner", catalog.Global, "F11 F17 F38", catalog.Pause, func(s *scene) {
			s.Units = 2
			s.enters(0, "A", 2, 1, 0)
			s.claims(10, 12, "A", 2, 1, 0)
			s.enters(20, "B", 2, 2, 0)
			s.claims(30, 32, "B", 2, 2, 0)
		}, "\norder 0  \n"},
		{"too little is known", "one-winner", catalog.Global, "F11 F17 F38", catalog.Pause, func(s *scene) {
			s.enters(0, "A", 2, 1, 0)
			s.claims(10, 12, "A", 2, 1, 0)
		}, "\norder 0  \n"},
		{"a property that has no timeline", "answers-agree", catalog.Global, "F11 F17 F38", catalog.Pause, func(s *scene) {
			s.claims(10, 12, "A", 2, 1, 0)
		}, "\norder 0  \n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := sound() // the timeline must not show its order 1
			tt.scene(s)
			timeline, ok := check.Explain(slices.Clone(s.events), s.Ledger, check.Case{
				Order: 2, Property: tt.property, Guard: order.Naive, Fault: tt.fault, Lease: time.Second,
				Excludes: tt.excludes, Breaks: strings.Fields(tt.breaks), Units: s.Units,
			})
			if got := "\n" + render(timeline); got != tt.want {
				t.Errorf("timeline is %s\nwant %s", got, tt.want)
			}
			if ok != (len(timeline.Steps) > 0) {
				t.Errorf("ok is %v for %d steps", ok, len(timeline.Steps))
			}
		})
	}
}

// played parses a script of events of order 2. Each line has the milliseconds, instance/driver,
// operation, kind, and fields that differ from their defaults. The default token is the driver's
// number. Every successful claim gets a ledger row.
func played(t *testing.T, script string) (events []history.Event, ledger []order.Grab) {
	t.Helper()
	for line := range strings.Lines(script) {
		if strings.TrimSpace(line) == "" {
			continue
		}
		e := history.Event{Order: 2}
		var ms int
		if _, err := fmt.Sscanf(line, "%d %1s/%d %s %s", &ms, &e.Instance, &e.Driver, &e.Op, &e.Kind); err != nil {
			t.Fatalf("cannot parse the line %q: %v", line, err)
		}
		e.T, e.Token = stepsOf(ms), fmt.Sprint(e.Driver)
		for _, field := range strings.Fields(line)[4:] {
			switch name, value, _ := strings.Cut(field, "="); name {
			case "token":
				e.Token = value
			case "code":
				e.Code = history.Code(value)
			case "incarnation":
				e.Incarnation = int(value[0] - '0')
			case "fence":
				e.Fence = uint64(value[0] - '0')
			default:
				t.Fatalf("%q: unknown field %q", line, field)
			}
		}
		if e.Op == history.Read && e.Kind == history.OK {
			e.Code = cmp.Or(e.Code, history.Open)
		}
		events = append(events, e)
	}
	slices.SortStableFunc(events, func(a, b history.Event) int { return cmp.Compare(a.T, b.T) })
	for i, e := range events {
		events[i].Seq = uint64(i + 1) // each instance gets gaps, but a timeline ignores them
		if e.Op == history.Claim && e.Kind == history.OK {
			ledger = append(ledger, order.Grab{Order: e.Order, Driver: e.Driver, Instance: e.Instance, Token: e.Token})
		}
	}
	return events, ledger
}

// TestTimelineShows checks with which event a timeline begins and ends, and which drivers it shows.
func TestTimelineShows(t *testing.T) {
	for _, tt := range []struct {
		name     string
		property string
		excludes catalog.Exclusion
		script   string
		want     string // the steps: the time, the driver, and what it does
	}{
		{"of three winners the first two, where the next two take as many steps", catalog.OneWinner, catalog.NoExclusion, `
			0 A/1 read ok
			1 B/2 read ok
			2 C/3 read ok
			10 A/1 claim ok
			11 B/2 claim ok
			12 C/3 claim ok`, `
			0 A/1 reads the order
			1 B/2 reads the order
			10 A/1 writes itself as the winner
			11 B/2 writes itself as the winner`},
		{"of three winners the last two, where these take fewer steps", catalog.OneWinner, catalog.NoExclusion, `
			0 A/1 read ok
			1 B/2 read ok
			2 C/3 read ok
			3 A/1 strike info
			10 A/1 claim ok
			11 B/2 claim ok
			12 C/3 claim ok`, `
			0 B/2 reads the order
			1 C/3 reads the order
			10 B/2 writes itself as the winner
			11 C/3 writes itself as the winner`},
		{"a winner from his own acquire, where others have the same token", catalog.OneWinner, catalog.Global, `
			0 A/1 acquire ok token=x
			5 B/2 acquire ok token=x
			10 A/1 claim ok token=x
			11 B/2 claim ok token=x`, `
			0 A/1 gets the lock
			5 B/2 gets the lock
			10 A/1 writes itself as the winner
			11 B/2 writes itself as the winner`},
		{"a winner from the acquire of the attempt that wrote", catalog.OneWinner, catalog.Global, `
			0 A/1 acquire ok token=x
			5 A/1 acquire ok token=y
			6 B/2 acquire ok
			10 A/1 claim ok token=x
			11 B/2 claim ok`, `
			0 A/1 gets the lock
			5 A/1 gets the lock
			6 B/2 gets the lock
			10 A/1 writes itself as the winner
			11 B/2 writes itself as the winner`},
		{"a winner of one instant", catalog.OneWinner, catalog.Global, `
			3 A/1 acquire ok
			3 A/1 claim ok
			4 B/2 acquire ok
			5 B/2 claim ok`, `
			0 A/1 gets the lock
			0 A/1 writes itself as the winner
			1 B/2 gets the lock
			2 B/2 writes itself as the winner`},
		{"nobody's call that was answered before anything else happened", catalog.OneWinner, catalog.NoExclusion, `
			0 A/1 read ok
			1 B/2 read ok
			2 A/1 claim invoke
			3 A/1 claim ok
			4 B/2 claim invoke
			5 C/3 read ok
			6 B/2 strike info
			7 B/2 claim ok`, `
			0 A/1 reads the order
			1 B/2 reads the order
			3 A/1 writes itself as the winner
			4 B/2 begins its write
			6 B/2 the fault strikes
			7 B/2 writes itself as the winner`},

		{"the second holder's try that got the lock", catalog.HoldersExclusive, catalog.Global, `
			0 A/1 acquire ok
			1 B/2 acquire fail code=busy
			3 C/3 acquire fail code=busy
			3 B/2 acquire ok
			4 B/2 read ok`, `
			0 A/1 gets the lock
			1 B/2 does not get the lock
			3 B/2 gets the lock`},
		{"a token where it is got", catalog.HoldersExclusive, catalog.Global, `
			0 A/1 acquire ok fence=3
			1 A/1 read ok fence=3
			2 B/2 acquire fail code=busy fence=4
			3 B/2 acquire ok fence=5
			4 B/2 read ok fence=5`, `
			0 A/1 gets the lock, token 3
			1 A/1 reads the order
			2 B/2 does not get the lock
			3 B/2 gets the lock, token 5`},
		{"holders that do not overlap: nothing", catalog.HoldersExclusive, catalog.Global, `
			0 A/1 acquire ok
			1 A/1 release invoke
			2 B/2 acquire ok`, ``},

		{"the first and the last who were refused, whatever came of them", catalog.StuckOrder, catalog.Global, `
			0 B/6 acquire fail code=busy
			1 A/1 acquire ok
			1 B/7 acquire fail code=busy
			2 B/7 grab fail code=busy
			3 B/8 acquire fail code=busy
			4 B/9 acquire fail code=busy
			5 B/9 grab fail code=busy`, `
			0 A/1 gets the lock
			0 B/7 does not get the lock
			3 B/9 does not get the lock`},
		{"what the holder did at the instant of his acquire, and since", catalog.StuckOrder, catalog.Global, `
			0 A/1 acquire fail code=busy
			1 A/1 acquire ok
			1 A/1 read ok
			2 A/1 acquire fail code=busy`, `
			0 A/1 gets the lock
			0 A/1 reads the order
			1 A/1 does not get the lock`},
		{"the last of several who hold the lock", catalog.StuckOrder, catalog.Global, `
			0 A/1 acquire ok
			1 B/2 acquire ok
			2 C/3 acquire ok
			3 C/3 release invoke
			4 C/3 release ok
			5 A/1 strike info`, `
			0 B/2 gets the lock`},
		{"who holds the lock, before who only asked for it", catalog.StuckOrder, catalog.Global, `
			0 A/1 grab invoke
			1 B/2 grab invoke
			2 A/1 acquire ok
			3 C/3 grab invoke`, `
			0 A/1 gets the lock`},
		{"the last who asked for the lock and was not answered", catalog.StuckOrder, catalog.Global, `
			0 A/1 grab invoke
			1 B/2 grab invoke
			2 C/3 grab invoke
			3 C/3 grab fail code=busy
			4 C/3 claim invoke`, `
			0 B/2 asks for the order`},
		{"nobody who was answered", catalog.StuckOrder, catalog.Global, `
			0 A/1 grab invoke
			1 A/1 grab ok`, ``},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got strings.Builder
			events, ledger := played(t, tt.script)
			timeline, _ := check.Explain(events, ledger, check.Case{Order: 2, Property: tt.property, Excludes: tt.excludes})
			for _, step := range timeline.Steps {
				fmt.Fprintf(&got, "\n\t\t\t%g %s/%d %s", step.TMS, step.Instance, step.Driver, step.Event)
			}
			if got.String() != tt.want {
				t.Errorf("timeline is%s\nwant%s", got.String(), tt.want)
			}
		})
	}
}

// TestTimelineKeeps checks which events a timeline stores if the order has too many. It must prefer
// the events of the drivers that it shows, and then the earliest events of other drivers.
func TestTimelineKeeps(t *testing.T) {
	const most = 480
	for _, tt := range []struct {
		name                 string
		early, shown, late   int // events of others before the winners, of the two winners, of others after them
		keptEarly, keptShown int
		keptLate, further    int
	}{
		{"all fit", 10, 8, 10, 10, 8, 10, 0},
		{"exactly as many as fit", 200, 8, most - 208, 200, 8, most - 208, 0},
		{"one too many", 200, 8, most - 207, 200, 8, most - 208, 1},
		{"others before the winners are too many", most + 20, 8, 5, most - 8, 8, 0, 33},
		{"the winners alone are too many", 3, most + 8, 3, 0, most, 0, 14},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var script strings.Builder
			at := 0
			add := func(n int, line string) {
				for range n {
					fmt.Fprintf(&script, "%d %s\n", at, line)
					at++
				}
			}
			add(tt.early, "C/3 read ok")
			add(1, "A/1 read ok")
			add(1, "B/2 read ok")
			add(tt.shown-4, "A/1 renew ok") // a timeline does not show renewals
			add(1, "A/1 claim ok")
			add(1, "B/2 claim ok")
			add(tt.late, "C/3 read fail")
			events, ledger := played(t, script.String())
			timeline, ok := check.Explain(events, ledger, check.Case{Order: 2, Property: catalog.OneWinner, Excludes: catalog.NoExclusion})
			if !ok {
				t.Fatal("no timeline")
			}
			var early, shown, late int
			for _, e := range timeline.Events {
				switch {
				case e.Driver != 3:
					shown++
				case e.Kind == history.OK:
					early++
				default:
					late++
				}
			}
			if early != tt.keptEarly || shown != tt.keptShown || late != tt.keptLate || timeline.Further != tt.further {
				t.Errorf("kept %d, %d and %d events, %d further; want %d, %d and %d, %d further",
					early, shown, late, timeline.Further, tt.keptEarly, tt.keptShown, tt.keptLate, tt.further)
			}
		})
	}
}

// TestBeliefs checks two facts after each event. What a driver believes depends on the answers that it
// got, and what is true depends on what happened.
func TestBeliefs(t *testing.T) {
	for _, tt := range []struct {
		name     string
		excludes catalog.Exclusion
		lease    time.Duration
		script   string
		want     string // belief and truth after each event
		units    int
	}{
		{"of a lock", catalog.Global, time.Second, `
			0 A/1 acquire ok
			1 A/1 read ok
			2 B/2 acquire fail code=dependency
			3 B/2 acquire fail code=busy
			4 A/1 release invoke
			5 A/1 release ok
			6 B/2 acquire ok
			7 B/2 read fail code=dependency
			8 B/2 read ok
			9 A/1 claim invoke
			10 A/1 claim ok
			11 B/2 lost info
			12 C/3 acquire ok
			13 C/3 read ok code=taken
			14 C/3 claim ok
			15 C/3 release invoke
			16 C/3 release ok
			17 B/2 release invoke
			18 B/2 release fail code=dependency
			19 B/2 grab fail code=busy`, `
			0 has the lock | driver 1 holds the lock; order open
			1 has the lock, the order is open | driver 1 holds the lock; order open
			2 nothing yet | driver 1 holds the lock; order open
			3 another driver has the lock | driver 1 holds the lock; order open
			4 has the lock, the order is open | driver 1 holds the lock; order open
			5 has released the lock | order open
			6 has the lock | driver 2 holds the lock; order open
			7 has the lock | driver 2 holds the lock; order open
			8 has the lock, the order is open | driver 2 holds the lock; order open
			9 has released the lock | driver 2 holds the lock; order open
			10 has won the order | driver 2 holds the lock; order grabbed by driver 1
			11 the lock is lost | driver 2 holds the lock; order grabbed by driver 1
			12 has the lock | driver 3 holds the lock; driver 2 inside without the lock; order grabbed by driver 1
			13 the order is taken | driver 3 holds the lock; driver 2 inside without the lock; order grabbed by driver 1
			14 has won the order | driver 3 holds the lock; driver 2 inside without the lock; order grabbed 2 times: by driver 1 and driver 3
			15 has won the order | driver 3 holds the lock; driver 2 inside without the lock; order grabbed 2 times: by driver 1 and driver 3
			16 has won the order | driver 2 inside without the lock; order grabbed 2 times: by driver 1 and driver 3
			17 the lock is lost | order grabbed 2 times: by driver 1 and driver 3
			18 the lock is lost | order grabbed 2 times: by driver 1 and driver 3
			19 the lock is lost | order grabbed 2 times: by driver 1 and driver 3`, 1},
		{"without a lock", catalog.NoExclusion, time.Second, `
			0 A/1 acquire ok
			1 A/1 read ok
			2 B/2 claim ok
			3 A/1 claim fail code=taken
			4 A/1 release invoke
			5 A/1 release ok`, `
			0 nothing yet | order open
			1 the order is open | order open
			2 has won the order | order grabbed by driver 2
			3 the order is taken | order grabbed by driver 2
			4 the order is taken | order grabbed by driver 2
			5 the order is taken | order grabbed by driver 2`, 1},
		{"of a read that was stale when its answer came", catalog.Global, time.Second, `
			0 A/1 acquire ok
			1 B/2 acquire ok
			2 B/2 claim ok
			3 A/1 read ok code=open
			4 B/2 read ok code=taken`, `
			0 has the lock | driver 1 holds the lock; order open
			1 has the lock | driver 2 holds the lock; driver 1 inside without the lock; order open
			2 has won the order | driver 2 holds the lock; driver 1 inside without the lock; order grabbed by driver 2
			3 has the lock, the order is open | driver 2 holds the lock; driver 1 inside without the lock; order grabbed by driver 2
			4 the order is taken | driver 2 holds the lock; driver 1 inside without the lock; order grabbed by driver 2`, 1},
		{"of two units", catalog.NoExclusion, time.Second, `
			0 A/1 read ok
			1 B/2 read ok
			2 C/3 read ok
			3 A/1 claim invoke
			4 A/1 claim ok
			5 B/2 claim invoke
			6 B/2 claim ok
			7 C/4 read ok code=taken
			8 C/5 read ok
			9 C/5 claim invoke
			10 C/5 claim fail code=taken
			11 C/3 claim invoke
			12 C/3 claim ok`, `
			0 a unit is left | none of 2 units sold
			1 a unit is left | none of 2 units sold
			2 a unit is left | none of 2 units sold
			3 a unit is left | none of 2 units sold
			4 has a unit | 1 of 2 units sold: to driver 1
			5 a unit is left | 1 of 2 units sold: to driver 1
			6 has a unit | 2 of 2 units sold: to driver 1 and driver 2
			7 no unit is left | 2 of 2 units sold: to driver 1 and driver 2
			8 a unit is left | 2 of 2 units sold: to driver 1 and driver 2
			9 a unit is left | 2 of 2 units sold: to driver 1 and driver 2
			10 no unit is left | 2 of 2 units sold: to driver 1 and driver 2
			11 a unit is left | 2 of 2 units sold: to driver 1 and driver 2
			12 has a unit | 3 of 2 units sold: to driver 1 and driver 2 and driver 3`, 2},
		{"of a lock and units", catalog.Global, time.Second, `
			0 A/1 acquire ok
			1 A/1 read ok
			2 A/1 claim ok
			3 A/1 release ok
			4 A/1 grab ok
			5 B/2 acquire ok
			6 B/2 release ok`, `
			0 has the lock | driver 1 holds the lock; none of 2 units sold
			1 has the lock, a unit is left | driver 1 holds the lock; none of 2 units sold
			2 has a unit | driver 1 holds the lock; 1 of 2 units sold: to driver 1
			3 has a unit | 1 of 2 units sold: to driver 1
			4 has a unit | 1 of 2 units sold: to driver 1
			5 has the lock | driver 2 holds the lock; 1 of 2 units sold: to driver 1
			6 has released the lock | 1 of 2 units sold: to driver 1`, 2},
		{"of a lease of a second", catalog.Global, time.Second, `
			0 A/1 acquire ok
			1000 B/2 acquire ok
			1001 B/2 read ok
			2001 B/2 strike info`, `
			0 has the lock | driver 1 holds the lock; order open
			1000 has the lock | driver 2 holds the lock; driver 1 inside without the lock; order open
			1001 has the lock, the order is open | driver 2 holds the lock; driver 1 inside without the lock; order open
			2001 has the lock, the order is open | driver 1 and driver 2 inside without the lock; order open`, 1},
		{"of a lease that may be of any length", catalog.Global, 0, `
			0 A/1 acquire ok
			5000 B/2 acquire ok`, `
			0 has the lock | driver 1 holds the lock; order open
			5000 has the lock | driver 2 holds the lock; driver 1 inside without the lock; order open`, 1},
		{"of a process that was started anew", catalog.Global, time.Second, `
			0 A/1 acquire ok
			1 B/2 acquire ok
			2 A/3 acquire ok incarnation=1
			3 A/3 release invoke incarnation=1
			4 A/4 acquire ok incarnation=2`, `
			0 has the lock | driver 1 holds the lock; order open
			1 has the lock | driver 2 holds the lock; driver 1 inside without the lock; order open
			2 has the lock | driver 3 holds the lock; driver 2 inside without the lock; driver 1 died inside; order open
			3 has the lock | driver 3 holds the lock; driver 2 inside without the lock; driver 1 died inside; order open
			4 has the lock | driver 4 holds the lock; driver 2 inside without the lock; driver 1 and driver 3 died inside; order open`, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			events, ledger := played(t, tt.script)
			var got strings.Builder
			for _, s := range check.Steps(events, ledger, check.Case{Order: 2, Lease: tt.lease, Excludes: tt.excludes, Units: tt.units}) {
				fmt.Fprintf(&got, "\n\t\t\t%g %s | %s", s.TMS, s.Believed, s.True)
			}
			if got.String() != tt.want {
				t.Errorf("beliefs are%s\nwant%s", got.String(), tt.want)
			}
		})
	}
}

// TestHoldersByDefinition makes drivers of two instances acquire and release at random. A driver
// that is inside must have the lock until another driver acquires it. If each process has its own
// lock, an acquire at the other instance must not count.
func TestHoldersByDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 16))
	for n := range 1000 {
		excludes := []catalog.Exclusion{catalog.Global, catalog.PerProcess}[n%2]
		var script strings.Builder
		var acquired []int       // the driver of each acquire so far
		inside := map[int]int{}  // maps each driver that has not released yet to the index of its acquire
		leaves := map[int]bool{} // drivers whose release has not returned
		var want []string
		for at := range 14 {
			driver, event := 1+r.IntN(5), "release invoke"
			_, isInside := inside[driver]
			switch {
			case !isInside:
				event = "acquire ok"
				inside[driver], acquired = len(acquired), append(acquired, driver)
			case leaves[driver]:
				event = "release ok"
				delete(inside, driver)
				delete(leaves, driver)
			default:
				leaves[driver] = true
			}
			fmt.Fprintf(&script, "%d %c/%d %s\n", at, "AB"[driver%2], driver, event)
			var holding, without []string
			for i, d := range acquired {
				if last, ok := inside[d]; !ok || last != i {
					continue
				}
				lost := slices.ContainsFunc(acquired[i+1:], func(o int) bool { return excludes == catalog.Global || o%2 == d%2 })
				switch name := fmt.Sprint("driver ", d); {
				case !lost:
					holding = append(holding, name)
				case !leaves[d]:
					without = append(without, name)
				}
			}
			var facts []string
			switch len(holding) {
			case 0:
			case 1:
				facts = append(facts, holding[0]+" holds the lock")
			default:
				facts = append(facts, strings.Join(holding, " and ")+" each hold a lock")
			}
			if len(without) > 0 {
				facts = append(facts, strings.Join(without, " and ")+" inside without the lock")
			}
			want = append(want, strings.Join(append(facts, "order open"), "; "))
		}
		events, ledger := played(t, script.String())
		for i, s := range check.Steps(events, ledger, check.Case{Order: 2, Lease: time.Hour, Excludes: excludes}) {
			if s.True != want[i] {
				t.Fatalf("%s\nevent %d: %q, want %q", script.String(), i, s.True, want[i])
			}
		}
	}
}

// TestReleaseFreesAnyWinner sells an order with two units three times. A fourth driver's release has freed the lock of
// one of the winners. This must explain the failure, no matter which winner it is.
func TestReleaseFreesAnyWinner(t *testing.T) {
	const freed = "F5"
	for _, winners := range [][3]string{{"A/1", "B/2", "A/3"}, {"A/3", "A/1", "B/2"}, {"B/2", "A/3", "A/1"}} {
		for i := range winners {
			begins := []int{5, 6, 40}
			begins[i] = 20
			script := "10 C/9 acquire ok \n 29 C/9 release invoke \n 30 C/9 release ok"
			for k, winner := range winners {
				script += fmt.Sprintf("\n %d %s acquire ok \n %d %s claim ok", begins[k], winner, 80+k, winner)
			}
			events, ledger := played(t, script)
			timeline, _ := check.Explain(events, ledger, check.Case{
				Order: 2, Property: catalog.OneWinner, Fault: catalog.Pause, Excludes: catalog.Global, Breaks: []string{freed},
				Lease: 25 * time.Millisecond, Units: 2,
			})
			if timeline.Mode != freed {
				t.Errorf("failure mode is %s, want %s:\n%s", timeline.Mode, freed, render(timeline))
			}
		}
	}
}

// TestReleaseFreesAnother checks when a third driver's release explains two winners, because it has
// freed a winner's lock by mistake. That winner must have entered after the third driver and must
// be inside at the release.
func TestReleaseFreesAnother(t *testing.T) {
	const freed, ranOut = "F5", "F11"
	for _, tt := range []struct {
		name     string
		excludes catalog.Exclusion
		third    string // events of the third driver
		entered  int    // when the winner whose lock may have been freed entered
		left     int    // when this winner left
		want     string
	}{
		{"entered later, and is inside", catalog.Global, "10 C/9 acquire ok \n 29 C/9 release invoke \n 30 C/9 release ok", 20, 70, freed},
		{"is inside for a moment longer", catalog.Global, "10 C/9 acquire ok \n 29 C/9 release invoke \n 30 C/9 release ok", 11, 31, freed},
		{"enters before it is called", catalog.Global, "10 C/9 acquire ok \n 29 C/9 release invoke \n 30 C/9 release ok", 28, 70, freed},
		{"is handed the lock before the answer", catalog.Global, "10 C/9 acquire ok \n 15 C/9 release invoke \n 30 C/9 release ok", 20, 70, ranOut},
		{"enters before the answer, when the lease had ended", catalog.Global, "10 C/9 acquire ok \n 15 C/9 release invoke \n 36 C/9 release ok", 35, 70, freed},
		{"had entered before", catalog.Global, "10 C/9 acquire ok \n 29 C/9 release invoke \n 30 C/9 release ok", 9, 70, ranOut},
		{"had entered at the same instant", catalog.Global, "10 C/9 acquire ok \n 29 C/9 release invoke \n 30 C/9 release ok", 10, 70, ranOut},
		{"enters as the release returns", catalog.Global, "10 C/9 acquire ok \n 29 C/9 release invoke \n 30 C/9 release ok", 30, 70, ranOut},
		{"enters afterwards", catalog.Global, "10 C/9 acquire ok \n 29 C/9 release invoke \n 30 C/9 release ok", 31, 70, ranOut},
		{"leaves as the release returns", catalog.Global, "10 C/9 acquire ok \n 29 C/9 release invoke \n 30 C/9 release ok", 20, 30, ranOut},
		{"had left before", catalog.Global, "10 C/9 acquire ok \n 29 C/9 release invoke \n 30 C/9 release ok", 20, 25, ranOut},
		{"the release is refused", catalog.Global, "10 C/9 acquire ok \n 29 C/9 release invoke \n 30 C/9 release fail code=lease_lost", 20, 70, ranOut},
		{"it does not release", catalog.Global, "10 C/9 acquire ok \n 30 C/9 read ok", 20, 70, ranOut},
		{"the release is of another attempt, which came later", catalog.Global, "10 C/9 acquire ok token=x \n 25 C/9 acquire ok token=y \n 29 C/9 release invoke token=y \n 30 C/9 release ok token=y", 20, 70, ranOut},
		{"the release is of another driver with the same token, who came later", catalog.Global, "10 C/9 acquire ok token=x \n 25 C/8 acquire ok token=x \n 29 C/8 release invoke token=x \n 30 C/8 release ok token=x", 20, 70, ranOut},
		{"the lock is that of another process", catalog.PerProcess, "10 C/9 acquire ok \n 29 C/9 release invoke \n 30 C/9 release ok", 20, 70, ranOut},
		{"the lock is that of the same process", catalog.PerProcess, "10 A/9 acquire ok \n 29 A/9 release invoke \n 30 A/9 release ok", 20, 70, freed},
	} {
		for _, winners := range [][2]string{{"A/1", "B/2"}, {"B/2", "A/1"}} {
			t.Run(tt.name+"/first "+winners[0], func(t *testing.T) {
				events, ledger := played(t, fmt.Sprintf(`
					%s
					%d A/1 acquire ok
					%d A/1 release invoke
					40 B/2 acquire ok
					80 %s claim ok
					81 %s claim ok`, tt.third, tt.entered, tt.left, winners[0], winners[1]))
				timeline, _ := check.Explain(events, ledger, check.Case{
					Order: 2, Property: catalog.OneWinner, Fault: catalog.Pause, Excludes: tt.excludes, Breaks: []string{freed},
					Lease: 25 * time.Millisecond,
				})
				if timeline.Mode != tt.want {
					t.Errorf("failure mode is %s, want %s:\n%s", timeline.Mode, tt.want, render(timeline))
				}
				if shown := strings.Contains(render(timeline), "releases the lock"); shown != (tt.want == freed) && tt.name != "the release is refused" {
					t.Errorf("the third driver is shown: %v, in\n%s", shown, render(timeline))
				}
			})
		}
	}
}
