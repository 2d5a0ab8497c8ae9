// Package experiment runs the cells of a table, strategy x load x fault, and
// judges them.
//
// In goes a Config; out comes a Run with one Cell each, and its folder of raw
// records. A cell opens fresh orders, switches the fleet to the strategy, sends
// the load (or lets a fault strike a few orders), and audits: the ledger decides,
// the clients' answers and the instances' events explain. Begin at Execute, then
// worker.cell for load, injection for faults, and judge for the verdict.
package experiment

import (
	"io"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/order"
	"grablab/internal/testbed/fault"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/load"
	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/target"
)

// Config of one run. NewConfig fills in what a scenario sets.
type Config struct {
	Scenario   string
	Strategies []lock.Strategy
	Faults     []catalog.Fault
	Only       []CellName   // of strategies x faults, where any is named
	At         *fault.Point // the one point at which faults strike; nil: at every one

	Load
	Peak PeakConfig
	// Stock is how many units each order has, and PerDriver how many of them one driver
	// may have; 0: 1.
	Stock, PerDriver int

	Work   time.Duration
	TTL    time.Duration
	Wait   time.Duration
	Guard  order.Guard // "": each strategy's own
	OnLost grab.OnLost
	// Asked says which of these the user has set: a fault sets the others.
	Asked Asked
	// ClockOffset is added to the wall clock of the second instance.
	ClockOffset time.Duration

	Stack     stack.Config
	Instances int
	Exe       string // this program, which is also the instance and the reaper

	// Target is a service that was started elsewhere; with it no stack is started.
	Target target.Target
	// Service is one that the run starts, on a stack of its own; nil: there is none. Its
	// calls are described by Target, too.
	Service *fleet.Service
	// Expect is what is expected instead of what the registry claims; nil: nothing is.
	Expect []target.Expectation
	// Warmup is for how long grabs are sent and forgotten before the load of a cell.
	Warmup time.Duration

	// Repeat is how often cells without a fault are run, interleaved over the strategies;
	// 0: once.
	Repeat int
	// Budget bounds a cell with a fault, and the search of scenario peak.
	Budget time.Duration
	// Workers is how many cells with a fault run at a time, each on a stack of
	// its own; 0: 1.
	Workers int
	// Resume is what an earlier run with the same settings left in Out: its
	// finished cells are not run again. nil: there is none.
	Resume *Run

	Seed  uint64
	Args  []string  // the flags that make the run what it is, for the record
	Out   string    // the result folder, which exists
	Begin func()    // called before anything is written there, once the run is sure to begin; nil: it is not asked for
	Log   io.Writer // progress and whatever is said aloud
	TTY   bool      // Log is a terminal: the progress line may overwrite itself
}

// Asked says of some settings whether they were asked for.
type Asked struct{ Work, TTL, Wait, Timeout bool }

// Load is what is sent in a cell: every driver grabs every order.
type Load = load.Config

// PeakConfig bounds the search of scenario peak.
type PeakConfig struct {
	P99 time.Duration // the bound on the 99th percentile from the schedule
}

// Scenario is a load by its name, with what it sets.
type Scenario struct {
	Name, About string
	Config      Config
}

// Scenarios lists the scenarios, the default first.
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

// units is how many each order has.
func (cfg Config) units() int { return max(cfg.Stock, 1) }

// asRunning takes over the settings of instances that were started elsewhere.
func (cfg *Config) asRunning(s grab.Settings) {
	ms := func(x float64) time.Duration { return time.Duration(x * float64(time.Millisecond)) }
	cfg.Work, cfg.TTL, cfg.Wait = ms(s.WorkMS), ms(s.TTLMS), ms(s.WaitMS)
	cfg.Guard, cfg.OnLost = s.Guard, s.OnLost
}
