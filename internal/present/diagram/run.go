package diagram

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/check"
	"grablab/internal/history"

	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// Run is the input for OfRun: everything that it needs to draw what happened to one order.
type Run struct {
	Title string
	check.Timeline
	Fault    catalog.Fault     // the fault that was injected, if any
	Excludes catalog.Exclusion // which drivers the lock keeps apart, for example the drivers of one process
	Outlives bool              // whether the lock is a key on a server, which survives its holder's death
	Until    time.Duration     // end of what was recorded so far; 0 if the record is complete
	Deaths   []Death           // process deaths that the order's events do not show
	Names    map[int64]string  // other names for drivers; may be nil
}

// Death records that an instance's process has died. At is a time at which its replacement was
// already running.
type Death struct {
	Instance string
	At       time.Duration
}

// maxRows limits how many drivers a diagram shows per instance.
const maxRows = 10

// OfRun makes a diagram of one order from a run's records.
func OfRun(r Run) Diagram {
	b := &builder{Run: r, incarnation: map[string]int{}}
	b.Events = slices.Clone(r.Events)
	slices.SortStableFunc(b.Events, func(x, y history.Event) int { return cmp.Compare(x.T, y.T) })
	drawn := catalog.Filter(b.Events, func(e history.Event) bool { return e.Driver < history.ProbeDriver })
	if len(drawn) == 0 {
		return b.diagram()
	}
	b.origin = drawn[0].T
	deaths := slices.SortedFunc(slices.Values(r.Deaths), func(x, y Death) int { return cmp.Compare(x.At, y.At) })
	die := func(by time.Duration) {
		for len(deaths) > 0 && deaths[0].At <= by {
			b.died(deaths[0].Instance, b.at(deaths[0].At))
			deaths = deaths[1:]
		}
	}
	for _, e := range drawn {
		die(e.T)
		b.end = b.at(e.T)
		b.add(e)
	}
	if r.Until > 0 {
		b.end = max(b.end, b.at(r.Until))
		die(r.Until)
	}
	return b.diagram()
}

// builder turns recorded events into the rows of a diagram.
type builder struct {
	Run
	origin      time.Duration
	end         float64
	tracks      []*track
	incarnation map[string]int
	winners     int
	lost        *float64
}

// track contains a driver's current state at an instance, and the part of its row that has been
// drawn so far.
type track struct {
	instance string
	driver   int64
	row      Row
	weight   int // importance of the driver, if there are too many for the lane
	last     float64

	// These fields are the times since which the driver has been in each state, or NaN if it is not
	// in that state.
	waits, believes, struck float64
	fence                   uint64 // the fencing token of the lease that the driver believes it holds
	struckAt                string
	held                    *heldLease
}

// heldLease is a period in which a driver holds the lock, or a server keeps a dead driver's lock. Its end is NaN if
// unknown, and infinite if the lease never expires.
type heldLease struct {
	kind      SpanKind // Holds or Kept
	from, end float64
}

var none = math.NaN()

// is reports whether a state has begun and not ended, or whether the end of a lease is known. since is
// its time, or NaN.
func is(since float64) bool { return !math.IsNaN(since) }

// at converts a time to a position in the diagram, in milliseconds with three decimals.
func (b *builder) at(t time.Duration) float64 {
	return math.Round(float64(t-b.origin)/float64(time.Microsecond)) / 1000
}

func (b *builder) track(e history.Event) *track {
	i := slices.IndexFunc(b.tracks, func(t *track) bool { return t.instance == e.Instance && t.driver == e.Driver })
	if i >= 0 {
		return b.tracks[i]
	}
	t := &track{instance: e.Instance, driver: e.Driver, waits: none, believes: none, struck: none}
	t.row.Name = cmp.Or(b.Names[e.Driver], "driver "+strconv.FormatInt(e.Driver, 10))
	b.tracks = append(b.tracks, t)
	return t
}

