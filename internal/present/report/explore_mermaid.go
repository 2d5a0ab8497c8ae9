package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"grablab/internal/catalog"
	"grablab/internal/explore"
	"grablab/internal/explore/schedule"
)

// Mermaid writes a failure as a Mermaid sequence diagram, with actors on the left and servers on
// the right. Notes show which actors hold the lock and which believe that they do. The step that
// violates the property is red.
func Mermaid(w io.Writer, f explore.Failure) error {
	var b strings.Builder
	s := f.Schedule
	fmt.Fprintf(&b, "sequenceDiagram\n    title %s\n", mermaidText(mermaidTitle(f)))
	for _, a := range s.Actors {
		fmt.Fprintf(&b, "    participant %s as %s (instance %d)\n", a.Name, a.Name, a.Instance)
	}
	for i, server := range serversOf(s) {
		fmt.Fprintf(&b, "    participant S%d as %s\n", i+1, server)
	}
	var before explore.Moment
	for _, m := range f.Moments {
		line := mermaidStep(s, m)
		if m.Broken && !before.Broken {
			line = "rect rgb(255, 215, 215)\n    " + line + "\n    end"
		}
		fmt.Fprintf(&b, "    %s\n", line)
		if !slices.Equal(m.Believes, before.Believes) || !slices.Equal(m.Holds, before.Holds) {
			fmt.Fprintf(&b, "    Note over %s: believes %s, holds %s\n", mermaidActors(s), namesOrDash(m.Believes), namesOrDash(m.Holds))
		}
		before = m
	}
	fmt.Fprintf(&b, "    Note over %s: %s\n", mermaidActors(s), mermaidText(contradiction(f)))
	_, err := io.WriteString(w, b.String())
	return err
}

func mermaidTitle(f explore.Failure) string {
	if mode, ok := catalog.FindMode(f.Mode); ok {
		return fmt.Sprintf("%s, %s: %s", f.Schedule.Strategy, mode.ID, mode.Name)
	}
	return fmt.Sprintf("%s, %s", f.Schedule.Strategy, f.Property)
}

// serversOf returns a schedule's servers, with the database last.
func serversOf(s schedule.Schedule) []string { return append(slices.Clone(s.Nodes), schedule.DB) }

// arrows contains the Mermaid arrow for each special kind of call. The arrow ends with a cross if
// the reply was lost.
var arrows = map[schedule.Kind]string{
	schedule.ReplyLost:   "-x",
	schedule.RequestLost: "-x",
	schedule.ReplyLate:   "-)",
	schedule.GivenUp:     "-)",
	schedule.ArrivesLate: "-)",
}

func mermaidStep(s schedule.Schedule, m explore.Moment) string {
	did := mermaidText(describeMoment(m))
	server := fmt.Sprintf("S%d", slices.Index(serversOf(s), m.Step.Target)+1)
	switch {
	case m.Step.Kind == schedule.Hears && !m.Skipped:
		return fmt.Sprintf("%s-->>%s: %s", server, m.Step.Actor, did)
	case m.Step.Kind.IsCall() && !m.Skipped:
		return fmt.Sprintf("%s%s%s: %s", m.Step.Actor, cmp.Or(arrows[m.Step.Kind], "->>"), server, did)
	case m.Step.Actor != "":
		return fmt.Sprintf("Note over %s: %s", m.Step.Actor, did)
	case m.Step.Target != "":
		return fmt.Sprintf("Note over %s: %s", server, did)
	default:
		return fmt.Sprintf("Note over %s: %s", mermaidActors(s), did)
	}
}

// mermaidActors returns the names of the first and last actor, because a note over these two spans all
// actors.
func mermaidActors(s schedule.Schedule) string {
	first, last := s.Actors[0].Name, s.Actors[len(s.Actors)-1].Name
	if first == last {
		return first
	}
	return first + "," + last
}

// mermaidText escapes special characters in Mermaid and HTML.
var mermaidText = strings.NewReplacer("#", "#35;", ";", "#59;", "%", "#37;", "<", "#lt;", ">", "#gt;", "\n", " ").Replace
