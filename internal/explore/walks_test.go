package explore_test

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"grablab/internal/explore"
	"grablab/internal/explore/schedule"
	"grablab/internal/explore/search"
	"grablab/internal/explore/sim"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
)

// walksFile holds a line for each random walk.
const walksFile = "testdata/walks/walks.txt"

// A walk is one random schedule of a strategy.
type walk struct {
	strategy   string
	number     uint64
	wait, work time.Duration
	actors     int
	schedule   schedule.Schedule
	sim.Record
}

// TestWalks executes random schedules of every strategy, with preemptions and faults. It compares a digest
// of everything that the actors and the servers did with the digest of an earlier run. So it finds any
// change in a strategy's requests, their timing, and the reactions to replies.
//
// The test fails after intended changes too. It then prints the first changed schedule of each strategy.
// If the new behaviour is right, run the test again with -update.
func TestWalks(t *testing.T) {
	if raced {
		t.Skip("the race detector makes this test slow and does not change the digests")
	}
	kept, _ := os.ReadFile(walksFile) // it does not exist before the first -update
	known := strings.Split(string(kept), "\n")
	var lines []string
	for _, st := range lock.Strategies {
		shown := false
		if st.Unexplorable != "" {
			continue
		}
		for n := range uint64(walksOf) {
			w := newWalk(t, st, n)
			line := w.String()
			lines = append(lines, line)
			if !*update && !slices.Contains(known, line) {
				if t.Errorf("%s: this walk differs from the stored one", line); !shown {
					t.Log(w.course())
					shown = true
				}
			}
		}
	}
	if *update {
		if err := os.WriteFile(walksFile, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// walksOf is the number of walks of each strategy.
const walksOf = 40

// newWalk executes a random schedule of a strategy. The number is the random seed, so the same number
// always gives the same schedule.
func newWalk(t *testing.T, st lock.Strategy, number uint64) walk {
	t.Helper()
	r := rand.New(rand.NewPCG(number, 3))
	w := walk{
		strategy: st.Name, number: number, actors: 2 + int(number%2),
		wait: []time.Duration{0, 700 * time.Millisecond, 6 * time.Second}[r.IntN(3)],
		work: []time.Duration{0, 100 * time.Millisecond, 4 * time.Second}[r.IntN(3)],
	}
	set := sim.Setting{
		Strategy: st, Guard: st.GuardedBy(""), OnLost: grab.Abort, TTL: explore.DefaultTTL, Wait: w.wait, Work: w.work, Nodes: explore.DefaultNodes,
	}
	if number%5 == 4 {
		set.Stock = 2
	}
	for i := range w.actors {
		set.Actors = append(set.Actors, schedule.Actor{Name: string(rune('A' + i)), Instance: i%sim.Instances + 1})
	}
	cluster, err := sim.New(bubbleOf(t), set)
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	limits := &sim.Limits{Bounds: search.Cost{Preemptions: 2, Faults: 3}, Faults: explore.Faults}
	var task search.Task
	trace, err := cluster.Execute(limits, task)
	for range 5 {
		if err != nil {
			t.Fatal(err)
		}
		next, ok := turn(r, limits, task, trace)
		if !ok {
			break
		}
		task = next
		trace, err = cluster.Execute(limits, task)
	}
	w.schedule = set.Schedule()
	w.schedule.Steps = trace.Steps
	if w.Record, err = cluster.Replay(trace.Steps); err != nil {
		t.Fatal(err)
	}
	return w
}

// turn returns a task that follows a trace up to a random point and then takes another possible step. It
// returns false if it finds no such point.
func turn(r *rand.Rand, l *sim.Limits, task search.Task, trace *search.Trace) (search.Task, bool) {
	for range 20 {
		if len(trace.Points) == 0 {
			break
		}
		i := r.IntN(len(trace.Points))
		of := trace.Points[i].Transitions
		if len(of) == 0 {
			continue
		}
		tr := of[r.IntN(len(of))]
		made := len(task.Steps) + i
		cost := task.Cost.Plus(tr.Cost)
		if made < len(trace.Steps) && trace.Steps[made] == tr.Step || !cost.Within(l.Bounds) {
			continue
		}
		return search.Task{Steps: append(slices.Clip(trace.Steps[:made]), tr.Step), Cost: cost}, true
	}
	return search.Task{}, false
}

// course returns a text with everything that happened during a walk.
func (w walk) course() string {
	var b strings.Builder
	b.WriteString(w.schedule.String())
	for _, m := range w.Moments {
		fmt.Fprintf(&b, "%v %s: %s\n\t%q believe %q hold %q kept %q\n", m.At, m.Step, m.Did, m.Store, m.Believes, m.Holds, m.Kept)
	}
	for _, v := range w.Broken {
		fmt.Fprintf(&b, "%s in %d steps: %s\n", v.Property, v.Step, v.Why)
	}
	return b.String()
}

// String returns the line of the walk in walksFile.
func (w walk) String() string {
	line := fmt.Sprintf("%s %d: wait %v, work %v, %d actors, %d steps", w.strategy, w.number, w.wait, w.work, w.actors, len(w.Moments))
	for _, v := range w.Broken {
		line += ", " + v.Property
	}
	return fmt.Sprintf("%s: %.8x", line, sha256.Sum256([]byte(w.course())))
}

// TestDeathWakesAWaiter kills the holder's process while another driver waits in the database. A
// new process starts at the moment when that driver gets the lock. In every replay, the driver's
// next call must wait until the schedule reaches it.
func TestDeathWakesAWaiter(t *testing.T) {
	st, err := lock.Find("mysql-forupdate")
	if err != nil {
		t.Fatal(err)
	}
	set := sim.Setting{
		Strategy: st, Guard: st.GuardedBy(""), OnLost: grab.Abort, TTL: explore.DefaultTTL, Wait: time.Second,
		Actors: []schedule.Actor{{Name: "A", Instance: 1}, {Name: "B", Instance: 2}},
	}
	cluster, err := sim.New(bubbleOf(t), set)
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	s, err := schedule.Parse(set.Schedule().String() + `
A begins
A acquire 1 db
B begins
B acquire 1 db
B acquire 2 db
instance 1 dies
B read 1 db
B claim 1 db
B release 1 db
`)
	if err != nil {
		t.Fatal(err)
	}
	courses := map[string]int{}
	for range 300 {
		w := walk{}
		if w.Record, err = cluster.Replay(s.Steps); err != nil {
			t.Fatal(err)
		}
		courses[w.course()]++
	}
	if len(courses) != 1 {
		t.Errorf("%d replays of a schedule differ: %v", len(courses), courses)
	}
}
