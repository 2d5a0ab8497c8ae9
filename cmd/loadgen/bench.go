package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/measure/lockbench"
	"grablab/internal/testbed/stack"
)

// benchSettings is a benchmark as it was asked for.
type benchSettings struct {
	lockbench.Config
	out    string
	format string
	check  bool
	quiet  bool
}

// benchFormats is what a benchmark can be printed as, the default first.
var benchFormats = []format[*lockbench.Result]{
	{"text", lockbench.Text},
	{"json", lockbench.JSON},
	{"benchstat", lockbench.Benchstat},
}

func (s *benchSettings) options() []option {
	return slices.Concat([]option{
		{"strategies", "A,B,…", "locks to measure, beside the floor: strategies and peers by name; ours, peers, all", one(&s.Subjects, parseSubjects)},
		{"cases", "A,B,…", "cases: " + strings.Join(caseNames(), ", "), one(&s.Cases, parseCases)},
		{"rounds", "N", "rounds, each with a slice for every lock in every case", one(&s.Rounds, wholeNumber(1, 10_000))},
		{"slice", "D", "how long a slice lasts", one(&s.Slice, between(5*time.Millisecond, time.Minute))},
		{"seed", "N", "shuffles the order of locks (default: drawn, and printed first)", one(&s.Seed, parseSeed)},
		{"stack", "KIND", "what runs underneath: " + stack.Local + ", " + stack.External, one(&s.Stack.Kind, parseBenchStack)},
	}, serverOptions(&s.Stack), []option{
		{"out", "DIR", "result folder (default: results/TIME-bench)", one(&s.out, nonEmpty)},
		{"format", "NAME", "of standard output: " + strings.Join(formatNames(benchFormats), ", "), one(&s.format, oneOf(formatNames(benchFormats)...))},
		{"check", "", "exit 3 if a bound is missed, or a lock had two holders", toggle{&s.check}},
		{"quiet", "", "no progress", toggle{&s.quiet}},
	})
}

func newBenchSettings() *benchSettings {
	s := &benchSettings{format: benchFormats[0].name}
	s.Subjects, s.Cases, s.Rounds, s.Slice = lockbench.Subjects(), lockbench.Cases, 21, 100*time.Millisecond
	s.Stack.Kind = stack.Local
	return s
}

// parseBench reads the flags of bench. Its errors wrap errUsage, or flag.ErrHelp.
func parseBench(args []string) (*benchSettings, error) {
	s := newBenchSettings()
	given, err := readOptions("bench", s.options(), args)
	if err != nil {
		return nil, err
	}
	if !given["seed"] {
		s.Seed = uint64(rand.Uint32())
	}
	for _, o := range serverOptions(&s.Stack) {
		if given[o.name] && s.Stack.Kind != stack.External {
			return nil, fmt.Errorf("%w: -%s goes with -stack external, for the local stack starts its own", errUsage, o.name)
		}
	}
	if s.Stack.Kind == stack.External && s.Stack.Redis == "" && s.Stack.Sentinel == nil {
		return nil, fmt.Errorf("%w: -stack external needs -redis or -sentinel, also for the floor", errUsage)
	}
	if s.Stack.Kind == stack.External && !given["strategies"] {
		s.leaveOut()
	}
	return s, nil
}

// leaveOut leaves out what needs servers of which no address was given, and says so.
func (s *benchSettings) leaveOut() {
	for _, server := range []struct {
		given  bool
		serves lock.Backend
		needed string
	}{
		{len(s.Stack.Redlock) > 0, lock.RedisQuorum, "it needs -redlock with independent servers, which the nodes of one Cluster are not: each key is on one of them alone"},
		{s.Stack.DSN != "", lock.SQL | lock.SQLLocks, "it needs -db"},
		{len(s.Stack.ZooKeeper) > 0, lock.ZooKeeper, "it needs -zk"},
		{len(s.Stack.Etcd) > 0, lock.Etcd, "it needs -etcd"},
	} {
		s.Subjects = slices.DeleteFunc(s.Subjects, func(c lockbench.Subject) bool {
			lacks := !server.given && c.Needs&server.serves != 0
			if lacks {
				s.LeftOut = append(s.LeftOut, lockbench.LeftOut{Strategy: c.Name, Reason: server.needed})
			}
			return lacks
		})
	}
}

