package report

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"grablab/internal/catalog"
	"grablab/internal/explore"
	"grablab/internal/explore/schedule"
)

// With these widths, the table for two actors is 120 characters wide.
const (
	minActorWidth = 18
	maxActorWidth = 28
	maxStoreWidth = 24
	proseWidth    = 110
	maxStackLines = 40
)

const lostMark = "▶"

// failures explains a strategy's most important failure and lists the others. For a replayed
// schedule that did not fail, it only shows the steps.
func (e Exploration) failures(b *strings.Builder, r explore.Result) {
	if len(r.Failures) == 0 && replayed(r) {
		fmt.Fprintf(b, "%s breaks no property in this schedule\n\n", r.Strategy)
		stepTable(r.Actors, r.Moments).text(b, 2)
		fmt.Fprintln(b)
	}
	for i, f := range r.Failures {
		switch {
		case i == 0:
			e.explain(b, f)
		case replayed(r):
			fmt.Fprintf(b, "also %s: %s\n", f.Property, f.Why)
		default:
			fmt.Fprintf(b, "also %s: %s; %s\n", propertyText(f), f.Why, e.Replay(f))
		}
		if i == len(r.Failures)-1 {
			fmt.Fprintln(b)
		}
	}
}

// propertyText names the property that a failure violates. If the property can fail in several
// ways, it also tells which way, and after how many steps.
func propertyText(f explore.Failure) string {
	if f.Kind == "" {
		return f.Property
	}
	return fmt.Sprintf("%s by %s, in %s", f.Property, f.Kind, catalog.Plural(len(f.Schedule.Steps), "step", "steps"))
}

// explain writes a failure's steps, its cause and cure, and the command that replays it.
func (e Exploration) explain(b *strings.Builder, f explore.Failure) {
	if f.Property == catalog.Survives {
		e.explainEnd(b, f)
		return
	}
	fmt.Fprintf(b, "%s %s in %s\n\n", f.Schedule.Strategy, Breaks(f.Property), catalog.Plural(len(f.Schedule.Steps), "step", "steps"))
	stepTable(f.Schedule.Actors, f.Moments).text(b, 2)
	fmt.Fprintf(b, "\n%s the property is broken after this step; believes: the actors who believe that they hold the lock; holds: the actor who holds it according to the servers' clocks\n\n", lostMark)
	for _, text := range append([]string{contradiction(f)}, remedy(f)...) {
		fmt.Fprintln(b, wrap(text, proseWidth))
	}
	fmt.Fprintf(b, "again: %s\n", e.Replay(f))
}

// explainEnd writes the steps that led to the process's crash, and the stack trace.
func (e Exploration) explainEnd(b *strings.Builder, f explore.Failure) {
	fmt.Fprintf(b, "%s takes its process down: %s\n\n", f.Schedule.Strategy, f.Why)
	for i, s := range f.Schedule.Steps {
		fmt.Fprintf(b, "%4d  %s\n", i+1, s)
	}
	if len(f.Schedule.Steps) == 0 {
		fmt.Fprintln(b, "  this happened before the search, when a single driver took the lock to find out how its leases behave")
	}
	if f.Stack != "" {
		lines := strings.Split(f.Stack, "\n")
		shown := lines[:min(len(lines), maxStackLines)]
		fmt.Fprintf(b, "\n  %s\n", strings.Join(shown, "\n  "))
		if left := len(lines) - len(shown); left > 0 {
			fmt.Fprintf(b, "  and %s more: use -format json to see all\n", catalog.Plural(left, "line", "lines"))
		}
	}
	if len(f.Schedule.Steps) > 0 {
		fmt.Fprintf(b, "\nagain: %s\n", e.Replay(f))
	}
}

// remedy returns a failure's cause and cure. If the cause is unknown, it tells where to look for
// it.
func remedy(f explore.Failure) []string {
	mode, ok := catalog.FindMode(f.Mode)
	if !ok {
		return []string{"No known failure mode explains this failure: look for the cause in the step marked ▶ and the steps before it."}
	}
	return []string{mode.ID + ": " + mode.Name, fmt.Sprintf("cure: %s (%s)", mode.Cure, mode.In)}
}

// contradiction tells what the lock promised and what happened instead.
func contradiction(f explore.Failure) string {
	promise, _, _ := catalog.FindProperty(f.Property)
	return fmt.Sprintf("Promised: %s. But %s.", promise.Promise(f.Schedule.Stock), f.Why)
}

