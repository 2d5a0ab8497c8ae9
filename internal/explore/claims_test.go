package explore

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/explore/schedule"
	"grablab/internal/explore/sim"
	"grablab/internal/grab/lock"
	_ "grablab/internal/grab/lock/peers" // fills lock.Peers
)

// TestMarkUnexpected checks which failures count as claimed. Only the faults in a failure's own schedule
// count, and not all faults of the search.
func TestMarkUnexpected(t *testing.T) {
	paused := schedule.Step{Kind: schedule.Paused, Actor: "A"}
	dies := schedule.Step{Kind: schedule.Dies, Actor: "A"}
	call := schedule.Step{Kind: schedule.Call, Actor: "A"}
	cancelled := schedule.Step{Kind: schedule.Cancelled, Actor: "A"}
	lost, twice := schedule.Step{Kind: schedule.ReplyLost, Actor: "A"}, schedule.Step{Kind: schedule.SentTwice, Actor: "A"}
	restarts := schedule.Step{Kind: schedule.Restarts, Target: "redis"}
	late := schedule.Step{Kind: schedule.ReplyLate, Actor: "A"}
	working := func(part time.Duration) func(*Config) {
		return func(c *Config) { c.Faults, c.Work = []catalog.Fault{catalog.Latency}, c.TTL*part/10 }
	}
	waiting := func(actors int, part time.Duration) func(*Config) {
		return func(c *Config) { working(1)(c); c.Actors, c.Wait = actors, c.TTL*part/10 }
	}
	restart := func(c *Config) { c.Faults = []catalog.Fault{catalog.RedisRestart} }
	twoFaults := func(c *Config) {
		c.Faults, c.FaultCount = []catalog.Fault{catalog.Cancel, catalog.ReplyLost, catalog.SentTwice}, 2
	}
	faults := []catalog.Fault{catalog.Slow, catalog.Pause, catalog.Crash}
	for _, tt := range []struct {
		name, strategy, property string
		step                     schedule.Step
		before                   []schedule.Step
		change                   func(*Config)
		unexpected               bool
	}{
		{name: "a claimed fault", strategy: "setnx", property: catalog.OneWinner, step: paused},
		{name: "a fault that is claimed to be safe", strategy: "setnx", property: catalog.OneWinner, step: dies, unexpected: true},
		{name: "no fault", strategy: "setnx", property: catalog.NoResidue, step: call, unexpected: true},
		{name: "no fault, and nothing is claimed to be safe", strategy: "none", property: catalog.OneWinner, step: call},
		{name: "stuck, as claimed", strategy: "setnx-nottl", property: catalog.StuckOrder, step: dies},
		{name: "two winners where stuck is claimed", strategy: "setnx-nottl", property: catalog.OneWinner, step: dies, unexpected: true},
		{name: "a fenced lock under a pause", strategy: "setnx-fenced", property: catalog.OneWinner, step: paused, unexpected: true},
		{name: "two holders of a fenced lock after a restart", strategy: "setnx-fenced", property: catalog.LeaseExclusive, step: restarts, change: restart},
		{name: "two winners of a fenced lock after a restart", strategy: "setnx-fenced", property: catalog.OneWinner, step: restarts, change: restart, unexpected: true},
		{name: "no winner of a fenced lock after a restart", strategy: "setnx-fenced", property: catalog.StuckOrder, step: restarts, change: restart, unexpected: true},
		{name: "a waiter that is not woken after a restart, where two winners are claimed", strategy: "watchdog", property: catalog.NoLostWakeup, step: restarts, change: restart, unexpected: true},
		{name: "a key that stays after a pause, where two winners are claimed", strategy: "setnx", property: catalog.NoResidue, step: paused, unexpected: true},
		{name: "stuck after a partition, where a crash leaves the key behind", strategy: "setnx-expire", property: catalog.StuckOrder, step: schedule.Step{Kind: schedule.CutOff, Instance: 1, Target: schedule.Locks}, change: func(c *Config) { c.Faults = []catalog.Fault{catalog.Partition} }},
		{name: "a check that fails because the work outlasts the lease", strategy: "setnx-check", property: catalog.StuckOrder, step: call, change: func(c *Config) { c.Work = c.TTL }},
		{name: "two winners of a lock without a fence after a restart", strategy: "setnx", property: catalog.OneWinner, step: restarts, change: restart},
		{name: "work that outlasts the lease", strategy: "setnx", property: catalog.OneWinner, step: call, change: func(c *Config) { c.Work = c.TTL }},
		{name: "work that outlasts a renewed lease", strategy: "watchdog", property: catalog.OneWinner, step: call, change: func(c *Config) { c.Work = c.TTL }, unexpected: true},
		{name: "a late reply, and work that outlasts half of the lease", strategy: "setnx", property: catalog.OneWinner, step: late, change: working(6)},
		{name: "a late reply, and work that outlasts half of a renewed lease", strategy: "watchdog", property: catalog.OneWinner, step: late, change: working(6), unexpected: true},
		{name: "a late reply, and short work", strategy: "setnx", property: catalog.OneWinner, step: late, change: working(4), unexpected: true},
		{name: "a reply that is late for as long as another driver waits", strategy: "setnx", property: catalog.OneWinner, step: late, change: waiting(2, 10)},
		{name: "a reply that cannot be late for the whole lease", strategy: "setnx", property: catalog.OneWinner, step: late, change: waiting(2, 9), unexpected: true},
		{name: "a reply that is late while two other drivers wait in turn", strategy: "setnx", property: catalog.OneWinner, step: late, change: waiting(3, 5)},
		{name: "a key that stays after a late reply", strategy: "setnx", property: catalog.NoResidue, step: late, change: waiting(2, 10), unexpected: true},
		{name: "a late reply and a renewed lease", strategy: "watchdog", property: catalog.OneWinner, step: late, change: waiting(2, 10), unexpected: true},
		{name: "work that takes half of the lease, and no late reply", strategy: "setnx", property: catalog.OneWinner, step: call, change: working(6), unexpected: true},
		{name: "a hang-up and a lost reply, after a clean-up that heeds the hang-up", strategy: "redsync", property: catalog.NoResidue, before: []schedule.Step{cancelled}, step: lost, change: twoFaults},
		{name: "a hang-up and a call sent twice, after the same clean-up", strategy: "redsync", property: catalog.NoResidue, before: []schedule.Step{cancelled}, step: twice, change: twoFaults},
		{name: "only a lost reply", strategy: "redsync", property: catalog.NoResidue, step: lost, change: twoFaults, unexpected: true},
		{name: "the same two faults, and a clean-up that heeds no hang-up", strategy: "setnx", property: catalog.NoResidue, before: []schedule.Step{cancelled}, step: lost, change: twoFaults, unexpected: true},
		{name: "a process that ends, where two winners are claimed", strategy: "none", property: catalog.Survives, step: call, unexpected: true},
		{name: "a wait that is too short, where two winners are claimed", strategy: "mutex", property: catalog.WaitsAsTold, step: call, unexpected: true},
		{name: "two winners of a lock within one process, in two processes", strategy: "mutex", property: catalog.OneWinner, step: call},
		{name: "two winners of a lock within one process, in one process", strategy: "mutex", property: catalog.OneWinner, step: call, change: func(c *Config) { c.Instances = 1 }, unexpected: true},
		{name: "no winner of a lock within one process, whose holder hangs", strategy: "mutex", property: catalog.StuckOrder, step: schedule.Step{Kind: schedule.Hangs, Actor: "A"}, change: func(c *Config) { c.Instances, c.Faults = 1, []catalog.Fault{catalog.Hang} }},
		{name: "a known-broken strategy that ends its process", strategy: "setnx-late-fence", property: catalog.Survives, step: call},
		{name: "a known-broken strategy", strategy: "setnx-late-fence", property: catalog.OneWinner, step: call},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg, err := Config{Faults: faults, FaultCount: 1}.withDefaults()
			if err != nil {
				t.Fatal(err)
			}
			if tt.change != nil {
				tt.change(&cfg)
			}
			s, err := lock.Find(tt.strategy)
			if err != nil {
				t.Fatal(err)
			}
			failures := []Failure{{Property: tt.property, Schedule: schedule.Schedule{Steps: append(tt.before, tt.step)}}}
			markUnexpected(cfg, sim.Setting{Strategy: s, Guard: s.Guard}, failures)
			if failures[0].Unexpected != tt.unexpected {
				t.Errorf("unexpected: %v, want %v", failures[0].Unexpected, tt.unexpected)
			}
		})
	}
}

