package experiment

import (
	"bytes"
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"grablab/internal/check"
	"grablab/internal/grab"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/load"
	"grablab/internal/testbed/target"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

// accounting counts the service's responses while the load runs. To save memory, it keeps details
// only of wins and unfinished orders.
type accounting struct {
	drivers int
	units   int               // units for sale per order
	partial bool              // only some of each order's drivers are counted, so per-order state is not kept
	names   map[string]string // instance names by URL; instances of this program name themselves in each response instead
	shape   *target.Shape
	began   time.Time

	requests int
	outcomes map[grab.Outcome]int
	errors   map[string]int
	servedBy map[string]int
	competed map[string]bool // instances on which at least one request got as far as asking for the lock

	scheduled, sent load.Histogram
	series          *load.Series
	lastEnd         time.Time
	lastDue         time.Time
	lastSeq         uint64         // sequence number of the request that was due last
	served          load.Histogram // time from the start of the load to each response whose request got as far as asking for the lock

	open       map[int64]*orderState // orders for which some drivers still wait for a response
	contended  int
	tried      int            // orders for which at least one driver got the lock
	unclaimed  []int64        // orders that the service reported as taken without telling any driver that it won
	told       []check.Pair   // drivers whose responses say that they won
	unsure     []check.Pair   // drivers that may have won without being told
	probeWins  int            // how many wins in told come from probes
	winnerless []int64        // orders that the service reports as taken although the ledger has no winner
	stuck      map[int64]bool // orders that were stuck during the load, and whether the last probe was answered "busy"; after the audit, only those that became free
	busy       map[int64]bool // orders for which every probe was answered "busy"

	// These fields are used only if orders have several units to sell.
	refusedLast []int64         // orders that refused a driver after their last sale
	soldOut     int             // orders whose units were all confirmed as sold
	soldOutBy   time.Time       // when the last order in soldOut was sold out
	sales       []time.Duration // time from the start of the load to each confirmed sale
	inOrder     int             // units that went to the drivers who came first

	first      *orderState       // first order whose drivers all have their responses; nil until then
	unreadable string            // why the responses do not show who won; empty if they do
	differing  string            // two responses for one order that have a winner's status, but different texts; empty if there are none
	texts      int               // winning responses that have a body
	hiding     map[string]int    // responses that may hide a win, by kind
	samples    map[string]string // one example of each kind of response
}

// orderState tracks one order until all its drivers have their responses.
type orderState struct {
	id      int64
	left    int
	spans   []span
	grabbed int
	said    string // text of the first response that means a win, if the user gave no rule for a win
	plain   string // the same text without IDs
	taken   int
	unsure  int // drivers that may have won, because their response does not tell or never came
	refused int // responses that say for certain that the driver did not win

	// These fields are used only if the order has several units.
	arrivals            []arrival
	sales               []time.Time
	lastSale, lastNever time.Time // when the last buyer learned that it got a unit, and when the last loser learned that it never will
}

// arrival records when a driver asked for a unit and whether it got one.
type arrival struct {
	at  time.Time
	won bool
}

type span struct{ from, to time.Time }

func newAccounting(drivers int, names map[string]string, shape *target.Shape) *accounting {
	return &accounting{
		drivers: drivers, units: 1, names: names, shape: shape, began: time.Now(),
		outcomes: noOutcomes(), errors: map[string]int{}, servedBy: map[string]int{}, competed: map[string]bool{},
		series: load.NewSeries(), scheduled: load.NewHistogram(), sent: load.NewHistogram(), served: load.NewHistogram(),
		open: map[int64]*orderState{}, hiding: map[string]int{}, samples: map[string]string{},
	}
}

// noOutcomes returns a map with a zero count for every outcome, so that the JSON output lists all
// of them.
func noOutcomes() map[grab.Outcome]int {
	none := make(map[grab.Outcome]int, len(grab.Outcomes))
	for _, o := range grab.Outcomes {
		none[o] = 0
	}
	return none
}

// add counts the result of one request. due is when the load plan wanted to send it.
func (a *accounting) add(r *vegeta.Result, due time.Time) error {
	s, err := load.ParseRequest(r.URL)
	if err != nil {
		return err
	}
	m := classify(r, a.shape)
	if r.Code != 0 {
		name := a.names[s.Target]
		if a.shape == target.Own { // another service may use this field for a different purpose
			name = cmp.Or(field(r.Body, "instance"), name)
		}
		a.servedBy[name]++
		if reached(m.Outcome) {
			a.competed[name] = true
		}
	}
	a.requests++
	a.outcomes[m.Outcome]++
	if m.Kind != "" {
		a.errors[m.Kind]++
		if len(r.Body) > 0 && a.samples[m.Kind] == "" {
			a.samples[m.Kind] = fleet.OneLine(string(r.Body))
		}
	}

	end := r.Timestamp.Add(r.Latency)
	a.scheduled.Add(end.Sub(due))
	a.sent.Add(r.Latency)
	a.series.Add(due.Sub(a.began), end.Sub(due), r.Latency)
	a.lastEnd = latest(a.lastEnd, end)
	if due.After(a.lastDue) {
		a.lastDue, a.lastSeq = due, r.Seq
	}
	if reached(m.Outcome) {
		a.served.Add(end.Sub(a.began))
	}
	if a.partial {
		return nil
	}
	if m.Unsure {
		a.unsure = append(a.unsure, check.Pair{Order: s.Order, Driver: s.Driver})
		a.hiding[m.Kind]++
	}
	if a.units > 1 {
		limited := a.shape == target.Own && m.Outcome == grab.Taken && field(r.Body, "reason") == grab.PerDriver
		a.stateOf(s.Order).addSale(m, r.Timestamp, end, limited)
	}
	a.addToOrder(s, m, span{r.Timestamp, end}, string(r.Body))
	return nil
}

// addSale counts a response for an order with several units. came is when the driver sent its request,
// and answered is when it got the response. limited means that the driver already has as many units as
// it may have.
func (f *orderState) addSale(m target.Meaning, came, answered time.Time, limited bool) {
	f.arrivals = append(f.arrivals, arrival{came, m.Outcome == grab.Grabbed})
	switch {
	case m.Outcome == grab.Grabbed:
		f.sales = append(f.sales, answered)
		f.lastSale = latest(f.lastSale, answered)
	case m.Outcome == grab.Busy, limited, m.Kind == load.Refused, m.Kind == load.Interrupted: // the driver may retry, or was never served
	default:
		f.lastNever = latest(f.lastNever, answered)
	}
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// closeSale adds a finished order's figures to the totals if orders have several units.
func (a *accounting) closeSale(f *orderState) {
	if f.lastNever.After(f.lastSale) {
		a.refusedLast = append(a.refusedLast, f.id)
	}
	for _, answered := range f.sales {
		a.sales = append(a.sales, answered.Sub(a.began))
	}
	if len(f.sales) >= a.units {
		slices.SortFunc(f.sales, time.Time.Compare)
		a.soldOut++
		a.soldOutBy = latest(a.soldOutBy, f.sales[a.units-1])
	}
	slices.SortStableFunc(f.arrivals, func(x, y arrival) int { return x.at.Compare(y.at) })
	for _, came := range f.arrivals[:min(a.units, len(f.arrivals))] {
		if came.won {
			a.inOrder++
		}
	}
}

// reached reports whether a request with this outcome got as far as asking for the lock.
func reached(o grab.Outcome) bool {
	return o == grab.Grabbed || o == grab.Taken || o == grab.Busy
}

// classify decides whether a driver won, lost or may have won. A request without a response may
// have won, unless the service refused the connection.
func classify(r *vegeta.Result, shape *target.Shape) target.Meaning {
	if r.Code != 0 {
		m := shape.Meaning(int(r.Code), r.Headers, r.Body)
		if m.Kind != "" && shape == target.Own { // another service may use this field for a different purpose
			m.Kind = cmp.Or(field(r.Body, "reason"), m.Kind)
		}
		return m
	}
	m := target.Meaning{Outcome: grab.Failed, Kind: load.FailureOf(r.Error)}
	if m.Unsure = m.Kind != load.Refused; m.Kind == load.Timeout {
		m.Outcome = grab.Timeout
	}
	return m
}

// field returns a string field of a JSON response, or "" if there is no such field. It searches the
// raw text, because decoding every response would take twice as long.
func field(body []byte, name string) string {
	_, rest, _ := bytes.Cut(body, []byte(`"`+name+`":"`))
	value, _, ok := bytes.Cut(rest, []byte{'"'})
	if !ok {
		return ""
	}
	return string(value)
}

// addToOrder counts a response for its order, and finishes the order after the last response.
func (a *accounting) addToOrder(s load.Request, m target.Meaning, sp span, text string) {
	f := a.stateOf(s.Order)
	f.left--
	if reached(m.Outcome) {
		f.spans = append(f.spans, sp)
	}
	switch {
	case m.Outcome == grab.Grabbed:
		f.grabbed++
		a.told = append(a.told, check.Pair{Order: s.Order, Driver: s.Driver})
		if text != "" {
			a.texts++
		}
		if !a.shape.AssumesGrabbed || a.differing != "" {
			break
		}
		if plain := withoutIDs(text, s.Driver); f.grabbed == 1 {
			f.said, f.plain = text, plain
		} else if plain != f.plain {
			a.differing = fmt.Sprintf("%q and %q", fleet.OneLine(f.said), fleet.OneLine(text))
		}
	case m.Outcome == grab.Taken:
		f.taken++
	case m.Unsure:
		f.unsure++
	case m.Outcome == grab.Failed && m.Kind != load.Refused:
		f.refused++
	}
	if f.left == 0 {
		a.first = cmp.Or(a.first, f)
		a.close(f)
	}
}

// stateOf returns an order's state, and creates it when the first response for the order arrives.
func (a *accounting) stateOf(id int64) *orderState {
	f := a.open[id]
	if f == nil {
		f = &orderState{id: id, left: a.drivers}
		a.open[id] = f
	}
	return f
}

func (a *accounting) close(f *orderState) {
	delete(a.open, f.id)
	if a.units > 1 {
		a.closeSale(f)
	}
	if overlapping(f.spans) {
		a.contended++
	}
	if f.grabbed+f.taken > 0 {
		a.tried++
	}
	if f.taken > 0 && f.grabbed == 0 {
		a.unclaimed = append(a.unclaimed, f.id)
	}
}

// finish closes all orders that still lack responses, for example because the load was interrupted.
func (a *accounting) finish() {
	for _, f := range a.open {
		a.close(f)
	}
}

// withoutIDs removes the driver's ID, times and random tokens from a response, because these differ between two
// responses with the same meaning. It keeps other short numbers, such as codes.
func withoutIDs(text string, driver int64) string {
	return wordWithDigit.ReplaceAllStringFunc(text, func(word string) string {
		if len(word) >= 8 || strings.Contains(word, ".") || strings.Trim(word, ":") == strconv.FormatInt(driver, 10) {
			return "#"
		}
		return word
	})
}

var wordWithDigit = regexp.MustCompile(`[\w+/=.:-]*[0-9][\w+/=.:-]*`)

// checkWins checks whether the default rule for a win also matches the responses to losers. This is
// likely if several drivers were told that they had won one order, but either no driver lost, or their
// responses differ. It is certain if a probe was told that it had won a sold order, but the ledger has no
// row for the probe. In both cases, checkWins marks every win as uncertain and returns true.
func (a *accounting) checkWins(probeLost, probeWithoutRow bool) bool {
	won := a.outcomes[grab.Grabbed]
	lost := a.outcomes[grab.Taken] + a.outcomes[grab.Busy]
	status := a.shape.Says().Grabbed
	switch {
	case !a.shape.AssumesGrabbed:
		return false
	case probeWithoutRow:
		a.unreadable = "a driver who came too late was also answered with " + status + ", but the ledger has no row for it"
	case won <= a.tried*a.units:
		return false
	case lost == 0 && (!probeLost || a.texts >= won):
		a.unreadable = "every response was " + status + ", for winners and losers alike"
	case lost > 0 && a.differing != "":
		a.unreadable = "several drivers of one order were answered with " + status + ", but with different texts: " + a.differing
	default:
		return false
	}
	kind := "http " + status
	a.outcomes[grab.Grabbed], a.outcomes[grab.Failed] = 0, a.outcomes[grab.Failed]+won
	a.errors[kind] += won
	a.hiding[kind] += won
	a.unsure, a.told = append(a.unsure, a.told...), nil
	a.competed, a.tried = map[string]bool{}, 0
	a.first, a.sales, a.soldOut, a.inOrder = nil, nil, 0, 0
	return true
}

// overlapping sorts the time spans and reports whether any two of them overlap.
func overlapping(spans []span) bool {
	slices.SortFunc(spans, func(a, b span) int { return a.from.Compare(b.from) })
	for i := 1; i < len(spans); i++ {
		if spans[i].from.Before(spans[i-1].to) { // earlier spans did not overlap, so spans[i-1] ends last
			return true
		}
	}
	return false
}
