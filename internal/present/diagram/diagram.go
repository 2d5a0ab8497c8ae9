// Package diagram draws the space-time diagram of one order. The diagram shows what each driver
// did, who believed that they held the lock, and who held it. It also shows when a fault was
// injected and when a property broke.
//
// OfRun makes a Diagram from the events of a run, and OfSchedule makes one from the moments of a
// schedule. A Diagram lists what to show at which position, in ms or in steps. Script draws it in
// the same way on every page. If the record does not contain the end of a lease or of a fault, the
// diagram leaves that end open instead of guessing it.
package diagram

import _ "embed"

// Script is an ES module that draws a Diagram as SVG. Style is the style sheet for the drawing. It
// also defines the colours of all pages.
var (
	//go:embed diagram.js
	Script string
	//go:embed diagram.css
	Style string
)

// Diagram is the content of one space-time drawing. Script reads it as JSON.
type Diagram struct {
	Title string `json:"title"` // title of the drawing, in one sentence
	Scale Scale  `json:"scale"`
	// End is the last position on the time axis. The first position is 0.
	End   float64  `json:"end"`
	Units int      `json:"units,omitempty"` // number of units of the order; 0 means 1
	Lanes []Lane   `json:"lanes"`
	Bands []Span   `json:"bands,omitempty"` // spans across all lanes
	Lost  *float64 `json:"lost,omitempty"`  // position at which the property broke; nil if it did not break or the position is unknown
	Steps []Step   `json:"steps,omitempty"`
	Cause *Cause   `json:"cause,omitempty"` // why the order ended as it did; nil if the drawing does not show it
	Notes []string `json:"notes,omitempty"` // remarks about omitted and unknown data
}

// Scale is the unit of positions.
type Scale string

// These are the scales of a drawing.
const (
	Milliseconds Scale = "ms"
	InSteps      Scale = "steps" // all steps have the same distance
)

// Lane shows one instance.
type Lane struct {
	Name    string `json:"name"`
	Rows    []Row  `json:"rows"`
	Spans   []Span `json:"spans,omitempty"`   // spans across all rows of the lane
	Further int    `json:"further,omitempty"` // number of drivers that have no row
}

// Row shows one driver at one instance.
type Row struct {
	Name  string `json:"name"`
	Spans []Span `json:"spans,omitempty"`
	Marks []Mark `json:"marks,omitempty"`
}

// Span is a state that lasts from one position to another. If Open is true, its real end is unknown,
// and To is the latest possible end.
type Span struct {
	Kind SpanKind `json:"k"`
	From float64  `json:"f"`
	To   float64  `json:"t"`
	Open bool     `json:"o,omitempty"`
	Text string   `json:"x,omitempty"`

	token uint64 // the fencing token of a believed lease; 0 if it has none
}

// SpanKind says which state or fault a span shows.
type SpanKind string

// These are the kinds of spans.
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

// Mark shows an event at one position.
type Mark struct {
	Kind MarkKind `json:"k"`
	At   float64  `json:"a"`
	N    int      `json:"n,omitempty"` // for a ledger row: its number among the rows of the order
	Text string   `json:"x,omitempty"`
}

// MarkKind says which kind of event a mark shows.
type MarkKind string

// These are the kinds of marks.
const (
	Read     MarkKind = "read"
	Sent     MarkKind = "sent"   // the driver begins its read or its write
	Won      MarkKind = "won"    // a ledger row within the units of the order
	Second   MarkKind = "second" // a ledger row beyond the units of the order
	Refused  MarkKind = "refused"
	Unknown  MarkKind = "unknown"
	Denied   MarkKind = "denied" // the driver does not get the lock
	Failed   MarkKind = "failed" // a call to the database fails
	Late     MarkKind = "late"   // a release or a renewal has no effect, because the driver had already lost the lock
	Renewed  MarkKind = "renewed"
	Released MarkKind = "released"
	LeaseEnd MarkKind = "leaseend"
	Loss     MarkKind = "loss" // the holder learns that it has lost the lock
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

	// Believed is what the driver believes after this step. This field and the next one are set
	// only in the diagram of a run.
	Believed string `json:"believed,omitempty"`
	True     string `json:"true,omitempty"`
	// These fields are set only in the diagram of a schedule. They list the actors that believe
	// that they hold the lock, the actors that really hold it, and what the servers store.
	Believes []string `json:"believes,omitempty"`
	Holds    []string `json:"holds,omitempty"`
	Stores   []string `json:"stores,omitempty"`
}
