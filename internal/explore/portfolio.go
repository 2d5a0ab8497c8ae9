package explore

import (
	"context"
	"slices"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/explore/sim"
	"grablab/internal/grab"
	"grablab/internal/order"
)

// Usual returns the settings with which `loadgen explore` begins if the user sets no limits.
func Usual() Config {
	return Config{
		Actors: DefaultActors, Preemptions: 2, FaultCount: 1, Seconds: 30,
		TTL: DefaultTTL, Nodes: DefaultNodes, Stock: 1, Instances: MaxInstances, OnLost: grab.Abort,
		Faults: []catalog.Fault{catalog.Slow, catalog.Pause, catalog.Crash}, Properties: Properties,
	}
}

// Part is one search of a portfolio, which is a series of searches with different limits.
type Part struct {
	Name   string
	Config Config
}

// Portfolio returns the searches that follow the first one if the user sets no limits. Each takes
// only a few seconds, but reaches schedules that a single short search would miss.
func Portfolio(cfg Config) []Part {
	const wait, work = 600 * time.Millisecond, 100 * time.Millisecond
	with := func(name string, preemptions, faultCount int, change func(*Config), faults ...catalog.Fault) Part {
		c := cfg
		c.Preemptions, c.FaultCount, c.Faults = preemptions, faultCount, faults
		change(&c)
		return Part{name, c}
	}
	waiting := func(c *Config) { c.Wait, c.Work = wait, work }
	outlasting := func(c *Config) { c.TTL, c.Wait = time.Second, 1400*time.Millisecond }
	outage := func(c *Config) { c.TTL, c.Wait, c.Work = time.Second, 3*wait, 13*work } // the work takes longer than a lease
	alone := func(c *Config) { c.Actors, c.Work = 1, c.TTL+c.TTL/3 }
	parts := []Part{ // the smallest first, because a search that ends early leaves its time to the later ones
		with("waiting", 1, 0, waiting),
		with("three drivers", 0, 1, func(c *Config) { c.Actors, c.Wait = 3, wait }, catalog.Crash, catalog.Slow),
		with("three drivers and a pause", 0, 1, func(c *Config) { c.Actors = 3 }, catalog.Pause),
		with("three drivers and a renewal", 0, 0, func(c *Config) { c.Actors, c.TTL, c.Wait, c.Work = 3, time.Second, wait, 4*work }),
		with("three drivers with a short wait", 0, 1, func(c *Config) { c.Actors, c.Wait, c.Work = 3, wait, wait+3*work }, catalog.Cancel, catalog.MessageLost),
		with("a long queue of two processes", 0, 0, func(c *Config) { c.Actors, c.Stock, c.Wait, c.Work = 3, 2, 15*work, 9*work }),
		with("a long queue in one process", 0, 0, func(c *Config) { c.Actors, c.Instances, c.Stock, c.Wait, c.Work = 3, 1, 2, wait, wait-work }),
		with("a long wait", 0, 0, func(c *Config) { c.TTL, c.Wait, c.Work = 30*time.Second, 64*time.Second, 61*time.Second }),
		with("a last attempt as a lease ends", 0, 1, func(c *Config) { c.Wait = c.TTL - 500*time.Microsecond }, catalog.Crash),
		with("one driver and two lost leases", 0, 2, func(c *Config) { c.Actors, c.Nodes, c.Work = 1, DefaultNodes+1, c.TTL/2 }, catalog.RedisRestart, catalog.NodeClock), // with an even number of nodes
		with("drivers of one process who hang up", 0, 1, func(c *Config) { c.Instances, c.Wait, c.Work = 1, 6*time.Second, 16*work }, catalog.Cancel),
		with("a driver who tries again for two units", 0, 1, func(c *Config) { c.SecondTry, c.Stock, c.Wait, c.Work = true, 2, wait, work }, catalog.Cancel),
		with("an outage during long work", 0, 1, outage, catalog.RedisDown, catalog.Partition),
		with("an outage for one process", 0, 1, func(c *Config) { outage(c); c.Instances, c.Wait = 1, wait }, catalog.Partition),
		with("calls sent twice", 0, 2, func(c *Config) { c.Wait = work }, catalog.ReplyLost, catalog.SentTwice, catalog.Cancel),
		with("three drivers of one process", 0, 1, func(c *Config) { c.Actors, c.Instances, c.Wait, c.Work = 3, 1, wait, work }, catalog.Cancel, catalog.MessageLost, catalog.ReplyLost, catalog.Slow),
		with("three drivers and calls sent twice", 0, 2, func(c *Config) { c.Actors, c.Work = 3, work }, catalog.Cancel, catalog.SentTwice),
		with("waiting for replies", 0, 1, waiting, catalog.Latency, catalog.Partition, catalog.ReplyLost),
		with("waiting for longer than a lease", 0, 1, outlasting, catalog.Crash, catalog.RedisDown, catalog.MessageLost, catalog.Latency),
		with("a late reply during a long wait", 0, 1, func(c *Config) { c.TTL, c.Wait, c.Work = time.Second, 3*wait, wait }, catalog.Latency),
		with("servers that forget or restart", 0, 1, waiting, catalog.RedisRestart, catalog.Failover, catalog.RedisFull, catalog.NodeClock, catalog.DBRestart, catalog.PartitionDB),
		with("waiting with a fault", 0, 1, waiting,
			catalog.Slow, catalog.Pause, catalog.Crash, catalog.Cancel, catalog.RedisDown, catalog.MessageLost),
		with("a driver who tries again", 0, 2, func(c *Config) { c.SecondTry, c.Wait, c.Work = true, wait, work }, catalog.Cancel, catalog.ReplyLost),
		with("a driver who hangs up early", 0, 1, func(c *Config) { c.Wait, c.Work = 6*time.Second, 16*work }, catalog.Cancel, catalog.RedisDown),
		with("work that outlasts a lease", 0, 1, func(c *Config) { c.Work = c.TTL + c.TTL/3 },
			catalog.RedisDown, catalog.Partition, catalog.Latency, catalog.ReplyLost),
		with("two units", 0, 2, func(c *Config) { c.Actors, c.Stock, c.Work = 3, 2, work }, catalog.Cancel, catalog.SentTwice, catalog.ReplyLost),
		with("two late replies in one attempt", 0, 2, func(c *Config) { c.Work = work }, catalog.Latency),
		with("two late replies", 0, 2, func(c *Config) { c.TTL, c.Wait, c.Work = 300*time.Millisecond, 310*time.Millisecond, work/2 }, catalog.Latency),
		with("two outages", 0, 2, waiting, catalog.RedisDown),
		with("one driver and two faults", 0, 2, alone,
			catalog.Slow, catalog.Pause, catalog.Cancel, catalog.ReplyLost, catalog.RedisRestart, catalog.PartitionDB, catalog.Latency, catalog.NodeClock),
		with("three drivers and a lost counter", 1, 1, func(c *Config) { // only for locks with a counter
			c.Guard, c.Actors, c.Stock, c.Wait, c.Work = order.Fenced, 3, 2, wait, wait-work
		}, catalog.Failover),
	}
	// A driver that tries twice needs two instances.
	return slices.DeleteFunc(parts, func(p Part) bool { return p.Config.SecondTry && p.Config.Instances == 1 })
}

