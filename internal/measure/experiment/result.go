package experiment

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/check"
	"grablab/internal/grab"
	"grablab/internal/measure/shard"
	"grablab/internal/order"
	"grablab/internal/testbed/load"
	"grablab/internal/testbed/target"
)

// Schema is the version of run.json.
const Schema = 1

// Run is one run as stored in run.json. A figure that could not be counted is nil, never 0.
type Run struct {
	Schema      int         `json:"schema"`
	ID          string      `json:"id"`
	Complete    bool        `json:"complete"` // false if interrupted or still running
	StartedAt   time.Time   `json:"started_at"`
	DurationS   float64     `json:"duration_s"`
	Environment Environment `json:"environment"`
	Config      RunConfig   `json:"config"`
	Cells       []Cell      `json:"cells"`
	Bare        *Bare       `json:"bare,omitempty"` // only for scenario peak; nil if there is no such endpoint

	// Ended lists the servers of the stack that ended by themselves, how and when. What they
	// were needed for could not be measured.
	Ended []string `json:"-"`
}

// Measured reports whether at least one cell could be measured.
func (r *Run) Measured() bool {
	return len(r.Cells) == 0 || slices.ContainsFunc(r.Cells, func(c Cell) bool {
		return c.Verdict != catalog.Unknown || c.DoubleGrabs != nil || c.Shard != nil
	})
}

// Environment describes what a run ran on.
type Environment struct {
	Go        string `json:"go"`
	OS        string `json:"os"`
	Arch      string `json:"arch"`
	CPUs      int    `json:"cpus"`
	Stack     string `json:"stack"`
	Redis     string `json:"redis"`    // name and version; empty if none was used
	Database  string `json:"database"` // name and version; empty if none was reached
	ZooKeeper string `json:"zookeeper,omitempty"`
	Etcd      string `json:"etcd,omitempty"`
	Vegeta    string `json:"vegeta"`
	Commit    string `json:"commit"`
}

// Differences describes where two environments differ so that their cells do not belong in
// one table. An empty value is unknown or unused, and differs from none.
func (e Environment) Differences(now Environment) (all []string) {
	count := func(n int) string { return strings.TrimPrefix(strconv.Itoa(n), "0") }
	for _, f := range []struct{ name, before, now string }{
		{"go", e.Go, now.Go},
		{"os", e.OS, now.OS},
		{"arch", e.Arch, now.Arch},
		{"cpus", count(e.CPUs), count(now.CPUs)},
		{"stack", e.Stack, now.Stack},
		{"redis", e.Redis, now.Redis},
		{"database", e.Database, now.Database},
		{"zookeeper", e.ZooKeeper, now.ZooKeeper},
		{"etcd", e.Etcd, now.Etcd},
	} {
		if f.before != "" && f.now != "" && f.before != f.now {
			all = append(all, fmt.Sprintf("%s %s, and here it is %s", f.name, f.before, f.now))
		}
	}
	return all
}

// RunConfig holds the settings of a run.
type RunConfig struct {
	Scenario  string   `json:"scenario"`
	Orders    int      `json:"orders"`
	Drivers   int      `json:"drivers"`
	Rate      float64  `json:"rate"`               // requests/s; 0 means all at once
	Together  bool     `json:"together,omitempty"` // the drivers of an order come at once
	Instances int      `json:"instances"`
	Seed      uint64   `json:"seed"`
	Args      []string `json:"args,omitempty"`       // the flags that make the run what it is, without secrets
	Stock     int      `json:"stock,omitempty"`      // units of each order; 0 means 1
	PerDriver int      `json:"per_driver,omitempty"` // units of an order that one driver may have; 0 means 1
	Repeat    int      `json:"repeat,omitempty"`     // how often cells without a fault run; 0 means once
	// Rules define how the answers of targets were distinguished. It is nil for our own
	// instances.
	Rules *target.Rules `json:"rules,omitempty"`
	// Unreachable maps each instance that a service registry lists, and that does not answer, to the error.
	// It gets no load.
	Unreachable map[string]string `json:"unreachable,omitempty"`
}

