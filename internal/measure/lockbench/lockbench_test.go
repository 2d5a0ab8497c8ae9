package lockbench

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/stack/stacktest"
)

func TestMain(m *testing.M) {
	stacktest.Main(m, stacktest.Command{Name: WorkerCommand, Run: WorkerMain})
}

// small returns the configuration of a benchmark that takes only seconds.
func small(t *testing.T, names ...string) Config {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		Cases: Cases, Rounds: 2, Slice: 50 * time.Millisecond, Seed: 1,
		Stack: stack.Config{Kind: stack.Local}, Exe: exe, Log: t.Output(),
	}
	for _, name := range names {
		c, err := Find(name)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Subjects = append(cfg.Subjects, c)
	}
	return cfg
}

// few names locks that represent all locks: in one process, in one Redis and in several, polling
// and notified, our own and those of libraries.
var few = []string{"mutex", "setnx", "watchdog", "redlock", "redislock", "redsync-5ms", "redislock-5ms"}

// TestRun measures a few locks in every case and checks their figures. Only the strategy none,
// which excludes no one, may have two holders at once.
func TestRun(t *testing.T) {
	few := few
	if os.Getenv("GRABLAB_PROVE") != "1" {
		few = few[:5]
	}
	cfg := small(t, append(slices.Clone(few), "none")...)
	saved := 0
	r, err := Run(t.Context(), cfg, func(*Result) error { saved++; return nil })
	stacktest.Check(t, err)
	if !r.Complete || r.Rounds != cfg.Rounds || saved <= cfg.Rounds {
		t.Errorf("complete %v, %d rounds, saved %d times", r.Complete, r.Rounds, saved)
	}
	for _, l := range r.LeftOut {
		t.Errorf("left out: %s: %s", l.Strategy, l.Reason)
	}
	rows := map[[2]string]Row{}
	for _, row := range r.Rows {
		rows[[2]string{row.Strategy, row.Case}] = row
		switch {
		case row.Strategy == Floor:
		case row.Strategy == "none":
			if row.Case == "closed_loop" && *row.Violations == 0 {
				t.Error("none: no overlap was found, although it excludes no one")
			}
		case *row.Violations > 0:
			t.Errorf("%s %s: %d overlaps", row.Strategy, row.Case, *row.Violations)
		}
	}
	for _, name := range append(slices.Clone(few), Floor) {
		for _, c := range Cases {
			row, ok := rows[[2]string{name, c.Name}]
			if !ok && name == "redlock" && c.Name == "many_keys" {
				continue // in such a short slice, 64 workers on five nodes may complete no acquisition
			}
			if !ok {
				t.Errorf("%s: no row for %s", name, c.Name)
				continue
			}
			if row.OpsPerS <= 0 || row.P50US <= 0 || row.Ratio == nil {
				t.Errorf("row of %s in %s: %+v", name, c.Name, row)
			}
			if name != Floor && c.contended() && row.GapP50US == nil {
				t.Errorf("%s %s: no hand-off gap", name, c.Name)
			}
		}
	}
	for name, sent := range map[string]float64{Floor: 2, "setnx": 2, "redislock": 2, "redlock": 10, "mutex": 0} {
		if got := rows[[2]string{name, "uncontended"}].SentPerOp; got == nil || math.Abs(*got-sent) > 0.1 {
			t.Errorf("%s sent %s commands, want %v", name, show("%v", got), sent)
		}
	}
	if got := rows[[2]string{"setnx", "uncontended"}].InsidePerOp; got == nil || math.Abs(*got-2) > 0.1 {
		t.Errorf("the script of setnx ran %s commands, want 2: GET and DEL", show("%v", got))
	}
	var b bytes.Buffer
	if err := Text(&b, r); err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", b.String())
	if err := fits(t, r, func(map[string]any) {}); err != nil {
		t.Error(err)
	}
}

// TestAllTakePart checks that every lock of the registry and of the libraries can be measured.
func TestAllTakePart(t *testing.T) {
	if os.Getenv("GRABLAB_PROVE") != "1" {
		t.Skip("GRABLAB_PROVE is not 1: it takes a while")
	}
	cfg := small(t, Names()...)
	cfg.Cases, cfg.Rounds = Cases[:1], 1
	r, err := Run(t.Context(), cfg, func(*Result) error { return nil })
	stacktest.Check(t, err)
	for _, name := range Names() {
		if !slices.ContainsFunc(r.Rows, func(row Row) bool { return row.Strategy == name && *row.Violations == 0 }) {
			t.Errorf("%s: no row in %+v, left out are %v", name, r.Rows, r.LeftOut)
		}
	}
}

// TestInterrupted checks that an interrupted benchmark keeps the measurements of its complete
// rounds.
func TestInterrupted(t *testing.T) {
	cfg := small(t, "setnx")
	cfg.Cases, cfg.Rounds, cfg.Slice = Cases[:1], 1000, 5*time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last *Result
	r, err := Run(ctx, cfg, func(r *Result) error {
		last = r
		if r.Rounds == 2 {
			cancel()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		stacktest.Check(t, err)
		t.Fatal("Run continued after its context was cancelled")
	}
	if last != r || r.Complete || r.Rounds != 2 || len(r.Rows) != 2 {
		t.Errorf("complete %v, %d rounds, %d rows", r.Complete, r.Rounds, len(r.Rows))
	}
}

// TestWorkerDies kills a worker process before a slice or during it. The error must name the
// process.
func TestWorkerDies(t *testing.T) {
	st := stacktest.Local(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, when := range map[string]time.Duration{"before": 0, "within": 100 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			p, err := newPool(t.Context(), st, exe, 2)
			if err != nil {
				t.Fatal(err)
			}
			defer p.close()
			if _, err := p.run(Cases[3], "setnx", 1, 10*time.Millisecond); err != nil {
				t.Fatal(err)
			}
			killed := make(chan error, 1)
			time.AfterFunc(when, func() { killed <- p[1].Signal(syscall.SIGKILL) })
			_, err = p.run(Cases[3], "setnx", 2, time.Second)
			if kill := <-killed; kill != nil {
				t.Fatal(kill)
			}
			if !errors.Is(err, errProcess) || !strings.Contains(err.Error(), "worker-2: the worker process ended too early") {
				t.Errorf("got error %v, want one that names worker-2", err)
			}
		})
	}
}

// TestWorkerDoesNotJoin checks that newPool fails if the worker program exits without connecting.
func TestWorkerDoesNotJoin(t *testing.T) {
	_, err := newPool(t.Context(), stacktest.Local(t), "/bin/false", 2)
	if !errors.Is(err, errProcess) {
		t.Errorf("got error %v, want %v", err, errProcess)
	}
}
