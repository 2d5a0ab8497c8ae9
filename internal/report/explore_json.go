package report

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"io"

	"grablab/internal/catalog"
	"grablab/internal/explore"
	"grablab/internal/order"
)

// ExploreSchema is the JSON Schema (draft 2020-12) of what ExploredJSON writes.
//
//go:embed explore.schema.json
var ExploreSchema string

// exploreSchema is the version of the format.
const exploreSchema = 1

type explorationJSON struct {
	Schema     int            `json:"schema"`
	Bounds     boundsJSON     `json:"bounds"`
	Strategies []exploredJSON `json:"strategies"`
}

type boundsJSON struct {
	Actors      int      `json:"actors"`
	Preemptions int      `json:"preemptions"`
	Faults      []string `json:"faults"`
	FaultCount  int      `json:"fault_count"`
}

// exploredJSON is one strategy. Steps, FailureMode, Property and Schedule are
// those of its shortest failure.
type exploredJSON struct {
	Strategy    string          `json:"strategy"`
	Guard       order.Guard     `json:"guard"`
	Verdict     catalog.Verdict `json:"verdict"`
	Expected    *string         `json:"expected"`
	Reason      string          `json:"reason"`
	Complete    bool            `json:"complete"`
	Schedules   int             `json:"schedules"`
	States      int             `json:"states"`
	Seconds     *float64        `json:"seconds"` // null: not to be shown
	Steps       *int            `json:"steps"`
	FailureMode *string         `json:"failure_mode"`
	Property    *string         `json:"property"`
	Schedule    []string        `json:"schedule"`
	Levels      []levelJSON     `json:"levels"`
	Failures    []failureJSON   `json:"failures"`
}

type levelJSON struct {
	Preemptions int `json:"preemptions"`
	Faults      int `json:"faults"`
	Schedules   int `json:"schedules"`
	Waiting     int `json:"waiting"`
}

// failureJSON is the shortest failure of one property. Text is the schedule as
// a file for -replay.
type failureJSON struct {
	Property    string       `json:"property"`
	FailureMode *string      `json:"failure_mode"`
	Why         string       `json:"why"`
	Text        string       `json:"text"`
	Moments     []momentJSON `json:"moments"`
}

type momentJSON struct {
	Step     string   `json:"step"`
	AtNS     int64    `json:"at_ns"` // virtual time
	Actor    string   `json:"actor"`
	Did      string   `json:"did"`
	Stores   []string `json:"stores"`
	Believes []string `json:"believes"`
	Holds    []string `json:"holds"`
	Broken   bool     `json:"broken"`
}

// ExploredJSON writes the exploration for programs.
func ExploredJSON(w io.Writer, e Exploration) error {
	doc := explorationJSON{
		Schema:     exploreSchema,
		Bounds:     boundsJSON{e.Config.Actors, e.Config.Preemptions, list(e.Config.Faults), e.Config.FaultCount},
		Strategies: []exploredJSON{},
	}
	for _, r := range e.Results {
		doc.Strategies = append(doc.Strategies, e.resultJSON(r))
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(doc); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

func (e Exploration) resultJSON(r explore.Result) exploredJSON {
	doc := exploredJSON{
		Strategy: r.Strategy, Guard: r.Guard, Verdict: r.Verdict, Expected: orNull(string(r.Expected)), Reason: r.Reason,
		Complete: r.Complete, Schedules: r.Schedules, States: r.States,
		Schedule: []string{}, Levels: []levelJSON{}, Failures: []failureJSON{},
	}
	if e.Timing {
		seconds := r.Elapsed.Seconds()
		doc.Seconds = &seconds
	}
	if len(r.Failures) > 0 {
		shortest := r.Failures[0]
		steps := len(shortest.Schedule.Steps)
		doc.Steps, doc.FailureMode, doc.Property = &steps, orNull(shortest.Mode), &shortest.Property
		for _, step := range shortest.Schedule.Steps {
			doc.Schedule = append(doc.Schedule, step.String())
		}
	}
	for _, l := range r.Levels {
		doc.Levels = append(doc.Levels, levelJSON{l.Preemptions, l.Faults, l.Run, l.Waiting})
	}
	for _, f := range r.Failures {
		doc.Failures = append(doc.Failures, failureToJSON(f))
	}
	return doc
}

func failureToJSON(f explore.Failure) failureJSON {
	doc := failureJSON{f.Property, orNull(f.Mode), f.Why, f.Schedule.String(), []momentJSON{}}
	for _, m := range f.Moments {
		doc.Moments = append(doc.Moments, momentJSON{
			m.Step.String(), m.At.Nanoseconds(), m.Step.Actor, m.Did, list(m.Store), list(m.Believes), list(m.Holds), m.Broken,
		})
	}
	return doc
}

// list is never null.
func list[S ~string](l []S) []string {
	texts := make([]string, len(l))
	for i, s := range l {
		texts[i] = string(s)
	}
	return texts
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
