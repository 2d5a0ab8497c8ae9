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
	maxStackLines = 40
)

const lostMark = "▶"

// also describes in one line a failure that is not the strategy's most important one. If the
// property can fail in several ways, the line says which way.
func (e Exploration) also(f explore.Failure, replayed bool) string {
	text := "also " + f.Property
	if f.Kind != "" {
		text += fmt.Sprintf(" by %s, in %s", f.Kind, catalog.Plural(len(f.Schedule.Steps), "step", "steps"))
	}
	text += ": " + f.Why
	if !replayed {
		text += "; " + e.Replay(f)
	}
	return text
}

// crashTable returns a table of the steps that led to the process's crash, with the stack trace as
// the last row.
func crashTable(f explore.Failure) table {
	t := table{Headings: []heading{{Name: "step"}, {Name: "what happened", Left: true}}}
	for i, s := range f.Schedule.Steps {
		t.Rows = append(t.Rows, []field{{Text: strconv.Itoa(i + 1)}, {Text: s.String()}})
	}
	if len(f.Schedule.Steps) == 0 {
		t.Rows = append(t.Rows, []field{{Text: "-"}, {Text: "this happened before the search, when the program took the lock without competitors, and closed it while it was held or awaited"}})
	}
	if f.Stack != "" {
		lines := strings.Split(f.Stack, "\n")
		if left := len(lines) - maxStackLines; left > 0 {
			lines = append(lines[:maxStackLines], fmt.Sprintf("and %s more: use -format json to see all", catalog.Plural(left, "line", "lines")))
		}
		t.Rows = append(t.Rows, []field{{}, {Text: strings.Join(lines, "\n")}})
	}
	return t
}

// remedy returns a failure's cause and cure. If the cause is unknown, it says where to look for
// it.
func remedy(f explore.Failure) []string {
	mode, ok := catalog.FindMode(f.Mode)
	if !ok {
		return []string{"No known failure mode explains this failure: look for the cause in the step marked ▶ and the steps before it."}
	}
	return []string{mode.ID + ": " + mode.Name, fmt.Sprintf("cure: %s (%s)", mode.Cure, mode.In)}
}

// contradiction says what the lock promised and what happened instead.
func contradiction(f explore.Failure) string {
	promise, _ := catalog.FindProperty(f.Property)
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
