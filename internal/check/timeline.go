package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/history"
	"grablab/internal/order"
)

// Case describes an order, and the property violation that its timeline should explain.
type Case struct {
	Order    int64
	Property string        // the name of the property in package catalog
	Fault    catalog.Fault // the fault that was injected
	Guard    order.Guard
	Lease    time.Duration // how long a lease lasts without renewal; 0 if unknown

	// These fields describe the strategy.
	Excludes   catalog.Exclusion
	UntilClaim bool
	Breaks     []string // IDs of the failure modes that the strategy is known to have

	Units int // the order's number of units; 0 means 1
}

func (c Case) units() int { return max(c.Units, 1) }

// Timeline explains what went wrong with an order, using as few recorded events as possible.
type Timeline struct {
	Order    int64  `json:"order"`
	Property string `json:"property"`               // the violated property; package experiment empties it if only a late write was refused
	Mode     string `json:"failure_mode,omitempty"` // such as F1; empty if no known failure mode explains the violation
	Name     string `json:"name,omitempty"`         // the failure mode's name
	Cure     string `json:"cure,omitempty"`
	Steps    []Step `json:"steps"`

	// These fields are needed only for the order's diagram.
	Events  []history.Event `json:"events,omitempty"`
	Further int             `json:"further_events,omitempty"`
	Begins  time.Duration   `json:"begins_ns,omitempty"`
	Rows    []Row           `json:"rows,omitempty"`
	Units   int             `json:"units,omitempty"` // the number of units of the order; 0 means 1
}

// Row is one ledger row.
type Row struct {
	Driver   int64  `json:"driver"`
	Instance string `json:"instance"`
	Token    string `json:"token,omitempty"`
}

// maxEvents is the maximum number of events in a timeline. Twenty drivers that try once cause
// about a third of that.
const maxEvents = 480

// Step is one fact in a timeline.
type Step struct {
	TMS      float64 `json:"t_ms"` // the time since the first step
	Instance string  `json:"instance"`
	Driver   int64   `json:"driver"`
	Event    string  `json:"event"`
	Believed string  `json:"believed"` // what the driver believes after this step
	True     string  `json:"true"`     // what is true after this step, according to the record and the ledger
}

// Explain makes an order's timeline from its events and the ledger. Package experiment calls it for
// orders that failed. ok is false if too few events were recorded.
func Explain(events []history.Event, ledger []order.Grab, c Case) (t Timeline, ok bool) {
	b := newBuilder(events, ledger, c)
	var shown []history.Event
	switch c.Property {
	case catalog.OneWinner:
		shown = b.tooManyWinners()
	case catalog.HoldersExclusive:
		shown = b.twoHolders()
	case catalog.StuckOrder:
		shown = b.stuck()
	}
	if len(shown) == 0 {
		return Timeline{}, false
	}
	t = Timeline{Order: c.Order, Property: c.Property, Steps: b.steps(shown), Begins: shown[0].T}
	t.Events, t.Further = b.kept(shown)
	if c.Units > 1 {
		t.Units = c.Units
	}
	for _, g := range ledger {
		if g.Order == c.Order {
			t.Rows = append(t.Rows, Row{g.Driver, g.Instance, g.Token})
		}
	}
	who := []actor{actorOf(shown[0]), actorOf(shown[len(shown)-1])}
	for _, e := range shown {
		if c.Units > 1 && !slices.Contains(who, actorOf(e)) {
			who = append(who, actorOf(e))
		}
	}
	facts := c.Fault.Shows() | c.Guard.Shows()
	if slices.ContainsFunc(shown, func(e history.Event) bool { return b.freesAnother(e, who...) }) {
		facts |= catalog.FreedAnother
	}
	if m, ok := catalog.ModeOf(c.Property, facts, c.Breaks); ok {
		t.Mode, t.Name, t.Cure = m.ID, m.Name, m.Cure
	}
	return t, true
}

// kept selects the events to store, and returns how many it has left out. If there are too many, it
// prefers events of the drivers in shown.
func (b *builder) kept(shown []history.Event) (events []history.Event, further int) {
	acts := func(e history.Event) bool {
		return slices.ContainsFunc(shown, func(s history.Event) bool { return actorOf(s) == actorOf(e) })
	}
	others := maxEvents - len(catalog.Filter(b.events, acts)) // how many events of other drivers fit
	for _, e := range b.events {
		fits := len(events) < maxEvents
		if !acts(e) {
			others--
			fits = others >= 0
		}
		if fits {
			e.Strategy = ""
			events = append(events, e)
		}
	}
	return events, len(b.events) - len(events)
}

// builder collects an order's events and picks those that explain the failure.
type builder struct {
	Case
	events []history.Event // sorted by time
	writes []history.Event // the claims with a ledger row
	holds  []Hold
}

