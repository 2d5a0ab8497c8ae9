package control_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"grablab/internal/service/control"
	"grablab/internal/tap"
)

// A modelHold is a breakpoint of the model, with the calls that have reached it.
type modelHold struct {
	control.Hold
	name  string
	calls []*modelCall
}

// A modelCall is a call of the model. The last two fields belong to the call under test.
type modelCall struct {
	control.Held
	order   int64
	by      *modelHold // the breakpoint that stops it
	refused bool       // whether a breakpoint refuses it in advance
	sent    bool
	ended   bool
	want    error
	times   int          // how many times the client sends it, because the server may not know its script
	applied *int         // how many times it was sent
	told    <-chan error // the result
}

// A holdsModel is a simple model of Holds. It consists of a list of breakpoints, in the order in which
// they were set, and a count for each kind of call.
type holdsModel struct {
	set    []*modelHold
	counts map[control.Call]int
	all    []*modelCall
}

func (m *holdsModel) find(name string) *modelHold {
	i := slices.IndexFunc(m.set, func(l *modelHold) bool { return l.name == name })
	if i < 0 {
		return nil
	}
	return m.set[i]
}

func (m *holdsModel) covers(order int64) bool {
	return slices.ContainsFunc(m.set, func(l *modelHold) bool { return order >= l.First && order < l.First+int64(l.Count) })
}

// meets records that a call reaches the breakpoints at a point, in the order in which they were set. The
// first breakpoint without a fixed outcome stops the call.
func (m *holdsModel) meets(c *modelCall, after bool, state control.State) (stopped bool) {
	here := control.Point{Phase: c.Phase, N: c.N, After: after}
	for _, l := range m.set {
		anywhere := l.At == control.Point{} && !after
		inRange := c.order >= l.First && c.order < l.First+int64(l.Count)
		if l.At != here && !anywhere || !inRange || len(l.Drivers) > 0 && !slices.Contains(l.Drivers, c.Driver) {
			continue
		}
		l.calls = append(l.calls, c)
		if l.Outcome == "" {
			c.by, c.State = l, state
			return true
		}
		c.refused = c.refused || l.Outcome == control.Refused
	}
	return false
}

func (m *holdsModel) begins(order, driver int64, phase tap.Phase) *modelCall {
	c := &modelCall{Held: control.Held{Call: control.Call{Order: order, Driver: driver, Phase: phase, Target: "redis"}, State: control.Released}, order: order}
	m.all = append(m.all, c)
	if !m.covers(order) {
		c.sent, c.ended = true, true
		return c
	}
	key := c.Call
	m.counts[key]++
	c.N = m.counts[key]
	if !m.meets(c, false, control.Waiting) {
		m.sends(c, control.Delivered)
	}
	return c
}

// sends lets a call continue that was not sent yet.
func (m *holdsModel) sends(c *modelCall, as control.Outcome) {
	by := c.by
	c.State, c.by = control.Released, nil
	switch {
	case c.refused || as == control.Refused:
		c.ended, c.want = true, control.ErrRefused
		return
	case as == control.ReplyLost:
		c.sent, c.ended, c.want = true, true, control.ErrReplyLost
		return
	case as == control.ReplyDelayed:
		c.sent, c.by, c.State = true, by, control.Replied
		return
	}
	c.sent = true
	c.ended = !m.meets(c, true, control.Replied)
}

// releases lets a stopped call continue. It returns false if the breakpoint does not stop the call.
func (m *holdsModel) releases(l *modelHold, which control.Call, as control.Outcome) bool {
	for _, c := range l.calls {
		if c.Call != which || c.by != l {
			continue
		}
		switch {
		case c.State == control.Waiting && as != control.ReplyDelivered:
			m.sends(c, as)
			return true
		case c.State == control.Replied && as == control.ReplyDelivered:
			c.State, c.by, c.ended = control.Released, nil, true
			return true
		}
	}
	return false
}

func (m *holdsModel) removes(l *modelHold) {
	m.set = slices.DeleteFunc(m.set, func(o *modelHold) bool { return o == l })
	for _, c := range l.calls {
		switch {
		case c.by != l:
		case c.State == control.Waiting:
			m.sends(c, control.Delivered)
		case c.State == control.Replied:
			c.State, c.by, c.ended = control.Released, nil, true
		}
	}
	if len(m.set) == 0 {
		clear(m.counts)
	}
}

