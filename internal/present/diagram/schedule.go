package diagram

import (
	"fmt"
	"slices"

	"grablab/internal/explore"
	"grablab/internal/explore/schedule"
	"grablab/internal/tap"
)

// OfSchedule makes a diagram of a replayed schedule. The order has one unit unless units is larger.
// A moment is the state after one step. say describes the step in words.
func OfSchedule(title string, actors []schedule.Actor, units int, moments []explore.Moment, say func(explore.Moment) string) Diagram {
	d := Diagram{Title: title, Scale: InSteps, End: float64(len(moments)), Units: units}
	for _, a := range actors {
		lane := d.lane(fmt.Sprintf("instance %d", a.Instance))
		lane.Rows = append(lane.Rows, rowOf(a, units, moments, say))
	}
	d.Bands = bands(moments, say)
	if i := slices.IndexFunc(moments, func(m explore.Moment) bool { return m.Broken }); i >= 0 && i < len(moments)-1 {
		d.Notes = append(d.Notes, fmt.Sprintf("step %d breaks the property; the later steps only let every driver finish", i+1))
	}
	for i, m := range moments {
		lost := m.Broken && (i == 0 || !moments[i-1].Broken)
		step := Step{
			At: at(i), Clock: m.At.String(), Who: m.Step.Actor, Text: say(m), Lost: lost,
			Believes: m.Believes, Holds: m.Holds, Stores: m.Store,
		}
		if lost {
			d.Lost = &step.At
		}
		d.Steps = append(d.Steps, step)
	}
	d.findCause()
	return d
}

// at returns the position of step i's middle on the time axis.
func at(i int) float64 { return float64(i) + 0.5 }

// rowOf returns an actor's row of the drawing, with the spans and marks that the moments show.
func rowOf(a schedule.Actor, units int, moments []explore.Moment, say func(explore.Moment) string) Row {
	r := Row{Name: a.Name}
	if a.As != "" {
		r.Name += ", again for " + a.As
	}
	believes := func(m explore.Moment) bool { return slices.Contains(m.Believes, a.Name) }
	holds := func(m explore.Moment) bool { return slices.Contains(m.Holds, a.Name) }
	add := func(k SpanKind, is func(explore.Moment) bool) {
		for _, s := range stretches(moments, is) {
			r.Spans = append(r.Spans, Span{Kind: k, From: s[0], To: s[1], Open: s[1] == float64(len(moments))})
		}
	}
	kept := func(m explore.Moment) bool { return slices.Contains(m.Kept, a.Name) }
	add(Kept, kept)
	add(Holds, func(m explore.Moment) bool { return holds(m) && !kept(m) })
	add(Believes, believes)
	add(Gap, func(m explore.Moment) bool { return believes(m) && !holds(m) })
	if s, ok := entryOf(a, moments); ok {
		r.Spans = append(r.Spans, s)
	}
	r.Spans = append(r.Spans, struckOf(a, moments)...)
	var before explore.Moment
	held := false // whether the actor held the lock before its release began
	for i, m := range moments {
		own := m.Step.Actor == a.Name && !m.Skipped
		if !own || m.Step.Phase != string(tap.Release) {
			held = holds(m)
		}
		if k, ok := markOf(a, units, m, before); ok && !m.Skipped {
			late := k == Released && !held || k == Renewed && !holds(m)
			if late && m.Step.Target != schedule.DB {
				k = Late
			}
			mark := Mark{Kind: k, At: at(i), Text: say(m)}
			if k == Won || k == Second {
				mark.N = len(m.Winners)
			}
			r.Marks = append(r.Marks, mark)
		}
		before = m
	}
	return r
}

// stretches returns the start and end of each run of consecutive moments that meet a condition.
func stretches(moments []explore.Moment, is func(explore.Moment) bool) (all [][2]float64) {
	from := -1
	for i, m := range moments {
		switch {
		case is(m) && from < 0:
			from = i
		case !is(m) && from >= 0:
			all = append(all, [2]float64{at(from), at(i)})
			from = -1
		}
	}
	if from >= 0 {
		all = append(all, [2]float64{at(from), float64(len(moments))})
	}
	return all
}

