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
	return textTemplates.ExecuteTemplate(w, "mermaid", mermaidView{f})
}

// mermaidView provides the data of the template mermaid.tmpl.
type mermaidView struct{ explore.Failure }

// Title names the strategy and the failure mode, or the property if the failure mode is unknown.
func (v mermaidView) Title() string {
	if mode, ok := catalog.FindMode(v.Mode); ok {
		return fmt.Sprintf("%s, %s: %s", v.Schedule.Strategy, mode.ID, mode.Name)
	}
	return fmt.Sprintf("%s, %s", v.Schedule.Strategy, v.Property)
}

// Servers returns the schedule's servers, with the database last.
func (v mermaidView) Servers() []string {
	return append(slices.Clone(v.Schedule.Nodes), schedule.DB)
}

// Server returns the short name of a server in the diagram.
func (v mermaidView) Server(name string) string {
	return fmt.Sprintf("S%d", slices.Index(v.Servers(), name)+1)
}

// Everyone returns the names of the first and last actor, because a note over these two spans all
// actors.
func (v mermaidView) Everyone() string {
	actors := v.Schedule.Actors
	return strings.Join(slices.Compact([]string{actors[0].Name, actors[len(actors)-1].Name}), ",")
}

// arrows contains the Mermaid arrow for each special kind of call. The arrow ends with a cross if
// the reply was lost.
var arrows = map[schedule.Kind]string{
	schedule.ReplyLost:   "-x",
	schedule.RequestLost: "-x",
	schedule.ReplyLate:   "-)",
	schedule.GivenUp:     "-)",
	schedule.ArrivesLate: "-)",
}

// Place returns the arrow or the note to which the text of a step belongs.
func (v mermaidView) Place(m explore.Moment) string {
	server := v.Server(m.Step.Target)
	switch {
	case m.Step.Kind == schedule.Hears && !m.Skipped:
		return server + "-->>" + m.Step.Actor
	case m.Step.Kind.IsCall() && !m.Skipped:
		return m.Step.Actor + cmp.Or(arrows[m.Step.Kind], "->>") + server
	case m.Step.Actor != "":
		return "Note over " + m.Step.Actor
	case m.Step.Target != "":
		return "Note over " + server
	default:
		return "Note over " + v.Everyone()
	}
}

// mermaidText escapes special characters in Mermaid and HTML.
var mermaidText = strings.NewReplacer("#", "#35;", ";", "#59;", "%", "#37;", "<", "#lt;", ">", "#gt;", "\n", " ").Replace
