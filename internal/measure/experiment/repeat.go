package experiment

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"grablab/internal/catalog"
	"grablab/internal/check"
	"grablab/internal/measure/stat"
	"grablab/internal/testbed/load"
)

// Repetition contains the figures of one of several runs of the same test. Tests are repeated
// because the same strategy can be ten times slower in one run than in another.
type Repetition struct {
	Verdict                 catalog.Verdict `json:"verdict"`
	Exclusive               *string         `json:"exclusive"`
	Latency                 *load.Latency   `json:"latency_ms"`
	LatencySent             *load.Latency   `json:"latency_sent_ms"`
	LoadHeld                *bool           `json:"load_held"`
	CompletedRPS            *float64        `json:"completed_rps"`
	GrabsPerS               *float64        `json:"grabs_per_s"` // ledger rows per second
	RedisCommandsPerRequest *float64        `json:"redis_commands_per_request"`
	DBStatementsPerRequest  *float64        `json:"db_statements_per_request"`
	Sale                    *Sale           `json:"sale,omitempty"` // set only if orders have several units
}

func (c Cell) repetition() Repetition {
	r := Repetition{
		Verdict: c.Verdict, Exclusive: c.Exclusive, Latency: c.Latency, LatencySent: c.LatencySent, LoadHeld: c.LoadHeld, CompletedRPS: c.CompletedRPS,
		RedisCommandsPerRequest: c.RedisCommandsPerRequest, DBStatementsPerRequest: c.DBStatementsPerRequest, Sale: c.Sale,
	}
	if c.Grabs != nil && c.DurationS != nil && *c.DurationS > 0 {
		r.GrabsPerS = new(float64(*c.Grabs) / *c.DurationS)
	}
	return r
}

// rounds returns the tests in the order in which they run, including repetitions. It shuffles each
// round, because periodic work on the machine could otherwise slow down the same strategy every
// time.
func rounds(specs []*cellSpec, repeat int, seed uint64) (all []*cellSpec) {
	random := rand.New(rand.NewPCG(seed, 1))
	for round := range max(1, repeat) {
		from := len(all)
		all = append(all, catalog.Filter(specs, func(s *cellSpec) bool { return s.times() <= round })...)
		if repeat > 1 {
			random.Shuffle(len(all)-from, func(i, j int) { all[from+i], all[from+j] = all[from+j], all[from+i] })
		}
	}
	return all
}

// times returns how often the test has run to the end.
func (s *cellSpec) times() int {
	switch {
	case s.cell == nil || s.cell.Interrupted:
		return 0
	case len(s.cell.Repetitions) > 0:
		return len(s.cell.Repetitions)
	default:
		return 1
	}
}

// first converts a single run's result to a result with one repetition.
func (c Cell) first() Cell {
	c.Repetitions = []Repetition{c.repetition()}
	c.Reason = inRepetition(1, c.Reason)
	return c
}

func inRepetition(n int, reason string) string {
	if reason == "" {
		return ""
	}
	return fmt.Sprintf("in repetition %d: %s", n, reason)
}

// merge adds the result of one more repetition. It adds up counts, turns other figures into
// medians, and keeps the worse verdict. From an interrupted repetition, it takes only a failure.
func (c Cell) merge(next Cell) Cell {
	sum := c
	if next.Verdict.WorseThan(c.Verdict) && (next.Verdict.IsFailure() || !next.Interrupted) {
		sum.Verdict, sum.Reason = next.Verdict, inRepetition(len(c.Repetitions)+1, next.Reason)
		sum.Timeline = next.Timeline
	}
	if next.Interrupted {
		return sum
	}
	sum.Repetitions = append(slices.Clone(c.Repetitions), next.repetition())
	sum.Exclusive = bothExclusive(c.Exclusive, next.Exclusive)
	sum.Orders, sum.Requests = c.Orders+next.Orders, c.Requests+next.Requests
	sum.Outcomes, sum.Errors, sum.ServedBy = added(c.Outcomes, next.Outcomes), added(c.Errors, next.Errors), added(c.ServedBy, next.ServedBy)
	for _, n := range []struct{ sum, next **int }{
		{&sum.Grabs, &next.Grabs}, {&sum.OrdersGrabbed, &next.OrdersGrabbed}, {&sum.DoubleGrabs, &next.DoubleGrabs},
		{&sum.OrdersDoubleGrabbed, &next.OrdersDoubleGrabbed}, {&sum.RepeatedRows, &next.RepeatedRows}, {&sum.CompensatedOrders, &next.CompensatedOrders}, {&sum.StuckOrders, &next.StuckOrders}, {&sum.PhantomGrabs, &next.PhantomGrabs},
		{&sum.UnacknowledgedGrabs, &next.UnacknowledgedGrabs}, {&sum.Overlaps, &next.Overlaps}, {&sum.NearMisses, &next.NearMisses},
		{&sum.ContendedOrders, &next.ContendedOrders}, {&sum.RedisCommands, &next.RedisCommands},
	} {
		*n.sum = both(*n.sum, *n.next, func(a, b int) int { return a + b })
	}
	if next.CountedFrom == fromAnswers {
		sum.CountedFrom = fromAnswers
	}
	sum.LowerBound = c.LowerBound || next.LowerBound
	sum.BeliefGapMS = larger(c.BeliefGapMS, next.BeliefGapMS)
	sum.LongestCompensationMS = larger(c.LongestCompensationMS, next.LongestCompensationMS)
	sum.SettleMS = both(c.SettleMS, next.SettleMS, func(a, b float64) float64 { return a + b })
	sum.DurationS = both(c.DurationS, next.DurationS, func(a, b float64) float64 { return a + b })
	sum.LoadHeld = both(c.LoadHeld, next.LoadHeld, func(a, b bool) bool { return a && b })
	sum.Latency = medianLatency(sum.Repetitions, func(r Repetition) *load.Latency { return r.Latency })
	sum.LatencySent = medianLatency(sum.Repetitions, func(r Repetition) *load.Latency { return r.LatencySent })
	sum.CompletedRPS = medianOf(sum.Repetitions, func(r Repetition) *float64 { return r.CompletedRPS })
	sum.RedisCommandsPerRequest = medianOf(sum.Repetitions, func(r Repetition) *float64 { return r.RedisCommandsPerRequest })
	sum.DBStatementsPerRequest = medianOf(sum.Repetitions, func(r Repetition) *float64 { return r.DBStatementsPerRequest })
	sum.Checks = worstChecks(c.Checks, next.Checks)
	sum.Sale = c.Sale.merge(next.Sale, sum.Repetitions)
	return sum
}

