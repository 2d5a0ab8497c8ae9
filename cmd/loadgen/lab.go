package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"text/tabwriter"

	"grablab/internal/explore"
	"grablab/internal/grab/lock"
	"grablab/internal/measure/experiment"
	"grablab/internal/measure/replay"
	"grablab/internal/order"
	"grablab/internal/present/lab"
	"grablab/internal/present/report"
	"grablab/internal/testbed/stack"
)

// labSettings is a lab as it was asked for.
type labSettings struct {
	kind string
	addr string
	file string // of the user's own strategies
}

func newLabSettings() *labSettings {
	return &labSettings{kind: stack.Embedded, addr: "127.0.0.1:8090"}
}

func (s *labSettings) options() []option {
	return []option{
		{"stack", "KIND", "what runs underneath: embedded, local", one(&s.kind, oneOf(stack.Embedded, stack.Local))},
		{"addr", "HOST:PORT", "where the page is, on loopback; port 0 takes any", one(&s.addr, nonEmpty)},
	}
}

// parseLab reads the flags of lab, and the file between them. Its errors wrap errUsage, or
// flag.ErrHelp.
func parseLab(args []string) (*labSettings, error) {
	s := newLabSettings()
	rest, _, err := readArgs("lab", s.options(), args)
	switch {
	case err != nil:
		return nil, err
	case len(rest) > 1:
		return nil, fmt.Errorf("%w: lab takes one file of package lock, not %q", errUsage, rest)
	case len(rest) == 1:
		s.file = rest[0]
	}
	return s, nil
}

func labHelp(w io.Writer) {
	fmt.Fprint(w, `Usage: loadgen lab [flags] [FILE]

Starts a stack and two instances, and serves a page that shows them: grabs at a rate or by
hand, a fault that strikes, who believes to hold the lock and who does, orders that turn
red at their second row, the keys in Redis, the matrix of strategies and faults as it is
filled, the schedules of every strategy, and the workshop. FILE is a Go file of package
lock, whose strategies can be explored there, too. Ctrl-C ends all of it.

`)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	defer tw.Flush()
	printOptions(tw, newLabSettings().options())
}

// labCommand is loadgen lab.
func labCommand(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return invoke(ctx, args, stdout, stderr, parseLab, labHelp, (*labSettings).execute)
}

// searchFor is how long a search from the page may take.
const searchFor = 20.0

func (s *labSettings) execute(ctx context.Context, stdout, stderr io.Writer) int {
	exe, err := os.Executable()
	if err != nil {
		return complain(stderr, err)
	}
	worker := []string{exe, exploreWorkerCommand}
	cfg := lab.Config{
		Exe: exe, Stack: stack.Config{Kind: s.kind}, Addr: s.addr,
		Ready: func(url string) { fmt.Fprintf(stdout, "the lab is %s (Ctrl-C ends it)\n", url) },
		Say:   func(format string, a ...any) { fmt.Fprintf(stderr, format+"\n", a...) },
	}
	if s.file != "" {
		own, err := takeIn(ctx, s.file)
		if err != nil {
			return notSearched(err, stderr)
		}
		defer own.remove()
		worker, cfg.Own = []string{own.exe}, own.names
	}
	cfg.Explore = func(ctx context.Context, asked lab.Search) (report.Found, error) { return s.search(ctx, worker, asked) }
	cfg.Fill, cfg.Replay = s.fill, replayFound
	cfg.Workshop = s.workshopOf()
	err = lab.Serve(ctx, cfg)
	switch {
	case errors.Is(err, order.ErrBadDSN), errors.Is(err, stack.ErrRefused):
		return complain(stderr, fmt.Errorf("%w: %w", errUsage, err))
	case err != nil:
		return complain(stderr, err)
	}
	return exitDone
}

// search explores one strategy.
func (s *labSettings) search(ctx context.Context, worker []string, asked lab.Search) (report.Found, error) {
	of := newExploreSettings()
	of.Config.Strategies, of.Config.Actors, of.Config.Faults = []string{asked.Strategy}, asked.Actors, asked.Faults
	of.Config.Command, of.Config.Workers, of.Config.Seconds = worker, runtime.GOMAXPROCS(0), searchFor
	results, err := explore.Search(ctx, nil, of.Config, func(explore.Result) {})
	if err != nil {
		return report.Found{}, err
	}
	return report.Exploration{Config: of.Config, Results: results, Replay: func(f explore.Failure) string {
		return fmt.Sprintf("%s explore -strategies %s -property %s", program(), f.Schedule.Strategy, f.Property)
	}}.Found(), nil
}

// fill is loadgen run for a table of the page.
func (s *labSettings) fill(ctx context.Context, t lab.Table, to lab.Filling) (err error) {
	var faults []string
	for _, f := range t.Faults {
		faults = append(faults, string(f))
	}
	of, err := parseRun([]string{"-stack", s.kind, "-strategies", strings.Join(t.Strategies, ","), "-faults", strings.Join(faults, ",")})
	if err != nil {
		return err
	}
	of.Log = to.Progress
	out, err := of.open()
	if err != nil {
		return err
	}
	defer func() {
		if out.begun {
			err = errors.Join(err, out.release())
		} else {
			err = errors.Join(err, out.discard())
		}
	}()
	_, err = experiment.Execute(ctx, of.Config, func(run *experiment.Run) error {
		to.Cell(relative(out.path), run)
		return out.save(run)
	})
	return err
}

// replayFound is loadgen run -schedule for a schedule that was found from the page.
func replayFound(ctx context.Context, text string, steps io.Writer) (f lab.Forced, err error) {
	var notes notes
	cfg, err := configOf("the schedule", []byte(text), &notes)
	if err != nil {
		return f, err
	}
	if cfg.Strategy, err = lock.Find(cfg.Schedule.Strategy); err != nil {
		return f, fmt.Errorf("real instances have the strategies of this program alone: %w", err)
	}
	if cfg.Exe, err = os.Executable(); err != nil {
		return f, err
	}
	cfg.Out, cfg.Log = steps, steps
	f.Config = cfg
	if f.Result, err = replay.Run(ctx, cfg); err != nil {
		return f, err
	}
	f.Says, _ = conclusion(cfg, f.Result)
	return f, nil
}
