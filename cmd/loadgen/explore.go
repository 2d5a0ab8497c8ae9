package main

import (
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/explore"
	"grablab/internal/explore/schedule"
	"grablab/internal/flags"
	"grablab/internal/grab"
	"grablab/internal/order"
	"grablab/internal/present/report"
)

type exploreSettings struct {
	explore.Config
	seed     uint64
	names    []string // strategies to explore; nil means those in -file, or the core strategies without -file
	replay   string
	course   schedule.Schedule // the schedule from the -replay file
	file     string
	out      string
	format   string
	noTiming bool
	quiet    bool
	shortest bool // only its presence counts: it replaces the default portfolio by a single search
	bounded  bool // whether the user has set bounds; explore then makes a single search with them
	notes    notes

	schedules map[string]string // the schedules that this command has saved, by file name
}

// exploreFormats lists the output formats of the explore command, with the default first.
var exploreFormats = []format[report.Exploration]{
	{"text", report.Explored},
	{"mermaid", firstDiagram},
	{"json", report.ExploredJSON},
	{"html", report.ExploredHTML},
}

func (s *exploreSettings) flags() []flags.Flag {
	return []flags.Flag{
		flags.New("strategies", "A,B,…", "strategies to explore, including known-broken ones by name. The words core, all and peers (the libraries) name groups (default core)", flags.One(&s.names, flags.List)),
		flags.New("file", "FILE", "Go file of package lock whose strategies to explore. It is compiled in only for this search", flags.One(&s.file, flags.NonEmpty)),
		flags.New("actors", "N", "number of drivers that try to grab the order", flags.One(&s.Actors, flags.WholeNumber(1, explore.MaxActors))),
		flags.New("instances", "N", "number of instances that the drivers use", flags.One(&s.Instances, flags.WholeNumber(1, explore.MaxInstances))),
		flags.New("preemptions", "P", "how often another driver may run although the current one could continue", flags.One(&s.Preemptions, flags.WholeNumber(0, explore.MaxPreemptions))),
		flags.New("faults", "A,B,…", "faults that may happen: "+flags.Join(explore.Faults)+"; or none, or all (default "+flags.Join(s.Faults)+")", flags.One(&s.Faults, s.parseFaults)),
		flags.New("fault-count", "K", "maximum number of faults per schedule", flags.One(&s.FaultCount, flags.WholeNumber(0, explore.MaxFaultCount))),
		flags.New("property", "A,B,…", "properties to check (default all): "+flags.Join(explore.Properties), flags.One(&s.Properties, s.parseProperties)),
		flags.New("guard", "NAME", "condition under which the winner is written (default: the strategy's own)", flags.One(&s.Guard, flags.OneOf(order.Guards...))),
		flags.New("on-lost", "ACTION", "what a grab does if it loses its lease: abort, ignore", flags.One(&s.OnLost, flags.OneOf(grab.Abort, grab.Ignore))),
		flags.New("ttl", "D", "lifetime of a lock without renewal, in virtual time", flags.One(&s.TTL, flags.AtLeast(time.Millisecond))),
		flags.New("work", "D", "how long a driver works between the read and the write, in virtual time", flags.One(&s.Work, flags.AtLeast(0))),
		flags.New("nodes", "N", "number of Redlock nodes", flags.One(&s.Nodes, flags.WholeNumber(explore.DefaultNodes, explore.MaxNodes))),
		flags.New("stock", "N", "number of units that the order has", flags.One(&s.Stock, flags.WholeNumber(1, explore.MaxActors))),
		flags.New("wait", "D", "maximum time that a driver waits for the lock, in virtual time; 0 tries once", flags.One(&s.Wait, flags.AtLeast(0))),
		flags.New("shortest", "", "make a single search, and stop once no shorter failure can be found", flags.Switch(&s.shortest)),
		flags.New("everything", "", "continue, and show the shortest failure for each combination of faults", flags.Switch(&s.Everything)),
		flags.New("seconds", "S", "time limit per strategy", flags.One(&s.Seconds, parseSeconds)),
		flags.New("schedules", "N", "maximum number of schedules per strategy (default: no limit). Two searches with the same limit stop at the same schedule", flags.One(&s.Schedules, flags.WholeNumber(1, math.MaxInt32))),
		flags.New("seed", "N", "no effect, because the search uses no random numbers", flags.One(&s.seed, flags.Seed)),
		flags.New("replay", "FILE", "run the schedule in FILE and show its steps, with another strategy if -strategies names one", flags.One(&s.replay, flags.NonEmpty)),
		flags.New("out", "DIR", "folder for the schedules that break something", flags.One(&s.out, flags.NonEmpty)),
		formatFlag(&s.format, formatNames(exploreFormats)),
		flags.New("no-timing", "", "omit figures that differ from run to run", flags.Switch(&s.noTiming)),
		flags.New("quiet", "", "print no progress", flags.Switch(&s.quiet)),
	}
}

