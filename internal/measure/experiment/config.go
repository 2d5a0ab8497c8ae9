// Package experiment tests locking strategies under load and faults, and judges the results. Each
// cell of the result table is the test of one strategy under one fault.
//
// A grab is a request with which a driver tries to win an order. A fault is injected while a grab
// is stopped at a point, such as before or after one remote call. The driver of this grab is the
// affected driver, and the other drivers of its order are the contenders. A claim is the write that
// records the winner, and a trail lists a grab's remote calls. A probe is a test grab after the
// load. A double-grab is a grab beyond the number of units that the order has.
//
// Start reading at Execute. Continue with subject for the instances under test, worker.cell for the
// load, and injection for the faults. An injection has these phases: approach leads drivers to the
// points, strike injects the fault, contention lets other drivers compete, and judgement judges the
// points. Finally, judge decides the verdict of the cell.
package experiment

import (
	"io"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/measure/shard"
	"grablab/internal/order"
	"grablab/internal/testbed/fault"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/load"
	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/target"
)

// Config configures a run. Scenarios lists ready-made settings for common loads.
type Config struct {
	Scenario   string
	Strategies []lock.Strategy
	Faults     []catalog.Fault
	Only       []CellName   // if not empty, only these tests run
	At         *fault.Point // the only point at which faults are injected; nil means every point

	Load
	// PeakP99 is the upper limit for the p99 latency in a search for the highest rate, measured from when
	// a request was due.
	PeakP99 time.Duration
	// Stock is the number of units of each order, and PerDriver is how many of them one driver may
	// have. Both default to 1.
	Stock, PerDriver int

	Work   time.Duration
	TTL    time.Duration
	Wait   time.Duration
	Guard  order.Guard // empty means the default guard of each strategy
	OnLost grab.OnLost
	// Asked records which settings the user chose, because a test with a fault may adjust only the
	// others.
	Asked Asked
	// ClockOffset shifts the second instance's wall clock: ahead if positive, back if negative.
	ClockOffset time.Duration

	Stack     stack.Config
	Instances int
	Exe       string // path of this program, which also runs as an instance and as the clean-up process after a crash

	// Target describes the instances under test. If it lists addresses, the run starts no servers
	// of its own.
	Target target.Target
	// Service describes a service that the run must start itself. Target then only says how to call
	// that service.
	Service *fleet.Service
	// Expect contains the verdicts that the user expects. If it is not nil, it replaces the
	// built-in expectations.
	Expect []target.Expectation
	// Settle is how long the ledger of the user's service must stay unchanged before it is judged.
	// The default is one lease, but at least 2 s.
	Settle      time.Duration
	settleLimit time.Duration // how much longer the ledger may keep changing; 0 means the default
	// Inspected receives the findings from a few test requests with each strategy of the user's
	// service. If it returns an error, the run ends.
	// If it is nil, no test requests are sent.
	Inspected func(Preflight) error
	// Warmup is how long to send uncounted requests before each measurement.
	Warmup time.Duration

	// Shard selects the part of the load that this process sends. If it is nil, the process sends
	// the whole load.
	Shard *shard.Shard
	// Merge contains the responses that several processes have recorded. If it is not nil, the run
	// sends no load and only judges these responses.
	Merge *shard.Merge

	// Repeat is how often to run each test without a fault. The default is once.
	Repeat int
	// Budget is the time limit for one test with a fault, or for one search for the highest rate.
	Budget time.Duration
	// BudgetTotal is the time limit for the whole run; 0 means no limit. If it is set, the tests
	// that are most likely to fail run first.
	BudgetTotal time.Duration
	deadline    time.Time // when BudgetTotal runs out
	// Workers is how many tests with a fault run in parallel, each with its own servers. The
	// default is 1.
	Workers int
	// Resume is an unfinished run with the same settings, or nil. Its finished tests do not run
	// again.
	Resume *Run

	// Files contains the SHA-256 sums of the files that some flags name, by flag name. The result records them.
	Files map[string]string

	OTLP  string // trace collector URL for our instances; empty for no traces
	Seed  uint64
	Args  []string  // the command-line flags, recorded in the result
	Out   string    // the result folder, which must exist
	Begin func()    // called once the run is certain to begin, before Out is written to; may be nil
	Log   io.Writer // receives progress lines and messages
	TTY   bool      // whether Log is a terminal, where each progress line may overwrite the previous one
}

// Asked records which settings the user chose.
type Asked struct{ Work, TTL, Wait, Timeout bool }

// Load describes a load in which every driver tries to win every order.
type Load = load.Config

// Scenario is a named load with suitable default settings.
type Scenario struct {
	Name, About string
	Config      Config
}

// Scenarios lists all scenarios. The first one is the default.
var Scenarios = []Scenario{
	{"rush", "100 orders x 20 drivers at 500/s, work 5 ms", Config{
		Load: Load{Orders: 100, Drivers: 20, Rate: 500, Timeout: 30 * time.Second, MaxWorkers: 10_000},
		Work: 5 * time.Millisecond, TTL: 30 * time.Second, Wait: 2 * time.Second, Budget: time.Minute,
	}},
	{"article", "one order, ten users on each of two instances at once, work 1 s", Config{
		Load: Load{Orders: 1, Drivers: 20, Timeout: 60 * time.Second, MaxWorkers: 10_000},
		Work: time.Second, TTL: 30 * time.Second, Wait: 25 * time.Second, Budget: time.Minute,
	}},
	{"peak", "searches for the highest rate that each strategy can sustain, work 0", Config{
		Load: Load{Orders: 100, Drivers: 20, Timeout: 30 * time.Second, MaxWorkers: 10_000},
		TTL:  30 * time.Second, Wait: 2 * time.Second,
		PeakP99: 100 * time.Millisecond, Budget: 20 * time.Second,
	}},
	{"sale", "one item of 100 units, 2,000 drivers at once, work 5 ms", Config{
		Load: Load{Orders: 1, Drivers: 2000, Timeout: 60 * time.Second, MaxWorkers: 10_000}, Stock: 100,
		Work: 5 * time.Millisecond, TTL: 30 * time.Second, Wait: 10 * time.Second, Budget: time.Minute,
	}},
}

// Defaults returns the settings of a scenario, including defaults for everything that the scenario
// does not set.
func Defaults(scenario string) Config {
	s := catalog.First(Scenarios, func(s Scenario) bool { return s.Name == scenario })
	cfg := s.Config
	cfg.Scenario, cfg.Instances, cfg.OnLost, cfg.Stock, cfg.PerDriver = s.Name, 2, grab.Abort, cfg.units(), 1
	cfg.Faults = []catalog.Fault{catalog.NoFault}
	return cfg
}

func (cfg Config) units() int { return max(cfg.Stock, 1) }

func (cfg Config) perDriver() int { return max(cfg.PerDriver, 1) }

// asRunning replaces the settings with those that the running instances report.
func (cfg *Config) asRunning(s grab.Settings) {
	ms := func(x float64) time.Duration { return time.Duration(x * float64(time.Millisecond)) }
	cfg.Work, cfg.TTL, cfg.Wait = ms(s.WorkMS), ms(s.TTLMS), ms(s.WaitMS)
	cfg.Guard, cfg.OnLost = s.Guard, s.OnLost
}
