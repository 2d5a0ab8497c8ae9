package search

import (
	"context"
	"hash/fnv"
	"math/rand/v2"
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