// TestClaimedByFewActors checks that a search does not expect a failure that needs more actors or units
// than it has.
func TestClaimedByFewActors(t *testing.T) {
	for _, tt := range []struct {
		strategy string
		fault    catalog.Fault
		actors   int
		units    int
		want     catalog.Verdict
	}{
		{"setnx", catalog.Pause, 1, 1, ""},
		{"setnx", catalog.Pause, 2, 1, catalog.Unsafe},
		{"setnx-nottl", catalog.Crash, 1, 1, catalog.Stuck},
		{"watchdog", catalog.Crash, 1, 1, catalog.Safe},
		{"redis-stock-returned", catalog.PartitionDB, 2, 1, catalog.Safe}, // the second driver reads that the unit is sold
		{"redis-stock-returned", catalog.PartitionDB, 2, 2, ""},           // no third driver is left to buy another unit
		{"redis-stock-returned", catalog.PartitionDB, 3, 2, catalog.Unsafe},
	} {
		s, err := lock.Find(tt.strategy)
		if err != nil {
			t.Fatal(err)
		}
		cfg, err := Config{Actors: tt.actors, Stock: tt.units, Faults: []catalog.Fault{tt.fault}, FaultCount: 1}.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		if got := claimed(cfg, sim.Setting{Strategy: s, Guard: s.Guard, Stock: tt.units}); got != tt.want {
			t.Errorf("%s under %s with %d actors and %d units: %q, want %q", tt.strategy, tt.fault, tt.actors, tt.units, got, tt.want)
		}
	}
}