// SearchPortfolio runs the search cfg for each strategy, followed by the searches of its Portfolio.
// These further searches report only new failures.
//
// All searches for one strategy share a timeout, of which the first search may use a third.
// SearchPortfolio skips searches that the strategy does not support.
func SearchPortfolio(ctx context.Context, bubble Bubble, cfg Config, progress Watch) ([]Result, error) {
	return searchEach(ctx, bubble, cfg, progress, searchParts)
}

// searchParts compares the strategy's guard in SQL with the simulated one, and runs all searches. When ctx
// ends, it returns the results so far.
func searchParts(ctx context.Context, bubble Bubble, cfg Config, set sim.Setting, progress Watch) (whole Result, err error) {
	cfg.byClaim = true
	first, firstSet := cfg, set
	difference, err := checkGuard(ctx, set.Guard)
	began := time.Now() // the time limit is for the searches; on a busy machine, SQLite could use it up
	switch {
	case err == nil:
		first.Mistake, firstSet.Mistake = difference, difference
	case ctx.Err() == nil: // otherwise, the search returns at once, with the error of ctx
		return whole, err
	}
	search := func(part string, c Config, set sim.Setting, share float64) (Result, error) {
		if cfg.Seconds > 0 {
			left := cfg.Seconds - time.Since(began).Seconds()
			c.Seconds = max(left*share, 0.01) // 0 would mean no limit
		}
		r, err := searchOne(ctx, bubble, c, set, func(r Result) {
			r.Part, r.Failures = part, whole.newFailures(r.Failures)
			progress(r)
		})
		r.Part, r.Failures = part, whole.newFailures(r.Failures)
		return r, err
	}
	if whole, err = search("", first, firstSet, 1./3); err != nil || whole.endedProcess() {
		return whole, err
	}
	parts := Portfolio(cfg)
	for i, p := range parts {
		if ctx.Err() != nil {
			break
		}
		set, err := newSetting(p.Config, whole.Strategy)
		if err != nil {
			continue
		}
		r, err := search(p.Name, p.Config, set, 1/float64(len(parts)-i))
		if err != nil {
			return whole, err
		}
		whole.Parts = append(whole.Parts, r)
	}
	return whole, nil
}

// endedProcess reports whether the strategy crashed or hung its process. If so, further searches
// would show nothing new.
func (r Result) endedProcess() bool {
	return slices.ContainsFunc(r.Failures, func(f Failure) bool { return f.Property == catalog.Survives })
}

// IsUnexpected reports whether the verdict or a failure differs from what we expect. In a
// portfolio, it compares only the first search's verdict, because a further search may miss an
// expected failure.
func (r Result) IsUnexpected() bool {
	return r.Expected != "" && r.Expected != r.Verdict || r.hasUnexpected() || slices.ContainsFunc(r.Parts, Result.hasUnexpected)
}

func (r Result) hasUnexpected() bool {
	return slices.ContainsFunc(r.Failures, func(f Failure) bool { return f.Unexpected })
}

// newFailures returns the failures that r does not contain yet. An unexpected failure is also new
// if r contains only expected failures of the same property.
func (r Result) newFailures(failures []Failure) []Failure {
	return slices.DeleteFunc(slices.Clone(failures), func(f Failure) bool {
		known := func(of Result) bool {
			return slices.ContainsFunc(of.Failures, func(g Failure) bool {
				return g.Property == f.Property && (g.Unexpected || !f.Unexpected)
			})
		}
		return known(r) || slices.ContainsFunc(r.Parts, known)
	})
}
