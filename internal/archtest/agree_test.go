package archtest

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"testing/synctest"

	"grablab/internal/catalog"
	"grablab/internal/explore"
	"grablab/internal/grab/lock"
	"grablab/internal/measure/experiment"
	"grablab/internal/testbed/fault"
)

// bounds are those within which the explorer is asked for its verdict on a cell.
type bounds struct {
	strategy    string          // "": any
	faults      []catalog.Fault // one of them; nil: any
	actors      int
	preemptions int
	slow        bool // it takes seconds: for make prove
}

// agreeWithin is gone through in order; the first line that fits a cell decides. A
// search that is not complete within agreeSeconds has no verdict.
var agreeWithin = []bounds{
	{"redlock", []catalog.Fault{catalog.Pause}, 2, 0, false},
	{"redlock", []catalog.Fault{catalog.RedisRestart, catalog.NodeClock, catalog.Failover, catalog.RedisFull, catalog.Amnesia, catalog.Partition}, 2, 1, true},
	{"redlock", nil, 2, 0, true},
	{"redlock-miswired", []catalog.Fault{catalog.Amnesia, catalog.Partition}, 2, 1, true},
	{"redlock-miswired", nil, 2, 0, true},
	{"handoff", []catalog.Fault{catalog.RedisDown}, 2, 0, true},
	{"handoff", nil, 2, 1, true},
	{"watchdog-fenced", nil, 2, 1, true},
	{"zookeeper", []catalog.Fault{catalog.Pause, catalog.Latency}, 2, 0, true},
	{"zookeeper", []catalog.Fault{catalog.NodeClock}, 2, 2, true},
	{"zookeeper", nil, 2, 1, true},
	{"zookeeper-fenced", []catalog.Fault{catalog.Pause, catalog.Latency}, 2, 0, true},
	{"zookeeper-fenced", nil, 2, 1, true},
	{"etcd", []catalog.Fault{catalog.RedisDown}, 2, 0, true},
	{"etcd", nil, 2, 1, true},
	{"etcd-fenced", []catalog.Fault{catalog.RedisDown}, 2, 0, true},
	{"etcd-fenced", nil, 2, 1, true},
	{"watchdog", []catalog.Fault{catalog.RedisDown, catalog.Latency}, 2, 2, true},
	{"", nil, 2, 2, false},
}

const agreeSeconds = 150

func boundsOf(strategy string, f catalog.Fault) bounds {
	i := slices.IndexFunc(agreeWithin, func(b bounds) bool {
		return (b.strategy == "" || b.strategy == strategy) && (b.faults == nil || slices.Contains(b.faults, f))
	})
	return agreeWithin[i]
}

// core are the strategies of which every test run asks the explorer.
const core = 5

// coreFaults are those under which every test run asks it.
var coreFaults = []catalog.Fault{
	catalog.Pause, catalog.Crash, catalog.RedisRestart, catalog.Latency, catalog.Cancel,
}

// Every cell that the explorer can play comes to what the registry claims of the order.
func TestExplorerAgrees(t *testing.T) {
	proving := os.Getenv("GRABLAB_PROVE") == "1"
	for i, s := range slices.Concat(lock.Strategies, explorablePeers()) {
		for _, f := range explore.Faults {
			b := boundsOf(s.Name, f)
			if !proving && (i >= core || b.slow || !slices.Contains(coreFaults, f)) {
				continue
			}
			t.Run(fmt.Sprintf("%s x %s", s.Name, f), func(t *testing.T) {
				if proving {
					t.Parallel()
				}
				got, why := explored(t, s, f, b)
				if want := explore.Claimed(s, f, 1); got != want {
					t.Errorf("the explorer says %s, the registry %s: %s", got, want, why)
				}
			})
		}
	}
}

func bubbleOf(t *testing.T) explore.Bubble {
	return func(f func()) { synctest.Test(t, func(*testing.T) { f() }) }
}

// explorablePeers returns the libraries that run in virtual time.
func explorablePeers() []lock.Strategy {
	return slices.DeleteFunc(slices.Clone(lock.Peers), func(s lock.Strategy) bool { return s.Unexplorable != "" })
}

// explored returns the explorer's verdict on the order, and why.
func explored(t *testing.T, s lock.Strategy, f catalog.Fault, b bounds) (v catalog.Verdict, why string) {
	cfg := explore.Config{
		Strategies: []string{s.Name}, First: true, Seconds: agreeSeconds,
		Actors: b.actors, Preemptions: b.preemptions, Faults: []catalog.Fault{f}, FaultCount: 1,
	}
	for _, property := range []string{catalog.OneWinner, catalog.StuckOrder} { // the worst first
		cfg.Properties = []string{property}
		results, err := explore.Search(t.Context(), bubbleOf(t), cfg, nil)
		if err != nil {
			t.Fatal(err)
		}
		r := results[0]
		if v, why = r.Verdict, r.Reason; len(r.Failures) > 0 {
			why = fmt.Sprint(r.Failures[0].Schedule.Steps)
		}
		if v != catalog.Safe {
			break
		}
	}
	return v, why
}

// The reference matrix has every strategy under every fault that touches it, and comes
// to what the registry claims of the order and of the lock; so has that of the libraries.
func TestReferenceMatrixAgrees(t *testing.T) {
	for folder, strategies := range map[string][]lock.Strategy{"reference-matrix-local": lock.Strategies, "reference-peers-local": lock.Peers} {
		t.Run(folder, func(t *testing.T) {
			run, err := loadRun(folder)
			if folder == "reference-matrix-local" {
				run, err = loadMatrix()
			}
			if err != nil {
				t.Fatal(err)
			}
			matrixAgrees(t, run, strategies, func(f catalog.Fault) bool { return f.OnTopology(catalog.SingleRedis) })
		})
	}
}

