package experiment

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"grablab/internal/check"
	"grablab/internal/grab"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/load"
	"grablab/internal/testbed/target"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

// accounting counts the answers of one attack while they arrive. Its memory grows with the
// open orders and the grabs, but not with the requests.
type accounting struct {
	drivers int
	units   int               // units of each order
	partial bool              // drivers of each order are missing, so orders are not followed
	names   map[string]string // instance by target; an answer of our own instance names its instance
	shape   *target.Shape
	began   time.Time

	requests int
	outcomes map[grab.Outcome]int
	errors   map[string]int
	servedBy map[string]int
	competed map[string]bool // instances with an attempt that reached the lock

	scheduled, sent load.Histogram
	series          *load.Series
	lastEnd         time.Time
	lastDue         time.Time
	lastSeq         uint64         // number of the request that was due last
	served          load.Histogram // times of the answers to attempts that reached the lock

	open      map[int64]*orderState // orders with drivers that have no answer yet
	contended int
	tried     int          // orders for which a driver obtained the lock
	unclaimed []int64      // orders that were reported as taken, and that no driver was told to have
	told      []check.Pair // drivers that were answered "grabbed"
	unsure    []check.Pair // drivers that may still have the order
	again     int          // the number of probes among told; they came when every unit had a winner
	forgotten []int64      // orders that are taken although they have no winner

	// Of orders of several units:
	refusedLast []int64         // orders for which a driver was refused after the last sale
	soldOut     int             // orders for which every unit was answered for
	soldOutBy   time.Time       // when the last of them was sold out
	sales       []time.Duration // time from the beginning until each unit was answered for
	inOrder     int             // units that went to the first drivers to come, one driver for each unit

	first *orderState // the first order whose drivers were all answered; nil if there is none
	// unreadable reports that the answers do not distinguish winners from losers.
	unreadable bool
	texts      int               // answers "grabbed" with a body
	hiding     map[string]int    // answers that may hide a grab, by kind
	samples    map[string]string // a sample answer of each kind
}

// orderState is the state of one order while some of its drivers have not been answered.
type orderState struct {
	id      int64
	left    int
	spans   []span
	grabbed int
	taken   int
	unsure  int // answers and missing answers that may hide a grab
	refused int // answers that certainly report a failed grab

	// Of several units:
	arrivals            []arrival
	sales               []time.Time
	lastSale, lastNever time.Time // times of the last answers that a driver got a unit, and that a driver gets none
}

// arrival is a driver and the time at which it came.
type arrival struct {
	at  time.Time
	won bool
}

func (f *orderState) tried() bool { return f.grabbed+f.taken > 0 }

type span struct{ from, to time.Time }

func newAccounting(drivers int, names map[string]string, shape *target.Shape) *accounting {
	return &accounting{
		drivers: drivers, units: 1, names: names, shape: shape, began: time.Now(),
		outcomes: noOutcomes(), errors: map[string]int{}, servedBy: map[string]int{}, competed: map[string]bool{},
		series: load.NewSeries(), scheduled: load.NewHistogram(), sent: load.NewHistogram(), served: load.NewHistogram(),
		open: map[int64]*orderState{}, hiding: map[string]int{}, samples: map[string]string{},
	}
}

// noOutcomes returns a count of 0 for every outcome.
func noOutcomes() map[grab.Outcome]int {
	none := make(map[grab.Outcome]int, len(grab.Outcomes))
	for _, o := range grab.Outcomes {
		none[o] = 0
	}
	return none
}