// newBuilder returns a builder with the events of the order in c, and with the claims that the
// ledger confirms.
func newBuilder(events []history.Event, ledger []order.Grab, c Case) *builder {
	b := &builder{Case: c}
	scan := Scan{UntilClaim: c.UntilClaim}
	for _, e := range events {
		if e.Order == c.Order {
			b.events = append(b.events, e)
			scan.Add(e)
		}
	}
	b.holds = scan.Record().Holds
	byTime := func(x, y history.Event) int { return cmp.Compare(x.T, y.T) }
	slices.SortStableFunc(b.events, byTime)
	for _, g := range ledger {
		if write, ok := b.writeOf(g); ok {
			b.writes = append(b.writes, write)
		}
	}
	slices.SortStableFunc(b.writes, byTime)
	return b
}

// writeOf returns the event that wrote a ledger row. This is the reply to the write or, if no reply
// was recorded, the call.
func (b *builder) writeOf(g order.Grab) (write history.Event, ok bool) {
	for _, e := range b.events {
		if g.Order == b.Order && e.Op == history.Claim && e.Driver == g.Driver && e.Token == g.Token && e.Kind != history.Fail {
			write, ok = e, true // keep the last event, because the reply comes last
		}
	}
	return write, ok
}

type actor struct {
	driver   int64
	instance string
}

func actorOf(e history.Event) actor { return actor{e.Driver, e.Instance} }

func (s Span) actor() actor { return actor{s.Driver, s.Instance} }

// tooManyWinners returns the events of the shortest period with more winners than units.
func (b *builder) tooManyWinners() (shortest []history.Event) {
	for i := b.units(); i < len(b.writes); i++ {
		begin, winners := b.writes[i].T, []actor{}
		for _, write := range b.writes[i-b.units() : i+1] {
			begin, winners = min(begin, b.beginOf(write)), append(winners, actorOf(write))
		}
		shown := b.eventsBetween(begin, b.writes[i], winners...)
		if shortest == nil || len(shown) < len(shortest) {
			shortest = shown
		}
	}
	return shortest
}

// beginOf returns when an attempt acquired the lock. If the strategy has no lock, it returns when
// the attempt read the order.
func (b *builder) beginOf(e history.Event) time.Duration {
	opens := history.Acquire
	if b.Excludes == catalog.NoExclusion {
		opens = history.Read
	}
	if begin, ok := b.lastBefore(e, opens, history.OK); ok {
		return begin
	}
	return e.T
}

// lastBefore returns when e's driver last called op in the same attempt. ok is false if that was
// not recorded.
func (b *builder) lastBefore(e history.Event, op string, kind history.Kind) (at time.Duration, ok bool) {
	for _, x := range b.events {
		if x.T <= e.T && actorOf(x) == actorOf(e) && x.Token == e.Token && x.Op == op && x.Kind == kind {
			at, ok = x.T, true
		}
	}
	return at, ok
}

// eventsBetween returns the events of the drivers in who, from a given time to the event last. It omits
// events after a driver's write, and adds other drivers' releases that freed the lock of a driver in
// who by mistake.
func (b *builder) eventsBetween(from time.Duration, last history.Event, who ...actor) []history.Event {
	var shown []history.Event
	wrote := map[actor]bool{}
	for _, e := range b.events {
		a := actorOf(e)
		if e.T >= from && b.isShown(e) && !wrote[a] && (slices.Contains(who, a) || b.freesAnother(e, who...)) {
			shown = append(shown, e)
		}
		if e == last {
			break
		}
		wrote[a] = wrote[a] || e.Op == history.Claim && e.Kind == history.OK
	}
	return withoutEmptyCalls(shown)
}

// freesAnother reports whether e is a release that freed another driver's lock by mistake.
func (b *builder) freesAnother(e history.Event, who ...actor) bool {
	if e.Op != history.Release || e.Kind != history.OK {
		return false
	}
	called, _ := b.lastBefore(e, e.Op, history.Invoke)
	return slices.ContainsFunc(b.holds, func(h Hold) bool {
		return h.actor() == actorOf(e) && h.Token == e.Token && slices.ContainsFunc(b.holds, func(next Hold) bool {
			expired := b.Lease > 0 && next.From-h.From >= b.Lease
			freed := h.From < next.From && (next.From < called || expired) && next.From < e.T && e.T < next.To
			return freed && slices.Contains(who, next.actor()) && compareGroup(b.Excludes, h.Span, next.Span) == 0
		})
	})
}

// isShown reports whether an event helps to explain a failure. For example, renewals do not.
func (b *builder) isShown(e history.Event) bool {
	switch e.Op {
	case history.Renew, history.Grab:
		return false
	case history.Acquire, history.Release:
		return b.Excludes != catalog.NoExclusion && e.Kind != history.Invoke
	default:
		return true
	}
}

