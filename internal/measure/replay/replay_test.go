package replay

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"grablab/internal/explore/schedule"
	"grablab/internal/grab/lock"
	"grablab/internal/service/instance"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/stack/stacktest"
)

func TestMain(m *testing.M) {
	stacktest.Main(m, stacktest.Command{Name: fleet.Command, Run: instance.Main})
}

// golden returns the configuration to replay the golden schedule of a failure mode. If strategy is
// empty, it uses the schedule's strategy.
func golden(t *testing.T, mode, strategy string) Config {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "explore", "testdata", mode+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	return configOf(t, string(text), strategy)
}

func configOf(t *testing.T, text, strategy string) Config {
	t.Helper()
	s, err := schedule.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if strategy == "" {
		strategy = s.Strategy
	}
	st, err := lock.Find(strategy)
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Config{Schedule: s, Lines: schedule.StepLines(text), Strategy: st, Exe: exe, Log: t.Output(), Out: t.Output()}
}

// forced replays a schedule the given number of times, each time on a new order.
func forced(t *testing.T, cfg Config, times int) []Result {
	t.Helper()
	if err := cfg.check(); err != nil {
		t.Fatal(err)
	}
	c, err := open(t.Context(), cfg)
	t.Cleanup(func() {
		if err := c.close(); err != nil {
			t.Error(err)
		}
	})
	stacktest.Check(t, err)
	var all []Result
	for range times {
		f, err := c.run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, f)
	}
	return all
}

// times is how many times each golden schedule is replayed if GRABLAB_PROVE is 1.
const times = 20

// goldens lists the golden schedules that can be replayed on real servers. Where there is a cure,
// it is a strategy that keeps the property in the same schedule.
var goldens = []struct {
	mode, cure string
	always     bool // whether to replay it even if GRABLAB_PROVE is not 1
}{
	{"F1", "mysql-cas", false},
	{"F2", "setnx", false},
	{"F3", "setnx", false},
	{"F4", "setnx", false},
	{"F5", "setnx", false},
	{"F6", "setnx", false},
	{"F7", "", false},
	{"F11", "setnx-fenced", true},
	{"F12", "setnx", false},
	{"F18", "", false},
	{"F20", "redlock", false},
	{"F21", "", false},
	{"F26", "setnx-fenced", false},
	{"F34", "setnx-fenced", false},
	{"F35", "setnx", false},
	{"F36", "setnx", false},
	{"F37", "setnx-fenced", false},
}

// TestReplayGolden checks that each violation that the explorer found also happens on real servers,
// in every attempt and without skipped steps.
func TestReplayGolden(t *testing.T) {
	proving := os.Getenv("GRABLAB_PROVE") == "1"
	for _, g := range goldens {
		t.Run(g.mode, func(t *testing.T) {
			n := 1
			switch {
			case proving:
				n = times
			case !g.always:
				t.Skip("GRABLAB_PROVE is not 1: it takes a while")
			}
			t.Parallel() // a replay mostly waits, so several can share a processor
			for i, f := range forced(t, golden(t, g.mode, ""), n) {
				if !f.Violated || f.LeftOut > 0 {
					t.Errorf("attempt %d: %+v, want the property violated and no step left out", i+1, f)
				}
			}
		})
	}
}

// TestReplayCure checks that the cure of each failure mode keeps the property in the same schedule.
func TestReplayCure(t *testing.T) {
	for _, g := range goldens {
		if g.cure == "" || os.Getenv("GRABLAB_PROVE") != "1" {
			continue
		}
		t.Run(g.mode+"/"+g.cure, func(t *testing.T) {
			t.Parallel()
			if f := forced(t, golden(t, g.mode, g.cure), 1)[0]; f.Violated {
				t.Errorf("%+v, want the property kept", f)
			}
		})
	}
}

const header = "strategy setnx\nactors A@1 B@2\nnodes redis\nttl 3s\n"

// TestReplayRefuses checks that a schedule that real servers cannot follow is refused, with the
// line of the impossible step if there is one.
func TestReplayRefuses(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{header + "\nA begins\n", `the schedule is about the property ""`},
		{header + "property told\n\nA begins\n", `the schedule is about the property "told"`},
		{header + "property one-winner\n\nA begins\nA acquire 1 redis given up\nA acquire 1 redis arrives late\n", `line 9, "A acquire 1 redis arrives late"`},
		{"strategy zookeeper\nactors A@1\nttl 3s\nproperty one-winner\n\nA begins\n", "a schedule cannot control the servers of zookeeper"},
		{"strategy setnx-driverid\nactors A@1 B@1/A\nttl 3s\nproperty one-winner\n\nA begins\n", "which cannot tell their calls apart"},
	} {
		_, err := Run(t.Context(), configOf(t, tt.text, ""))
		if !errors.Is(err, ErrCannotForce) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v, want ErrCannotForce with %s", err, tt.want)
		}
	}
}

// TestReplaySaysWhatDoesNotCome checks the error for a step that the strategy never reaches: it
// must name the step's line. Without this step, the replay must report that the property is kept.
func TestReplaySaysWhatDoesNotCome(t *testing.T) {
	t.Parallel()
	never := configOf(t, header+"property one-winner\n\nA begins\nA acquire 1 redis\nA read 1 db\nA claim 1 db\nA release 1 redis\nB begins\nB acquire 1 redis\nB read 1 db\nB claim 1 db\n", "")
	c, err := open(t.Context(), never)
	t.Cleanup(func() { _ = c.close() })
	stacktest.Check(t, err)
	if _, err := c.run(t.Context()); !errors.Is(err, ErrCannotForce) || !strings.Contains(err.Error(), `line 15, "B claim 1 db"`) {
		t.Errorf("%v, want ErrCannotForce with line 15", err)
	}
	kept := slices.Clone(never.Schedule.Steps)
	c.Schedule.Steps = kept[:len(kept)-1]
	if f, err := c.run(t.Context()); err != nil || f.Violated {
		t.Errorf("%+v, %v, want the property kept", f, err)
	}
}