// Cell is the outcome of one strategy under one fault. docs/results.md defines each counted
// term.
type Cell struct {
	Strategy string           `json:"strategy"`
	Fault    catalog.Fault    `json:"fault"`
	Verdict  catalog.Verdict  `json:"verdict"`
	Expected *catalog.Verdict `json:"expected"` // nil if flags change the conditions of the claim
	Reason   string           `json:"reason"`   // why the verdict is not safe or not known
	// Exclusive is the verdict on the lock, Yes or No: whether it prevented two holders from
	// being inside at the same time. It is nil if that could not be observed, or if there is
	// no lock.
	Exclusive         *string `json:"exclusive"`
	ExpectedExclusive *string `json:"expected_exclusive"`
	// Points has a row for each point at which the fault should strike.
	Points []Point `json:"points,omitempty"`
	// Interrupted reports whether the run ended before the cell did.
	Interrupted bool `json:"interrupted,omitempty"`
	// Environment describes what the cell ran on. It is nil if the cell was not run, and in files
	// from before version 0.4.
	Environment *Environment `json:"environment,omitempty"`

	Guard  order.Guard `json:"guard"`   // empty for a foreign service
	OnLost grab.OnLost `json:"on_lost"` // empty for a foreign service
	// TTLMS and the settings below are nil for a foreign service, because they are unknown.
	TTLMS   *float64 `json:"ttl_ms"`
	LeaseMS *float64 `json:"lease_ms"`
	WorkMS  *float64 `json:"work_ms"`
	WaitMS  *float64 `json:"wait_ms"`

	Orders   int                  `json:"orders"`
	Requests int                  `json:"requests"`
	Outcomes map[grab.Outcome]int `json:"outcomes"`
	Errors   map[string]int       `json:"errors"` // by kind

	CountedFrom         string `json:"counted_from"` // "ledger", "answers"
	Grabs               *int   `json:"grabs"`        // ledger rows
	OrdersGrabbed       *int   `json:"orders_grabbed"`
	DoubleGrabs         *int   `json:"double_grabs"`
	LowerBound          bool   `json:"lower_bound,omitempty"` // DoubleGrabs is a lower bound, because some answers may hide a grab
	OrdersDoubleGrabbed *int   `json:"orders_double_grabbed"`
	// RepeatedRows counts the rows that repeat an (order, driver) pair. It is nil unless the ledger
	// of a service of others was read.
	RepeatedRows *int `json:"repeated_rows,omitempty"`
	// SettleMS is how long the ledger was watched after the probes, until it no longer
	// changed. It is nil if one more reading was enough.
	SettleMS            *float64 `json:"settle_ms,omitempty"`
	StuckOrders         *int     `json:"stuck_orders"`
	PhantomGrabs        *int     `json:"phantom_grabs"`
	UnacknowledgedGrabs *int     `json:"unacknowledged_grabs"`
	Overlaps            *int     `json:"overlaps"`
	NearMisses          *int     `json:"near_misses"`
	BeliefGapMS         *float64 `json:"belief_gap_ms"`
	Struck              *int     `json:"struck"`

	ServedBy        map[string]int `json:"served_by"` // answers by instance
	ContendedOrders *int           `json:"contended_orders"`

	Latency     *load.Latency `json:"latency_ms"`      // from the schedule
	LatencySent *load.Latency `json:"latency_sent_ms"` // from sending
	LoadHeld    *bool         `json:"load_held"`
	// OverTime shows the load and the answers over time. Strikes shows when the fault
	// struck, on the same time axis.
	OverTime *load.OverTime `json:"over_time,omitempty"`
	Strikes  []Window       `json:"strikes,omitempty"`

	OfferedRPS   *float64 `json:"offered_rps"` // nil if all requests were due at once
	CompletedRPS *float64 `json:"completed_rps"`
	DurationS    *float64 `json:"duration_s"`

	RedisCommands           *int     `json:"redis_commands"`
	RedisCommandsPerRequest *float64 `json:"redis_commands_per_request"`
	DBStatementsPerRequest  *float64 `json:"db_statements_per_request"`

	// Checks holds the verdicts on the recorded events. It is empty if nothing was recorded.
	Checks   []check.Verdict `json:"checks,omitempty"`
	Timeline *check.Timeline `json:"story,omitempty"` // the timeline of one order, if the cell failed

	Shard  *shard.Record `json:"shard,omitempty"`  // only for one of several shards
	Merged *shard.Merged `json:"merged,omitempty"` // only for the result of several shards

	Sale *Sale `json:"sale,omitempty"` // only for orders of several units
	Peak *Peak `json:"peak,omitempty"` // only for scenario peak
	// Repetitions holds each run of the cell, and is empty if the cell was run once. Counts
	// of the cell are then totals, latencies and rates are medians, and the verdict is the
	// worst.
	Repetitions []Repetition `json:"repetitions,omitempty"`
}

