package search

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/explore/schedule"
)

// A tree is a set of schedules for a fake worker. Each node is a state, and each path to a leaf is a
// schedule. The first step from a node always costs nothing.
type tree struct {
	seed  uint64
	depth int
	hang  int // the number of the execution that hangs; 0 means none
	cut   int // the number of the execution that is cut off
	dies  int // the number of the execution that ends its process
	pause time.Duration
	run   int
}

// choices returns the costs of the steps that can follow a path.
func (w *tree) choices(path []byte) []Cost {
	if len(path) == w.depth {
		return nil
	}
	h := fnv.New64a()
	_, _ = h.Write(path)
	r := rand.New(rand.NewPCG(w.seed, h.Sum64()))
	costs := []Cost{Free}
	for range r.IntN(3) {
		costs = append(costs, []Cost{Free, Preempted, Faulty}[r.IntN(3)])
	}
	return costs
}

// leaves counts the schedules within the bounds.
func (w *tree) leaves(path []byte, left Cost) (n int) {
	choices := w.choices(path)
	if len(choices) == 0 {
		return 1
	}
	for i, c := range choices {
		if c.Within(left) {
			n += w.leaves(append(path[:len(path):len(path)], byte(i)), left.Minus(c))
		}
	}
	return n
}

// step returns a step that represents choice n.
func step(n int) schedule.Step { return schedule.Step{Actor: string(rune('a' + n))} }

func (w *tree) Update(Visited) {}

// bounded is a fake worker that executes schedules of the tree within the bounds of the search.
type bounded struct {
	*tree
	bounds Cost
}

func (w bounded) Execute(task Task) (*Trace, error) {
	time.Sleep(w.pause)
	w.run++
	t := &Trace{Impossible: -1, Hung: w.run == w.hang, Cut: w.run == w.cut}
	var path []byte
	for _, s := range task.Steps {
		path = append(path, s.Actor[0]-'a')
		t.Steps = append(t.Steps, s)
	}
	for {
		choices := w.choices(path)
		if len(choices) == 0 {
			break
		}
		h := fnv.New64a()
		_, _ = h.Write(path)
		p := BranchPoint{State: Fingerprint(h.Sum64())}
		for i, c := range choices {
			if task.Cost.Plus(c).Within(w.bounds) {
				p.Transitions = append(p.Transitions, Transition{step(i), c})
			}
		}
		t.Points = append(t.Points, p)
		path = append(path, 0)
		t.Steps = append(t.Steps, step(0))
	}
	if w.run == w.dies {
		t.Broken = []Violation{{Property: catalog.Survives, Step: len(t.Steps)}}
	}
	return t, nil
}

// TestCompleteMeansEverything checks that a search is complete if and only if it has executed every
// schedule within its bounds. It searches random trees and stops each search at every possible point. It
// stops them by a number of schedules, by a time limit, or by an execution that hangs, is cut off or ends
// its process.
func TestCompleteMeansEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for seed := range uint64(12) {
			for _, bounds := range []Cost{{0, 0}, {1, 0}, {0, 1}, {1, 1}, {2, 1}} {
				w := tree{seed: seed, depth: 3, pause: time.Second}
				total := w.leaves(nil, bounds)
				search := func(w tree, schedules int, within time.Duration) Summary {
					ctx, cancel := context.WithTimeout(t.Context(), within)
					defer cancel()
					cfg := Config{Bounds: bounds, Properties: []string{"property"}, Schedules: schedules}
					s, err := New(cfg, Visited{}).Run(ctx, []Worker{bounded{&w, bounds}}, nil)
					if err != nil {
						t.Fatal(err)
					}
					return s
				}
				check := func(what string, n int, s Summary, run int, complete bool) {
					t.Helper()
					waiting := 0
					for _, l := range s.Levels {
						waiting += l.Waiting
					}
					if s.Complete != complete || (s.Reason == "") != complete || s.Schedules != run || complete && waiting > 0 {
						t.Errorf("tree %d, bounds %+v, %s %d of %d: %d schedules, complete %v, %d waiting, %q", seed, bounds, what, n, total, s.Schedules, s.Complete, waiting, s.Reason)
					}
				}
				check("no limit", 0, search(w, 0, time.Hour), total, true)
				for n := 1; n <= total+2; n++ {
					run := min(n, total)
					check("limit", n, search(w, n, time.Hour), run, n >= total)
					check("seconds", n, search(w, 0, time.Duration(n)*time.Second+time.Second/2), min(n+1, total), n+1 >= total)
				}
				for n := 1; n <= total; n++ {
					hangs, cut, dies := w, w, w
					hangs.hang, cut.cut, dies.dies = n, n, n
					check("hangs at", n, search(hangs, 0, time.Hour), n, false)
					check("cut at", n, search(cut, 0, time.Hour), total, false)
					if s := search(dies, 0, time.Hour); s.Complete || s.Reason == "" {
						t.Errorf("tree %d, bounds %+v, dies at %d of %d: complete", seed, bounds, n, total)
					}
				}
			}
		}
	})
}