// withoutEmptyCalls removes the start of a call if the very next event is that call's end.
func withoutEmptyCalls(events []history.Event) []history.Event {
	var kept []history.Event
	for i, e := range events {
		returns := i+1 < len(events) && actorOf(events[i+1]) == actorOf(e) && events[i+1].Op == e.Op
		if e.Kind != history.Invoke || !returns {
			kept = append(kept, e)
		}
	}
	return kept
}

// twoHolders returns the events from one driver's acquire to another driver's acquire that came too
// early.
func (b *builder) twoHolders() []history.Event {
	overlaps := Overlaps(b.holds, b.Excludes)
	if len(overlaps) == 0 {
		return nil
	}
	first, second := overlaps[0].First, overlaps[0].Second
	last := slices.IndexFunc(b.events, func(e history.Event) bool {
		return e.T == second.From && actorOf(e) == second.actor() && e.Op == history.Acquire
	})
	return b.eventsBetween(first.From, b.events[last], first.actor(), second.actor())
}

// stuck returns the events of the driver that may still hold the lock, plus the first and the last
// failed attempt of another driver.
func (b *builder) stuck() []history.Event {
	holder, ok := b.lastUnreleased()
	if !ok {
		return nil
	}
	refused := catalog.Filter(b.events, func(e history.Event) bool {
		return e.T >= holder.T && e.Op == history.Acquire && e.Kind == history.Fail && actorOf(e) != actorOf(holder)
	})
	return withoutEmptyCalls(catalog.Filter(b.events, func(e history.Event) bool {
		own := e == holder || e.T >= holder.T && actorOf(e) == actorOf(holder) && b.isShown(e)
		return own || len(refused) > 0 && (e == refused[0] || e == refused[len(refused)-1])
	}))
}

// lastUnreleased returns the acquire of a lock that was never released. If there is none, it
// returns the first event of a grab that never ended.
func (b *builder) lastUnreleased() (begins history.Event, ok bool) {
	holding, asking := map[actor]history.Event{}, map[actor]history.Event{}
	for _, e := range b.events {
		switch {
		case e.Op == history.Grab && e.Kind == history.Invoke:
			asking[actorOf(e)] = e
		case e.Op == history.Grab:
			delete(asking, actorOf(e))
		case e.Op == history.Acquire && e.Kind == history.OK:
			holding[actorOf(e)] = e
		case e.Op == history.Release && e.Kind == history.OK:
			delete(holding, actorOf(e))
		}
	}
	if len(holding) == 0 {
		holding = asking
	}
	for _, e := range slices.Backward(b.events) {
		if begins, ok = holding[actorOf(e)]; ok && e == begins {
			return begins, true
		}
	}
	return history.Event{}, false
}

// steps converts events to timeline rows. Each row shows what the driver believed and what was
// true.
func (b *builder) steps(shown []history.Event) []Step {
	var steps []Step
	s := orderState{builder: b, beliefs: map[actor]string{}}
	for _, e := range b.events {
		s.apply(e)
		if slices.Contains(shown, e) {
			steps = append(steps, Step{
				TMS:      float64((e.T - shown[0].T).Microseconds()) / 1000,
				Instance: e.Instance, Driver: e.Driver,
				Event: describe(e), Believed: cmp.Or(s.beliefs[actorOf(e)], "nothing yet"), True: s.truth(e.T),
			})
		}
	}
	return steps
}

func describe(e history.Event) string {
	text := strings.TrimSpace(e.Op + " " + string(e.Kind))
	text = cmp.Or(descriptions[text], text)
	if e.Op == history.Acquire && e.Kind == history.OK && e.Fence > 0 {
		text += fmt.Sprintf(", token %d", e.Fence)
	}
	if e.Note != "" {
		text += ": " + e.Note
	}
	return text
}

// descriptions maps an event's operation and kind to its description in a timeline.
var descriptions = map[string]string{
	"grab invoke":  "asks for the order",
	"acquire ok":   "gets the lock",
	"acquire fail": "does not get the lock",
	"read invoke":  "begins its read",
	"read ok":      "reads the order",
	"read fail":    "fails to read the order",
	"claim invoke": "begins its write",
	"claim ok":     "writes itself as the winner",
	"claim fail":   "writes, but is refused",
	"claim info":   "gets no answer to its write",
	"release ok":   "releases the lock",
	"release fail": "releases the lock, which it no longer has",
	"release info": "releases the lock, which it no longer has",
	"lost info":    "learns that its lease is lost",
	"strike info":  "the fault strikes",
	"strike ok":    "continues",
}
