package check_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/check"
	"grablab/internal/history"
	"grablab/internal/order"
)

// render is a timeline as a test compares it: a line for each step.
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
		breaks   string // failure modes that are known of the lock
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
0 A/1 gets the lock | has the lock | driver 1 inside; order open
1 A/1 reads the order | has the lock, the order is open | driver 1 inside; order open
4 A/1 the fault strikes: read 1 after | has the lock, the order is open | driver 1 inside; order open
1200 B/2 gets the lock | has the lock | driver 1 and driver 2 inside; driver 1 for longer than a lease of 1s; order open
1201 B/2 reads the order | has the lock, the order is open | driver 1 and driver 2 inside; driver 1 for longer than a lease of 1s; order open
1211 B/2 writes itself as the winner | has won the order | driver 1 and driver 2 inside; driver 1 for longer than a lease of 1s; order grabbed by driver 2
1501 A/1 writes itself as the winner | has won the order | driver 1 inside; driver 1 for longer than a lease of 1s; order grabbed 2 times: by driver 2 and driver 1
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
0 B/2 gets the lock | has the lock | driver 1 and driver 2 inside; driver 1 for longer than a lease of 1s; order open
1 B/2 reads the order | has the lock, the order is open | driver 1 and driver 2 inside; driver 1 for longer than a lease of 1s; order open
10 A/1 lets go of the lock | has let go of the lock | driver 2 inside; order open
20 A/3 gets the lock | has the lock | driver 2 and driver 3 inside; order open
21 A/3 reads the order | has the lock, the order is open | driver 2 and driver 3 inside; order open
30 B/2 writes itself as the winner | has won the order | driver 2 and driver 3 inside; order grabbed by driver 2
40 A/3 writes itself as the winner | has won the order | driver 3 inside; order grabbed 2 times: by driver 2 and driver 3
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
0 A/1 gets the lock | has the lock | driver 1 inside; order open
1 A/1 reads the order | has the lock, the order is open | driver 1 inside; order open
3 A/1 sends its write | has the lock, the order is open | driver 1 inside; order open
1200 B/2 gets the lock | has the lock | driver 1 and driver 2 inside; driver 1 for longer than a lease of 1s; order open
1201 B/2 reads the order | has the lock, the order is open | driver 1 and driver 2 inside; driver 1 for longer than a lease of 1s; order open
1211 B/2 writes itself as the winner | has won the order | driver 1 and driver 2 inside; driver 1 for longer than a lease of 1s; order grabbed by driver 2
1499 A/1 writes itself as the winner | has won the order | driver 1 inside; driver 1 for longer than a lease of 1s; order grabbed 2 times: by driver 2 and driver 1
`},
		{"two holders, one winner", "holders-exclusive", catalog.Global, "F11 F18 F19 F21", catalog.Amnesia, func(s *scene) {
			s.enters(0, "A", 2, 1, 0)
			s.enters(3, "B", 2, 2, 0)
			s.claims(13, 14, "B", 2, 2, 0)
		}, `
order 2 holders-exclusive F18
0 A/1 gets the lock | has the lock | driver 1 inside; order open
1 A/1 reads the order | has the lock, the order is open | driver 1 inside; order open
3 B/2 gets the lock | has the lock | driver 1 and driver 2 inside; order open
`},
		{"a holder that died", "stuck", catalog.Global, "F3 F5 F15", catalog.Crash, func(s *scene) {
			s.enters(0, "A", 2, 1, 0)
			s.event(5, "A", history.Info, history.Strike, 2, 1, 0, "read 1 after")
			for i := range 3 {
				s.fails(100+10*i, "B", history.Acquire, 2, int64(10+i), 0, history.Busy, "lock: busy")
			}
		}, `
order 2 stuck F3
0 A/1 gets the lock | has the lock | driver 1 inside; order open
1 A/1 reads the order | has the lock, the order is open | driver 1 inside; order open
4 A/1 the fault strikes: read 1 after | has the lock, the order is open | driver 1 inside; order open
99 B/10 does not get the lock: lock: busy | another driver has the lock | driver 1 inside; order open
119 B/12 does not get the lock: lock: busy | another driver has the lock | driver 1 inside; order open
`},
		{"a holder whose process was started again", "stuck", catalog.Global, "F3 F5 F15", catalog.Crash, func(s *scene) {
			s.enters(0, "A", 2, 1, 0)
			s.event(5, "A", history.Info, history.Strike, 2, 1, 0, "after read")
			s.restart("A")
			s.incarnation = 1
			s.fails(100, "A", history.Acquire, 2, 9, 0, history.Busy, "lock: busy")
		}, `
order 2 stuck F3
0 A/1 gets the lock | has the lock | driver 1 inside; order open
1 A/1 reads the order | has the lock, the order is open | driver 1 inside; order open
4 A/1 the fault strikes: after read | has the lock, the order is open | driver 1 inside; order open
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
0 A/1 gets the lock | has the lock | driver 1 inside; order open
1 A/1 reads the order | has the lock, the order is open | driver 1 inside; order open
5 A/1 is refused its write: not written | has the lock, the order is open | driver 1 inside; order open
7 A/1 lets go of the lock, in vain: refused | has the lock, the order is open | order open
`},
		{"too little is known", "one-winner", catalog.Global, "F11 F17 F38", catalog.Pause, func(s *scene) {
			s.enters(0, "A", 2, 1, 0)
			s.claims(10, 12, "A", 2, 1, 0)
		}, "\norder 0  \n"},
		{"a property that has no timeline", "answers-agree", catalog.Global, "F11 F17 F38", catalog.Pause, func(s *scene) {
			s.claims(10, 12, "A", 2, 1, 0)
		}, "\norder 0  \n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := sound() // order 1, which must not show
			tt.scene(s)
			timeline, ok := check.Explain(slices.Clone(s.events), s.Ledger, check.Case{
				Order: 2, Property: tt.property, Guard: order.Naive, Fault: tt.fault, Lease: time.Second,
				Excludes: tt.excludes, Breaks: strings.Fields(tt.breaks),
			})
			if got := "\n" + render(timeline); got != tt.want {
				t.Errorf("got %s\nwant %s", got, tt.want)
			}
			if ok != (len(timeline.Steps) > 0) {
				t.Errorf("ok is %v for %d steps", ok, len(timeline.Steps))
			}
		})
	}
}
