package experiment

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/history"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/stack/stacktest"
)

// matrix returns a runner for these strategies and faults. It calls play instead of running a cell.
func matrix(t *testing.T, strategies, faults string, play func(*worker, context.Context, *cellSpec) Cell) *runner {
	t.Helper()
	cfg := small(t, stack.Embedded, strings.Split(strategies, ",")...)
	cfg.Faults, cfg.Workers = nil, 3
	for _, f := range strings.Split(faults, ",") {
		cfg.Faults = append(cfg.Faults, catalog.Fault(f))
	}
	r := newRunner(cfg, func(*Run) error { return nil })
	r.runCell = play
	t.Cleanup(func() {
		if err := r.close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// fill opens the runner and runs all its cells.
func (r *runner) fill(t *testing.T, ctx context.Context) error {
	t.Helper()
	stacktest.Check(t, r.open(ctx))
	return r.runAll(ctx)
}

func blankCell(s *cellSpec) Cell {
	return Cell{Strategy: s.Strategy, Fault: s.Fault, Verdict: catalog.Safe}
}

func namesOf(cells []Cell) string {
	var names []string
	for _, c := range cells {
		names = append(names, c.Name().String())
	}
	return strings.Join(names, " ")
}

const (
	table = "none/none none/pause none/crash setnx/none setnx/pause setnx/crash"
	calm  = "none/none setnx/none"
)

// TestImpossibleTestsAreSaved checks that a run is saved even if none of its tests is possible.
func TestImpossibleTestsAreSaved(t *testing.T) {
	t.Parallel()
	r := matrix(t, "none", "redis-restart", func(*worker, context.Context, *cellSpec) Cell { panic("nothing can run") })
	saved := -1
	r.save = func(run *Run) error { saved = len(run.Cells); return nil }
	if err := r.fill(t, t.Context()); err != nil || saved != 1 {
		t.Errorf("the saved run has %d tests, %v; want 1", saved, err)
	}
}

// TestMatrix checks the order of a run. Cells without a fault must run first and one at a time. Cells
// with a fault must run at the same time on different workers. Whenever the run is saved, its cells
// must be in the order of the table.
func TestMatrix(t *testing.T) {
	t.Parallel()
	var (
		mu      sync.Mutex
		running = map[*worker]string{}
		began   []string
		faulty  int
		met     = make(chan struct{})
	)
	r := matrix(t, "none,setnx", "none,pause,crash", func(l *worker, _ context.Context, s *cellSpec) Cell {
		mu.Lock()
		if other, ok := running[l]; ok {
			t.Errorf("%v begins on a worker that still runs %s", s, other)
		}
		if s.Fault == catalog.NoFault && len(running) > 0 {
			t.Errorf("%v begins while %v run", s, running)
		}
		running[l] = s.String()
		began = append(began, s.String())
		if s.Fault != catalog.NoFault {
			if faulty++; faulty == 3 { // no worker continues before all three run a cell
				close(met)
			}
		}
		mu.Unlock()
		if s.Fault != catalog.NoFault {
			<-met
		}
		mu.Lock()
		delete(running, l)
		mu.Unlock()
		return blankCell(s)
	})
	r.save = func(run *Run) error {
		if order := namesOf(run.Cells); !subsequence(strings.Fields(order), strings.Fields(table)) {
			t.Errorf("saved as %s", order)
		}
		return nil
	}
	if err := r.fill(t, t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := namesOf(r.run.Cells); got != table || !r.run.Complete {
		t.Errorf("the run has %s, complete %v", got, r.run.Complete)
	}
	if got := strings.Join(began[:2], " "); got != calm {
		t.Errorf("the run began with %s, want %s", got, calm)
	}
}

func subsequence(part, whole []string) bool {
	for _, w := range whole {
		if len(part) > 0 && part[0] == w {
			part = part[1:]
		}
	}
	return len(part) == 0
}

// TestMatrixOnly checks that only the named cells run, even if all of them have a fault.
func TestMatrixOnly(t *testing.T) {
	r := matrix(t, "none,setnx", "none,pause,crash", func(_ *worker, _ context.Context, s *cellSpec) Cell { return blankCell(s) })
	r.cfg.Only = []CellName{{"setnx", catalog.Crash}, {"none", catalog.Pause}}
	if err := r.fill(t, t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := namesOf(r.run.Cells); got != "none/pause setnx/crash" || !r.run.Complete {
		t.Errorf("the run has %s, complete %v", got, r.run.Complete)
	}
}

// TestMatrixResumed checks that an interrupted run is resumed with its unfinished and missing cells
// only. The resumed run must have all cells of the table.
func TestMatrixResumed(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	r := matrix(t, "none,setnx", "none,pause,crash", func(_ *worker, ctx context.Context, s *cellSpec) Cell {
		if s.String() == "setnx/pause" {
			interrupt()
		}
		if s.Fault == catalog.Pause {
			<-ctx.Done() // keep the other worker's cell unfinished too
		}
		return blankCell(s)
	})
	if err := r.fill(t, ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("ended with %v", err)
	}
	first := *r.run
	if first.Complete || first.finished(CellName{"none", catalog.Pause}) != nil || first.finished(CellName{"none", catalog.NoFault}) == nil {
		t.Fatalf("kept %s, complete %v", namesOf(first.Cells), first.Complete)
	}

	var mu sync.Mutex
	var again []string
	r = matrix(t, "none,setnx", "none,pause,crash", func(_ *worker, _ context.Context, s *cellSpec) Cell {
		mu.Lock()
		defer mu.Unlock()
		again = append(again, s.String())
		return blankCell(s)
	})
	r.cfg.Resume = &first
	r.run.StartedAt = first.StartedAt
	if err := r.fill(t, t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := namesOf(r.run.Cells); got != table || !r.run.Complete {
		t.Errorf("the resumed run has %s, complete %v", got, r.run.Complete)
	}
	for _, name := range again {
		if first.finished(parseName(name)) != nil {
			t.Errorf("%s was finished, but ran again", name)
		}
	}
	if !slices.Contains(again, "setnx/pause") || !slices.Contains(again, "none/pause") {
		t.Errorf("only %v ran again, want none/pause and setnx/pause too", again)
	}
}

func parseName(text string) CellName {
	strategy, fault, _ := strings.Cut(text, "/")
	return CellName{strategy, catalog.Fault(fault)}
}

// TestMatrixExcuses checks cells whose fault does not affect the strategy, or that this stack does
// not support. They must be in the table with the reason, without having run.
func TestMatrixExcuses(t *testing.T) {
	r := matrix(t, "mutex,setnx", "slow,redis-restart,failover", func(_ *worker, _ context.Context, s *cellSpec) Cell { return blankCell(s) })
	if err := r.fill(t, t.Context()); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range r.run.Cells {
		got = append(got, string(c.Verdict))
		why := map[catalog.Verdict]string{catalog.NA: "touches nothing that mutex uses", catalog.Unknown: "use -stack local"}[c.Verdict]
		if !strings.Contains(c.Reason, why) || (c.Expected == nil) != (c.Verdict != catalog.Unknown) {
			t.Errorf("%s/%s: %s, expected %v: %q", c.Strategy, c.Fault, c.Verdict, c.Expected, c.Reason)
		}
	}
	if want := []string{"safe", "n/a", "n/a", "safe", "safe", "unknown"}; !slices.Equal(got, want) || !r.run.Complete {
		t.Errorf("the verdicts are %q, want %q", got, want)
	}
}

// TestFinishedTests checks which tests a resumed run does not repeat. These are all tests with a
// result, with or without a fault, except those that were interrupted.
func TestFinishedTests(t *testing.T) {
	for name, tt := range map[string]struct {
		cell Cell
		want bool
	}{
		"measured":    {Cell{Verdict: catalog.Unsafe, Requests: 5}, true},
		"n/a":         {Cell{Verdict: catalog.NA, Reason: "slow touches nothing that a uses"}, true},
		"interrupted": {Cell{Verdict: catalog.Unknown, Requests: 5, Interrupted: true}, false},
	} {
		for _, f := range []catalog.Fault{catalog.NoFault, catalog.Pause} {
			c := tt.cell
			c.Strategy, c.Fault = "a", f
			run := &Run{Cells: []Cell{c}}
			if got := run.finished(c.Name()); (got != nil) != tt.want {
				t.Errorf("%s under %s: finished %v, want %v", name, f, got != nil, tt.want)
			}
		}
	}
}

// TestDurationOfAResumedRun checks that the duration of a resumed run contains the time before the interruption, and that
// the run keeps its start time.
func TestDurationOfAResumedRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started := time.Now().Add(-24 * time.Hour)
		for before, resumed := range map[float64]*Run{0: nil, 40: {StartedAt: started, DurationS: 40}} {
			began := time.Now().UTC()
			if resumed != nil {
				began = started
			}
			r := newRunner(Config{Resume: resumed}, func(*Run) error { return nil })
			time.Sleep(2 * time.Second)
			r.publishLocked()
			if r.run.DurationS != before+2 || !r.run.StartedAt.Equal(began) {
				t.Errorf("after %v s before the interruption: %v s since %v, want %v s since %v", before, r.run.DurationS, r.run.StartedAt, before+2, began)
			}
		}
	})
}

// TestBudget checks that a cell that exceeds its budget has the verdict unknown, with the reason,
// even if the run has time left.
func TestBudget(t *testing.T) {
	cfg := small(t, stack.Embedded, "setnx")
	cfg.Budget = time.Nanosecond
	l := open(t, cfg)
	for _, total := range []time.Duration{0, time.Hour} {
		l.cfg.BudgetTotal, l.cfg.deadline = total, time.Now().Add(total)
		c := l.run(t.Context(), &cellSpec{CellName: CellName{"setnx", catalog.Slow}, strategy: cfg.Strategies[0]})
		if c.Verdict != catalog.Unknown || c.Interrupted || !strings.Contains(c.Reason, "budget of 1ns") {
			t.Errorf("%v for the run: %s, interrupted %v: %q", total, c.Verdict, c.Interrupted, c.Reason)
		}
	}
}

// TestBudgetTotal ends a run's budget during its fourth cell. The cells that are most likely to
// fail must come first. The remaining cells must be unknown, and must be left to a resumed run.
func TestBudgetTotal(t *testing.T) {
	var began []string
	var r *runner
	r = matrix(t, "setnx,watchdog", "none,cancel,pause,hang", func(l *worker, _ context.Context, s *cellSpec) Cell {
		began = append(began, s.String())
		if len(began) == 4 {
			r.cfg.deadline = time.Now()
		}
		return blankCell(s)
	})
	r.workers, r.cfg.BudgetTotal, r.cfg.deadline = r.workers[:1], time.Hour, time.Now().Add(time.Hour)
	if err := r.fill(t, t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(began, " "), "setnx/none watchdog/none setnx/pause watchdog/pause"; got != want {
		t.Errorf("ran %s, want %s", got, want)
	}
	for _, c := range r.run.Cells {
		left := !slices.Contains(began, c.Name().String())
		if left != (c.Verdict == catalog.Unknown && c.Interrupted && c.Reason == "not run, because -budget-total 1h0m0s ran out") || left == (r.run.finished(c.Name()) != nil) {
			t.Errorf("test %s/%s: verdict %s, reason %q", c.Strategy, c.Fault, c.Verdict, c.Reason)
		}
	}
	if len(r.run.Cells) != 8 || r.run.Complete {
		t.Errorf("the run has %d cells, complete %v", len(r.run.Cells), r.run.Complete)
	}
	if err := r.run.Contradiction(); err != nil {
		t.Error(err)
	}
}

// TestErrorIsNoBudget ends a run with an error. The reason of the cells that did not run must not
// mention a budget.
func TestErrorIsNoBudget(t *testing.T) {
	r := matrix(t, "setnx", "cancel,pause,hang", func(_ *worker, _ context.Context, s *cellSpec) Cell { return blankCell(s) })
	r.workers = r.workers[:1]
	full := errors.New("no space left")
	r.save = func(*Run) error { return full }
	if err := r.fill(t, t.Context()); !errors.Is(err, full) {
		t.Errorf("fill returned %v, want the error of save", err)
	}
	for _, c := range r.run.Cells {
		if c.Reason != "" {
			t.Errorf("test %s/%s should have no reason, but has %s", c.Strategy, c.Fault, c.Reason)
		}
	}
}

// TestBudgetTotalEndsCell checks that the run's budget also ends a running cell, with this reason.
func TestBudgetTotalEndsCell(t *testing.T) {
	cfg := small(t, stack.Embedded, "setnx")
	cfg.Budget, cfg.BudgetTotal = time.Hour, time.Nanosecond
	c := open(t, cfg).run(t.Context(), &cellSpec{CellName: CellName{"setnx", catalog.Slow}, strategy: cfg.Strategies[0]})
	if c.Verdict != catalog.Unknown || !c.Interrupted || c.Reason != "ended early, because -budget-total 1ns ran out" {
		t.Errorf("%s, interrupted %v: %q", c.Verdict, c.Interrupted, c.Reason)
	}
}

// TestDirtyWorker checks that a worker is replaced if a fault could not be undone on its servers.
func TestDirtyWorker(t *testing.T) {
	t.Parallel()
	var workers []*worker
	r := matrix(t, "setnx", "pause,crash", func(l *worker, _ context.Context, s *cellSpec) Cell {
		workers = append(workers, l)
		l.dirty = true
		return blankCell(s)
	})
	r.workers = r.workers[:1]
	if err := r.fill(t, t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(workers) != 2 || workers[0] == workers[1] {
		t.Errorf("the cells ran on the workers %v, want two different ones", workers)
	}
	if _, err := os.Stat(workers[0].stack.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder of the first worker still exists: %v", err)
	}
}

// TestUnsavable checks that a run ends with the error, on all workers, if its result cannot be
// saved.
func TestUnsavable(t *testing.T) {
	full := errors.New("disk full")
	r := matrix(t, "none,setnx", "pause,crash", func(_ *worker, ctx context.Context, s *cellSpec) Cell {
		if s.String() != "none/pause" {
			<-ctx.Done()
		}
		return blankCell(s)
	})
	r.save = func(run *Run) error { return full }
	if err := r.fill(t, t.Context()); !errors.Is(err, full) {
		t.Errorf("ended with %v", err)
	}
}

// TestQueue checks that a worker gets only cells whose servers it has. The worker with the slow
// servers must begin with the cells that need them.
func TestQueue(t *testing.T) {
	find := func(name string) *cellSpec {
		s, err := lock.Find(name)
		if err != nil {
			t.Fatal(err)
		}
		return &cellSpec{CellName: CellName{name, catalog.Pause}, strategy: s}
	}
	q := newQueue([]*cellSpec{find("setnx"), find("zookeeper"), find("redlock"), find("etcd")})
	everything := lock.Redis | lock.RedisQuorum | lock.SQL | lock.SQLLocks | lock.ZooKeeper | lock.Etcd
	for _, take := range []struct {
		serves lock.Backend
		want   string
	}{
		{everything, "zookeeper"}, {everything &^ coordinators, "setnx"}, {everything, "etcd"},
		{everything &^ coordinators &^ lock.RedisQuorum, ""}, {everything, "redlock"}, {everything, ""},
	} {
		got := ""
		if s := q.take(take.serves); s != nil {
			got = s.Strategy
		}
		if got != take.want {
			t.Errorf("a worker with the servers %b took %q, want %q", take.serves, got, take.want)
		}
	}
}

// TestFilesOfResponses checks that each repetition of each cell has its own file. The name of the
// first file has no suffix, because a merge looks for this name.
func TestFilesOfResponses(t *testing.T) {
	names := map[string]bool{}
	for _, strategy := range []string{"setnx", "setnx-2", "a/b"} {
		for _, f := range []catalog.Fault{catalog.NoFault, catalog.Pause} {
			c := &Cell{Strategy: strategy, Fault: f}
			for n := range 12 {
				w := worker{repetition: n + 1}
				name := AnswersFile(c, w.suffix())
				if names[name] || strings.Contains(name, "/") || n == 0 && name != AnswersFile(c, "") {
					t.Errorf("repetition %d of %s under %s: %s", n+1, strategy, f, name)
				}
				names[name] = true
			}
		}
	}
}

// TestJournal checks that the events of a cell follow the event that names the cell. A resumed run must
// remove an incomplete line and append to the file.
func TestJournal(t *testing.T) {
	dir := t.TempDir()
	own := filepath.Join(dir, "events-8004.jsonl")
	for part, faults := range [][]catalog.Fault{{catalog.NoFault}, {catalog.Pause, catalog.Crash}} {
		j := &journal{dir: dir}
		if part > 0 {
			half, err := os.OpenFile(j.path(), os.O_APPEND|os.O_WRONLY, 0)
			if err == nil {
				_, err = half.WriteString(`{"t":17,"ki`)
			}
			if err := errors.Join(err, half.Close()); err != nil {
				t.Fatal(err)
			}
		}
		if err := j.open(part > 0); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(own); err != nil { // the file of an earlier stack does not exist any more
			t.Fatal(err)
		}
		var events fleet.Events
		file, err := history.Create(own, "8004")
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range faults { // one process runs these cells one after the other
			for range 3 {
				file.Record(history.Event{Kind: history.OK, Op: history.Grab, Strategy: "setnx", Note: string(f)})
			}
			if err := errors.Join(events.Read(own, func(history.Event) {}), j.keep("setnx", f, &events)); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(file.Close(), j.close()); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Open(filepath.Join(dir, "events.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var got []string
	for e, err := range history.Decode(f) {
		if err != nil {
			t.Error(err)
		}
		got = append(got, e.Op+" "+e.Note)
	}
	var want []string
	for _, f := range []string{"none", "pause", "crash"} {
		want = append(want, "cell "+f, "grab "+f, "grab "+f, "grab "+f)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the journal has %q", got)
	}
}

// TestCompareWithoutFault checks that a cell with a fault cannot be safe if the strategy fails
// without a fault. If the strategy is unsafe without a fault, the points must have no failure mode.
func TestCompareWithoutFault(t *testing.T) {
	usuals := []catalog.Verdict{"", catalog.Safe, catalog.Unsafe, catalog.Stuck, catalog.Unknown, catalog.NA} // empty if the strategy was not tested without a fault
	for _, usual := range usuals {
		for _, under := range usuals[1:] {
			r := &runner{specs: []*cellSpec{
				{CellName: CellName{"other", catalog.NoFault}, cell: &Cell{Verdict: catalog.Unsafe}},
				{CellName: CellName{"lock", catalog.Pause}, cell: &Cell{Verdict: catalog.Unsafe}},
				{CellName: CellName{"lock", catalog.NoFault}},
			}}
			if usual != "" {
				r.specs[2].cell = &Cell{Verdict: usual}
			}
			c := Cell{Verdict: under, Reason: "as measured", Points: []Point{{FailureMode: "F11"}}}
			r.compareWithoutFault("lock", &c)
			fails := usual == catalog.Unsafe || usual == catalog.Stuck
			want := under
			if under == catalog.Safe && fails {
				want = catalog.Unknown
			}
			if c.Verdict != want || strings.Contains(c.Reason, "without a fault") != (want != under) {
				t.Errorf("%s, and %s without a fault: %s (%s), want %s", under, usual, c.Verdict, c.Reason, want)
			}
			if kept := c.Points[0].FailureMode != ""; kept != (usual != catalog.Unsafe) {
				t.Errorf("%s, and %s without a fault: the failure mode is %q", under, usual, c.Points[0].FailureMode)
			}
		}
	}
}

// TestTestsWithoutTime runs tests after the budget of the run has ended. A test that has not begun must
// be marked as interrupted, so that a resumed run repeats it. Results that already exist must stay,
// including that of a test that the budget interrupted.
func TestTestsWithoutTime(t *testing.T) {
	for _, over := range []bool{false, true} {
		r := newRunner(Config{BudgetTotal: time.Hour, deadline: time.Now().Add(time.Hour)}, func(*Run) error { return nil })
		if over {
			r.cfg.deadline = time.Now()
		}
		done := Cell{Strategy: "setnx", Fault: catalog.Pause, Verdict: catalog.Unsafe, Reason: "2 of 10"}
		interrupted := done
		interrupted.Interrupted = true
		r.specs = []*cellSpec{{CellName: done.Name()}, {CellName: done.Name(), cell: &interrupted}, {CellName: done.Name(), cell: &done}}
		if err := r.leaveOut(); err != nil {
			t.Fatal(err)
		}
		if c := r.specs[0].cell; (c != nil) != over || over && (c.Verdict != catalog.Unknown || !c.Interrupted || !strings.Contains(c.Reason, "not run")) {
			t.Errorf("over %v: the test that was not run is %+v", over, c)
		}
		for _, s := range r.specs[1:] {
			if c := s.cell; c.Verdict != catalog.Unsafe || c.Reason != "2 of 10" {
				t.Errorf("over %v: a result becomes %s (%s)", over, c.Verdict, c.Reason)
			}
		}
	}
}

// TestRiskOfEachTest orders the tests of all strategies under all faults. Those that are expected to fail come first, and
// then those with the faults that break the most kinds of locks.
func TestRiskOfEachTest(t *testing.T) {
	var specs []*cellSpec
	for _, s := range lock.Strategies {
		for _, f := range catalog.RunFaults {
			specs = append(specs, &cellSpec{CellName: CellName{s.Name, f}, strategy: s})
		}
	}
	r := newRunner(Config{}, func(*Run) error { return nil })
	r.orderByRisk(specs)
	fails := func(s *cellSpec) bool {
		return s.strategy.New != nil && s.strategy.Expected(s.Fault).IsFailure()
	}
	for i, s := range specs[1:] {
		before := specs[i]
		if fails(s) && !fails(before) || fails(s) == fails(before) && catalog.KindsThatFail(s.Fault) > catalog.KindsThatFail(before.Fault) {
			t.Errorf("%v comes before %v", before, s)
		}
	}
}