// TestLongSchedules checks that a search can queue schedules that are longer than MaxSteps. An execution
// that repeats such a schedule is not cut off.
func TestLongSchedules(t *testing.T) {
	w := tree{seed: 1, depth: MaxSteps + 9}
	cfg := Config{Bounds: Cost{1, 1}, Properties: []string{"property"}, Schedules: 20}
	s, err := New(cfg, Visited{}).Run(t.Context(), []Worker{bounded{&w, cfg.Bounds}}, nil)
	if err != nil || s.Schedules != 20 || s.Complete {
		t.Errorf("Run: %+v, %v", s, err)
	}
}

// TestHangWithManyWorkers checks that a search that stops at a hanging schedule has the same result with one
// worker and with several. It lets each schedule of random trees hang.
func TestHangWithManyWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for seed := range uint64(4) {
			bounds := Cost{1, 1}
			run := func(workers int, hangs string) (Summary, []string) {
				var executed []string
				var all []Worker
				for range workers {
					w := tree{seed: seed, depth: 3, pause: time.Second}
					all = append(all, hanging{bounded{&w, bounds}, hangs, &executed})
				}
				s, err := New(Config{Bounds: bounds, Properties: []string{"property"}}, Visited{}).Run(t.Context(), all, nil)
				if err != nil {
					t.Fatal(err)
				}
				return s, executed
			}
			_, schedules := run(1, "none")
			for _, hangs := range schedules {
				want, _ := run(1, hangs)
				for workers := 2; workers <= 3; workers++ {
					if got, _ := run(workers, hangs); !reflect.DeepEqual(got, want) {
						t.Errorf("tree %d, the schedule %q hangs: %d workers have the result %+v, one worker has %+v", seed, hangs, workers, got, want)
					}
				}
			}
		}
	})
}

// hanging is a worker that hangs in the schedule with the given first steps. If it is the only worker, it
// records the schedules that it executes.
type hanging struct {
	bounded
	hangs    string
	executed *[]string
}

func (w hanging) Execute(task Task) (*Trace, error) {
	name := fmt.Sprint(task.Steps)
	if w.hangs == "none" {
		*w.executed = append(*w.executed, name)
	}
	t, err := w.bounded.Execute(task)
	t.Hung = name == w.hangs
	return t, err
}

// breaking is a worker whose schedules break properties in some states of the tree.
type breaking struct{ bounded }

// breaks returns the property that is broken in the state after a path, and the kind of the failure. The
// property is empty if none is broken.
func (w *tree) breaks(path []byte) (property, kind string) {
	h := fnv.New64a()
	_, _ = h.Write(path)
	n := h.Sum64() + w.seed
	if len(path) == 0 || n%3 > 0 {
		return "", ""
	}
	return []string{"first", "second"}[n/3%2], []string{"a", "b", "c"}[n/6%3]
}

