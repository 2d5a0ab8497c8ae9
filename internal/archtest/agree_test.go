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
	_ "grablab/internal/grab/lock/peers" // registers the libraries in lock.Peers
	"grablab/internal/measure/experiment"
	"grablab/internal/testbed/fault"
)

// bounds sets limits for the explorer's search of some cells. These are the cells of the given strategy
// and faults.
type bounds struct {
	strategy    string          // empty matches every strategy
	faults      []catalog.Fault // matches any of these faults; nil matches every fault
	actors      int
	preemptions int
}

// agreeWithin lists the bounds of the searches. The first entry that matches a cell applies. A search
// that is not complete after agreeSeconds has no verdict.
var agreeWithin = []bounds{
	{"redlock", []catalog.Fault{catalog.Pause}, 2, 0},
	{"redlock", []catalog.Fault{catalog.RedisRestart, catalog.NodeClock, catalog.Failover, catalog.RedisFull, catalog.Amnesia, catalog.Partition}, 2, 1},
	{"redlock", nil, 2, 0},
	{"redlock-miswired", []catalog.Fault{catalog.Amnesia, catalog.Partition}, 2, 1},
	{"redlock-miswired", nil, 2, 0},
	{"handoff", []catalog.Fault{catalog.RedisDown}, 2, 0},
	{"handoff", nil, 2, 1},
	{"watchdog-fenced", nil, 2, 1},
	{"zookeeper", []catalog.Fault{catalog.Pause, catalog.Latency}, 2, 0},
	{"zookeeper", []catalog.Fault{catalog.NodeClock}, 2, 2},
	{"zookeeper", nil, 2, 1},
	{"zookeeper-fenced", []catalog.Fault{catalog.Pause, catalog.Latency}, 2, 0},
	{"zookeeper-fenced", nil, 2, 1},
	{"etcd", []catalog.Fault{catalog.RedisDown}, 2, 0},
	{"etcd", nil, 2, 1},
	{"etcd-fenced", []catalog.Fault{catalog.RedisDown}, 2, 0},
	{"etcd-fenced", nil, 2, 1},
	{"watchdog", []catalog.Fault{catalog.RedisDown, catalog.Latency}, 2, 2},
	{"", nil, 2, 2},
}

const agreeSeconds = 150

func boundsOf(strategy string, f catalog.Fault) bounds {
	i := slices.IndexFunc(agreeWithin, func(b bounds) bool {
		return (b.strategy == "" || b.strategy == strategy) && (b.faults == nil || slices.Contains(b.faults, f))
	})
	return agreeWithin[i]
}

// core is the number of strategies at the beginning of lock.Strategies that every test run explores. The
// others run only in make prove.
const core = 3

// coreFaults lists the faults that every test run explores. The others run only in make prove.
var coreFaults = []catalog.Fault{
	catalog.Pause, catalog.Crash, catalog.RedisRestart, catalog.Latency, catalog.Cancel,
}

// quickCells lists the cells of further strategies that every test run explores, but without preemptions. Each
// takes at most a few seconds. make prove explores the cells of watchdog with preemptions.
var quickCells = map[string][]catalog.Fault{
	"watchdog": {catalog.Crash, catalog.RedisRestart, catalog.Cancel},
	"redlock":  {catalog.Pause},
}

// TestExplorerAgrees checks that the explorer's verdict on each cell is the one that the registry claims.
func TestExplorerAgrees(t *testing.T) {
	proving := os.Getenv("GRABLAB_PROVE") == "1"
	for i, s := range slices.Concat(lock.Strategies, explorablePeers()) {
		for _, f := range explore.Faults {
			b := boundsOf(s.Name, f)
			if !proving && slices.Contains(quickCells[s.Name], f) {
				b.preemptions = 0
			} else if !proving && (i >= core || !slices.Contains(coreFaults, f)) {
				continue
			}
			t.Run(fmt.Sprintf("%s x %s", s.Name, f), func(t *testing.T) {
				if proving {
					t.Parallel()
				}
				got, why := explored(t, s, f, b)
				if want := explore.Claimed(s, f, 1); got != want {
					t.Errorf("the explorer's verdict is %s, but the registry claims %s: %s", got, want, why)
				}
			})
		}
	}
}

func bubbleOf(t *testing.T) explore.Bubble {
	return func(f func()) { synctest.Test(t, func(*testing.T) { f() }) }
}