// boundFlags lists the flags that limit a search. If the user sets one of them, explore runs a
// single search instead of a series of different ones.
var boundFlags = []string{"actors", "preemptions", "faults", "fault-count", "wait", "work", "everything", "shortest"}

var exploreRules = []flags.Rule{
	{
		Flags:    "actors preemptions faults fault-count property guard on-lost ttl work nodes stock wait shortest everything seconds schedules seed out",
		Excludes: "-replay", Wrong: "with -replay, the schedule file determines every step", Do: "leave out this flag",
	},
	{Flags: "shortest", Excludes: "-everything", Wrong: "-shortest stops at the first failure, but -everything continues after it", Do: "use only one of these flags"},
}

func newExploreSettings() *exploreSettings {
	return &exploreSettings{out: filepath.Join(resultsDir, "explore"), Config: explore.Usual()}
}

// parseExplore parses the flags of the explore command. It returns a flags.HelpError for -h, and an
// error that wraps flags.ErrUsage for invalid flags.
func parseExplore(args []string) (*exploreSettings, error) {
	s := newExploreSettings()
	line, err := flags.ParseFlags(s.flags(), args)
	if err != nil {
		return nil, err
	}
	if err := flags.Check(exploreRules, line, nil); err != nil {
		return nil, flags.Usage("%w", err)
	}
	s.bounded = slices.ContainsFunc(boundFlags, line.Given)
	return s, nil
}

// choose selects the strategies that the user named, or the core strategies if the user named none.
func (s *exploreSettings) choose() error {
	names := s.names
	if names == nil {
		names = core
	}
	chosen, err := parseStrategies(strings.Join(names, ","))
	if err != nil {
		return flags.Usage("-strategies: %w", err)
	}
	if s.format == "mermaid" && len(chosen) != 1 {
		return flags.Usage("-format mermaid: a diagram shows one strategy's failure; choose it with -strategies")
	}
	s.Strategies = catalog.Map(chosen, nameOf)
	return nil
}

// parseFaults parses a list of faults, or one of the words "none" and "all".
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

// parseNames parses a list of names. The function find maps an outdated name to the current one,
// with a note that parseNames keeps for the user.
func parseNames[S ~string](s *exploreSettings, text string, all []S, find func(string) (name S, note string)) ([]S, error) {
	return flags.Each(text, func(a, b S) bool { return a == b }, func(given string) ([]S, error) {
		name, note := find(given)
		if _, err := flags.OneOf(all...)(string(name)); err != nil {
			return nil, err
		}
		s.notes.add(note)
		return []S{name}, nil
	})
}

// parseSeconds parses a number of seconds, such as "30", or a duration, such as "30s".
func parseSeconds(text string) (float64, error) {
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		text += "s"
	}
	d, err := flags.Between(time.Millisecond, 24*time.Hour)(text)
	return d.Seconds(), err
}
