package report

import (
	"io"

	"grablab/internal/catalog"
	"grablab/internal/explore"
	"grablab/internal/explore/schedule"
	"grablab/internal/order"
)

// exploreSchema is the version of the JSON format that ExploredJSON writes.
const exploreSchema = 1

type explorationJSON struct {
	Schema     int            `json:"schema"`
	Bounds     boundsJSON     `json:"bounds"`
	Strategies []exploredJSON `json:"strategies"`
}

type boundsJSON struct {
	Actors      int      `json:"actors"`
	Stock       int      `json:"stock,omitempty"` // 0 means 1
	Preemptions int      `json:"preemptions"`
	Faults      []string `json:"faults"`
	FaultCount  int      `json:"fault_count"`
}

// exploredJSON contains one strategy's search result. Steps, FailureMode, Property and Schedule
// describe its first failure.
type exploredJSON struct {
	Strategy    string          `json:"strategy"`
	Guard       order.Guard     `json:"guard"`
	Verdict     catalog.Verdict `json:"verdict"`
	Expected    *string         `json:"expected"`
	Reason      string          `json:"reason"`
	Complete    bool            `json:"complete"`
	Schedules   int             `json:"schedules"`
	States      int             `json:"states"`
	Seconds     *float64        `json:"seconds"` // null if the elapsed time is not shown
	Steps       *int            `json:"steps"`
	FailureMode *string         `json:"failure_mode"`
	Property    *string         `json:"property"`
	Schedule    []string        `json:"schedule"`
	Levels      []explore.Level `json:"levels"`
	Failures    []failureJSON   `json:"failures"`
	Parts       []partJSON      `json:"parts,omitempty"`
}

// partJSON contains the result from one part of the search. It omits the failure if an earlier part
// has found a failure of the same property.
type partJSON struct {
	Name      string          `json:"name"`
	Bounds    string          `json:"bounds"`
	Verdict   catalog.Verdict `json:"verdict"`
	Reason    string          `json:"reason"`
	Complete  bool            `json:"complete"`
	Schedules int             `json:"schedules"`
	States    int             `json:"states"`
	Failures  []failureJSON   `json:"failures"`
}

// failureJSON describes a failure. Shortest is true if no shorter schedule fails. Text is the
// schedule in the file format that -replay reads.
type failureJSON struct {
	Property    string       `json:"property"`
	FailureMode *string      `json:"failure_mode"`
	Why         string       `json:"why"`
	Shortest    bool         `json:"shortest"`
	Unexpected  bool         `json:"unexpected"` // whether this is not a known failure of the strategy
	Stack       string       `json:"stack"`
	Text        string       `json:"text"`
	Moments     []momentJSON `json:"moments"`
}

type momentJSON struct {
	Step     string   `json:"step"`
	AtNS     int64    `json:"at_ns"` // virtual time since the start of the schedule
	Actor    string   `json:"actor"`
	Did      string   `json:"did"`
	Stores   []string `json:"stores"`
	Believes []string `json:"believes"`
	Holds    []string `json:"holds"`
	Broken   bool     `json:"broken"`
}

// ExploredJSON writes the search results as JSON.
func ExploredJSON(w io.Writer, e Exploration) error {
	doc := explorationJSON{
		Schema:     exploreSchema,
		Bounds:     boundsJSON{e.Config.Actors, 0, e.Config.Preemptions, list(e.Config.Faults), e.Config.FaultCount},
		Strategies: catalog.Map(e.Results, e.resultJSON),
	}
	if e.Config.Stock > 1 {
		doc.Bounds.Stock = e.Config.Stock
	}
	return encode(w, doc)
}

// resultJSON returns the JSON form of one strategy's result.
func (e Exploration) resultJSON(r explore.Result) exploredJSON {
	doc := exploredJSON{
		Strategy: r.Strategy, Guard: r.Guard, Verdict: r.Verdict, Expected: orNull(string(r.Expected)), Reason: r.Reason,
		Complete: r.Complete, Schedules: r.Schedules, States: r.States,
		Schedule: []string{}, Failures: catalog.Map(r.Failures, failureToJSON),
		Levels: append([]explore.Level{}, r.Levels...),
	}
	for _, p := range r.Parts { // a strategy may lack some of the parts
		limits := catalog.First(e.Parts, func(x explore.Part) bool { return x.Name == p.Part }).Config
		doc.Parts = append(doc.Parts, partJSON{
			p.Part, bounds(limits), p.Verdict, p.Reason, p.Complete, p.Schedules, p.States, catalog.Map(p.Failures, failureToJSON),
		})
	}
	if e.Timing {
		doc.Seconds = new(r.Elapsed.Seconds())
	}
	if len(r.Failures) > 0 {
		shortest := r.Failures[0]
		doc.Steps, doc.FailureMode, doc.Property = new(len(shortest.Schedule.Steps)), orNull(shortest.Mode), &shortest.Property
		doc.Schedule = catalog.Map(shortest.Schedule.Steps, schedule.Step.String)
	}
	return doc
}

func failureToJSON(f explore.Failure) failureJSON {
	return failureJSON{f.Property, orNull(f.Mode), f.Why, f.Shortest, f.Unexpected, f.Stack, f.Schedule.String(), catalog.Map(f.Moments, func(m explore.Moment) momentJSON {
		return momentJSON{m.Step.String(), m.At.Nanoseconds(), m.Step.Actor, m.Did, list(m.Store), list(m.Believes), list(m.Holds), m.Broken}
	})}
}

func list[S ~string](names []S) []string {
	return catalog.Map(names, func(s S) string { return string(s) })
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
