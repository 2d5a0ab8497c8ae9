package experiment

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"grablab/internal/catalog"
	"grablab/internal/testbed/fleet"
)

// Every ParseAssert error wraps one of these errors.
var (
	ErrAssert   = errors.New("experiment: bad assertion")
	ErrNoFigure = errors.New("experiment: no such figure")
)

// Assert is a claim about the results of a run, in the syntax of the -assert flag:
//
//	[strategy[/fault]:]figure OP number    double_grabs==0   setnx:latency_ms.p99<50
//	[strategy[/fault]:]expected            every verdict is the expected one, the order's and the lock's
//
// The claim must select at least one result, and hold for every result that it selects. A result
// without the figure violates the claim, and results with the verdict n/a are skipped.
type Assert struct {
	Strategy string        // empty means all strategies
	Fault    catalog.Fault // empty means all faults
	Figure   string        // one of Figures; empty means expected
	Op       string
	Number   float64
}

// Figures lists the paths in run.json that an assertion can name. A path that ends with a dot
// stands for all keys below it.
var Figures = strings.Fields(`
	orders requests grabs orders_grabbed double_grabs orders_double_grabbed repeated_rows stuck_orders settle_ms
	phantom_grabs unacknowledged_grabs overlaps near_misses belief_gap_ms struck contended_orders
	outcomes.grabbed outcomes.taken outcomes.busy outcomes.error outcomes.timeout errors. served_by.
	latency_ms.min latency_ms.mean latency_ms.p50 latency_ms.p90 latency_ms.p99 latency_ms.p999 latency_ms.max
	latency_sent_ms.min latency_sent_ms.mean latency_sent_ms.p50 latency_sent_ms.p90 latency_sent_ms.p99
	latency_sent_ms.p999 latency_sent_ms.max
	offered_rps completed_rps duration_s redis_commands redis_commands_per_request db_statements_per_request
	ttl_ms lease_ms work_ms wait_ms peak.held_rps peak.grabs_per_s peak.p99_bound_ms`)

var operators = map[string]func(actual, claimed float64) bool{
	"==": func(a, c float64) bool { return a == c },
	"!=": func(a, c float64) bool { return a != c },
	"<=": func(a, c float64) bool { return a <= c },
	">=": func(a, c float64) bool { return a >= c },
	"<":  func(a, c float64) bool { return a < c },
	">":  func(a, c float64) bool { return a > c },
}

const allExpected = "expected"

// Foreign is the strategy name for a user's own service, whose locking strategy is unknown.
const Foreign = fleet.ForeignStrategy

// ParseAssert parses an assertion. It returns ErrNoFigure for an unknown figure, and ErrAssert for
// any other mistake.
func ParseAssert(text string) (a Assert, err error) {
	rest := strings.TrimSpace(text)
	// A colon usually follows the name of a strategy, but it can also be part of an instance's
	// address. Only an address contains dots.
	if cell, claim, ok := strings.Cut(rest, ":"); ok && !strings.ContainsAny(cell, ".=!<>") {
		name, fault, hasFault := strings.Cut(strings.TrimSpace(cell), "/")
		a.Strategy, a.Fault, rest = name, catalog.Fault(fault), strings.TrimSpace(claim)
		switch {
		case name == "":
			return a, fmt.Errorf("%w: the strategy before the colon is missing: write it as in setnx:double_grabs==0", ErrAssert)
		case hasFault && !slices.Contains(catalog.RunFaults, a.Fault):
			return a, fmt.Errorf("%w: there is no fault %q", ErrAssert, fault)
		case !hasFault && catalog.Fault(name) != catalog.NoFault && slices.Contains(catalog.RunFaults, catalog.Fault(name)):
			return a, fmt.Errorf("%w: %s is a fault, not a strategy: write it after the strategy, as in %s/%[2]s", ErrAssert, name, Foreign)
		}
	}
	if rest == allExpected {
		return a, nil
	}
	at := strings.IndexAny(rest, "=!<>")
	if at < 0 {
		return a, fmt.Errorf(`%w: must be FIELD OP NUMBER, as in double_grabs==0, or the word "expected"`, ErrAssert)
	}
	a.Figure, a.Op = strings.TrimSpace(rest[:at]), rest[at:min(at+2, len(rest))]
	if operators[a.Op] == nil {
		a.Op = a.Op[:1]
	}
	if operators[a.Op] == nil {
		return a, fmt.Errorf("%w: this operator does not exist: use == != < <= > or >=", ErrAssert)
	}
	if !slices.ContainsFunc(Figures, func(f string) bool {
		below := strings.HasSuffix(f, ".")
		return f == a.Figure && !below || below && len(a.Figure) > len(f) && strings.HasPrefix(a.Figure, f)
	}) {
		return a, fmt.Errorf("%w: there is no field %q", ErrNoFigure, a.Figure)
	}
	rest = strings.TrimSpace(rest[at+len(a.Op):])
	a.Number, err = strconv.ParseFloat(rest, 64)
	if err != nil || math.IsNaN(a.Number) || math.IsInf(a.Number, 0) {
		return a, fmt.Errorf("%w: %s can be compared only with a number, but %q is not a number", ErrAssert, a.Figure, rest)
	}
	return a, nil
}