// benchCommand is loadgen bench: flags, folder, rounds, table.
func benchCommand(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return invoke(ctx, args, stdout, stderr, parseBench, benchHelp, (*benchSettings).execute)
}

func (s *benchSettings) execute(ctx context.Context, stdout, stderr io.Writer) int {
	s.Log, s.TTY = announce(s.Seed, s.format != "text", s.quiet, stdout, stderr)
	out, err := newFolder(s.out, "bench", time.Now())
	if err != nil {
		return complain(stderr, err)
	}
	if s.Exe, err = os.Executable(); err != nil {
		return complain(stderr, err)
	}
	defer out.release()
	res, err := lockbench.Run(ctx, s.Config, out.saveBench)
	return s.conclude(res, err, out, stdout, stderr)
}

// conclude prints what there is, and decides the exit code.
func (s *benchSettings) conclude(res *lockbench.Result, err error, out *folder, stdout, stderr io.Writer) int {
	if len(res.Slices) == 0 {
		return notBegun(err, "round", out, stderr)
	}
	if err := renderAs(stdout, benchFormats, s.format, res); err != nil {
		return complain(stderr, err)
	}
	if s.format == "text" {
		fmt.Fprintf(stdout, "\nresults in %s\n", relative(out.path))
	}
	switch {
	case errors.Is(err, context.Canceled):
		fmt.Fprintf(stderr, "interrupted: %d of %d rounds are kept\n", res.Rounds, res.Config.Rounds)
		return exitInterrupted
	case err != nil:
		return complain(stderr, err)
	case s.check && len(res.Wrong()) > 0:
		for _, wrong := range res.Wrong() {
			fmt.Fprintln(stderr, wrong)
		}
		return exitAssert
	}
	return exitDone
}

const benchFile = lockbench.File

// saveBench writes bench.json, the slices that it is computed from, and the
// benchmark lines, each whole or not at all.
func (f *folder) saveBench(r *lockbench.Result) error {
	return writeFiles(f, []format[*lockbench.Result]{
		{lockbench.SlicesFile, lockbench.JSONLines},
		{benchFile, lockbench.JSON},
		{"bench.txt", lockbench.Benchstat},
	}, r)
}

func benchHelp(w io.Writer) {
	fmt.Fprint(w, `Usage: loadgen bench [flags]

Measures locks by themselves, without HTTP and without the grab. In every round
every lock gets a slice of time, in an order that the seed shuffles; figures are
compared within a round. The floor is two PINGs on the same client.

`)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	defer tw.Flush()
	printOptions(tw, newBenchSettings().options())
	fmt.Fprint(tw, "\nCases\n")
	for _, c := range lockbench.Cases {
		fmt.Fprintf(tw, "  %s\t%s\n", c.Name, c.About)
	}
	fmt.Fprint(tw, "\nPeers\n")
	for _, c := range lockbench.Subjects() {
		if c.Peer {
			fmt.Fprintf(tw, "  %s\t%s\n", c.Name, c.Title)
		}
	}
}

func caseNames() []string {
	return namesOf(lockbench.Cases, func(c lockbench.Case) string { return c.Name })
}

func parseCases(text string) ([]lockbench.Case, error) {
	list, err := parseList(text)
	if err != nil {
		return nil, err
	}
	for _, name := range list {
		if _, err := oneOf(caseNames()...)(name); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(slices.Clone(lockbench.Cases), func(c lockbench.Case) bool { return !slices.Contains(list, c.Name) }), nil
}

// parseSubjects reads names, ours, peers and all; each counts once.
func parseSubjects(text string) ([]lockbench.Subject, error) {
	name := func(c lockbench.Subject) string { return c.Name }
	return parseEach(text, name, func(word string) (found []lockbench.Subject, err error) {
		for _, c := range lockbench.Subjects() {
			if word == "all" || word == "ours" && !c.Peer || word == "peers" && c.Peer {
				found = append(found, c)
			}
		}
		if found != nil {
			return found, nil
		}
		c, err := lockbench.Find(word)
		if err != nil {
			err = noSuch("lock", word, append(lockbench.Names(), "ours", "peers", "all"))
		}
		return []lockbench.Subject{c}, err
	})
}

func parseBenchStack(text string) (string, error) {
	if text == stack.Embedded {
		return "", errors.New("the embedded stack is no server: its figures would be its own; want local or external")
	}
	return oneOf(stack.Local, stack.External)(text)
}