// AsExpected reports whether the verdicts on the order and the lock are what the registry
// claims. It returns true where the registry claims nothing.
func (c Cell) AsExpected() bool {
	return (c.Expected == nil || c.Verdict == *c.Expected) &&
		(c.ExpectedExclusive == nil || c.Exclusive != nil && *c.Exclusive == *c.ExpectedExclusive)
}

// Said returns both verdicts in words.
func (c Cell) Said() string { return verdicts(c.Verdict, c.Exclusive) }

// Claimed returns the claims of the registry in words, or "nothing".
func (c Cell) Claimed() string {
	if c.Expected == nil {
		return "nothing"
	}
	return verdicts(*c.Expected, c.ExpectedExclusive)
}

func verdicts(order catalog.Verdict, exclusive *string) string {
	switch {
	case exclusive == nil:
		return string(order)
	case *exclusive == Yes:
		return string(order) + " with an exclusive lock"
	default:
		return string(order) + " with two holders inside"
	}
}

// What the lock's own verdict can be.
const (
	Yes = "yes"
	No  = "no"
)

// Window is a span of time since the load of a cell began.
type Window struct {
	FromMS float64  `json:"from_ms"`
	ToMS   *float64 `json:"to_ms"` // nil if it had not ended when the cell was judged
}

// Point is the outcome of the orders that the fault struck at one point.
type Point struct {
	Point       string          `json:"point"`
	Strikes     int             `json:"strikes"` // how often it should have struck there
	Struck      int             `json:"struck"`  // how often it struck there
	Verdict     catalog.Verdict `json:"verdict"` // the verdict on the order
	Overlaps    *int            `json:"overlaps"`
	DoubleGrabs *int            `json:"double_grabs"`
	StuckOrders *int            `json:"stuck_orders"`
	Unsold      *int            `json:"unsold,omitempty"` // units that were left; only for orders of several units
	NearMisses  *int            `json:"near_misses"`
	FailureMode string          `json:"failure_mode"` // such as "F11"; empty if there is none or it is unknown
}

// Sale is the outcome of orders of several units. The cell's Grabs counts the units sold,
// and its DoubleGrabs those beyond the stock.
type Sale struct {
	Stock int `json:"stock"` // units of each order
	// Undersold counts the units that were left although drivers were refused after the last
	// sale.
	Undersold *int `json:"undersold"`
	// LostUpdates is how many more rows the ledger has than the counters have decreased.
	LostUpdates *int `json:"lost_updates"`
	OverLimit   *int `json:"over_limit"` // units that drivers have beyond their limit
	// SoldOutMS is the time from the beginning of the load until the last unit of the last
	// order was answered for. It is nil if not every order was sold out, or if a fault
	// determined who came when.
	SoldOutMS *float64 `json:"sold_out_ms"`
	// InOrder is the share of the sold units that went to the first drivers to come, one
	// driver for each unit. 1 means first come, first served.
	InOrder *float64 `json:"in_order"`
	// OverTime shows when the units were answered for. It is nil if none was, or if a fault
	// determined who came when.
	OverTime *SoldOverTime `json:"over_time,omitempty"`
}

// SoldOverTime counts the units that were answered for in slices of equal length since the
// load began. It also resolves requests that are all due at once, which Cell.OverTime shows
// as a single slice.
type SoldOverTime struct {
	SliceMS float64 `json:"slice_ms"`
	Sold    []int   `json:"sold"`
}

// Peak is the outcome of a stepped search for the highest rate that is held.
type Peak struct {
	HeldRPS   float64    `json:"held_rps"`    // the highest rate at which load_held and the bound on p99 held; 0 if there is none
	GrabsPerS *float64   `json:"grabs_per_s"` // ledger rows per second at that rate; nil if not counted or if no rate was held
	P99MS     float64    `json:"p99_bound_ms"`
	Steps     []PeakStep `json:"steps"`

	LimitedBy   string `json:"limited_by"` // ByGenerator, ByInstances or ByLock; empty if unknown
	LimitReason string `json:"limit_reason"`
}

// Bare is a search for the highest rate that an endpoint without any work holds.
type Bare struct {
	Endpoint string `json:"endpoint"`
	Peak
}

// PeakStep is one rate of such a search.
type PeakStep struct {
	RPS       float64  `json:"rps"`
	P99MS     *float64 `json:"p99_ms"` // from the schedule; nil if nothing was answered
	P99SentMS *float64 `json:"p99_sent_ms"`
	Failed    int      `json:"failed"` // requests with an error or a time-out
	Held      bool     `json:"held"`
}