// TestTopologiesAgree checks that the reference runs on a Cluster and behind Sentinels agree with the
// registry.
func TestTopologiesAgree(t *testing.T) {
	for folder, topology := range map[string]catalog.Topology{
		"reference-cluster-local":  catalog.RedisCluster,
		"reference-sentinel-local": catalog.RedisSentinel,
	} {
		t.Run(folder, func(t *testing.T) {
			run, err := loadRun(folder)
			if err != nil {
				t.Fatal(err)
			}
			var strategies []lock.Strategy
			for _, s := range slices.Concat(lock.Strategies, lock.Peers) {
				if slices.ContainsFunc(run.Cells, func(c experiment.Cell) bool { return c.Strategy == s.Name }) {
					strategies = append(strategies, s)
				}
			}
			if len(strategies) < 7 {
				t.Errorf("only %d strategies were struck", len(strategies))
			}
			matrixAgrees(t, run, strategies, func(f catalog.Fault) bool {
				return f.Entry().Group == catalog.RedisTopologies && f.OnTopology(topology)
			})
		})
	}
}

func matrixAgrees(t *testing.T, run *experiment.Run, strategies []lock.Strategy, swept func(catalog.Fault) bool) {
	cells := map[string]experiment.Cell{}
	for _, c := range run.Cells {
		cells[fmt.Sprintf("%s x %s", c.Strategy, c.Fault)] = c
	}
	for _, s := range strategies {
		for _, f := range fault.Faults {
			if !swept(f.Name) {
				continue
			}
			name := fmt.Sprintf("%s x %s", s.Name, f.Name)
			c, ok := cells[name]
			switch exclusive := s.ExclusiveUnder(f.Name); {
			case !ok || f.Touches(s) != (len(c.Points) > 0):
				t.Errorf("%s was not swept", name)
			case !f.Touches(s) || s.Expected(f.Name) == catalog.Unknown: // chance decides
			case c.Verdict != s.Expected(f.Name):
				t.Errorf("%s: the matrix says %s, the registry %s: %s", name, c.Verdict, s.Expected(f.Name), c.Reason)
			case s.Excludes != catalog.NoExclusion && (c.Exclusive == nil || (*c.Exclusive == experiment.Yes) != exclusive):
				t.Errorf("%s: the matrix says that the lock is %s, the registry exclusive: %v", name, c.Said(), exclusive)
			}
		}
	}
}

// toothless are the columns in which no strategy fails that is safe without the
// fault, each with the reason.
var toothless = map[catalog.Fault]string{
	catalog.NoFault:          "it is no fault",
	catalog.SentinelFailover: "a replica that has all writes keeps the locks",
	catalog.SlotMoves:        "the locks move with their slots",
}

// A fault that no lock fails under teaches nothing.
func TestEveryFaultHasTeeth(t *testing.T) {
	for _, f := range fault.Faults {
		var bitten []string
		for _, s := range slices.Concat(lock.Strategies, lock.KnownBroken) {
			if v := s.Expected(f.Name); f.Touches(s) && s.Expected(catalog.NoFault) == catalog.Safe && ofTheFault(s, f.Name, v) {
				bitten = append(bitten, s.Name)
			}
		}
		if _, excused := toothless[f.Name]; (len(bitten) == 0) != excused {
			t.Errorf("%s: %v fail by a mode of its own; excused: %v", f.Name, bitten, excused)
		}
	}
}

// ofTheFault says whether the mode by which s fails is one that names the fault.
func ofTheFault(s lock.Strategy, f catalog.Fault, v catalog.Verdict) bool {
	property, ok := map[catalog.Verdict]string{catalog.Unsafe: catalog.OneWinner, catalog.Stuck: catalog.StuckOrder}[v]
	if !ok {
		return false
	}
	with, ok := catalog.ModeOf(property, f.Shows()|s.Guard.Shows(), s.Breaks)
	return ok && slices.Contains(s.Breaks, with.ID)
}

// Whatever a search finds of a lock, the registry expects: also of properties that the
// order does not show.
func TestExplorerFindsWhatIsExpected(t *testing.T) {
	proving := os.Getenv("GRABLAB_PROVE") == "1"
	for i, s := range slices.Concat(lock.Strategies, explorablePeers()) {
		quorum := s.Needs&lock.RedisQuorum != 0 // not searched to the end in time
		if !proving && (s.Needs != lock.Redis || i%8 != 2 && i < len(lock.Strategies)) {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			for _, f := range explore.Faults {
				cfg := explore.Config{Strategies: []string{s.Name}, Seconds: agreeSeconds, Actors: 2, Faults: []catalog.Fault{f}, FaultCount: 1}
				if quorum {
					cfg.Seconds = 10
				}
				results, err := explore.Search(t.Context(), bubbleOf(t), cfg, nil)
				if err != nil {
					t.Fatal(err)
				}
				r := results[0]
				if !r.Complete && !quorum {
					t.Errorf("%s: not searched to the end: %s", f, r.Reason)
				}
				for _, failure := range r.Failures {
					if r.Expected == catalog.Safe {
						t.Errorf("%s: %s: %s: %v", f, failure.Property, failure.Why, failure.Schedule.Steps)
					}
				}
			}
		})
	}
}