// add counts one result. due is the time at which the request was due.
func (a *accounting) add(r *vegeta.Result, due time.Time) error {
	s, err := load.ParseRequest(r.URL)
	if err != nil {
		return err
	}
	m := classify(r, a.shape)
	if r.Code != 0 {
		name := a.names[s.Target]
		if a.shape == target.Own { // in other services, the field may mean anything
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
	if end.After(a.lastEnd) {
		a.lastEnd = end
	}
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
	a.addToOrder(s, m, span{r.Timestamp, end}, len(r.Body) > 0)
	return nil
}

// addSale counts the result for an order of several units. limited means that the driver was
// refused because of the units that it already has.
func (f *orderState) addSale(m target.Meaning, came, answered time.Time, limited bool) {
	f.arrivals = append(f.arrivals, arrival{came, m.Outcome == grab.Grabbed})
	switch {
	case m.Outcome == grab.Grabbed:
		f.sales = append(f.sales, answered)
		f.lastSale = latest(f.lastSale, answered)
	case m.Outcome == grab.Busy, limited, m.Kind == load.Refused, m.Kind == load.Interrupted: // the driver may ask again, or has never asked
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

// closeSale counts a finished order of several units.
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

// reached reports whether an attempt got as far as the lock. A failed attempt does not
// contend.
func reached(o grab.Outcome) bool {
	return o == grab.Grabbed || o == grab.Taken || o == grab.Busy
}

// classify returns the meaning of a result. A request that timed out or was cut off may
// still have had an effect.
func classify(r *vegeta.Result, shape *target.Shape) target.Meaning {
	if r.Code != 0 {
		m := shape.Meaning(int(r.Code), r.Headers, r.Body)
		if m.Kind != "" && shape == target.Own { // in other services, the field may mean anything
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

// field returns the plain string with that name in an answer, or "". It expects the format
// that an instance writes, because decoding every answer would double the cost of
// accounting.
func field(body []byte, name string) string {
	_, rest, _ := bytes.Cut(body, []byte(`"`+name+`":"`))
	value, _, ok := bytes.Cut(rest, []byte{'"'})
	if !ok {
		return ""
	}
	return string(value)
}

// addToOrder counts the result for its order. It closes the order when its last driver has
// been answered.
func (a *accounting) addToOrder(s load.Request, m target.Meaning, sp span, hasText bool) {
	f := a.stateOf(s.Order)
	f.left--
	if reached(m.Outcome) {
		f.spans = append(f.spans, sp)
	}
	switch {
	case m.Outcome == grab.Grabbed:
		f.grabbed++
		if hasText {
			a.texts++
		}
		a.told = append(a.told, check.Pair{Order: s.Order, Driver: s.Driver})
	case m.Outcome == grab.Taken:
		f.taken++
	case m.Unsure:
		f.unsure++
	case m.Outcome == grab.Failed && m.Kind != load.Refused:
		f.refused++
	}
	if f.left == 0 {
		if a.first == nil {
			a.first = f
		}
		a.close(f)
	}
}

// stateOf returns the state of an order that has drivers without an answer.
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
	if f.tried() {
		a.tried++
	}
	if f.taken > 0 && f.grabbed == 0 {
		a.unclaimed = append(a.unclaimed, f.id)
	}
}

// finish closes the orders that an interruption left open.
func (a *accounting) finish() {
	for _, f := range a.open {
		a.close(f)
	}
}

// distrust counts the wins as answers that may hide one, if nothing in the answers distinguishes
// winners from losers: every answer has the default status for grabbed, and no driver has lost. If
// the answers have no text, a probe that has lost shows that the status does distinguish them.
// distrust returns whether it changed the counts.
func (a *accounting) distrust(probeLost bool) bool {
	won := a.outcomes[grab.Grabbed]
	lost := a.outcomes[grab.Taken] + a.outcomes[grab.Busy]
	if !a.shape.AssumesGrabbed || lost > 0 || probeLost && a.texts < won || won <= a.tried*a.units {
		return false
	}
	kind := "http " + a.shape.Says().Grabbed
	a.unreadable = true
	a.outcomes[grab.Grabbed], a.outcomes[grab.Failed] = 0, a.outcomes[grab.Failed]+won
	a.errors[kind] += won
	a.hiding[kind] += won
	a.unsure, a.told = append(a.unsure, a.told...), nil
	a.competed, a.tried = map[string]bool{}, 0
	a.first, a.sales, a.soldOut, a.inOrder = nil, nil, 0, 0
	return true
}

// overlapping reports whether any two spans share an instant. It sorts the spans.
func overlapping(spans []span) bool {
	slices.SortFunc(spans, func(a, b span) int { return a.from.Compare(b.from) })
	for i := 1; i < len(spans); i++ {
		if spans[i].from.Before(spans[i-1].to) { // no earlier span ended later, or the loop had returned
			return true
		}
	}
	return false
}
