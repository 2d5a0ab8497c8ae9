package main

import (
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/explore"
	"grablab/internal/explore/schedule"
	"grablab/internal/grab"
	"grablab/internal/present/report"
)

// exploreSettings is a search as it was asked for.
type exploreSettings struct {
	explore.Config
	seed     uint64
	names    []string // of strategies; nil: core, or those of the file
	replay   string
	course   schedule.Schedule // of replay
	file     string
	out      string
	format   string
	noTiming bool
	quiet    bool
	shortest bool
	notes    notes
}

// exploreFormats is what a search can be printed as, the default first.
var exploreFormats = []format[report.Exploration]{
	{"text", report.Explored},
	{"mermaid", firstDiagram},
	{"json", report.ExploredJSON},
	{"html", report.ExploredHTML},
}

func (s *exploreSettings) options() []option {
	return []option{
		{"strategies", "A,B,…", "strategies, also deliberately wrong ones by name; or core, or all, or peers: the libraries", one(&s.names, parseList)},
		{"file", "FILE", "a Go file of package lock, taken in for this call alone: its strategies are explored", one(&s.file, nonEmpty)},
		{"actors", "N", "drivers after the one order", one(&s.Actors, wholeNumber(1, explore.MaxActors))},
		{"instances", "N", "on how many instances they are", one(&s.Instances, wholeNumber(1, explore.MaxInstances))},
		{"preemptions", "P", "how often another may go on although one could", one(&s.Preemptions, wholeNumber(0, explore.MaxPreemptions))},
		{"faults", "A,B,…", "what may go wrong: " + listed(explore.Faults) + "; or none, or all (default " + listed(s.Faults) + ")", one(&s.Faults, s.parseFaults)},
		{"fault-count", "K", "how many of them in one schedule", one(&s.FaultCount, wholeNumber(0, explore.MaxFaultCount))},
		{"property", "A,B,…", "what must hold: " + listed(explore.Properties), one(&s.Properties, s.parseProperties)},
		{"guard", "NAME", "how the winner is written (default: the strategy's own)", one(&s.Guard, parseGuard)},
		{"on-lost", "ACTION", "when a lease is lost: abort, ignore", one(&s.OnLost, parseOnLost)},
		{"ttl", "D", "how long a lock lives without renewal, in virtual time", one(&s.TTL, atLeast(time.Millisecond))},
		{"work", "D", "what a driver does between read and write, in virtual time", one(&s.Work, atLeast(0))},
		{"nodes", "N", "how many nodes a Redlock has", one(&s.Nodes, wholeNumber(explore.DefaultNodes, explore.MaxNodes))},
		{"stock", "N", "units of the order", one(&s.Stock, wholeNumber(1, explore.MaxActors))},
		{"wait", "D", "how long a driver waits for the lock, in virtual time; 0 tries once", one(&s.Wait, atLeast(0))},
		{"shortest", "", "stop where nothing shorter is left to find (the default)", toggle{&s.shortest}},
		{"everything", "", "go on, and show the shortest failure for each combination of faults", toggle{&s.Everything}},
		{"seconds", "S", "time for each strategy", one(&s.Seconds, parseSeconds)},
		{"schedules", "N", "how many are run for each strategy at the most (default: all); two searches are cut at the same one", one(&s.Schedules, wholeNumber(1, math.MaxInt32))},
		{"seed", "N", "nothing is drawn: the same flags search the same schedules whatever it is", one(&s.seed, parseSeed)},
		{"replay", "FILE", "run this schedule, and show its steps; with -strategies, another strategy through it", one(&s.replay, nonEmpty)},
		{"out", "DIR", "where the schedules are written that break something", one(&s.out, nonEmpty)},
		{"format", "NAME", "of standard output: text, mermaid, json, html", one(&s.format, oneOf("text", "mermaid", "json", "html"))},
		{"no-timing", "", "leave out what differs from call to call", toggle{&s.noTiming}},
		{"quiet", "", "no progress", toggle{&s.quiet}},
	}
}