func (b *builder) locks() bool { return b.Excludes != catalog.NoExclusion }

// add draws an event in its driver's row, and updates the driver's state.
func (b *builder) add(e history.Event) {
	now := b.at(e.T)
	if was, known := b.incarnation[e.Instance]; known && e.Incarnation > was {
		b.died(e.Instance, now)
	}
	b.incarnation[e.Instance] = e.Incarnation
	t := b.track(e)
	defer func() { t.last = now }()
	switch e.Op {
	case history.Grab:
		b.grab(t, e, now)
	case history.Acquire:
		b.acquire(t, e, now)
	case history.Renew:
		if t.held != nil {
			t.held.end = b.leaseEnd(e, now)
			t.mark(Renewed, now, "")
		}
	case history.Read:
		t.answer(e, now)
	case history.Claim:
		b.claim(t, e, now)
	case history.Lost:
		t.weigh(40)
		t.mark(Loss, now, "")
		b.endBelief(t, now, false)
	case history.Release:
		b.release(t, e, now)
	case history.Strike:
		b.strike(t, e, now)
	}
}

func (b *builder) grab(t *track, e history.Event, now float64) {
	if e.Kind != history.Invoke {
		t.endWait(now, false)
		b.endBelief(t, now, false)
	}
}

// acquire draws an event of an attempt to acquire the lock on the driver's track. now is the
// event's position on the time axis.
func (b *builder) acquire(t *track, e history.Event, now float64) {
	switch e.Kind {
	case history.Invoke:
		t.waits = now
		return
	case history.OK:
	default:
		t.endWait(now, false)
		t.mark(Denied, now, e.Note)
		return
	}
	t.endWait(now, false)
	t.believes, t.fence = now, e.Fence
	if !b.locks() {
		return
	}
	for _, o := range b.tracks { // this grant shows that all drivers that the lock excludes have lost it
		if b.Excludes != catalog.PerProcess || o.instance == t.instance {
			b.endHold(o, now, false)
		}
	}
	t.held = &heldLease{Holds, now, b.leaseEnd(e, now)}
}

// leaseEnd returns when the lease in event e ends, or NaN if the event contains no lease.
func (b *builder) leaseEnd(e history.Event, now float64) float64 {
	switch {
	case e.Lease > 0:
		return now + float64(e.Lease.Microseconds())/1000
	case e.Lease == history.Endless:
		return math.Inf(1)
	default:
		return none
	}
}

// claim draws the result of a driver's write. It marks a write as the second win if the order has
// no unit left.
func (b *builder) claim(t *track, e history.Event, now float64) {
	written := e.Kind == history.OK ||
		e.Kind == history.Info && slices.ContainsFunc(b.Rows, func(r check.Row) bool { return r.Driver == e.Driver && r.Instance == e.Instance && r.Token == e.Token })
	if !written {
		t.answer(e, now)
		return
	}
	b.winners++
	t.weigh(100)
	units, kind := max(b.Units, 1), Won
	if b.winners > units {
		kind = Second
	}
	t.row.Marks = append(t.row.Marks, Mark{Kind: kind, At: now, N: b.winners})
	if b.lost == nil && b.winners == units+1 && b.Property == catalog.OneWinner {
		b.lost = &now
	}
}

// answer draws a mark for a read, or for a write that has not succeeded. It is Sent when the call begins.
func (t *track) answer(e history.Event, now float64) {
	switch {
	case e.Kind == history.Invoke:
		t.mark(Sent, now, "")
	case e.Kind == history.OK:
		t.mark(Read, now, string(e.Code))
	case e.Kind == history.Info:
		t.weigh(60)
		t.mark(Unknown, now, e.Note)
	case e.Code == history.Stale || e.Code == history.Taken:
		t.weigh(30)
		t.mark(Refused, now, e.Note)
	default:
		t.mark(Failed, now, e.Note)
	}
}