// entryOf returns the period in which an actor asks for the lock, until it has the lock or asks for
// the last time. If the strategy has no lock, it returns the period in which the actor works on the
// order. It returns false if there is no such period.
func entryOf(a schedule.Actor, moments []explore.Moment) (s Span, ok bool) {
	own := func(m explore.Moment) bool { return m.Step.Actor == a.Name && !m.Skipped }
	asks := func(m explore.Moment) bool { return m.Step.Phase == string(tap.Acquire) }
	locks := slices.ContainsFunc(moments, func(m explore.Moment) bool { return len(m.Believes) > 0 || asks(m) })
	from := slices.IndexFunc(moments, func(m explore.Moment) bool { return own(m) && m.Step.Kind == schedule.Begins })
	if from < 0 {
		return Span{}, false
	}
	to := from
	for i, m := range moments[from:] {
		if slices.Contains(m.Believes, a.Name) {
			to = from + i
			break
		}
		if own(m) && (asks(m) || !locks) {
			to = from + i
		}
	}
	s = Span{Kind: Waits, From: at(from), To: at(to)}
	if !locks {
		s.Kind = Inside
	}
	return s, to > from
}

// struckOf returns the periods in which a fault pauses, hangs or kills an actor.
func struckOf(a schedule.Actor, moments []explore.Moment) (spans []Span) {
	end := float64(len(moments))
	from := -1
	for i, m := range moments {
		own := m.Step.Actor == a.Name && !m.Skipped
		switch {
		case own && (m.Step.Kind == schedule.Paused || m.Step.Kind == schedule.Hangs):
			from = i
		case own && m.Step.Kind == schedule.Resumes && from >= 0:
			spans = append(spans, Span{Kind: Fault, From: at(from), To: at(i), Text: a.Name + " is paused", does: "paused"})
			from = -1
		case own && m.Step.Kind == schedule.Dies, m.Step.Kind == schedule.InstanceDies && m.Step.Instance == a.Instance && !m.Skipped:
			spans = append(spans, Span{Kind: Dead, From: at(i), To: end})
		}
	}
	if from >= 0 {
		spans = append(spans, Span{Kind: Fault, From: at(from), To: end, Open: true, Text: a.Name + " does not continue", does: "hung"})
	}
	return spans
}

// answers maps the phase of each call to the mark for its answer. A write maps to Refused, because markOf
// handles successful writes itself.
var answers = map[string]MarkKind{
	string(tap.Read): Read, string(tap.Claim): Refused, string(tap.Renew): Renewed, string(tap.Release): Released,
}

// markOf returns the mark for an actor's step from the moment before to the moment m. It returns
// false if the step needs no mark.
func markOf(a schedule.Actor, units int, m, before explore.Moment) (k MarkKind, ok bool) {
	dies := m.Step.Kind == schedule.InstanceDies && m.Step.Instance == a.Instance
	if m.Step.Actor != a.Name && !dies {
		return "", false
	}
	won := len(m.Winners) > len(before.Winners)
	switch answer := answers[m.Step.Phase]; {
	case dies, m.Step.Kind == schedule.Dies:
		return Dies, true
	case won && len(m.Winners) > max(units, 1):
		return Second, true
	case won:
		return Won, true
	case answer != "" && m.Step.Kind == schedule.Call:
		return answer, true
	case answer == Refused:
		return Sent, true
	case m.Step.Kind == schedule.Paused, m.Step.Kind == schedule.Resumes, m.Step.Kind == schedule.Hangs, m.Step.Kind == schedule.Begins:
		return "", false
	default:
		return Call, true
	}
}

// endOf maps the kind of step that begins a fault to the kind that ends it.
var endOf = map[schedule.Kind]schedule.Kind{schedule.Down: schedule.Up, schedule.CutOff: schedule.Reaches}

// bands returns the periods that do not belong to any actor, such as a server's fault.
func bands(moments []explore.Moment, say func(explore.Moment) string) (spans []Span) {
	for i, m := range moments {
		switch k := m.Step.Kind; {
		case m.Skipped || m.Step.Actor != "" || k == schedule.Up || k == schedule.Reaches || k == schedule.InstanceDies:
		case k == schedule.Passes || k == schedule.NextTimer || k == schedule.LeaseEnd:
			spans = append(spans, Span{Kind: Passes, From: float64(i), To: float64(i + 1), Text: say(m)})
		case endOf[k] != 0:
			to := slices.IndexFunc(moments[i:], func(o explore.Moment) bool {
				return o.Step.Kind == endOf[k] && o.Step.Target == m.Step.Target && o.Step.Instance == m.Step.Instance && !o.Skipped
			})
			s := Span{Kind: Fault, From: at(i), To: float64(len(moments)), Open: true, Text: say(m)}
			if to >= 0 {
				s.To, s.Open = at(i+to), false
			}
			spans = append(spans, s)
		default:
			spans = append(spans, Span{Kind: Fault, From: float64(i), To: float64(i + 1), Text: say(m)})
		}
	}
	return spans
}
