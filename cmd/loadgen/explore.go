package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/explore"
	"grablab/internal/explore/bubble"
	"grablab/internal/explore/schedule"
	"grablab/internal/flags"
	"grablab/internal/grab"
	"grablab/internal/measure/status"
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
	shortest bool // its value is not read; using the flag sets bounded
	bounded  bool // whether the user has set bounds; explore then makes a single search with them

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
		flags.New("preemptions", "P", "how many times a driver that could continue may be interrupted", flags.One(&s.Preemptions, flags.WholeNumber(0, explore.MaxPreemptions))),
		flags.New("faults", "A,B,…", "faults that may happen: "+flags.Join(explore.Faults)+"; or none, or all (default "+flags.Join(s.Faults)+")", flags.One(&s.Faults, parseExploreFaults)),
		flags.New("fault-count", "K", "maximum number of faults per schedule", flags.One(&s.FaultCount, flags.WholeNumber(0, explore.MaxFaultCount))),
		flags.New("property", "A,B,…", "properties to check (default all): "+flags.Join(explore.Properties), flags.One(&s.Properties, parseProperties)),
		flags.New("guard", "NAME", "condition under which the winner is written (default: the strategy's own)", flags.One(&s.Guard, flags.OneOf(order.Guards...))),
		flags.New("on-lost", "ACTION", "what a grab does if it loses its lease: abort, ignore", flags.One(&s.OnLost, flags.OneOf(grab.Abort, grab.Ignore))),
		flags.New("ttl", "D", "lifetime of a lock without renewal, in virtual time", flags.One(&s.TTL, flags.AtLeast(time.Millisecond))),
		flags.New("work", "D", "how long a driver works between the read and the write, in virtual time", flags.One(&s.Work, flags.AtLeast(0))),
		flags.New("nodes", "N", "number of Redlock nodes", flags.One(&s.Nodes, flags.WholeNumber(explore.DefaultNodes, explore.MaxNodes))),
		flags.New("stock", "N", "number of units that the order has", flags.One(&s.Stock, flags.WholeNumber(1, explore.MaxActors))),
		flags.New("wait", "D", "maximum time that a driver waits for the lock, in virtual time; 0 tries once", flags.One(&s.Wait, flags.AtLeast(0))),
		flags.New("shortest", "", "make a single search, and stop once no shorter failure can be found", flags.Switch(&s.shortest)),
		flags.New("everything", "", "do not stop at the first failure of each property; show the shortest failure for each combination of faults", flags.Switch(&s.Everything)),
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
	if err := flags.Check(rules["explore"], line, nil); err != nil {
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
	chosen, err := parseStrategies(strings.Join(names, ","), s.Added...)
	if err != nil {
		return flags.Usage("-strategies: %w", err)
	}
	if s.format == "mermaid" && len(chosen) != 1 {
		return flags.Usage("-format mermaid: a diagram shows one strategy's failure; choose it with -strategies")
	}
	s.Strategies = catalog.Map(chosen, nameOf)
	return nil
}

// parseExploreFaults parses a list of faults, or one of the words "none" and "all".
func parseExploreFaults(text string) ([]catalog.Fault, error) {
	switch text {
	case "none":
		return nil, nil
	case "all":
		return explore.Faults, nil
	}
	return parseNames(text, explore.Faults, func(name string) catalog.Fault {
		f, _ := catalog.FindFault(name)
		return f.Name
	})
}

func parseProperties(text string) ([]string, error) {
	return parseNames(text, explore.Properties, func(name string) string {
		p, _ := catalog.FindProperty(name)
		return p.Name
	})
}