func (b *builder) release(t *track, e history.Event, now float64) {
	switch {
	case e.Kind == history.Invoke:
		b.endBelief(t, now, false)
	case !b.locks():
	case e.Kind == history.OK:
		t.mark(Released, now, "")
		b.endHold(t, now, true)
	case e.Kind == history.Fail && e.Code == history.LeaseLost:
		t.mark(Late, now, "")
		b.endHold(t, now, false)
	}
}

func (b *builder) strike(t *track, e history.Event, now float64) {
	t.weigh(50)
	if e.Kind == history.OK {
		b.endFault(t, now, false)
		return
	}
	b.endFault(t, now, true) // end an earlier fault whose end was not recorded
	t.struck, t.struckAt = now, e.Note
}

func (b *builder) endFault(t *track, now float64, open bool) {
	if !is(t.struck) {
		return
	}
	text := fmt.Sprintf("%s strikes %s", cmp.Or(string(b.Fault), "the fault"), t.struckAt)
	t.row.Spans = append(t.row.Spans, Span{Kind: Fault, From: t.struck, To: now, Open: open, Text: text, does: cmp.Or(deeds[b.Fault], "struck")})
	t.struck = none
}

// deeds contains the key of the phrase for what a fault does to a driver. All other faults have
// the key "struck".
var deeds = map[catalog.Fault]string{catalog.Pause: "paused", catalog.Slow: "slowed", catalog.Hang: "hung", "": "unnamed"}

// died draws the death of an instance's process, and ends its drivers' states.
func (b *builder) died(instance string, now float64) {
	for _, t := range b.tracks {
		if t.instance != instance || !is(t.waits) && !is(t.believes) {
			continue
		}
		t.weigh(50)
		b.endFault(t, t.last, false)
		t.endWait(t.last, false)
		b.endBelief(t, t.last, false)
		t.mark(Dies, t.last, "")
		b.keep(t, t.last)
		t.span(Dead, t.last, now, true)
	}
}

// keep decides what happens to a dead driver's lock. A lock on a server stays until it expires, but
// a lock inside the process ends with the process.
func (b *builder) keep(t *track, now float64) {
	h := t.held
	switch {
	case h == nil || is(h.end) && h.end <= now:
		b.endHold(t, now, false)
	case b.Excludes == catalog.PerProcess:
		b.endHold(t, now, true)
	case !b.Outlives:
		h.end = none
	case is(h.end):
		b.endHold(t, now, true)
		t.held = &heldLease{Kept, now, h.end}
	}
}

func (t *track) mark(k MarkKind, at float64, note string) {
	t.row.Marks = append(t.row.Marks, Mark{Kind: k, At: at, Text: note})
}

func (t *track) span(k SpanKind, from, to float64, open bool) {
	t.row.Spans = append(t.row.Spans, Span{Kind: k, From: from, To: to, Open: open})
}

func (t *track) weigh(n int) { t.weight = max(t.weight, n) }

func (t *track) endWait(now float64, open bool) {
	if is(t.waits) && !is(t.believes) && now > t.waits {
		t.span(Waits, t.waits, now, open)
	}
	t.waits = none
}

// endBelief draws the period in which a driver believed that it held the lock. If the driver had
// already lost the lock, this includes the time since the loss.
func (b *builder) endBelief(t *track, now float64, open bool) {
	if !is(t.believes) {
		return
	}
	from := t.believes
	t.believes = none
	if !b.locks() {
		t.span(Inside, from, now, open)
		return
	}
	t.row.Spans = append(t.row.Spans, Span{Kind: Believes, From: from, To: now, Open: open, token: t.fence})
	if t.held != nil && is(t.held.end) && t.held.end < now {
		b.endHold(t, now, false)
	}
	t.gap(from, now, open)
}

