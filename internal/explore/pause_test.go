package explore_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/explore"
	"grablab/internal/explore/schedule"
	"grablab/internal/explore/search"
	"grablab/internal/explore/sim"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
)

// TestPauseStopsTheProcess checks that a paused process makes no steps. It takes random walks through
// schedules with two drivers in one process. While that process is paused, the only possible step of its
// drivers must be that the process resumes.
func TestPauseStopsTheProcess(t *testing.T) {
	for _, strategy := range []string{"setnx", "watchdog", "handoff", "mysql-forupdate", "etcd", "zookeeper-fenced"} {
		t.Run(strategy, func(t *testing.T) {
			cluster := newPauseCluster(t, strategy)
			pauses, random := 0, rand.New(rand.NewPCG(1, 2))
			for range 5 {
				pauses += walkAtRandom(t, cluster, random)
			}
			if pauses < 3 {
				t.Errorf("only %d walks had a pause, want at least 3", pauses)
			}
		})
	}
}

func newPauseCluster(t *testing.T, strategy string) *sim.Cluster {
	t.Helper()
	s, err := lock.Find(strategy)
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := sim.New(bubbleOf(t), sim.Setting{
		Strategy: s, Guard: s.Guard, OnLost: grab.Abort, TTL: 3 * time.Second, Wait: 5 * time.Second, Nodes: 3,
		Actors: []schedule.Actor{{Name: "A", Instance: 1}, {Name: "B", Instance: 2}, {Name: "C", Instance: 1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	return cluster
}

// walkAtRandom takes one walk with at most one pause, and returns how many pauses it had.
func walkAtRandom(t *testing.T, cluster *sim.Cluster, random *rand.Rand) (pauses int) {
	t.Helper()
	instances := map[string]int{}
	for _, a := range cluster.Actors {
		instances[a.Name] = a.Instance
	}
	limits := &sim.Limits{Bounds: search.Cost{Preemptions: search.MaxPreemptions, Faults: 1}, Faults: []catalog.Fault{catalog.Pause}}
	stopped := 0 // the instance that is paused, or 0
	var steps []schedule.Step
	for len(steps) < 40 {
		trace, err := cluster.Execute(limits, search.Task{Steps: steps, Cost: search.Cost{Faults: int8(pauses)}})
		if err != nil {
			t.Fatal(err)
		}
		if len(trace.Points) == 0 || len(trace.Points[0].Transitions) == 0 {
			return pauses
		}
		offered := trace.Points[0].Transitions
		for _, tr := range offered {
			if stopped != 0 && instances[tr.Step.Actor] == stopped && tr.Step.Kind != schedule.Resumes {
				t.Fatalf("instance %d is paused, but %s is possible after %s", stopped, tr.Step, fmt.Sprint(steps))
			}
		}
		next := offered[random.IntN(len(offered))].Step
		for _, tr := range offered { // often pause early, so that many steps follow the pause
			if tr.Step.Kind == schedule.Paused && instances[tr.Step.Actor] == 1 && random.IntN(4) == 0 {
				next = tr.Step
			}
		}
		switch next.Kind {
		case schedule.Paused:
			stopped, pauses = instances[next.Actor], pauses+1
		case schedule.Resumes:
			stopped = 0
		}
		steps = append(steps, next)
	}
	return pauses
}

// TestSessionAfterPause checks that no property counts as broken if a session expires while its process is
// paused. After the process has resumed, a second driver begins there. It waits for a new session of the
// client, which is not a lost wake-up.
func TestSessionAfterPause(t *testing.T) {
	sched, err := schedule.Parse(`strategy zookeeper-fenced
guard fenced
actors A@1 B@2 C@1
nodes zookeeper
ttl 3s
property no-lost-wakeup

A begins
A acquire 1 zookeeper
A acquire 2 zookeeper
A acquire 3 zookeeper
A paused
B begins
B acquire 1 zookeeper
B acquire 2 zookeeper
B acquire 3 zookeeper
time to lease end
A resumes
A acquire 4 zookeeper
A acquire 5 zookeeper
C begins
C acquire 1 zookeeper
time to next timer
time to next timer
C acquire 2 zookeeper
time to next timer
A renew 1 zookeeper
`)
	if err != nil {
		t.Fatal(err)
	}
	r, err := explore.Replay(t.Context(), bubbleOf(t), sched, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range r.Failures {
		t.Errorf("%s is broken: %s", f.Property, f.Why)
	}
	// The client pauses for a second before it finds its session expired, and for another
	// second before it opens the next one.
	if last := r.Moments[len(r.Moments)-1]; last.At > 5100*time.Millisecond {
		t.Errorf("the last driver got its answer only after %s", last.At)
	}
}
