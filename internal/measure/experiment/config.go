// Package experiment runs the cells of a table and judges them. A cell tests one strategy under one
// fault.
//
// Start reading at Execute. Continue with subject for the instances under test, worker.cell for
// load, injection for faults, and judge for verdicts.
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

// Config configures a run. Scenarios lists presets for common loads.
type Config struct {
	Scenario   string
	Strategies []lock.Strategy
	Faults     []catalog.Fault
	Only       []CellName   // if not empty, only these cells run
	At         *fault.Point // the only point at which faults are injected; nil means every point

	Load
	Peak PeakConfig
	// Stock is how many units each order has, and PerDriver is how many of them a driver may get. 0
	// means 1.
	Stock, PerDriver int

	Work   time.Duration
	TTL    time.Duration
	Wait   time.Duration
	Guard  order.Guard // empty means the default guard of each strategy
	OnLost grab.OnLost
	// Asked records which settings the user chose, because faults must not change those.
	Asked Asked
	// ClockOffset sets the wall clock of the second instance ahead or back.
	ClockOffset time.Duration

	Stack     stack.Config
	Instances int
	Exe       string // path of this program, which also runs as an instance and as the process that cleans up after a crash

	// Target describes a running service. If it has addresses, the run starts no servers.
	Target target.Target
	// Service describes a service that the run must start. Target then describes the calls of the
	// service.
	Service *fleet.Service
	// Expect replaces the expected verdicts, unless it is nil.
	Expect []target.Expectation
	// Settle is how long the ledger of the user's service must stay unchanged before it is judged. 0
	// means one lease, but at least 2 s.
	Settle      time.Duration
	settleLimit time.Duration // how much longer the ledger may keep changing; 0 means the default
	// Inspected gets the findings from a few test grabs of the user's service. If it returns an
	// error, the run ends. If it is nil, there are no test grabs.
	Inspected func(Preflight) error
	// Warmup is how long grabs are sent before the load of each cell. They are not counted.
	Warmup time.Duration

	// Shard selects the part of the load that this process sends. Nil means all of it.
	Shard *shard.Shard
	// Merge contains the answers that several processes recorded. If it is set, the run judges them
	// and sends no load.
	Merge *shard.Merge

	// Repeat is how often each cell without a fault runs. 0 means once.
	Repeat int
	// Budget limits the time for one cell with a fault, or for one search for the highest rate.
	Budget time.Duration
	// BudgetTotal limits the time for the whole run. With a limit, the riskiest cells run first. 0
	// means no limit.
	BudgetTotal time.Duration
	deadline    time.Time // when BudgetTotal is used up
	// Workers is how many cells with a fault run in parallel, each with its own servers. 0 means 1.
	Workers int
	// Resume is an unfinished run with the same settings, or nil. Its finished cells do not run
	// again.
	Resume *Run

	OTLP  string // URL of the collector for the traces of our instances; empty for no traces
	Seed  uint64
	Args  []string  // the command-line flags, recorded in the result
	Out   string    // the result folder, which must exist
	Begin func()    // called once the run is certain to begin, before Out is written to; may be nil
	Log   io.Writer // receives progress lines and messages
	TTY   bool      // whether Log is a terminal, where each progress line may overwrite the previous one
}

// Asked records which settings the user chose.
type Asked struct{ Work, TTL, Wait, Timeout bool }

// Load configures a load in which every driver grabs every order.
type Load = load.Config

// PeakConfig configures the search for the highest rate.
type PeakConfig struct {
	P99 time.Duration // upper limit for the 99th percentile of the latency, counted from when requests were due
}

// Scenario is a named load with settings that suit it.
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

// units returns how many units each order has.
func (cfg Config) units() int { return max(cfg.Stock, 1) }

// perDriver returns how many units of an order each driver may get.
func (cfg Config) perDriver() int { return max(cfg.PerDriver, 1) }

// asRunning replaces settings by those of the running instances.
func (cfg *Config) asRunning(s grab.Settings) {
	ms := func(x float64) time.Duration { return time.Duration(x * float64(time.Millisecond)) }
	cfg.Work, cfg.TTL, cfg.Wait = ms(s.WorkMS), ms(s.TTLMS), ms(s.WaitMS)
	cfg.Guard, cfg.OnLost = s.Guard, s.OnLost
}