// bothExclusive combines the lock verdicts of two repetitions. The result is Yes if both are Yes,
// No if at least one is No, and nil otherwise.
func bothExclusive(a, b *string) *string {
	switch {
	case a != nil && *a == No || b != nil && *b == No:
		return new(No)
	case a == nil || b == nil:
		return nil
	default:
		return a
	}
}

// both combines two values by calling with. It returns nil if one of the values is nil.
func both[T any](a, b *T, with func(a, b T) T) *T {
	if a == nil || b == nil {
		return nil
	}
	return new(with(*a, *b))
}

// larger returns the larger of two values. It ignores a value that is nil.
func larger(a, b *float64) *float64 {
	if a == nil || b != nil && *b > *a {
		return b
	}
	return a
}

func added[K comparable](a, b map[K]int) map[K]int {
	sum := maps.Clone(a)
	for k, n := range b {
		if sum == nil {
			sum = map[K]int{}
		}
		sum[k] += n
	}
	return sum
}

// ValuesOf returns the known values of one figure in all repetitions.
func ValuesOf(repetitions []Repetition, of func(Repetition) *float64) (values []float64) {
	for _, r := range repetitions {
		if x := of(r); x != nil {
			values = append(values, *x)
		}
	}
	return values
}

// medianOf returns the median of one figure over the repetitions that have it, or nil if none has
// it.
func medianOf(repetitions []Repetition, of func(Repetition) *float64) *float64 {
	values := ValuesOf(repetitions, of)
	if len(values) == 0 {
		return nil
	}
	return new(stat.Median(values).Median)
}

// medianLatency returns the median of each percentile over all repetitions, or nil if no request
// got a response.
func medianLatency(repetitions []Repetition, of func(Repetition) *load.Latency) *load.Latency {
	known := slices.DeleteFunc(catalog.Map(repetitions, of), func(l *load.Latency) bool { return l == nil })
	if len(known) == 0 {
		return nil
	}
	median := func(f func(*load.Latency) float64) float64 { return stat.Median(catalog.Map(known, f)).Median }
	return &load.Latency{
		Min:  slices.Min(catalog.Map(known, func(l *load.Latency) float64 { return l.Min })),
		Max:  slices.Max(catalog.Map(known, func(l *load.Latency) float64 { return l.Max })),
		Mean: median(func(l *load.Latency) float64 { return l.Mean }),
		P50:  median(func(l *load.Latency) float64 { return l.P50 }),
		P90:  median(func(l *load.Latency) float64 { return l.P90 }),
		P99:  median(func(l *load.Latency) float64 { return l.P99 }),
		P999: median(func(l *load.Latency) float64 { return l.P999 }),
	}
}

// worstChecks returns the worse of two results for each property.
func worstChecks(a, b []check.Verdict) []check.Verdict {
	worst := slices.Clone(a)
	order := []check.Result{check.Pass, check.Unknown, check.Fail}
	for _, v := range b {
		i := slices.IndexFunc(worst, func(w check.Verdict) bool { return w.Property == v.Property })
		switch {
		case i < 0:
			worst = append(worst, v)
		case cmp.Compare(slices.Index(order, v.Result), slices.Index(order, worst[i].Result)) > 0:
			worst[i] = v
		}
	}
	return worst
}