func pathOf(steps []schedule.Step) (path []byte) {
	for _, s := range steps {
		path = append(path, s.Actor[0]-'a')
	}
	return path
}

func (w breaking) Execute(task Task) (*Trace, error) {
	t, err := w.bounded.Execute(task)
	for n := range len(t.Steps) + 1 {
		if property, _ := w.breaks(pathOf(t.Steps[:n])); property != "" {
			t.Broken = append(t.Broken, Violation{Property: property, Step: n})
		}
	}
	return t, err
}

// TestFindingsByDefinition compares the findings of a search with those of an exhaustive search of
// random trees. For each property, a finding must be the cheapest failure, and the shortest among
// equally cheap ones. If the search tells kinds of failures apart, this must be true for each kind. The
// findings must be sorted by property, cost, number of steps and kind.
func TestFindingsByDefinition(t *testing.T) {
	type found struct {
		property int
		level    int
		steps    int
		kind     string
	}
	properties := []string{"second", "first"}
	for seed := range uint64(60) {
		for _, byKind := range []bool{false, true} {
			bounds := Cost{2, 1}
			w := &tree{seed: seed, depth: 4}
			cfg := Config{Bounds: bounds, Properties: properties}
			if byKind {
				cfg.Kind = func(_ Violation, steps []schedule.Step) string { _, kind := w.breaks(pathOf(steps)); return kind }
			}
			s := New(cfg, Visited{})
			best := map[[2]string]found{}
			var visit func(path []byte, c Cost)
			visit = func(path []byte, c Cost) {
				level := slices.IndexFunc(s.levels, func(l *level) bool { return l.cost == c })
				if property, kind := w.breaks(path); property != "" {
					if !byKind {
						kind = ""
					}
					f, ok := best[[2]string{property, kind}]
					if !ok || level < f.level || level == f.level && len(path) < f.steps {
						best[[2]string{property, kind}] = found{slices.Index(properties, property), level, len(path), kind}
					}
				}
				for i, choice := range w.choices(path) {
					if next := c.Plus(choice); next.Within(bounds) {
						visit(append(slices.Clone(path), byte(i)), next)
					}
				}
			}
			visit(nil, Free)
			want := slices.SortedFunc(maps.Values(best), func(a, b found) int {
				return cmp.Or(a.property-b.property, a.level-b.level, a.steps-b.steps, strings.Compare(a.kind, b.kind))
			})
			summary, err := s.Run(t.Context(), []Worker{breaking{bounded{w, bounds}}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			var got []found
			for _, f := range summary.Findings {
				got = append(got, found{slices.Index(properties, f.Property), f.level, f.Step, f.Kind})
				if len(f.Steps) != f.Step || !f.Shortest {
					t.Errorf("tree %d: a finding has %d steps instead of %d, or is not the shortest: %v", seed, len(f.Steps), f.Step, f.Shortest)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("tree %d, by kind %v: found %+v, want %+v", seed, byKind, got, want)
			}
		}
	}
}

// lateBreaker is a worker that breaks a property after its process has ended in an earlier execution. It also counts how
// often the search tells it about each state.
type lateBreaker struct {
	bounded
	told map[Fingerprint]int
}

func (w lateBreaker) Update(news Visited) {
	for state := range news {
		w.told[state]++
	}
}

func (w lateBreaker) Execute(task Task) (*Trace, error) {
	t, err := w.bounded.Execute(task)
	if w.dies > 0 && w.run > w.dies {
		t.Broken = []Violation{{Property: "property", Step: len(t.Steps)}}
	}
	return t, err
}

// TestEndStaysKnown lets each execution of random trees end its process, while all later ones break a property.
// The search must stay incomplete, and say why.
func TestEndStaysKnown(t *testing.T) {
	for seed := range uint64(4) {
		bounds := Cost{1, 1}
		total := (&tree{seed: seed, depth: 3}).leaves(nil, bounds)
		for n := 1; n <= total; n++ {
			w := lateBreaker{bounded{&tree{seed: seed, depth: 3, dies: n}, bounds}, map[Fingerprint]int{}}
			cfg := Config{Bounds: bounds, Properties: []string{"property"}, Kind: func(Violation, []schedule.Step) string { return "" }}
			s, err := New(cfg, Visited{}).Run(t.Context(), []Worker{w}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if s.Complete || !strings.Contains(s.Reason, "ended the search process") {
				t.Errorf("tree %d, execution %d of %d ends its process: complete %v, %q", seed, n, total, s.Complete, s.Reason)
			}
		}
	}
}

// TestWorkersLearnStatesOnce checks that the search tells a worker about each state once. The search would repeat
// a state that it later reaches at a lower cost or in fewer steps, but a tree has no such state.
func TestWorkersLearnStatesOnce(t *testing.T) {
	bounds := Cost{2, 2}
	most, states := 0, 0
	for seed := range uint64(4) {
		w := lateBreaker{bounded{&tree{seed: seed, depth: 7}, bounds}, map[Fingerprint]int{}}
		if _, err := New(Config{Bounds: bounds, Properties: []string{"property"}, Schedules: 2000}, Visited{}).Run(t.Context(), []Worker{w}, nil); err != nil {
			t.Fatal(err)
		}
		for _, n := range w.told {
			most, states = max(most, n), states+1
		}
	}
	if most != 1 || states < 100 {
		t.Errorf("a worker was told %d times about a state, and about %d states, want once and at least 100", most, states)
	}
}

// stepwise is a worker that executes only the given steps, so that its last state always has steps that it did not make.
type stepwise struct {
	bounded
	impossible map[int]int // Trace.Impossible by the number of given steps; -1 if there is no entry
	executed   map[int]int // how many schedules it executed, by the number of given steps
}

func (w stepwise) Execute(task Task) (*Trace, error) {
	n := len(task.Steps)
	w.executed[n]++
	t, err := w.bounded.Execute(task)
	t.Steps, t.Points, t.Cut = t.Steps[:n], t.Points[:min(1, len(t.Points))], false
	if at, ok := w.impossible[n]; ok {
		t.Impossible = at
	}
	return t, err
}

// nodes counts the states of the tree within the bounds, by the number of steps to them.
func (w *tree) nodes(path []byte, left Cost, count map[int]int) {
	count[len(path)]++
	for i, c := range w.choices(path) {
		if c.Within(left) {
			w.nodes(append(path[:len(path):len(path)], byte(i)), left.Minus(c), count)
		}
	}
}

// TestEveryStepIsTried searches random trees with a worker that stops after the given steps. The search must then try
// every step from every state.
func TestEveryStepIsTried(t *testing.T) {
	bounds := Cost{1, 1}
	for seed := range uint64(8) {
		w := stepwise{bounded{&tree{seed: seed, depth: 4}, bounds}, nil, map[int]int{}}
		want := map[int]int{}
		w.nodes(nil, bounds, want)
		s, err := New(Config{Bounds: bounds, Properties: []string{"property"}}, Visited{}).Run(t.Context(), []Worker{w}, nil)
		if err != nil || !maps.Equal(w.executed, want) || !s.Complete {
			t.Errorf("tree %d: executed %v, want %v by number of steps; complete %v, %v", seed, w.executed, want, s.Complete, err)
		}
	}
}

// TestImpossibleSteps lets each step of schedules of each length be impossible. Such a schedule does not count, and no
// schedule begins with it. A step after the given ones may be impossible, because the search did not choose it.
func TestImpossibleSteps(t *testing.T) {
	const depth = 4
	bounds := Cost{1, 1}
	for steps := 1; steps <= depth; steps++ {
		for at := -1; at <= steps; at++ {
			w := stepwise{bounded{&tree{seed: 3, depth: depth}, bounds}, map[int]int{steps: at}, map[int]int{}}
			want := map[int]int{}
			w.nodes(nil, bounds, want)
			counted := 0
			for n, executed := range want {
				switch impossible := 0 <= at && at < steps; {
				case impossible && n > steps:
					delete(want, n)
				case !impossible || n < steps:
					counted += executed
				}
			}
			s, err := New(Config{Bounds: bounds, Properties: []string{"property"}}, Visited{}).Run(t.Context(), []Worker{w}, nil)
			if err != nil || !maps.Equal(w.executed, want) || s.Schedules != counted {
				t.Errorf("step %d of %d is impossible: executed %v, want %v; counted %d, want %d: %v", at, steps, w.executed, want, s.Schedules, counted, err)
			}
		}
	}
}

// TestBatches checks that the search executes all waiting schedules together, up to the size of a batch. In a tree
// without costs, each batch then ends one step later than the batch before it.
func TestBatches(t *testing.T) {
	for seed := range uint64(4) {
		for workers := 1; workers <= 2; workers++ {
			w := &tree{seed: seed, depth: 5}
			var all []Worker
			for range workers {
				all = append(all, bounded{&tree{seed: seed, depth: w.depth}, Cost{}})
			}
			batches := 0
			s, err := New(Config{Properties: []string{"property"}}, Visited{}).Run(t.Context(), all, func(Summary) { batches++ })
			if total := w.leaves(nil, Cost{}); err != nil || s.Schedules != total || total > batch || batches > w.depth+1 {
				t.Errorf("tree %d, %d workers: %d of %d schedules in %d batches, %v", seed, workers, s.Schedules, total, batches, err)
			}
		}
	}
}

// grid is a worker for two actors with a number of steps each. The state says only how many steps each of them has
// made, so many schedules reach the same state. Each step of B costs a preemption if A has made an odd number of steps.
type grid struct {
	steps  int
	bounds Cost
	broken [2]int // a state that breaks a property
}

func (w grid) Update(Visited) {}

func (w grid) Execute(task Task) (*Trace, error) {
	t := &Trace{Impossible: -1}
	var at [2]int
	take := func(s schedule.Step) {
		at[s.Actor[0]-'a']++
		t.Steps = append(t.Steps, s)
		if at == w.broken {
			t.Broken = append(t.Broken, Violation{Property: "property", Step: len(t.Steps)})
		}
	}
	for _, s := range task.Steps {
		take(s)
	}
	for {
		p := BranchPoint{State: Fingerprint(1 + at[0]*(w.steps+1) + at[1])}
		for i, n := range at {
			c := Free
			if i == 1 && at[0]%2 == 1 && at[0] < w.steps {
				c = Preempted
			}
			if n < w.steps && task.Cost.Plus(c).Within(w.bounds) {
				p.Transitions = append(p.Transitions, Transition{step(i), c})
			}
		}
		t.Points = append(t.Points, p)
		if len(p.Transitions) == 0 {
			return t, nil
		}
		next := p.Transitions[0]
		if next.Cost != Free { // a schedule goes on only with steps that cost nothing
			return t, nil
		}
		take(next.Step)
	}
}

// TestMergedStates compares searches that explore each state once with searches that explore it on every visit. The
// former must execute fewer schedules, but reach the same states and find the same failure after the same number of
// steps. The latter must execute every schedule.
func TestMergedStates(t *testing.T) {
	for steps := 2; steps <= 4; steps++ {
		for _, bounds := range []Cost{{0, 0}, {1, 0}, {2, 0}} {
			for state := range (steps + 1) * (steps + 1) {
				w := grid{steps, bounds, [2]int{state / (steps + 1), state % (steps + 1)}}
				var schedules func(a, b int, left Cost) int
				schedules = func(a, b int, left Cost) (n int) {
					c := Free
					if a%2 == 1 && a < steps {
						c = Preempted
					}
					if a < steps {
						n += schedules(a+1, b, left)
					}
					if b < steps && c.Within(left) {
						n += schedules(a, b+1, left.Minus(c))
					}
					return max(n, 1)
				}
				search := func(noMerge bool) Summary {
					cfg := Config{Bounds: bounds, Properties: []string{"property"}, NoMerge: noMerge, Kind: func(Violation, []schedule.Step) string { return "" }}
					s, err := New(cfg, Visited{}).Run(t.Context(), []Worker{w}, nil)
					if err != nil || !s.Complete {
						t.Fatalf("%+v: complete %v, %v", w, s.Complete, err)
					}
					return s
				}
				merged, all := search(false), search(true)
				if all.Schedules != schedules(0, 0, bounds) || merged.Schedules >= all.Schedules && steps > 2 || merged.States != all.States {
					t.Errorf("%+v: %d schedules and %d states if states are merged, otherwise %d and %d, want %d schedules", w, merged.Schedules, merged.States, all.Schedules, all.States, schedules(0, 0, bounds))
				}
				stepsOf := func(s Summary) []int { return catalog.Map(s.Findings, func(f Finding) int { return f.Step }) }
				if !slices.Equal(stepsOf(merged), stepsOf(all)) {
					t.Errorf("%+v: failures after %v steps if states are merged, otherwise after %v", w, stepsOf(merged), stepsOf(all))
				}
			}
		}
	}
}

// TestStepsAreNumberedOnce checks that equal steps have the same number, that different steps have different ones, and that
// a job gets its steps back.
func TestStepsAreNumberedOnce(t *testing.T) {
	s := New(Config{}, Visited{})
	var base []schedule.Step
	for i := range 60 {
		base = append(base, step(i*i%7))
	}
	p := s.steps.prefix(base)
	distinct := catalog.Distinct(base)
	if len(s.steps.steps) != len(distinct) {
		t.Errorf("%d different steps have %d numbers", len(distinct), len(s.steps.steps))
	}
	for n := range len(base) {
		want := append(slices.Clone(base[:n]), step(n%3))
		if got := s.given(job{&p, uint16(n), s.steps.id(step(n % 3))}); !slices.Equal(got, want) {
			t.Errorf("a job with %d steps and one more gets %v, want %v", n, got, want)
		}
	}
}

// TestPointlessJobs checks which jobs the search skips: those that cannot lead to a cheaper or shorter failure of any property,
// at every cost and length of the failures that are already known. With kinds of failures, it skips none.
func TestPointlessJobs(t *testing.T) {
	const at = 1 // the current level
	known := []Finding{{}}
	for level := range at + 1 {
		for _, steps := range []int{2, 3, 4} {
			known = append(known, Finding{Violation: Violation{Step: steps}, level: level})
		}
	}
	p := make(prefix, 5)
	for _, first := range known {
		for _, second := range known {
			for _, survives := range known {
				for _, steps := range []int{1, 2, 3, 4, 5} {
					for _, byKind := range []bool{false, true} {
						cfg := Config{Bounds: Cost{1, 1}, Properties: []string{"first", "second"}}
						if byKind {
							cfg.Kind = func(Violation, []schedule.Step) string { return "" }
						}
						s := New(cfg, Visited{})
						s.at = at
						cannot := func(property string, f Finding) bool {
							if f.Step > 0 {
								s.found[failure{property: property}] = f
							}
							return f.Step > 0 && (f.level < at || f.Step <= steps)
						}
						noFirst, noSecond, noSurvives := cannot("first", first), cannot("second", second), cannot(catalog.Survives, survives)
						want := !byKind && (noSurvives || noFirst && noSecond)
						if got := s.isPointless(job{&p, uint16(steps - 1), 0}); got != want {
							t.Errorf("found %+v, %+v and %+v, %d steps, by kind %v: pointless %v, want %v", first, second, survives, steps, byKind, got, want)
						}
					}
				}
			}
		}
	}
}