func newExploreSettings() *exploreSettings {
	s := &exploreSettings{format: exploreFormats[0].name, out: filepath.Join(resultsDir, "explore")}
	s.Config = explore.Config{
		Actors: explore.DefaultActors, Preemptions: 2, FaultCount: 1, Seconds: 30,
		TTL: explore.DefaultTTL, Nodes: explore.DefaultNodes, Stock: 1, Instances: explore.MaxInstances, OnLost: grab.Abort,
		Faults: []catalog.Fault{catalog.Slow, catalog.Pause, catalog.Crash}, Properties: explore.Properties,
	}
	return s
}

// parseExplore reads the flags of explore. Its errors wrap errUsage, or flag.ErrHelp.
func parseExplore(args []string) (*exploreSettings, error) {
	s := newExploreSettings()
	given, err := readOptions("explore", s.options(), args)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"actors", "preemptions", "faults", "fault-count", "property", "guard", "on-lost", "ttl", "work", "nodes", "stock", "wait", "shortest", "everything", "seconds", "schedules", "seed", "out"} {
		if s.replay != "" && given[name] {
			return nil, fmt.Errorf("%w: -%s cannot be combined with -replay, whose file says what happens", errUsage, name)
		}
	}
	if s.shortest && s.Everything {
		return nil, fmt.Errorf("%w: -shortest stops where -everything goes on: give one of them", errUsage)
	}
	return s, nil
}

// choose finds the strategies that were named; those of -file have been taken in.
func (s *exploreSettings) choose() error {
	names := s.names
	if names == nil {
		names = core
	}
	chosen, err := parseStrategies(strings.Join(names, ","))
	if err != nil {
		return fmt.Errorf("%w: -strategies: %w", errUsage, err)
	}
	if s.format == "mermaid" && len(chosen) != 1 {
		return fmt.Errorf("%w: -format mermaid draws one failure: name one strategy with -strategies", errUsage)
	}
	for _, st := range chosen {
		s.Strategies = append(s.Strategies, st.Name)
	}
	return nil
}

func exploreHelp(w io.Writer) {
	fmt.Fprint(w, `Usage: loadgen explore [flags]

Runs the strategies' own code under a scheduler that decides every step, and
looks for the shortest schedule that breaks one: cheapest first, every schedule
within the bounds. What it could not search in its time it says.

A verdict is measured against the worst that the registry expects under any of
the faults that are let happen. Exit code 3: it is another.

`)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	defer tw.Flush()
	printOptions(tw, newExploreSettings().options())
}

// parseFaults reads names of faults, none and all.
func (s *exploreSettings) parseFaults(text string) ([]catalog.Fault, error) {
	switch text {
	case "none":
		return nil, nil
	case "all":
		return explore.Faults, nil
	}
	return parseNames(s, text, explore.Faults, func(name string) (catalog.Fault, string) {
		f, note, _ := catalog.FindFault(name)
		return f.Name, note
	})
}

func (s *exploreSettings) parseProperties(text string) ([]string, error) {
	return parseNames(s, text, explore.Properties, func(name string) (string, string) {
		p, note, _ := catalog.FindProperty(name)
		return p.Name, note
	})
}

// parseNames reads names that find knows and that are among all. Each counts
// once. What find says of a name is noted for the user.
func parseNames[S ~string](s *exploreSettings, text string, all []S, find func(string) (name S, note string)) ([]S, error) {
	return parseEach(text, func(n S) string { return string(n) }, func(given string) ([]S, error) {
		name, note := find(given)
		if !slices.Contains(all, name) {
			return nil, fmt.Errorf("want one of %s", listed(all))
		}
		s.notes.add(note)
		return []S{name}, nil
	})
}

func listed[S ~string](names []S) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(names), " ", ", "), "[]")
}

// parseSeconds reads "30" as well as "30s".
func parseSeconds(text string) (float64, error) {
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		text += "s"
	}
	d, err := between(time.Millisecond, 24*time.Hour)(text)
	return d.Seconds(), err
}
