package experiment

import (
	"cmp"
	_ "embed" // for RunSchema
	"fmt"
	"reflect"
	"slices"
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

// Schema is the version of the format of run.json.
const Schema = 1

// RunSchema is the JSON Schema (draft 2020-12) of run.json.
//
//go:embed run.schema.json
var RunSchema string

// Run is the content of run.json. A figure that could not be determined is nil, never 0.
type Run struct {
	Schema      int         `json:"schema"`
	ID          string      `json:"id"`
	Complete    bool        `json:"complete"` // false if the run is still going on or was interrupted
	StartedAt   time.Time   `json:"started_at"`
	DurationS   float64     `json:"duration_s"`
	Environment Environment `json:"environment"`
	Config      RunConfig   `json:"config"`
	Cells       []Cell      `json:"cells"`
	Bare        *Bare       `json:"bare,omitempty"` // set only for the peak scenario, and only for our own instances

	// Ended lists the servers that exited unexpectedly, with the time and the cause.
	Ended []string `json:"-"`
	// Planned is the total number of tests in the run, finished or not.
	Planned int `json:"-"`
}

// Measured reports whether the run has at least one measured result. It also returns true if there
// was nothing to measure.
func (r *Run) Measured() bool {
	return len(r.Cells) == 0 || slices.ContainsFunc(r.Cells, func(c Cell) bool {
		return c.Verdict != catalog.Unknown || c.DoubleGrabs != nil || c.Shard != nil
	})
}

// Contradiction returns an error if the verdict and the figures of a result cannot both be right. This
// happens, for example, if someone has edited the result file.
func (r *Run) Contradiction() error {
	for _, c := range r.Cells {
		if !slices.Contains([]catalog.Verdict{catalog.Safe, catalog.Unsafe, catalog.Stuck, catalog.Unknown, catalog.NA}, c.Verdict) {
			return fmt.Errorf("cell %v: there is no verdict %q", c.Name(), c.Verdict)
		}
		if c.Verdict == catalog.Safe && (value(c.DoubleGrabs) > 0 || value(c.StuckOrders) > 0) {
			return fmt.Errorf("cell %v: its verdict is safe, but it has %d double_grabs and %d stuck_orders", c.Name(), value(c.DoubleGrabs), value(c.StuckOrders))
		}
	}
	return nil
}

func value[T int | float64](n *T) T { return *cmp.Or(n, new(T)) }

// Environment describes the machine, the servers and the versions of a run.
type Environment struct {
	Go        string `json:"go"`
	OS        string `json:"os"`
	Arch      string `json:"arch"`
	CPUs      int    `json:"cpus"`
	Stack     string `json:"stack"`
	Redis     string `json:"redis"`    // name and version; empty if Redis was not used
	Database  string `json:"database"` // name and version; empty if no database was reached
	ZooKeeper string `json:"zookeeper,omitempty"`
	Etcd      string `json:"etcd,omitempty"`
	Vegeta    string `json:"vegeta"`
	Commit    string `json:"commit"`
}

// Differences returns the reasons why results from two environments cannot be compared. It ignores
// values that are unknown in one of them.
func (e Environment) Differences(now Environment) (all []string) {
	e.Vegeta, e.Commit = "", "" // these do not affect a comparison
	for field, before := range reflect.ValueOf(e).Fields() {
		after := reflect.ValueOf(now).FieldByIndex(field.Index)
		if !before.IsZero() && !after.IsZero() && !before.Equal(after) {
			all = append(all, fmt.Sprintf("%s %v, but here it is %v", strings.ToLower(field.Name), before, after))
		}
	}
	return all
}

// RunConfig records the settings of a run.
type RunConfig struct {
	Scenario  string   `json:"scenario"`
	Orders    int      `json:"orders"`
	Drivers   int      `json:"drivers"`
	Rate      float64  `json:"rate"`               // requests per second; 0 means all at once
	Together  bool     `json:"together,omitempty"` // the drivers of an order arrive close together
	Instances int      `json:"instances"`
	Seed      uint64   `json:"seed"`
	Args      []string `json:"args,omitempty"`       // the command-line flags that affect the results, without secrets
	Stock     int      `json:"stock,omitempty"`      // units per order; 0 means 1
	PerDriver int      `json:"per_driver,omitempty"` // units of each order that one driver may get; 0 means 1
	Repeat    int      `json:"repeat,omitempty"`     // how often each test without a fault runs; 0 means once
	// Rules define which responses of a service mean that a driver won or lost. They are nil for
	// instances of our own service.
	Rules *target.Rules `json:"rules,omitempty"`
	// Files contains the SHA-256 sums of the files that the flags -target-file and -expectations name, by flag name.
	Files map[string]string `json:"files,omitempty"`
}

// Cell is the result of testing one strategy under one fault. docs/results.md defines every figure.
type Cell struct {
	Strategy string           `json:"strategy"`
	Fault    catalog.Fault    `json:"fault"`
	Verdict  catalog.Verdict  `json:"verdict"`
	Expected *catalog.Verdict `json:"expected"` // nil if the registry makes no prediction for these settings
	Reason   string           `json:"reason"`   // why the verdict is not safe
	// Exclusive is "no" if the lock had two holders at once, and otherwise "yes". It is nil if this
	// was not observed, or if there is no lock.
	Exclusive         *string `json:"exclusive"`
	ExpectedExclusive *string `json:"expected_exclusive"`
	// Points has an entry for each step of a request at which the program tried to inject the fault.
	Points []Point `json:"points,omitempty"`
	// Interrupted means that the run ended before this test was finished.
	Interrupted bool `json:"interrupted,omitempty"`
	// Environment describes where this result was measured. It is nil if the test did not run, and
	// in files written before version 0.4.
	Environment *Environment `json:"environment,omitempty"`

	Guard  order.Guard `json:"guard"`   // empty for the user's service
	OnLost grab.OnLost `json:"on_lost"` // empty for the user's service
	// TTLMS and the following settings are nil for the user's service, because the program does not
	// know them.
	TTLMS   *float64 `json:"ttl_ms"`
	LeaseMS *float64 `json:"lease_ms"`
	WorkMS  *float64 `json:"work_ms"`
	WaitMS  *float64 `json:"wait_ms"`

	Orders   int                  `json:"orders"`
	Requests int                  `json:"requests"`
	Outcomes map[grab.Outcome]int `json:"outcomes"`
	Errors   map[string]int       `json:"errors"` // failed requests by kind of error

	CountedFrom         string `json:"counted_from"` // "ledger" or "answers"
	Grabs               *int   `json:"grabs"`        // rows in the ledger
	OrdersGrabbed       *int   `json:"orders_grabbed"`
	DoubleGrabs         *int   `json:"double_grabs"`
	LowerBound          bool   `json:"lower_bound,omitempty"` // DoubleGrabs may be too low, because some responses may hide a win
	OrdersDoubleGrabbed *int   `json:"orders_double_grabbed"`
	// RepeatedRows counts ledger rows with the same order and driver as an earlier row. It is set
	// only for a user's service that has a ledger.
	RepeatedRows *int `json:"repeated_rows,omitempty"`
	// CompensatedOrders counts the orders whose extra wins the service undid in time.
	// LongestCompensationMS is an upper bound on the longest time that this took. Both are nil if
	// the service may not undo wins.
	CompensatedOrders     *int     `json:"compensated_orders,omitempty"`
	LongestCompensationMS *float64 `json:"longest_compensation_ms,omitempty"`
	// SettleMS is how long the program read the ledger after the probes, until the ledger had stayed
	// unchanged for long enough. It is nil if one read was enough.
	SettleMS            *float64 `json:"settle_ms,omitempty"`
	StuckOrders         *int     `json:"stuck_orders"`
	PhantomGrabs        *int     `json:"phantom_grabs"`
	UnacknowledgedGrabs *int     `json:"unacknowledged_grabs"`
	Overlaps            *int     `json:"overlaps"`
	NearMisses          *int     `json:"near_misses"`
	BeliefGapMS         *float64 `json:"belief_gap_ms"`
	Struck              *int     `json:"struck"`

	ServedBy        map[string]int `json:"served_by"` // responses from each instance
	ContendedOrders *int           `json:"contended_orders"`

	Latency     *load.Latency `json:"latency_ms"`      // measured from when a request was due
	LatencySent *load.Latency `json:"latency_sent_ms"` // measured from when a request was sent
	LoadHeld    *bool         `json:"load_held"`
	// OverTime shows how the load and the responses changed over time. Strikes lists the periods in
	// which the fault was active.
	OverTime *load.OverTime `json:"over_time,omitempty"`
	Strikes  []Window       `json:"strikes,omitempty"`

	OfferedRPS   *float64 `json:"offered_rps"` // nil if all requests were due at once
	CompletedRPS *float64 `json:"completed_rps"`
	DurationS    *float64 `json:"duration_s"`

	RedisCommands           *int     `json:"redis_commands"`
	RedisCommandsPerRequest *float64 `json:"redis_commands_per_request"`
	DBStatementsPerRequest  *float64 `json:"db_statements_per_request"`

	// Checks contains a result for each property that was checked against the recorded events. It
	// is empty if there are no events.
	Checks   []check.Verdict `json:"checks,omitempty"`
	Timeline *check.Timeline `json:"story,omitempty"` // the timeline of one failed order; nil if none failed

	Shard  *shard.Record `json:"shard,omitempty"`  // set if the run sent one share of a load that was split over several machines
	Merged *shard.Merged `json:"merged,omitempty"` // set if the figures combine several shards

	Sale *Sale `json:"sale,omitempty"` // set only if orders have several units
	Peak *Peak `json:"peak,omitempty"` // set only for the peak scenario
	// Repetitions contains the figures of each run if the test ran several times. The counts above
	// are then totals, and the other figures are medians. The verdict is the worst one.
	Repetitions []Repetition `json:"repetitions,omitempty"`
}

// AsExpected reports whether both verdicts match our expectations. A verdict for which we have no
// expectation counts as expected.
func (c Cell) AsExpected() bool {
	return (c.Expected == nil || c.Verdict == *c.Expected) &&
		(c.ExpectedExclusive == nil || c.Exclusive != nil && *c.Exclusive == *c.ExpectedExclusive)
}

// Said describes both verdicts in words.
func (c Cell) Said() string { return verdicts(c.Verdict, c.Exclusive) }

// Claimed describes in words the verdicts that we expect. It returns "nothing" if we expect none.
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

// Possible values of Exclusive.
const (
	Yes = "yes"
	No  = "no"
)

// Window is a period of time, measured from the start of the load.
type Window struct {
	FromMS float64  `json:"from_ms"`
	ToMS   *float64 `json:"to_ms"` // nil if the period had not ended by the end of the test
}

// Point describes what happened to the orders whose requests the fault hit at the same step.
type Point struct {
	Point       string          `json:"point"`
	Strikes     int             `json:"strikes"` // how often the fault should have been injected
	Struck      int             `json:"struck"`  // how often it hit a request at that step
	Verdict     catalog.Verdict `json:"verdict"` // the verdict on the orders that the fault hit at this step
	Overlaps    *int            `json:"overlaps"`
	DoubleGrabs *int            `json:"double_grabs"`
	StuckOrders *int            `json:"stuck_orders"`
	Unsold      *int            `json:"unsold,omitempty"` // units left unsold; nil unless orders have several units
	NearMisses  *int            `json:"near_misses"`
	FailureMode string          `json:"failure_mode"` // an id such as "F11"; empty if no order failed or no known mode fits
}

// Sale contains the figures of a test whose orders have several units. In such a test, Grabs counts
// all units sold, and DoubleGrabs counts the units sold beyond the stock.
type Sale struct {
	Stock int `json:"stock"` // units per order
	// Undersold counts the units that stayed unsold although a driver was refused after the last
	// sale.
	Undersold *int `json:"undersold"`
	// LostUpdates counts the ledger rows that did not decrease a stock counter.
	LostUpdates *int `json:"lost_updates"`
	OverLimit   *int `json:"over_limit"` // units that drivers got beyond their limit
	// SoldOutMS is the time from the start of the load until the last unit was sold. It is nil if
	// units were left or a fault was injected.
	SoldOutMS *float64 `json:"sold_out_ms"`
	// InOrder is the share of units that went to the drivers who came first. It is 1 if all units
	// were sold in the order of arrival.
	InOrder *float64 `json:"in_order"`
	// OverTime shows when units were sold. It is nil if no unit was sold or a fault was injected.
	OverTime *SoldOverTime `json:"over_time,omitempty"`
}

// SoldOverTime counts the confirmed sales in time slices of equal length.
type SoldOverTime struct {
	SliceMS float64 `json:"slice_ms"`
	Sold    []int   `json:"sold"`
}

// Peak is the result of a search for the highest rate that a strategy can sustain.
type Peak struct {
	HeldRPS   float64    `json:"held_rps"`    // the highest rate at which load_held is true and p99 is within its limit; 0 if there is none
	GrabsPerS *float64   `json:"grabs_per_s"` // ledger rows per second at HeldRPS; nil if unknown or if HeldRPS is 0
	P99MS     float64    `json:"p99_bound_ms"`
	Steps     []PeakStep `json:"steps"`

	LimitedBy   string `json:"limited_by"` // ByGenerator, ByInstances or ByLock; empty if unknown
	LimitReason string `json:"limit_reason"`
}

// Bare is the result of searching for the highest rate of an endpoint that does no work.
type Bare struct {
	Endpoint string `json:"endpoint"`
	Peak
}

// PeakStep is one rate that the search tried.
type PeakStep struct {
	RPS       float64  `json:"rps"`
	P99MS     *float64 `json:"p99_ms"` // measured from when a request was due; nil if no request got a response
	P99SentMS *float64 `json:"p99_sent_ms"`
	Failed    int      `json:"failed"` // requests that failed or timed out
	Held      bool     `json:"held"`
}