// explorablePeers returns the locks from other libraries that the explorer can run.
func explorablePeers() []lock.Strategy {
	return slices.DeleteFunc(slices.Clone(lock.Peers), func(s lock.Strategy) bool { return s.Unexplorable != "" })
}

// explored returns the explorer's verdict on orders, with the reason or the failing schedule.
func explored(t *testing.T, s lock.Strategy, f catalog.Fault, b bounds) (v catalog.Verdict, why string) {
	cfg := explore.Config{
		Strategies: []string{s.Name}, Seconds: agreeSeconds,
		Actors: b.actors, Preemptions: b.preemptions, Faults: []catalog.Fault{f}, FaultCount: 1,
	}
	for _, property := range []string{catalog.OneWinner, catalog.StuckOrder} { // a violation of the first is worse
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

// TestReferenceMatrixAgrees checks that the reference matrices of our strategies and of other libraries
// are complete. Their verdicts on orders and locks must be the ones that the registry claims.
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
			if len(strategies) == 0 {
				t.Fatal("there is no strategy to compare")
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
				t.Errorf("the run tests only %d strategies, want at least 7", len(strategies))
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
				t.Errorf("%s: the cell is missing, or whether it has points does not match whether the fault affects the strategy", name)
			case !f.Touches(s) || s.Expected(f.Name) == catalog.Unknown: // the verdict depends on chance
			case c.Verdict != s.Expected(f.Name):
				t.Errorf("%s: the matrix has %s, but the registry claims %s: %s", name, c.Verdict, s.Expected(f.Name), c.Reason)
			case s.Excludes != catalog.NoExclusion && (c.Exclusive == nil || (*c.Exclusive == experiment.Yes) != exclusive):
				t.Errorf("%s: the matrix has %s, but the registry claims that the lock is exclusive: %v", name, c.Said(), exclusive)
			}
		}
	}
}

// harmless lists the faults that break no strategy that is safe without a fault, with the reason for
// each.
var harmless = map[catalog.Fault]string{
	catalog.NoFault:          "it is no fault",
	catalog.SentinelFailover: "a replica that has all writes keeps the locks",
	catalog.SlotMoves:        "the locks move with their slots",
}

// TestEveryFaultBreaksAStrategy checks that each fault breaks at least one strategy that is safe
// without a fault. Otherwise, a test with this fault could never fail.
func TestEveryFaultBreaksAStrategy(t *testing.T) {
	for _, f := range fault.Faults {
		var failing []string
		for _, s := range slices.Concat(lock.Strategies, lock.KnownBroken) {
			if v := s.Expected(f.Name); f.Touches(s) && s.Expected(catalog.NoFault) == catalog.Safe && ofTheFault(s, f.Name, v) {
				failing = append(failing, s.Name)
			}
		}
		if _, excused := harmless[f.Name]; (len(failing) == 0) != excused {
			t.Errorf("%s: it makes %v fail; listed in harmless: %v", f.Name, failing, excused)
		}
	}
}

// ofTheFault reports whether the facts about the fault explain the verdict v with a known failure mode
// of s.
func ofTheFault(s lock.Strategy, f catalog.Fault, v catalog.Verdict) bool {
	property, ok := map[catalog.Verdict]string{catalog.Unsafe: catalog.OneWinner, catalog.Stuck: catalog.StuckOrder}[v]
	if !ok {
		return false
	}
	with, ok := catalog.ModeOf(property, f.Shows()|s.Guard.Shows(), s.Breaks)
	return ok && slices.Contains(s.Breaks, with.ID)
}

// TestExplorerFindsWhatIsExpected checks that a search finds no failure of a strategy that the registry
// expects to be safe. It includes properties whose violation does not affect orders.
func TestExplorerFindsWhatIsExpected(t *testing.T) {
	proving := os.Getenv("GRABLAB_PROVE") == "1"
	for i, s := range slices.Concat(lock.Strategies, explorablePeers()) {
		quorum := s.Needs&lock.RedisQuorum != 0 // such a search does not finish in time
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
					t.Errorf("%s: the search is not complete: %s", f, r.Reason)
				}
				for _, failure := range r.Failures {
					if r.Expected == catalog.Safe {
						t.Errorf("expected safe under %s, but %s failed: %s: %v", f, failure.Property, failure.Why, failure.Schedule.Steps)
					}
				}
			}
		})
	}
}
