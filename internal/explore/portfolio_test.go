package explore_test

import (
	"context"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/explore"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
)

// portfolioOf returns the settings of a portfolio. They limit the number of schedules instead of the time, so
// that the result does not depend on the machine.
func portfolioOf(schedules int, strategies ...string) explore.Config {
	return explore.Config{
		Strategies: strategies, Actors: 2, Preemptions: 1, FaultCount: 1, OnLost: grab.Abort,
		Own:    []lock.Strategy{{Name: "library", Excludes: catalog.Global, Unexplorable: "it has sockets of its own"}},
		Faults: []catalog.Fault{catalog.Slow, catalog.Crash}, Schedules: schedules,
	}
}

// parts runs the portfolio of searches for each strategy.
func parts(t *testing.T, schedules int, strategies ...string) []explore.Result {
	results, err := explore.SearchPortfolio(t.Context(), bubbleOf(t), portfolioOf(schedules, strategies...), nil)
	if err != nil {
		t.Fatal(err)
	}
	return results
}

// TestPortfolio checks which part of a portfolio finds certain failures. No part may report a property
// that an earlier part has already broken.
func TestPortfolio(t *testing.T) {
	results := parts(t, 30, "library", "setnx-blind-retry")
	if os.Getenv("GRABLAB_PROVE") == "1" {
		results = slices.Concat(results, parts(t, 100, "setnx-del"), parts(t, 60, "setnx-fenced"), parts(t, 150, "watchdog-fenced")) // with fewer schedules, the verdict would be unknown
	}
	for _, r := range results {
		seen := map[string]string{}
		for _, of := range append([]explore.Result{r}, r.Parts...) {
			for _, f := range of.Failures {
				if first, ok := seen[f.Property]; ok {
					t.Errorf("%s: %q breaks %s, and so does %q", r.Strategy, of.Part, f.Property, first)
				}
				seen[f.Property] = of.Part
				if f.Unexpected {
					t.Errorf("%s: %q: %s is not claimed: %v", r.Strategy, of.Part, f.Property, f.Schedule.Steps)
				}
			}
		}
		switch part, broken := seen[catalog.NoResidue]; r.Strategy {
		case "library":
			if r.Verdict != catalog.Unknown || r.Reason == "" || len(r.Parts) > 0 {
				t.Errorf("%s: %s, %q, %d parts", r.Strategy, r.Verdict, r.Reason, len(r.Parts))
			}
		case "watchdog-fenced":
			maps.DeleteFunc(seen, func(_, part string) bool { return part == "servers that forget or restart" }) // such a server forgets the lock
			if len(seen) > 0 || r.Verdict != catalog.Safe {
				t.Errorf("%s: verdict %s, broken properties %v", r.Strategy, r.Verdict, seen)
			}
		default:
			if part := seen[catalog.LeaseExclusive]; r.Strategy == "setnx-del" && part != afterDelete {
				t.Errorf("%s: lease-exclusive is broken in %q", r.Strategy, part)
			}
			if !broken || part != "calls sent twice" {
				t.Errorf("%s: no-residue is broken in %q: %v", r.Strategy, part, broken)
			}
		}
	}
}

// afterDelete is the first part of a portfolio that shows that a driver can delete another driver's lock. That
// becomes visible only if there is a third driver.
const afterDelete = "three drivers and a pause"

// TestThirdDriver checks that the part afterDelete finds a failure that no earlier part finds. TestPortfolio
// checks the same in make prove with the whole portfolio.
func TestThirdDriver(t *testing.T) {
	cfg := portfolioOf(100, "setnx-del")
	all := append([]explore.Part{{Config: cfg}}, explore.Portfolio(cfg)...)
	last := slices.IndexFunc(all, func(p explore.Part) bool { return p.Name == afterDelete })
	if last < 1 {
		t.Fatalf("no part has the name %q", afterDelete)
	}
	for i, p := range all[:last+1] {
		results, err := explore.Search(t.Context(), bubbleOf(t), p.Config, nil)
		if err != nil {
			t.Fatal(err)
		}
		found := slices.ContainsFunc(results[0].Failures, func(f explore.Failure) bool { return f.Property == catalog.LeaseExclusive })
		if found != (i == last) {
			t.Errorf("%q breaks lease-exclusive: %v", p.Name, found)
		}
	}
}

// TestPortfolioLimit checks that the time limit applies to all parts together.
func TestPortfolioLimit(t *testing.T) {
	cfg := explore.Config{
		Strategies: []string{"watchdog-fenced"}, Actors: 2, Preemptions: 2, FaultCount: 1, Seconds: 3,
		Faults: []catalog.Fault{catalog.Slow, catalog.Pause, catalog.Crash},
	}
	var searched []string
	results, err := explore.SearchPortfolio(t.Context(), bubbleOf(t), cfg, func(r explore.Result) {
		if !slices.Contains(searched, r.Part) {
			searched = append(searched, r.Part)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	total := results[0].Elapsed
	for _, p := range results[0].Parts {
		total += p.Elapsed
	}
	if total.Seconds() > 2*cfg.Seconds { // a search finishes the schedule that it has begun
		t.Errorf("all parts took %s, but the limit is %v s", total, cfg.Seconds)
	}
	if want := 1 + len(explore.Portfolio(cfg)); len(results[0].Parts)+1 != want {
		t.Errorf("%d searches, want %d", len(results[0].Parts)+1, want)
	}
	if !slices.Contains(searched, "") || len(searched) < 3 {
		t.Errorf("progress was reported only for the parts %q", searched)
	}
}

// TestCutOff checks that a search that runs out of time has the verdict unknown and contradicts no claim.
// The same applies to the first search of a portfolio.
func TestCutOff(t *testing.T) {
	cfg := explore.Config{Strategies: []string{"setnx-fenced"}, Preemptions: 2, FaultCount: 1, Seconds: 0.01, Faults: []catalog.Fault{catalog.Slow}}
	for name, search := range map[string]func(context.Context, explore.Bubble, explore.Config, explore.Watch) ([]explore.Result, error){
		"one search": explore.Search, "a portfolio": explore.SearchPortfolio,
	} {
		results, err := search(t.Context(), bubbleOf(t), cfg, nil)
		if err != nil {
			t.Fatal(err)
		}
		if r := results[0]; r.Verdict != catalog.Unknown || r.Reason != explore.TimeOver || r.Expected != "" {
			t.Errorf("%s: verdict %s, because %q, expected %q", name, r.Verdict, r.Reason, r.Expected)
		}
	}
}

// TestSlowStart checks that the time limit includes the start of the workers.
func TestSlowStart(t *testing.T) {
	slow := func(f func()) {
		time.Sleep(100 * time.Millisecond)
		bubbleOf(t)(f)
	}
	results, err := explore.Search(t.Context(), slow, explore.Config{Strategies: []string{"setnx"}, Seconds: 0.05}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r := results[0]; r.Schedules != 0 || r.Reason != explore.TimeOver {
		t.Errorf("%d schedules, because %q; want none, because the start alone takes longer than the limit", r.Schedules, r.Reason)
	}
}
