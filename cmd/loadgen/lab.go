package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"grablab/internal/catalog"
	"grablab/internal/explore"
	"grablab/internal/flags"
	"grablab/internal/grab/lock"
	"grablab/internal/present/lab"
	"grablab/internal/present/report"
	"grablab/internal/testbed/stack"
)

type labSettings struct {
	kind string // kind of stack: embedded or local
	addr string // address at which the page is served
	file string // Go file with strategies of the user; empty for none
}

func newLabSettings() *labSettings {
	return &labSettings{kind: stack.Embedded, addr: "127.0.0.1:8090"}
}

func (s *labSettings) flags() []flags.Flag {
	return []flags.Flag{
		flags.New("stack", "KIND", "which servers to use: embedded, local", flags.One(&s.kind, flags.OneOf(stack.Embedded, stack.Local))),
		flags.New("addr", "HOST:PORT", "loopback address of the page. Port 0 takes any free port", flags.One(&s.addr, flags.NonEmpty)),
	}
}

// parseLab parses the flags of the lab command and an optional file name. It returns a
// flags.HelpError for -h, and an error that wraps flags.ErrUsage for invalid arguments.
func parseLab(args []string) (*labSettings, error) {
	s := newLabSettings()
	line, err := flags.Parse(s.flags(), args)
	switch {
	case err != nil:
		return nil, err
	case len(line.Args) > 1:
		return nil, flags.Usage("lab %s: there are too many arguments: give at most one file", strings.Join(line.Args, " "))
	case len(line.Args) == 1:
		s.file = line.Args[0]
	}
	return s, nil
}

// searchSeconds is the time limit for each search that a user starts on the web page.
const searchSeconds = 20.0

// execute serves the lab until the user ends it.
func (s *labSettings) execute(ctx context.Context, stdout, stderr io.Writer) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	var own ownBuild
	worker := []string{exe, exploreWorkerCommand}
	cfg := lab.Config{
		Exe: exe, Stack: stack.Config{Kind: s.kind}, Addr: s.addr,
		Ready: func(url string) { fmt.Fprintf(stdout, "the lab is %s (Ctrl-C ends it)\n", url) },
		Say:   func(format string, a ...any) { fmt.Fprintf(stderr, format+"\n", a...) },
	}
	if s.file != "" {
		if own, err = buildOwn(ctx, s.file); err != nil {
			return notSearched(err, stderr)
		}
		defer own.remove()
		worker, cfg.Own = []string{own.exe}, own.names()
	}
	cfg.Explore = func(ctx context.Context, q lab.Search) (report.Found, error) {
		return s.search(ctx, worker, own.strategies, q)
	}
	cfg.Workshop = s.workshopOf()
	return asUsageError(lab.Serve(ctx, cfg))
}

// search looks for schedules in which the given strategy fails, and returns them in the format that
// the web page expects.
func (s *labSettings) search(ctx context.Context, worker []string, added []lock.Strategy, q lab.Search) (report.Found, error) {
	search := newExploreSettings()
	search.Config.Strategies, search.Config.Actors, search.Config.Faults = []string{q.Strategy}, q.Actors, q.Faults
	search.Config.Added = added
	search.Config.Command, search.Config.Workers, search.Config.Seconds = worker, runtime.GOMAXPROCS(0), searchSeconds
	results, err := explore.Search(ctx, nil, search.Config, func(explore.Result) {})
	if err != nil {
		return report.Found{}, err
	}
	return report.Exploration{Config: search.Config, Results: results, Replay: func(f explore.Failure) string {
		return s.exploreCommand(q, f)
	}}.Found(), nil
}

// exploreCommand returns the command that repeats a search and finds the given failure.
func (s *labSettings) exploreCommand(q lab.Search, f explore.Failure) string {
	faults := catalog.Join(q.Faults, ",", func(f catalog.Fault) string { return string(f) })
	return fmt.Sprintf("%s -strategies %s -actors %d -faults %s -property %s", exploreCommandOf(s.file), q.Strategy, q.Actors, cmp.Or(faults, "none"), f.Property)
}
