package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/lockbench"
	"grablab/internal/stack"

	"github.com/google/renameio/v2"
	"golang.org/x/term"
)

// benchSettings is a benchmark as it was asked for.
type benchSettings struct {
	lockbench.Config
	out    string
	format string
	check  bool
	quiet  bool
}

// benchFile is one way to write a benchmark down.
type benchFile struct {
	name   string
	render func(io.Writer, *lockbench.Result) error
}

// benchFormats is what a benchmark can be printed as, the default first.
var benchFormats = []benchFile{
	{"text", lockbench.Text},
	{"json", lockbench.JSON},
	{"benchstat", lockbench.Benchstat},
}

func (s *benchSettings) options() []option {
	return []option{
		{"strategies", "A,B,…", "locks to measure, beside the floor: strategies and peers by name; ours, peers, all", one(&s.Subjects, parseSubjects)},
		{"cases", "A,B,…", "cases: " + strings.Join(caseNames(), ", "), one(&s.Cases, parseCases)},
		{"rounds", "N", "rounds, each with a slice for every lock in every case", one(&s.Rounds, whole(1, 10_000))},
		{"slice", "D", "how long a slice lasts", one(&s.Slice, between(5*time.Millisecond, time.Minute))},
		{"seed", "N", "shuffles the order of locks (default: drawn, and printed first)", one(&s.Seed, parseSeed)},
		{"stack", "KIND", "what runs underneath: " + stack.Local + ", " + stack.External, one(&s.Stack.Kind, parseBenchStack)},
		{"db", "DSN", "database, with -stack external", one(&s.Stack.DB, nonEmpty)},
		{"redis", "ADDR", "the single Redis, with -stack external", one(&s.Stack.Redis, nonEmpty)},
		{"redlock", "ADDR,ADDR,…", "the Redlock nodes, with -stack external; NAME@ADDR is the master NAME of the Sentinel at ADDR", one(&s.Stack.Redlock, parseList)},
		{"sentinel", "ADDR,ADDR,…", "Sentinels that know the Redis, instead of -redis", one(&s.Stack.Sentinel, parseList)},
		{"sentinel-master", "NAME", "the name of the master that they watch", one(&s.Stack.SentinelMaster, nonEmpty)},
		{"zk", "ADDR,ADDR,…", "the servers of a ZooKeeper, with -stack external", one(&s.Stack.ZooKeeper, parseList)},
		{"etcd", "ADDR,ADDR,…", "the members of an etcd, with -stack external", one(&s.Stack.Etcd, parseList)},
		{"out", "DIR", "result folder (default: results/TIME-bench)", one(&s.out, nonEmpty)},
		{"format", "NAME", "of standard output: text, json, benchstat", one(&s.format, among("text", "json", "benchstat"))},
		{"check", "", "exit 3 if a bound is missed, or a lock had two holders", toggle{&s.check}},
		{"quiet", "", "no progress", toggle{&s.quiet}},
	}
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
	for _, name := range []string{"db", "redis", "sentinel", "sentinel-master", "redlock", "zk", "etcd"} {
		if given[name] && s.Stack.Kind != stack.External {
			return nil, fmt.Errorf("%w: -%s goes with -stack external, for the local stack starts its own", errUsage, name)
		}
	}
	if s.Stack.Kind == stack.External && s.Stack.Redis == "" && s.Stack.Sentinel == nil {
		return nil, fmt.Errorf("%w: -stack external needs -redis or -sentinel, also for the floor", errUsage)
	}
	if s.Stack.Kind == stack.External && !given["strategies"] {
		s.Subjects = slices.DeleteFunc(s.Subjects, func(c lockbench.Subject) bool { return c.Needs&^s.named() != 0 })
	}
	return s, nil
}

// named is what the addresses that were given serve.
func (s *benchSettings) named() (b lock.Backend) {
	for _, server := range []struct {
		given  bool
		serves lock.Backend
	}{
		{s.Stack.Redis != "" || s.Stack.Sentinel != nil, lock.Redis},
		{len(s.Stack.Redlock) > 0, lock.RedisQuorum},
		{s.Stack.DB != "", lock.SQL | lock.SQLLocks},
		{len(s.Stack.ZooKeeper) > 0, lock.ZooKeeper},
		{len(s.Stack.Etcd) > 0, lock.Etcd},
	} {
		if server.given {
			b |= server.serves
		}
	}
	return b
}

// benchCommand is loadgen bench: flags, folder, rounds, table.
func benchCommand(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	s, err := parseBench(args)
	if errors.Is(err, flag.ErrHelp) {
		benchHelp(stdout)
		return exitDone
	}
	if err != nil {
		return complain(stderr, err)
	}
	ctx, stop := untilSignal(ctx)
	defer stop()

	s.sayTo(stdout, stderr)
	out, err := newFolder(s.out, "bench", time.Now())
	if err != nil {
		return complain(stderr, err)
	}
	if s.Exe, err = os.Executable(); err != nil {
		return complain(stderr, err)
	}
	s.Begin = out.begin
	res, err := lockbench.Run(ctx, s.Config, out.saveBench)
	return s.conclude(res, err, out, stdout, stderr)
}