// stepTable returns a table with a column for each actor and a row for each step.
func stepTable(actors []schedule.Actor, moments []explore.Moment) table {
	t := table{Headings: []heading{{Left: true}, {Name: "step"}, {Name: "time"}}}
	for _, a := range actors {
		t.Headings = append(t.Headings, heading{Name: fmt.Sprintf("%s (instance %d)", a.Name, a.Instance), Left: true, least: minActorWidth})
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

// stepRow returns the table row for step n. If the step does not belong to an actor, its text spans
// all actors' columns. The servers' state appears only after a change.
func stepRow(n int, m, before explore.Moment, actors []schedule.Actor) []field {
	row := []field{{}, {Text: strconv.Itoa(n)}, {Text: m.At.String()}}
	if m.Broken && !before.Broken {
		row[0].Text = lostMark
	}
	did := make([]field, len(actors))
	if i := slices.IndexFunc(actors, func(a schedule.Actor) bool { return a.Name == m.Step.Actor }); i >= 0 {
		did[i].Text = wrap(describeMoment(m), maxActorWidth)
	} else {
		did[0] = field{Text: wrap(describeMoment(m), len(actors)*(minActorWidth+2)-2), runsOn: true}
	}
	store := ""
	if n == 1 || !slices.Equal(m.Store, before.Store) {
		store = catalog.Join(m.Store, "\n", func(text string) string { return wrap(text, maxStoreWidth) })
	}
	return append(append(row, did...), field{Text: store},
		field{Text: namesOrDash(m.Believes)}, field{Text: namesOrDash(m.Holds)})
}

// describeMoment describes a step in a sentence.
func describeMoment(m explore.Moment) string {
	text := m.Did
	if words, ok := deeds[m.Step.Kind]; ok {
		fill := strings.NewReplacer("CALL", m.Step.CallName(), "TARGET", m.Step.Target,
			"INSTANCE", strconv.Itoa(m.Step.Instance), "DURATION", m.Step.Duration.String())
		text = strings.TrimSpace(fill.Replace(words) + " " + m.Did)
	}
	if m.Skipped {
		text = "(impossible: " + m.Step.String() + ")"
	}
	return text
}

// deeds contains a phrase for each kind of step except ordinary calls. Words in capitals are
// placeholders.
var deeds = map[schedule.Kind]string{
	schedule.Begins:         "wants the order",
	schedule.ReplyLost:      "gets no reply:",
	schedule.RequestLost:    "its request is lost:",
	schedule.SentTwice:      "gets no reply, and its client sends the call again:",
	schedule.ReplyLate:      "has to wait for a late reply:",
	schedule.GivenUp:        "gives up while this call is on its way: CALL",
	schedule.Hears:          "gets the late reply to CALL",
	schedule.ArrivesLate:    "a call arrives after its caller has given it up: CALL",
	schedule.MessageLost:    "its message is lost:",
	schedule.MessageTwice:   "its message arrives twice:",
	schedule.MessageLate:    "its message is late:",
	schedule.MessagesArrive: "delayed messages of TARGET arrive",
	schedule.Paused:         "is paused",
	schedule.Resumes:        "continues",
	schedule.Hangs:          "hangs: its work does not return",
	schedule.Dies:           "dies",
	schedule.Cancelled:      "is cancelled: the client hangs up",
	schedule.InstanceDies:   "instance INSTANCE dies",
	schedule.ClientClock:    "the clock of instance INSTANCE jumps by DURATION",
	schedule.Passes:         "DURATION pass",
	schedule.NextTimer:      "time passes until an actor has something to do",
	schedule.LeaseEnd:       "time passes until a lease expires",
	schedule.Restarts:       "TARGET restarts empty",
	schedule.FailsOver:      "the replica of TARGET takes over without the latest writes",
	schedule.Evicts:         "TARGET runs out of memory and evicts its keys",
	schedule.CutOff:         "instance INSTANCE is cut off from TARGET",
	schedule.Reaches:        "instance INSTANCE reaches TARGET again",
	schedule.Down:           "TARGET cannot be reached",
	schedule.Up:             "TARGET can be reached again",
	schedule.NodeClock:      "the clock of TARGET jumps by DURATION",
}

func namesOrDash(names []string) string { return cmp.Or(strings.Join(names, " "), "-") }