// TestClaimedHidesNothing checks that an unexpected failure is reported even if there is a shorter, claimed
// failure of the same property. The claimed one may be in the same search or in an earlier part.
func TestClaimedHidesNothing(t *testing.T) {
	setnx, err := lock.Find("setnx")
	if err != nil {
		t.Fatal(err)
	}
	set := sim.Setting{Strategy: setnx, Guard: setnx.Guard}
	cfg, err := Config{Faults: []catalog.Fault{catalog.Pause, catalog.Crash, catalog.Cancel}, FaultCount: 1}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	cfg.byClaim = true
	failure := func(property string, kind schedule.Kind) Failure {
		return Failure{Property: property, Schedule: schedule.Schedule{Steps: []schedule.Step{{Kind: kind, Actor: "A"}}}}
	}
	describe := func(failures []Failure) (lines []string) {
		for _, f := range failures {
			lines = append(lines, fmt.Sprint(f.Property, " by ", f.Kind, ", unexpected ", f.Unexpected))
		}
		return lines
	}
	first := judgeClaims(cfg, set, []Failure{
		failure(catalog.OneWinner, schedule.Paused), failure(catalog.OneWinner, schedule.Dies), failure(catalog.OneWinner, schedule.Cancelled),
		failure(catalog.NoResidue, schedule.Call), failure(catalog.NoResidue, schedule.Dies),
		failure(catalog.WriteAfterExpiry, schedule.Paused),
	})
	want := []string{"one-winner by , unexpected false", "one-winner by crash, unexpected true", "no-residue by , unexpected true", "write-after-expiry by , unexpected false"}
	if got := describe(first); !slices.Equal(got, want) {
		t.Errorf("one search: %q\nwant %q", got, want)
	}
	part := judgeClaims(cfg, set, []Failure{
		failure(catalog.OneWinner, schedule.Call), failure(catalog.WriteAfterExpiry, schedule.Paused), failure(catalog.WriteAfterExpiry, schedule.Call),
	})
	want = []string{"write-after-expiry by no fault, unexpected true"}
	if got := describe(Result{Failures: first}.newFailures(part)); !slices.Equal(got, want) {
		t.Errorf("a later part: %q\nwant %q", got, want)
	}
}
