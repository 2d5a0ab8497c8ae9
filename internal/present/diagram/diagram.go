// Package diagram draws what happened to one order over time. The space-time diagram shows what
// each driver (client) did, which drivers believed that they held the lock, and which really held
// it. It also shows when a fault was injected and when a property was violated.
//
// OfRun makes a Diagram from the events of a run on real servers. OfSchedule makes one from the
// steps of a simulated schedule. Script draws the Diagram on a web page. If the record does not
// contain the end of a lease or a fault, the diagram leaves that end open instead of guessing.
package diagram

import (
	_ "embed"
	"slices"

	"grablab/internal/catalog"
)

// Script is an ES module that draws a Diagram as SVG. Style is its style sheet. It also defines the
// colours for all pages.
var (
	//go:embed diagram.js
	Script string
	//go:embed diagram.css
	Style string
)

// Diagram is a drawing's content. Script receives it as JSON.
type Diagram struct {
	Title string `json:"title"` // the drawing's title, in one sentence
	Scale Scale  `json:"scale"`
	// End is the last position on the time axis. The axis begins at 0.
	End   float64  `json:"end"`
	Units int      `json:"units,omitempty"` // the order's number of units; 0 means 1
	Lanes []Lane   `json:"lanes"`
	Bands []Span   `json:"bands,omitempty"` // spans across all lanes
	Lost  *float64 `json:"lost,omitempty"`  // position at which the property broke; nil if it did not break or the position is unknown
	Steps []Step   `json:"steps,omitempty"`
	Notes []string `json:"notes,omitempty"` // remarks about omitted and unknown data
	// Cause explains in each language (en, zh, ja) why the order ended as it did. It is nil if the
	// drawing does not show the cause.
	Cause map[string]string `json:"cause,omitempty"`

	fault catalog.Fault // the fault that was injected into a run
}

// Scale is the unit of the time axis.
type Scale string

// The time axis counts milliseconds for a run, and steps for a schedule.
const (
	Milliseconds Scale = "ms"
	InSteps      Scale = "steps" // all steps are the same distance apart
)

// Lane shows one instance of the service.
type Lane struct {
	Name    string `json:"name"`
	Rows    []Row  `json:"rows"`
	Further int    `json:"further,omitempty"` // number of drivers that have no row
}

// lane returns the lane of an instance, and adds it to the diagram if it does not exist yet.
func (d *Diagram) lane(name string) *Lane {
	i := slices.IndexFunc(d.Lanes, func(l Lane) bool { return l.Name == name })
	if i < 0 {
		i = len(d.Lanes)
		d.Lanes = append(d.Lanes, Lane{Name: name})
	}
	return &d.Lanes[i]
}

// Row shows what one client did at one instance of the service.
type Row struct {
	Name  string `json:"name"`
	Spans []Span `json:"spans,omitempty"`
	Marks []Mark `json:"marks,omitempty"`
}

// Span is a state that lasts from one time to another. If Open is true, the exact end is unknown,
// and To is the latest possible end.
type Span struct {
	Kind SpanKind `json:"k"`
	From float64  `json:"f"`
	To   float64  `json:"t"`
	Open bool     `json:"o,omitempty"`
	Text string   `json:"x,omitempty"` // if empty, Script describes the kind of span

	token uint64 // the fencing token of a believed lease; 0 if it has none
	does  string // for a fault: the key of the phrase for what it does to the driver
}

// SpanKind is the state or fault that a span shows.
type SpanKind string

// These are the states and faults that a span can show.
const (
	Waits    SpanKind = "waits"
	Inside   SpanKind = "inside" // the driver is in the critical section without a lock
	Believes SpanKind = "believes"
	Holds    SpanKind = "holds"
	Gap      SpanKind = "gap" // the driver believes that it holds the lock, but does not
	Fault    SpanKind = "fault"
	Dead     SpanKind = "dead"
	Kept     SpanKind = "kept"   // the key of a dead driver is still on the server
	Passes   SpanKind = "passes" // time passes at this step of a schedule
)

// Mark shows an event at one time.
type Mark struct {
	Kind MarkKind `json:"k"`
	At   float64  `json:"a"`
	N    int      `json:"n,omitempty"` // for a ledger row: its number among the order's rows
	Text string   `json:"x,omitempty"` // for a run: the remark in the record; for a schedule: the step in words
}

// MarkKind is the kind of event that a mark shows.
type MarkKind string

// A mark shows one of these events.
const (
	Read     MarkKind = "read"
	Sent     MarkKind = "sent"   // the driver begins its read or its write
	Won      MarkKind = "won"    // the driver wins a unit of the order
	Second   MarkKind = "second" // the driver wins although the order has no units left
	Refused  MarkKind = "refused"
	Unknown  MarkKind = "unknown"
	Denied   MarkKind = "denied" // the driver does not get the lock
	Failed   MarkKind = "failed" // a call to the database fails
	Late     MarkKind = "late"   // a release or a renewal has no effect, because the driver had already lost the lock
	Renewed  MarkKind = "renewed"
	Released MarkKind = "released"
	LeaseEnd MarkKind = "leaseend"
	Loss     MarkKind = "loss" // the holder notices that it has lost the lock
	Dies     MarkKind = "dies"
	Call     MarkKind = "call"
)

// Step describes one event in words.
type Step struct {
	At    float64 `json:"at"`
	Clock string  `json:"clock"`
	Who   string  `json:"who,omitempty"`
	Text  string  `json:"text"`
	Lost  bool    `json:"lost,omitempty"` // whether the property breaks at this step

	// Believed is the driver's belief after this step, and True is the actual state. Only run
	// diagrams contain them.
	Believed string `json:"believed,omitempty"`
	True     string `json:"true,omitempty"`
	// These fields say which actors believe that they hold the lock, which really hold it, and
	// what the servers store. Only diagrams of schedules contain them.
	Believes []string `json:"believes,omitempty"`
	Holds    []string `json:"holds,omitempty"`
	Stores   []string `json:"stores,omitempty"`
}