// gap draws the period in which a driver had lost its lock but did not know it yet. from is when
// the driver got the lock.
func (t *track) gap(from, now float64, open bool) {
	for _, s := range t.row.Spans {
		if s.Kind == Holds && s.From == from && s.To < now {
			t.span(Gap, s.To, now, open)
			return
		}
	}
}

// endHold draws the period in which a driver held the lock, or in which a server kept it after the driver's death. It
// ends when the lease expires, or now if that is earlier.
func (b *builder) endHold(t *track, now float64, released bool) {
	h := t.held
	if h == nil {
		return
	}
	t.held = nil
	switch {
	case is(h.end) && h.end <= now:
		t.span(h.kind, h.from, h.end, false)
		t.mark(LeaseEnd, h.end, "")
	case released:
		t.span(h.kind, h.from, now, false)
	default: // the lease was lost earlier, at an unknown time
		t.span(h.kind, h.from, now, true)
		t.weigh(40)
	}
}

// diagram ends all open periods and returns the finished diagram.
func (b *builder) diagram() Diagram {
	d := Diagram{fault: b.Fault, Title: b.Title, Scale: Milliseconds, Lost: b.lost, Units: b.Units}
	for _, t := range b.tracks {
		b.finish(t)
	}
	for _, t := range b.tracks {
		lane := d.lane(t.instance)
		if !b.hasRow(t) {
			lane.Further++
			continue
		}
		lane.Rows = append(lane.Rows, t.row)
	}
	slices.SortStableFunc(d.Lanes, func(x, y Lane) int { return cmp.Compare(x.Name, y.Name) })
	d.End = b.end
	b.steps(&d)
	if b.Further > 0 {
		d.Notes = append(d.Notes, fmt.Sprintf("not drawn: %d more events of this order", b.Further))
	}
	d.findCause()
	return d
}

// finish draws the states that have not ended, up to the end of the diagram.
func (b *builder) finish(t *track) {
	b.endFault(t, b.end, true)
	t.endWait(b.end, true)
	if h := t.held; h != nil && h.end <= b.end {
		b.endHold(t, b.end, false)
	} else if h != nil {
		t.span(h.kind, h.from, b.end, true)
	}
	b.endBelief(t, b.end, true)
}

// hasRow reports whether the diagram shows this driver. With too many drivers, it shows only the
// most important ones.
func (b *builder) hasRow(t *track) bool {
	before, seen := 0, false
	for _, o := range b.tracks {
		seen = seen || o == t
		if o.instance == t.instance && (o.weight > t.weight || o.weight == t.weight && !seen) {
			before++
		}
	}
	return before < maxRows
}

func (b *builder) steps(d *Diagram) {
	for i, s := range b.Steps {
		step := Step{
			At: b.place(b.at(b.Begins) + s.TMS), Who: fmt.Sprintf("driver %d (%s)", s.Driver, s.Instance), Text: s.Event,
			Believed: s.Believed, True: s.True,
		}
		step.At = min(max(step.At, 0), d.End)
		step.Clock = inMS(step.At)
		last := i == len(b.Steps)-1
		if b.Property == catalog.HoldersExclusive && last {
			d.Lost = &step.At
		}
		step.Lost = d.Lost != nil && last && math.Abs(step.At-*d.Lost) < 0.01 // if the property broke at another time, other drivers broke it
		d.Steps = append(d.Steps, step)
	}
}

// place returns the exact time of a step's event, because the step contains only a rounded time.
func (b *builder) place(ms float64) float64 {
	for _, e := range b.Events {
		if at := b.at(e.T); math.Abs(at-ms) < 0.0025 {
			return at
		}
	}
	return math.Round(ms*1000) / 1000
}

// inMS formats milliseconds with one decimal, or with two below 10 ms.
func inMS(ms float64) string {
	decimals := 1
	if ms < 10 {
		decimals = 2
	}
	return message.NewPrinter(language.English).Sprintf("%.*f ms", decimals, ms)
}
