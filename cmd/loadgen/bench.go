package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/flags"
	"grablab/internal/measure/lockbench"
	"grablab/internal/service/instance"
	"grablab/internal/testbed/stack"
)

type benchSettings struct {
	lockbench.Config
	out    string
	format string
	check  bool
	quiet  bool
}

// benchFormats lists the output formats of the bench command, with the default first.
var benchFormats = []format[*lockbench.Result]{
	{"text", lockbench.Text},
	{"json", lockbench.JSON},
	{"benchstat", lockbench.Benchstat},
}

func (s *benchSettings) flags() []flags.Flag {
	return slices.Concat([]flags.Flag{
		flags.New("strategies", "A,B,…", "strategies and peers to measure, in addition to the floor (two PINGs). The words ours, peers and all name groups (default all)", flags.One(&s.Subjects, parseSubjects)),
		flags.New("cases", "A,B,…", "cases (default all): "+flags.Join(caseNames()), flags.One(&s.Cases, parseCases)),
		flags.New("rounds", "N", "number of rounds. In each round, every lock gets one time slice in every case", flags.One(&s.Rounds, flags.WholeNumber(1, 10_000))),
		flags.New("slice", "D", "length of a time slice", flags.One(&s.Slice, flags.Between(5*time.Millisecond, time.Minute))),
		flags.New("seed", "N", "seed for the lock order (default: a random seed, which is printed first)", flags.One(&s.Seed, flags.Seed)),
		flags.New("stack", "KIND", "which servers to use: "+stack.Local+", "+stack.External, flags.One(&s.Stack.Kind, flags.Where(flags.OneOf(stack.Local, stack.External), nil, "must be one of local, external: the embedded stack runs no real servers to measure"))),
	}, serverFlags(&s.Stack), []flags.Flag{
		flags.New("out", "DIR", "result folder (default: results/TIME-bench)", flags.One(&s.out, flags.NonEmpty)),
		formatFlag(&s.format, formatNames(benchFormats)),
		flags.New("check", "", "exit with 3 if a result is outside its limit, or if a lock had two holders", flags.Switch(&s.check)),
		flags.New("quiet", "", "print no progress", flags.Switch(&s.quiet)),
	})
}

func newBenchSettings() *benchSettings {
	s := new(benchSettings)
	s.Subjects, s.Cases, s.Rounds, s.Slice = lockbench.Subjects(), lockbench.Cases, 21, 100*time.Millisecond
	s.Stack.Kind = stack.Local
	return s
}

// parseBench parses the flags of the bench command. It returns a flags.HelpError for -h, and an
// error that wraps flags.ErrUsage for invalid flags.
func parseBench(args []string) (*benchSettings, error) {
	s := newBenchSettings()
	line, err := flags.ParseFlags(s.flags(), args)
	if err != nil {
		return nil, err
	}
	if !line.Given("seed") {
		s.Seed = uint64(rand.Uint32())
	}
	external := s.Stack.Kind == stack.External
	if err := flags.Check(slices.Concat(rules["bench"], instance.SentinelRules), line, map[string]bool{"stack external": external}); err != nil {
		return nil, flags.Usage("%w", err)
	}
	if external && !line.Given("strategies") {
		s.leaveOut()
	}
	return s, nil
}

// leaveOut removes the locks that cannot be measured because a server address is missing. It
// records the reason in LeftOut.
func (s *benchSettings) leaveOut() {
	s.Subjects = slices.DeleteFunc(s.Subjects, func(c lockbench.Subject) bool {
		flags := s.Stack.Lacks(c.Needs)
		if flags != "" {
			s.LeftOut = append(s.LeftOut, lockbench.LeftOut{Strategy: c.Name, Reason: "it needs " + flags})
		}
		return flags != ""
	})
}

// execute runs the benchmark, and prints and stores its result.
func (s *benchSettings) execute(ctx context.Context, stdout, stderr io.Writer) error {
	s.Log, s.TTY = announce(s.Seed, s.format != "text", s.quiet, stdout, stderr)
	out, err := newFolder(s.out, "bench", time.Now())
	if err != nil {
		return err
	}
	defer out.close()
	if s.Exe, err = os.Executable(); err != nil {
		return err
	}
	res, err := lockbench.Run(ctx, s.Config, out.saveBench)
	return s.conclude(res, err, out, stdout, stderr)
}

// conclude prints the finished measurements, even if the user interrupted the benchmark. It returns
// an error that sets the exit code.
func (s *benchSettings) conclude(res *lockbench.Result, err error, out *folder, stdout, stderr io.Writer) error {
	if out.begun = len(res.Slices) > 0; !out.begun {
		return notBegun(err, "round", out, stderr)
	}
	if err := renderAs(stdout, benchFormats, s.format, res); err != nil {
		return err
	}
	if s.format == "text" {
		fmt.Fprintf(stdout, "\nresults in %s\n", relative(out.path))
	}
	switch {
	case err != nil:
		return orInterrupted(err, stderr, ": the results of %d of %d rounds are kept", res.Rounds, res.Config.Rounds)
	case s.check && len(res.Wrong()) > 0:
		for _, wrong := range res.Wrong() {
			fmt.Fprintln(stderr, wrong)
		}
		return exitAssert
	}
	return nil
}

// saveBench writes bench.json, the raw measurements, and a file for benchstat. It replaces each
// file atomically, so that readers never see a half-written one.
func (f *folder) saveBench(r *lockbench.Result) error {
	return writeFiles(f, []format[*lockbench.Result]{
		{lockbench.SlicesFile, lockbench.JSONLines},
		{lockbench.File, lockbench.JSON},
		{lockbench.BenchstatFile, lockbench.Benchstat},
	}, r)
}

func benchHelp(w io.Writer, topic string) {
	help("bench", newBenchSettings().flags())(w, topic)
	peers := slices.DeleteFunc(lockbench.Subjects(), func(c lockbench.Subject) bool { return !c.Peer })
	printSections(w, []section{
		{"Cases", catalog.Map(lockbench.Cases, func(c lockbench.Case) [2]string { return [2]string{c.Name, c.About} })},
		{"Peers", catalog.Map(peers, func(c lockbench.Subject) [2]string { return [2]string{c.Name, c.Title} })},
	})
}

func caseNames() []string {
	return catalog.Map(lockbench.Cases, func(c lockbench.Case) string { return c.Name })
}

func parseCases(text string) ([]lockbench.Case, error) {
	chosen, err := parseNames(text, caseNames(), func(name string) string { return name })
	return catalog.Filter(lockbench.Cases, func(c lockbench.Case) bool { return slices.Contains(chosen, c.Name) }), err
}

// parseSubjects parses a list of locks to measure, which may also contain the groups "ours",
// "peers" and "all".
func parseSubjects(text string) ([]lockbench.Subject, error) {
	same := func(a, b lockbench.Subject) bool { return a.Name == b.Name }
	return flags.Each(text, same, func(word string) (found []lockbench.Subject, err error) {
		found = catalog.Filter(lockbench.Subjects(), func(c lockbench.Subject) bool {
			return word == "all" || word == "ours" && !c.Peer || word == "peers" && c.Peer
		})
		if found != nil {
			return found, nil
		}
		c, err := lockbench.Find(word)
		if err != nil {
			err = flags.Unknown("lock", word, lockbench.Names(), "ours", "peers", "all")
		}
		return []lockbench.Subject{c}, err
	})
}
