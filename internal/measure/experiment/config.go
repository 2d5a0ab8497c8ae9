// Package experiment runs the cells of a table (strategy x load x fault) and judges them.
//
// Execute takes a Config and returns a Run with one result for each cell, and writes a
// folder of raw records. A cell opens fresh orders, switches the fleet to the strategy,
// sends the load (or lets a fault strike a few orders), and audits. The ledger decides what
// happened; the clients' answers and the instances' events explain it. Start reading at
// Execute, then see worker.cell for load, injection for faults, and judge for the verdict.
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

// Config configures a run. NewConfig fills in what a scenario sets.
type Config struct {
	Scenario   string
	Strategies []lock.Strategy
	Faults     []catalog.Fault
	Only       []CellName   // if not empty, runs only these cells
	At         *fault.Point // the only point at which faults strike; nil means every point

	Load
	Peak PeakConfig
	// Stock is the number of units of each order, and PerDriver how many of them one driver
	// may have. 0 means 1.
	Stock, PerDriver int

	Work   time.Duration
	TTL    time.Duration
	Wait   time.Duration
	Guard  order.Guard // empty: the default guard of each strategy
	OnLost grab.OnLost
	// Asked says which of these settings the user has set. A fault may change the others.
	Asked Asked
	// ClockOffset is added to the wall clock of the second instance.
	ClockOffset time.Duration

	Stack     stack.Config
	Instances int
	Exe       string // path of this program, which also runs as instance and reaper

	// Target is a service that was started elsewhere. If it is set, the run starts no stack.
	Target target.Target
	// Service is a service that the run starts on its own stack; it may be nil. Target
	// describes its calls too.
	Service *fleet.Service
	// Expect replaces the claims of the registry, unless it is nil.
	Expect []target.Expectation
	// Settle is how long the ledger of a service of others must not change before a verdict. 0
	// means one lease, or 2 s if that is longer.
	Settle      time.Duration
	settleLimit time.Duration // how much longer it may change; 0 means the default
	// Inspected gets what a few grabs show about each strategy of a service of others, before the
	// first cell. Its error ends the run. If it is nil, there are no such grabs.
	Inspected func(Preflight) error
	// Warmup is how long grabs are sent and ignored before the load of a cell.
	Warmup time.Duration

	// Shard is the share of the load that this run sends to targets. It is nil for all of it.
	Shard *shard.Shard
	// Merge has the answers of shards, which are judged instead of sending a load. It may be nil.
	Merge *shard.Merge

	// Repeat is how often cells without a fault run, interleaved over the strategies. 0
	// means once.
	Repeat int
	// Budget bounds a cell with a fault, and the search of scenario peak.
	Budget time.Duration
	// BudgetTotal bounds the run, so that the cells with the highest risk come first. 0 means no
	// bound.
	BudgetTotal time.Duration
	deadline    time.Time // when BudgetTotal is used up
	// Workers is how many cells with a fault run at the same time, each on its own stack. 0
	// means 1.
	Workers int
	// Resume is an earlier run in Out with the same settings; its finished cells are not
	// repeated. It may be nil.
	Resume *Run

	OTLP  string // URL of the collector for the traces of our instances; empty for none
	Seed  uint64
	Args  []string  // the flags of the run, for the record
	Out   string    // the result folder, which exists
	Begin func()    // called before the first write to Out, once the run certainly begins; may be nil
	Log   io.Writer // progress lines and messages
	TTY   bool      // whether Log is a terminal, where the progress line may overwrite itself
}

// Asked says which settings the user has set.
type Asked struct{ Work, TTL, Wait, Timeout bool }

// Load configures the load of a cell: every driver grabs every order.
type Load = load.Config

// PeakConfig configures the search of scenario peak.
type PeakConfig struct {
	P99 time.Duration // the bound on the 99th percentile from the schedule
}

// Scenario is a named load with the settings that belong to it.
type Scenario struct {
	Name, About string
	Config      Config
}

// Scenarios lists the scenarios. The first one is the default.
var Scenarios = []Scenario{
	{"rush", "100 orders x 20 drivers at 500/s, work 5 ms", Config{
		Load: Load{Orders: 100, Drivers: 20, Rate: 500, Timeout: 30 * time.Second, MaxWorkers: 10_000},
		Work: 5 * time.Millisecond, TTL: 30 * time.Second, Wait: 2 * time.Second, Budget: time.Minute,
	}},
	{"article", "one order, ten users on each of two instances at once, work 1 s", Config{
		Load: Load{Orders: 1, Drivers: 20, Timeout: 60 * time.Second, MaxWorkers: 10_000},
		Work: time.Second, TTL: 30 * time.Second, Wait: 25 * time.Second, Budget: time.Minute,
	}},
	{"peak", "the highest rate that is held, work 0", Config{
		Load: Load{Orders: 100, Drivers: 20, Timeout: 30 * time.Second, MaxWorkers: 10_000},
		TTL:  30 * time.Second, Wait: 2 * time.Second,
		Peak: PeakConfig{P99: 100 * time.Millisecond}, Budget: 20 * time.Second,
	}},
	{"sale", "one item of 100 units, 2,000 drivers as fast as they come, work 5 ms", Config{
		Load: Load{Orders: 1, Drivers: 2000, Timeout: 60 * time.Second, MaxWorkers: 10_000}, Stock: 100,
		Work: 5 * time.Millisecond, TTL: 30 * time.Second, Wait: 10 * time.Second, Budget: time.Minute,
	}},
}

// units returns the number of units of each order.
func (cfg Config) units() int { return max(cfg.Stock, 1) }

// perDriver returns how many units of an order one driver may have.
func (cfg Config) perDriver() int { return max(cfg.PerDriver, 1) }

// asRunning copies the settings of instances that were started elsewhere.
func (cfg *Config) asRunning(s grab.Settings) {
	ms := func(x float64) time.Duration { return time.Duration(x * float64(time.Millisecond)) }
	cfg.Work, cfg.TTL, cfg.Wait = ms(s.WorkMS), ms(s.TTLMS), ms(s.WaitMS)
	cfg.Guard, cfg.OnLost = s.Guard, s.OnLost
}
