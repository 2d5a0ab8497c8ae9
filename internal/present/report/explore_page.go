package report

import (
	"fmt"
	"slices"

	"grablab/internal/catalog"
	"grablab/internal/explore"
	"grablab/internal/present/diagram"
)

// document returns a search report: how much of the search is complete, and each failure's steps.
// Unless everyFailure is true, it shows only the steps of each strategy's most important failure.
func (e Exploration) document(everyFailure bool) document {
	d := document{Title: "Schedules", Answer: e.answer()}
	if !slices.ContainsFunc(e.Results, replayed) {
		d.Head = append(e.bounds(), catalog.Footnote)
		d.add(section{Table: e.table()}, section{Lines: e.searched()})
	}
	for _, r := range e.withParts() {
		if replayed(r) && len(r.Failures) == 0 {
			title := fmt.Sprintf("%s breaks no property in this schedule", r.Strategy)
			drawn := diagram.OfSchedule(title, r.Actors, e.Config.Stock, r.Moments, describeMoment)
			d.add(section{Title: title, Table: stepTable(r.Actors, r.Moments), Drawing: &drawn})
		}
		for i, f := range r.Failures {
			if i == 0 || everyFailure {
				d.add(e.failure(f))
				continue
			}
			last := &d.Sections[len(d.Sections)-1]
			last.After = append(last.After, e.also(f, replayed(r)))
		}
	}
	return d
}

// strategyName returns a strategy's name as it appears in a sentence.
func strategyName(name string) string {
	if name == "none" {
		return "none (no lock)"
	}
	return name
}

// answer sums up the search in a few sentences.
func (e Exploration) answer() string {
	var grouped groupedTexts
	for _, r := range e.Results {
		switch {
		case len(r.Failures) > 0:
			grouped.add("", headline(r.Failures[0])+".")
		case replayed(r):
			grouped.add(strategyName(r.Strategy), ": this schedule breaks no property.")
		case r.Verdict == catalog.Safe && r.Complete:
			grouped.add(strategyName(r.Strategy), ": all schedules within these bounds were searched, and none of them breaks a property.")
		default: // an incomplete search does not prove the strategy safe
			grouped.add(strategyName(r.Strategy), ": no schedule was found that breaks a property, but not all of them were searched.")
		}
	}
	return joined(grouped.lines("", ""))
}

// Breaks returns a phrase for what happens if a property is violated, such as "leaves an order
// stuck".
func Breaks(property string) string {
	if property == catalog.StuckOrder {
		return "leaves an order stuck"
	}
	return "breaks " + property
}

// headline says in a few words what went wrong.
func headline(f explore.Failure) string {
	if f.Property == catalog.Survives {
		return strategyName(f.Schedule.Strategy) + " takes its process down"
	}
	return fmt.Sprintf("%s %s in %s", strategyName(f.Schedule.Strategy), Breaks(f.Property), catalog.Plural(len(f.Schedule.Steps), "step", "steps"))
}

// failure shows a failure's steps, its cause and cure, and the command that replays it.
func (e Exploration) failure(f explore.Failure) section {
	s := section{Title: headline(f)}
	if f.Property == catalog.Survives {
		s.Lines, s.Table = []string{f.Why}, crashTable(f)
	} else {
		s.Lines, s.Table = append([]string{contradiction(f)}, remedy(f)...), stepTable(f.Schedule.Actors, f.Moments)
	}
	if len(f.Schedule.Steps) > 0 {
		s.After = []string{"again: " + e.Replay(f)}
	}
	if len(f.Moments) > 0 {
		s.Drawing = new(diagram.OfSchedule(s.Title, f.Schedule.Actors, f.Schedule.Stock, f.Moments, describeMoment))
	}
	return s
}

// Found contains search results for the web page.
type Found struct {
	Answer   string      `json:"answer"`
	Failures []FoundPath `json:"failures"` // the most important failure first
	Searched []string    `json:"searched"`
}

// FoundPath describes one failure that the search found.
type FoundPath struct {
	Title   string           `json:"title"`
	Lines   []string         `json:"lines"`
	Drawing *diagram.Diagram `json:"drawing,omitempty"`
}

// Found returns the search results for the web page.
func (e Exploration) Found() Found {
	f := Found{Answer: e.answer(), Failures: []FoundPath{}, Searched: append(e.bounds(), e.searched()...)}
	for _, r := range e.Results {
		for _, failure := range r.Failures {
			s := e.failure(failure)
			f.Failures = append(f.Failures, FoundPath{s.Title, append(s.Lines, s.After...), s.Drawing})
		}
	}
	return f
}