// String formats the assertion in the syntax that ParseAssert reads.
func (a Assert) String() string {
	cell := a.Strategy
	if a.Fault != "" {
		cell += "/" + string(a.Fault)
	}
	if cell != "" {
		cell += ":"
	}
	if a.Figure == "" {
		return cell + allExpected
	}
	return cell + a.Figure + a.Op + number(a.Number)
}

func number(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }

// Misses returns a sentence for each result that violates the assertion, or a single sentence if
// there is no result to check.
func (a Assert) Misses(run *Run) []string {
	var misses []string
	looked := 0
	for _, c := range run.Cells {
		if a.Strategy != "" && a.Strategy != c.Strategy || a.Fault != "" && a.Fault != c.Fault ||
			c.Verdict == catalog.NA || a.Figure == "" && c.Expected == nil {
			continue
		}
		looked++
		if actual, ok := a.holds(c); !ok {
			misses = append(misses, fmt.Sprintf("%v: %v: %s", a, c.Name(), actual))
		}
	}
	if looked == 0 {
		misses = append(misses, fmt.Sprintf("%v: there is nothing to compare: this combination was not run, or no verdict is expected", a))
	}
	return misses
}

// holds reports whether a result satisfies the assertion. It also returns the measured value as
// text.
func (a Assert) holds(c Cell) (actual string, ok bool) {
	if a.Figure == "" {
		return "is " + c.Said() + ", expected " + c.Claimed(), c.AsExpected()
	}
	x, counted := figureOf(c, a.Figure)
	if !counted {
		return a.Figure + " could not be counted", false
	}
	ok = operators[a.Op](x, a.Number)
	if c.LowerBound && slices.Contains([]string{"double_grabs", "orders_double_grabbed", "orders_grabbed"}, a.Figure) {
		return a.Figure + " is " + number(x) + " or more", ok && (a.Op == ">" || a.Op == ">=")
	}
	return a.Figure + " is " + number(x), ok
}

// figureOf returns the number at a path in the JSON of a result. For an outcome or error that never
// occurred, the number is 0.
func figureOf(c Cell, path string) (x float64, counted bool) {
	b, _ := json.Marshal(c)
	var cell map[string]any
	_ = json.Unmarshal(b, &cell)
	name, rest, deeper := strings.Cut(path, ".")
	at := cell[name]
	if deeper {
		object, _ := at.(map[string]any)
		at = object[rest]
	}
	if x, counted = at.(float64); !counted && slices.Contains([]string{"outcomes", "errors", "served_by"}, name) {
		return 0, c.Requests > 0
	}
	return x, counted
}
