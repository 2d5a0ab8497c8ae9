package workshop

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"grablab/internal/catalog"
	"grablab/internal/explore"
	"grablab/internal/explore/schedule"
	"grablab/internal/measure/experiment"
)

// errMeasure means that a command did not produce a value that the exercise needs.
var errMeasure = errors.New("workshop: not measured")

// cell returns a function that stores a strategy's test results under a fault. The name of each
// stored value begins with prefix.
func cell(prefix, strategy, fault string) measure {
	return func(o Outcome, f Facts) error {
		if o.Run == nil {
			return fmt.Errorf("%w: there is no run of this exercise: run its commands again", errMeasure)
		}
		i := slices.IndexFunc(o.Run.Cells, func(c experiment.Cell) bool { return c.Strategy == strategy && string(c.Fault) == fault })
		if i < 0 {
			return fmt.Errorf("%w: the run of this exercise has no result for %s under %s: run its commands again", errMeasure, strategy, fault)
		}
		noteCell(prefix, o.Run.Cells[i], f)
		return nil
	}
}

func noteCell(prefix string, c experiment.Cell, f Facts) {
	set := func(name, value string) { f[prefix+"."+name] = value }
	set("verdict", string(c.Verdict))
	for name, n := range map[string]*int{"grabs": c.Grabs, "double": c.DoubleGrabs, "overlaps": c.Overlaps, "near_misses": c.NearMisses} {
		if n != nil {
			set(name, strconv.Itoa(*n))
		}
	}
	if c.RedisCommandsPerRequest != nil {
		set("commands", strconv.FormatFloat(*c.RedisCommandsPerRequest, 'f', 2, 64))
	}
	if c.LatencySent != nil {
		set("waited", strconv.FormatFloat(c.LatencySent.Max, 'f', 0, 64))
	}
	set("unsafe", catalog.Join(catalog.Filter(c.Points, func(p experiment.Point) bool { return p.Verdict == catalog.Unsafe }), "; ", func(p experiment.Point) string { return p.Point }))
}

// threeCells returns functions that store the results under a fault of the strategies in exercise 9.
func threeCells(fault string) []measure {
	return catalog.Map(nineStrategies, func(strategy string) measure { return cell(fault+"."+strategy, strategy, fault) })
}

// nineStrategies lists the strategies in exercise 9.
var nineStrategies = []string{"watchdog", "redlock", "redlock-miswired"}

// explored returns a strategy's search result, and its first failure, if any. An empty strategy
// selects the first search result.
func explored(o Outcome, strategy string) (r explore.Result, first *explore.Failure, err error) {
	i := slices.IndexFunc(o.Explored, func(r explore.Result) bool { return strategy == "" || r.Strategy == strategy })
	if i < 0 {
		return r, nil, fmt.Errorf("%w: this exercise has no recorded search of %s: run the commands of the exercise again", errMeasure, cmp.Or(strategy, "a strategy"))
	}
	r = o.Explored[i]
	if len(r.Failures) > 0 {
		first = &r.Failures[0]
	}
	return r, first, nil
}

// search returns a function that stores what a search has found for a strategy. The name of each
// stored value begins with prefix.
func search(prefix, strategy string) measure {
	return func(o Outcome, f Facts) error {
		r, first, err := explored(o, strategy)
		if err != nil {
			return err
		}
		set := func(name, value string) { f[prefix+"."+name] = value }
		set("verdict", string(r.Verdict))
		set("complete", strconv.FormatBool(r.Complete))
		set("breaks", strconv.Itoa(len(r.Failures)))
		if first == nil {
			return nil
		}
		set("steps", strconv.Itoa(len(first.Schedule.Steps)))
		set("mode", first.Mode)
		set("schedule", first.Schedule.String())
		set("file", filepath.Join(f["dir"], r.Strategy+"-"+first.Property+".txt"))
		for i, s := range first.Schedule.Steps {
			switch {
			case s.Kind == schedule.Paused:
				set("asked", strconv.Itoa(i-1))
				set("before", strconv.Itoa(i)) // the step after which an actor is paused
				set("paused", strconv.Itoa(i+1))
			case s.Kind == schedule.Call && s.Phase == "release":
				set("released", strconv.Itoa(i+1))
			}
		}
		return nil
	}
}

// rows returns a function that counts the winners in a replayed schedule.
func rows(prefix string) measure {
	return func(o Outcome, f Facts) error {
		r, _, err := explored(o, "")
		if err != nil {
			return err
		}
		if len(r.Moments) == 0 {
			return fmt.Errorf("%w: the replay of the schedule executed no step: check the file", errMeasure)
		}
		f[prefix+".rows"] = strconv.Itoa(len(r.Moments[len(r.Moments)-1].Winners))
		return nil
	}
}

// replayed stores what happened when the user's schedule was replayed.
func replayed(o Outcome, f Facts) error {
	r, first, err := explored(o, "")
	if err != nil {
		return err
	}
	f["handed.breaks"], f["handed.skipped"], f["handed.refused"], f["handed.key"] = "", "", "", ""
	if first != nil {
		f["handed.breaks"] = first.Property
	}
	for _, m := range r.Moments {
		switch {
		case m.Skipped && f["handed.skipped"] == "":
			f["handed.skipped"] = m.Step.String()
		case m.Step.Kind == schedule.Dies:
			f["handed.key"] = strconv.FormatBool(slices.ContainsFunc(m.Store, func(s string) bool { return strings.HasPrefix(s, "redis: grab:") }))
		}
		if strings.Contains(m.Did, "refused, stale") {
			f["handed.refused"] = m.Step.Actor
		}
	}
	return nil
}

// judgeOwnLock stores which properties the user's lock violates, with and without faults.
func judgeOwnLock(o Outcome, f Facts) error {
	r, first, err := explored(o, "")
	if err != nil {
		return err
	}
	var faultless, faulted []string
	for _, failure := range r.Failures {
		if failure.Kind == "" {
			faultless = append(faultless, failure.Property)
		} else {
			faulted = append(faulted, failure.Property)
		}
	}
	f["own.complete"] = strconv.FormatBool(r.Complete)
	f["own.reason"] = r.Reason
	f["own.faultless"], f["own.faulted"] = strings.Join(catalog.Distinct(faultless), " "), strings.Join(catalog.Distinct(faulted), " ")
	f["own.mode"], f["own.steps"], f["own.property"] = "", "", ""
	if first != nil {
		f["own.mode"], f["own.steps"], f["own.property"] = cmp.Or(first.Mode, "-"), strconv.Itoa(len(first.Schedule.Steps)), first.Property
	}
	f["own.excludes"] = string(o.Excludes)
	return nil
}