// parseNames parses a list of names. The function current maps an outdated name to the current one.
func parseNames[S ~string](text string, all []S, current func(string) S) ([]S, error) {
	return flags.Each(text, func(a, b S) bool { return a == b }, func(given string) ([]S, error) {
		name, err := flags.OneOf(all...)(string(current(given)))
		return []S{name}, err
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

// execute searches the schedules of the chosen strategies, and prints and stores the results.
func (s *exploreSettings) execute(ctx context.Context, stdout, stderr io.Writer) error {
	results, err := s.explore(ctx, stderr)
	if len(results) == 0 && err != nil {
		return notSearched(err, stderr)
	}
	return s.conclude(results, err, stdout, stderr)
}

// explore searches for schedules in which a lock fails. If -replay is set, it replays one schedule
// instead. If no schedule could run, it returns an error and no results.
func (s *exploreSettings) explore(ctx context.Context, stderr io.Writer) ([]explore.Result, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s.Command = []string{exe, exploreWorkerCommand}
	if err := s.readReplay(); err != nil {
		return nil, err
	}
	if s.file != "" {
		own, err := buildOwn(ctx, s.file)
		if err != nil {
			return nil, err
		}
		defer own.remove()
		s.Command, s.Added = []string{own.exe}, own.strategies
		if s.names == nil {
			s.names = own.names()
		}
	}
	if err := s.choose(); err != nil {
		return nil, err
	}
	s.Workers = runtime.GOMAXPROCS(0)
	if s.replay != "" {
		return s.replayAll(ctx)
	}
	if s.bounded {
		return explore.Search(ctx, nil, s.Config, s.progress(stderr))
	}
	return explore.SearchPortfolio(ctx, nil, s.Config, s.progress(stderr))
}

// notSearched tells the user why a search or a replay failed, and returns an error that sets the exit
// code.
func notSearched(err error, stderr io.Writer) error {
	if ended, ok := errors.AsType[*explore.EndedError](err); ok && ended.Stack != "" {
		fmt.Fprintf(stderr, "%s\n\n", ended.Stack)
	}
	if errors.Is(err, explore.ErrConfig) {
		return flags.Usage("%w", withoutPrefix(err, explore.ErrConfig))
	}
	return orInterrupted(err, stderr, " before the first schedule")
}

// conclude saves the failing schedules, prints the results, and returns an error that sets the exit
// code.
func (s *exploreSettings) conclude(results []explore.Result, err error, stdout, stderr io.Writer) error {
	interrupted := errors.Is(err, context.Canceled)
	var unsaved error
	if s.replay == "" {
		unsaved = s.save(results)
	}
	if err := errors.Join(s.render(stdout, results), unsaved); err != nil {
		return err
	}
	if s.format == "mermaid" && len(failures(results)) == 0 {
		fmt.Fprintln(stderr, "no failure was found, so there is no diagram")
	}
	if err != nil && !interrupted {
		return notSearched(err, stderr)
	}
	if !interrupted && slices.ContainsFunc(results, explore.Result.IsUnexpected) {
		return exitAssert
	}
	return orInterrupted(err, stderr, ": these are the results so far")
}

// save writes the schedule of each failure to a file.
func (s *exploreSettings) save(results []explore.Result) error {
	for _, f := range failures(results) {
		if err := replaceFile(s.fileOf(f), []byte(f.Schedule.String())); err != nil {
			return fmt.Errorf("schedules: %w", err)
		}
	}
	return nil
}

// fileOf returns the path for the schedule of a failure. It adds a number to the name if several
// searches find different schedules for the same failure.
func (s *exploreSettings) fileOf(f explore.Failure) string {
	name := f.Schedule.Strategy + "-" + f.Property
	if f.Kind != "" {
		name += "-" + strings.NewReplacer(", ", "-", " ", "-").Replace(f.Kind)
	}
	if s.schedules == nil {
		s.schedules = map[string]string{}
	}
	text, numbered := f.Schedule.String(), name
	for n := 2; s.schedules[numbered] != "" && s.schedules[numbered] != text; n++ {
		numbered = fmt.Sprintf("%s-%d", name, n)
	}
	s.schedules[numbered] = text
	return filepath.Join(s.out, numbered+".txt")
}

func (s *exploreSettings) render(w io.Writer, results []explore.Result) error {
	e := report.Exploration{Config: s.Config, Results: results, Timing: !s.noTiming, Replay: s.replayWith}
	if !s.bounded && s.replay == "" {
		e.Parts = explore.Portfolio(s.Config)
	}
	return renderAs(w, exploreFormats, s.format, e)
}

func (s *exploreSettings) replayWith(f explore.Failure) string {
	return exploreCommandOf(s.file) + " -replay " + report.Quote(cmp.Or(s.replay, s.fileOf(f)))
}

// exploreCommandOf returns the beginning of an explore command for the locks in file, or for our own
// locks if file is empty.
func exploreCommandOf(file string) string {
	command := program() + " explore"
	if file != "" {
		command += " -file " + report.Quote(file)
	}
	return command
}

// readReplay reads the schedule file that the -replay flag names. It does nothing if the flag is
// not set.
func (s *exploreSettings) readReplay() (err error) {
	if s.replay == "" {
		return nil
	}
	if s.course, _, err = readSchedule(s.replay); err != nil {
		return flags.Usage("-replay: %w", err)
	}
	if s.names == nil {
		s.names = []string{s.course.Strategy}
	}
	return nil
}

func (s *exploreSettings) replayAll(ctx context.Context) (results []explore.Result, err error) {
	for _, name := range s.Strategies {
		r, err := explore.ReplayBy(ctx, nil, s.Command, s.course, name, s.Added...)
		if err != nil {
			return results, err
		}
		results = append(results, r)
	}
	return results, nil
}

// failures returns all failures in the results and their parts.
func failures(results []explore.Result) (all []explore.Failure) {
	for _, r := range results {
		all = slices.Concat(all, r.Failures, failures(r.Parts))
	}
	return all
}

// firstDiagram draws a diagram of the first failure. It writes nothing if there is no failure.
func firstDiagram(w io.Writer, e report.Exploration) error {
	if all := failures(e.Results); len(all) > 0 {
		return report.Mermaid(w, all[0])
	}
	return nil
}

// progress returns a function that prints a search's progress, at most once per progressEvery.
func (s *exploreSettings) progress(w io.Writer) explore.Watch {
	if s.quiet {
		w = io.Discard
	}
	line := status.Line{W: w, Every: progressEvery}
	return func(r explore.Result) {
		name := r.Strategy
		if r.Part != "" {
			name += ", " + r.Part
		}
		line.Step("%s: searched %d schedules and %d states in %s, %s so far", name, r.Schedules, r.States, r.Elapsed.Round(time.Second), r.Verdict)
	}
}

const progressEvery = 5 * time.Second

// exploreWorkerCommand is the name of a hidden command. The explore command runs it in child
// processes, which execute the schedules.
const exploreWorkerCommand = "explore-worker"

func exploreWorkerMain(_ context.Context, _ []string, _, stderr io.Writer) error {
	return exitCode(bubble.Main(func(bubble explore.Bubble) int { return conclude(explore.Work(bubble), stderr) }))
}