// compare returns the difference between the model and holds, or "" if there is none.
func (m *holdsModel) compare(holds *control.Holds) string {
	text := func(calls []control.Held) string {
		lines := make([]string, len(calls))
		for i, c := range calls {
			lines[i] = fmt.Sprintf("%+v", c)
		}
		slices.Sort(lines) // calls that continue at once reach the next point in any order
		return strings.Join(lines, "\n")
	}
	all := holds.All()
	if len(all) != len(m.set) {
		return fmt.Sprintf("%d breakpoints, want %d", len(all), len(m.set))
	}
	for _, l := range m.set {
		var want []control.Held
		for _, c := range l.calls {
			want = append(want, c.Held)
		}
		if got, want := text(all[l.name]), text(want); got != want {
			return fmt.Sprintf("calls at %s:\n%s\nwant\n%s", l.name, got, want)
		}
	}
	for _, c := range m.all {
		want := 0
		if c.sent {
			want = c.times
		}
		if *c.applied != want {
			return fmt.Sprintf("%+v was sent %d times, want %d", c.Call, *c.applied, want)
		}
		select {
		case err := <-c.told:
			if !c.ended || !errors.Is(err, c.want) {
				return fmt.Sprintf("%+v ends with %v; want it ended: %v, with %v", c.Call, err, c.ended, c.want)
			}
			c.told = nil
		default:
			if c.ended && c.told != nil {
				return fmt.Sprintf("%+v has not ended", c.Call)
			}
		}
	}
	return ""
}

// TestHoldsAgreeWithTheModel sets, removes and meets breakpoints at random. After each step, every call
// must have the state, the number and the result that the model gives it.
func TestHoldsAgreeWithTheModel(t *testing.T) {
	points := []control.Point{
		{}, {}, {}, {Phase: tap.Claim, N: 1}, {Phase: tap.Claim, N: 2}, {Phase: tap.Claim, N: 3}, {Phase: tap.Read, N: 1},
		{Phase: tap.Claim, N: 1, After: true}, {Phase: tap.Claim, N: 2, After: true}, {Phase: tap.Read, N: 1, After: true},
	}
	names := []string{"a", "b", "c"}
	outcomes := []control.Outcome{"", "", control.Delivered, control.Refused}
	releases := []control.Outcome{control.Delivered, control.ReplyLost, control.ReplyDelayed, control.Refused, control.ReplyDelivered}
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 30))
			var holds control.Holds
			defer holds.Close()
			m := &holdsModel{counts: map[control.Call]int{}}
			var steps []string
			for range 40 {
				name := names[r.IntN(len(names))]
				l := m.find(name)
				switch action := r.IntN(10); {
				case action < 2:
					what := control.Hold{
						First: 7 + r.Int64N(2), Count: 1 + r.IntN(2), Drivers: [][]int64{nil, {1}, {2, 3}}[r.IntN(3)],
						At: points[r.IntN(len(points))], Outcome: outcomes[r.IntN(len(outcomes))],
					}
					steps = append(steps, fmt.Sprintf("set %s: %+v", name, what))
					if l != nil {
						if slices.ContainsFunc(l.calls, func(c *modelCall) bool { return c.by == l }) {
							_ = holds.Remove(name) // otherwise, its calls could meet the new breakpoint
							synctest.Wait()
						}
						m.removes(l)
					}
					m.set = append(m.set, &modelHold{Hold: what, name: name})
					holds.Set(name, what)
				case action < 4:
					steps = append(steps, "remove "+name)
					if err := holds.Remove(name); (err == nil) != (l != nil) {
						t.Errorf("Remove: %v", err)
					}
					if l != nil {
						m.removes(l)
					}
				case action < 6 && l != nil && len(l.calls) > 0:
					which, as := l.calls[r.IntN(len(l.calls))].Call, releases[r.IntN(len(releases))]
					steps = append(steps, fmt.Sprintf("release %s: %+v, %s", name, which, as))
					_, err := holds.Release(t.Context(), name, which, as)
					if want := m.releases(l, which, as); (err == nil) != want || err != nil && !errors.Is(err, control.ErrNotHeld) {
						t.Errorf("release: %v, want it released: %v", err, want)
					}
				default:
					op := tap.Op{Order: 7 + r.Int64N(5)/2, Driver: 1 + r.Int64N(3)/2, Phase: []tap.Phase{tap.Claim, tap.Claim, tap.Read}[r.IntN(3)], Target: "redis"}
					steps = append(steps, fmt.Sprintf("call %+v", op))
					c := m.begins(op.Order, op.Driver, op.Phase)
					answers := [][]error{once, once, {errNoScript, nil}}[r.IntN(3)]
					c.times, c.applied = len(answers), new(int)
					c.told = sends(t.Context(), &holds, op, answers, c.applied)
				}
				synctest.Wait()
				if diff := m.compare(&holds); diff != "" {
					t.Fatalf("seed %d, after\n%s\n%s", seed, strings.Join(steps, "\n"), diff)
				}
			}
		})
	}
}
