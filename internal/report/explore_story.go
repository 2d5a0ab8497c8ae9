package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"grablab/internal/catalog"
	"grablab/internal/check"
	"grablab/internal/explore"
	"grablab/internal/schedule"
)

// How wide the columns of a story are. With two actors it fits into 120.
const (
	actorLeast = 18
	actorMost  = 28
	storeMost  = 24
	proseWidth = 110
)

const lostMark = "▶"

// stories tells the failure that matters most, and names the others; of a
// replay that breaks nothing, how it went.
func (e Exploration) stories(b *strings.Builder, r explore.Result) {
	if len(r.Failures) == 0 && replayed(r) {
		fmt.Fprintf(b, "%s breaks nothing in this schedule\n\n", r.Strategy)
		stepTable(r.Actors, r.Moments).text(b, 2)
		fmt.Fprintln(b)
	}
	for i, f := range r.Failures {
		switch {
		case i == 0:
			e.story(b, f)
		case replayed(r):
			fmt.Fprintf(b, "also %s: %s\n", f.Property, f.Why)
		default:
			fmt.Fprintf(b, "also %s: %s; %s\n", f.Property, f.Why, e.Replay(f))
		}
		if i == len(r.Failures)-1 {
			fmt.Fprintln(b)
		}
	}
}

// story tells a failure: who did what, what was true meanwhile, from where on
// it was lost, what that means, and what helps.
func (e Exploration) story(b *strings.Builder, f explore.Failure) {
	fmt.Fprintf(b, "%s breaks %s in %s\n\n", f.Schedule.Strategy, f.Property, plural(len(f.Schedule.Steps), "step", "steps"))
	stepTable(f.Schedule.Actors, f.Moments).text(b, 2)
	fmt.Fprintf(b, "\n%s after this step it is lost; believes: who takes the lock for his own; holds: whose it is, by the servers' clocks\n\n", lostMark)
	for _, text := range append([]string{contradiction(f)}, remedy(f)...) {
		fmt.Fprintln(b, wrap(text, proseWidth))
	}
	fmt.Fprintf(b, "again: %s\n", e.Replay(f))
}

// remedy names the failure mode, what helps, and who has that.
func remedy(f explore.Failure) []string {
	mode, ok := modeOf(f)
	if !ok {
		return []string{"this is none of the failure modes that have a name"}
	}
	return []string{mode.ID + ": " + mode.Name, fmt.Sprintf("cure: %s (%s)", mode.Cure, mode.In)}
}

// modeOf is the failure mode that a failure is of, if it is one with a name.
func modeOf(f explore.Failure) (check.Mode, bool) {
	i := slices.IndexFunc(check.Modes, func(m check.Mode) bool { return m.ID == f.Mode })
	if i < 0 {
		return check.Mode{}, false
	}
	return check.Modes[i], true
}

// contradiction is what was promised, and what came of it.
func contradiction(f explore.Failure) string {
	promise, _, _ := catalog.FindProperty(f.Property)
	return fmt.Sprintf("Promised: %s. But %s.", promise.About, f.Why)
}

// stepTable has one column an actor, and one row a step.
func stepTable(actors []schedule.Actor, moments []explore.Moment) table {
	t := table{Headings: []heading{{Left: true}, {Name: "step"}, {Name: "time"}}}
	for _, a := range actors {
		t.Headings = append(t.Headings, heading{Name: fmt.Sprintf("%s (instance %d)", a.Name, a.Instance), Left: true, least: actorLeast})
	}
	for _, name := range []string{"in the stores", "believes", "holds"} {
		t.Headings = append(t.Headings, heading{Name: name, Left: true})
	}
	var before explore.Moment
	for i, m := range moments {
		t.Rows = append(t.Rows, stepRow(i+1, m, before, actors))
		before = m
	}
	return t
}

// stepRow is the nth step. What happens to no actor in particular runs on across
// the columns of all of them; the stores are shown where they have changed.
func stepRow(n int, m, before explore.Moment, actors []schedule.Actor) []field {
	row := []field{{}, {Text: strconv.Itoa(n)}, {Text: m.At.String()}}
	if m.Broken && !before.Broken {
		row[0].Text = lostMark
	}
	did := make([]field, len(actors))
	if i := slices.IndexFunc(actors, func(a schedule.Actor) bool { return a.Name == m.Step.Actor }); i >= 0 {
		did[i].Text = wrap(happened(m), actorMost)
	} else {
		did[0] = field{Text: wrap(happened(m), len(actors)*(actorLeast+2)-2), runsOn: true}
	}
	var store []string
	if n == 1 || !slices.Equal(m.Store, before.Store) {
		for _, text := range orNothing(m.Store) {
			store = append(store, wrap(text, storeMost))
		}
	}
	return append(append(row, did...), field{Text: strings.Join(store, "\n")},
		field{Text: namesOrDash(m.Believes)}, field{Text: namesOrDash(m.Holds)})
}

// happened says what a step was.
func happened(m explore.Moment) string {
	text := m.Did
	if words, ok := deeds[m.Step.Kind]; ok {
		text = strings.TrimSpace(fmt.Sprintf("%s %s", words(m.Step), m.Did))
	}
	if m.Skipped {
		text = "(cannot be: " + m.Step.String() + ")"
	}
	return text
}

// deeds says of the steps that are no call, or not just one, what they do.
var deeds = map[schedule.Kind]func(schedule.Step) string{
	schedule.Begins:       func(schedule.Step) string { return "wants the order" },
	schedule.ReplyLost:    func(schedule.Step) string { return "no reply arrives:" },
	schedule.ReplyLate:    func(schedule.Step) string { return "the reply is late:" },
	schedule.GivenUp:      func(s schedule.Step) string { return "gives up, while on its way is " + s.CallName() },
	schedule.Hears:        func(s schedule.Step) string { return "hears at last of " + s.CallName() },
	schedule.ArrivesLate:  func(s schedule.Step) string { return "there arrives, given up, " + s.CallName() },
	schedule.Paused:       func(schedule.Step) string { return "is paused" },
	schedule.Resumes:      func(schedule.Step) string { return "goes on" },
	schedule.Dies:         func(schedule.Step) string { return "dies" },
	schedule.Cancelled:    func(schedule.Step) string { return "is cancelled: the client hangs up" },
	schedule.InstanceDies: func(s schedule.Step) string { return fmt.Sprintf("instance %d dies", s.Instance) },
	schedule.ClientClock: func(s schedule.Step) string {
		return fmt.Sprintf("the clock of instance %d jumps by %s", s.Instance, s.Duration)
	},
	schedule.Passes:    func(s schedule.Step) string { return s.Duration.String() + " pass" },
	schedule.NextTimer: func(schedule.Step) string { return "time passes until somebody has something to do" },
	schedule.LeaseEnd:  func(schedule.Step) string { return "time passes until a lease has run out" },
	schedule.Restarts:  func(s schedule.Step) string { return s.Target + " is started again, empty" },
	schedule.Down:      func(s schedule.Step) string { return s.Target + " cannot be reached" },
	schedule.Up:        func(s schedule.Step) string { return s.Target + " can be reached again" },
	schedule.NodeClock: func(s schedule.Step) string { return fmt.Sprintf("the clock of %s jumps by %s", s.Target, s.Duration) },
}

func orNothing(store []string) []string {
	if len(store) == 0 {
		return []string{"nothing"}
	}
	return store
}

func namesOrDash(names []string) string { return orDash(strings.Join(names, " ")) }