// sayTo prints the seed, and sets where progress goes.
func (s *benchSettings) sayTo(stdout, stderr io.Writer) {
	s.Log = stderr
	if f, ok := stderr.(*os.File); ok {
		s.TTY = term.IsTerminal(int(f.Fd()))
	}
	if s.quiet {
		s.Log, s.TTY = io.Discard, false
	}
	first := stdout
	if s.format != benchFormats[0].name { // what a program reads must stand there alone
		first = s.Log
	}
	fmt.Fprintf(first, "seed %d\n", s.Seed)
}

// conclude prints what there is, and decides the exit code.
func (s *benchSettings) conclude(res *lockbench.Result, err error, out *folder, stdout, stderr io.Writer) int {
	interrupted := errors.Is(err, context.Canceled)
	if len(res.Slices) == 0 {
		if interrupted {
			fmt.Fprintln(stderr, "interrupted before the first round: there is nothing to keep")
			if err := out.discard(); err != nil {
				return complain(stderr, err)
			}
			return exitInterrupted
		}
		if errors.Is(err, stack.ErrRefused) {
			err = fmt.Errorf("%w: %w", errUsage, err)
		}
		return complain(stderr, errors.Join(err, out.discard()))
	}
	i := slices.IndexFunc(benchFormats, func(f benchFile) bool { return f.name == s.format })
	if err := benchFormats[i].render(stdout, res); err != nil {
		return complain(stderr, err)
	}
	if s.format == benchFormats[0].name {
		fmt.Fprintf(stdout, "\nresults in %s\n", relative(out.path))
	}
	switch {
	case interrupted:
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

// saveBench writes bench.json, the slices that it is computed from, and the
// benchmark lines, each whole or not at all.
func (f *folder) saveBench(r *lockbench.Result) error {
	for _, file := range []benchFile{
		{"slices.jsonl", lockbench.JSONLines},
		{"bench.json", lockbench.JSON},
		{"bench.txt", lockbench.Benchstat},
	} {
		var b bytes.Buffer
		if err := file.render(&b, r); err != nil {
			return err
		}
		if err := renameio.WriteFile(filepath.Join(f.path, file.name), b.Bytes(), 0o644); err != nil {
			return fmt.Errorf("result folder: %w", err)
		}
	}
	return nil
}

func benchHelp(w io.Writer) {
	fmt.Fprint(w, `Usage: loadgen bench [flags]

Measures locks by themselves, without HTTP and without the grab. In every round
every lock gets a slice of time, in an order that the seed shuffles; figures are
compared within a round. The floor is two PINGs on the same client.

`)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	defer tw.Flush()
	s := newBenchSettings()
	for _, o := range s.options() {
		about := o.about
		switch o.name {
		case "strategies", "cases":
			about += " (default all)"
		case "rounds", "slice", "stack", "format":
			about += fmt.Sprintf(" (default %s)", o.value)
		}
		fmt.Fprintf(tw, "  -%s %s\t%s\n", o.name, o.arg, about)
	}
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
	names := make([]string, len(lockbench.Cases))
	for i, c := range lockbench.Cases {
		names[i] = c.Name
	}
	return names
}

func parseCases(text string) ([]lockbench.Case, error) {
	list, err := parseList(text)
	if err != nil {
		return nil, err
	}
	for _, name := range list {
		if _, err := among(caseNames()...)(name); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(slices.Clone(lockbench.Cases), func(c lockbench.Case) bool { return !slices.Contains(list, c.Name) }), nil
}

// parseSubjects reads names, ours, peers and all; each counts once.
func parseSubjects(text string) (chosen []lockbench.Subject, err error) {
	list, err := parseList(text)
	if err != nil {
		return nil, err
	}
	add := func(c lockbench.Subject) {
		if !slices.ContainsFunc(chosen, func(o lockbench.Subject) bool { return o.Name == c.Name }) {
			chosen = append(chosen, c)
		}
	}
	for _, word := range list {
		if word == "all" || word == "ours" || word == "peers" {
			for _, c := range lockbench.Subjects() {
				if word == "all" || c.Peer == (word == "peers") {
					add(c)
				}
			}
			continue
		}
		c, err := lockbench.Find(word)
		if err != nil {
			known := append(lockbench.Names(), "ours", "peers", "all")
			if near := nearest(word, known); near != "" {
				return nil, fmt.Errorf("there is no lock %q; did you mean %s?", word, near)
			}
			return nil, fmt.Errorf("there is no lock %q; there are %s", word, strings.Join(known, ", "))
		}
		add(c)
	}
	return chosen, nil
}

func parseBenchStack(text string) (string, error) {
	if text == stack.Embedded {
		return "", errors.New("the embedded stack is no server: its figures would be its own; want local or external")
	}
	return among(stack.Local, stack.External)(text)
}
