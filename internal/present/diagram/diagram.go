// Package diagram is the space-time diagram of one order: what each driver did, who
// believed to hold the lock and who did, where a fault struck, and where it was lost.
//
// OfRun makes one of the events of a run, OfSchedule of the moments of a schedule. A
// Diagram says what is to be seen and where, in ms or in steps; Script draws it, in
// every page by the same code. What the record does not say is left open: the end of a
// lease, or of a fault, is never guessed.
package diagram

import _ "embed"

// Script is an ES module that draws a Diagram as SVG: its function figure returns an
// element. Style is the style sheet that it needs; it names the colours of all pages.
var (
	//go:embed diagram.js
	Script string
	//go:embed diagram.css
	Style string
)

// Diagram is what is to be drawn.
type Diagram struct {
	Title string `json:"title"` // what is shown, in a sentence
	Scale Scale  `json:"scale"`
	// End is where the diagram ends; it begins at 0.
	End   float64  `json:"end"`
	Units int      `json:"units,omitempty"` // of the order; 0: 1
	Lanes []Lane   `json:"lanes"`
	Bands []Span   `json:"bands,omitempty"` // across all lanes
	Lost  *float64 `json:"lost,omitempty"`  // where the property was lost; nil: nowhere, or it is not known where
	Steps []Step   `json:"steps,omitempty"`
	Notes []string `json:"notes,omitempty"` // what is not shown, and what is not known
}

// Scale says what positions are.
type Scale string

// The scales.
const (
	Milliseconds Scale = "ms"
	InSteps      Scale = "steps" // at equal distance
)

// Lane is an instance.
type Lane struct {
	Name    string `json:"name"`
	Rows    []Row  `json:"rows"`
	Spans   []Span `json:"spans,omitempty"`   // across all of its rows
	Further int    `json:"further,omitempty"` // drivers that have no row
}

// Row is a driver.
type Row struct {
	Name  string `json:"name"`
	Spans []Span `json:"spans,omitempty"`
	Marks []Mark `json:"marks,omitempty"`
}

// Span lasts from one position to another. Open: where it ends is not known; it is
// drawn to where it may have ended.
type Span struct {
	Kind SpanKind `json:"k"`
	From float64  `json:"f"`
	To   float64  `json:"t"`
	Open bool     `json:"o,omitempty"`
	Text string   `json:"x,omitempty"`
}

// SpanKind says what lasts.
type SpanKind string

// The kinds of spans.
const (
	Waits    SpanKind = "waits"
	Inside   SpanKind = "inside" // where there is no lock
	Believes SpanKind = "believes"
	Holds    SpanKind = "holds"
	Gap      SpanKind = "gap" // believes, and does not hold
	Fault    SpanKind = "fault"
	Dead     SpanKind = "dead"
	Kept     SpanKind = "kept"   // the key of a driver that is dead, on its server
	Passes   SpanKind = "passes" // time, in a schedule
)

// Mark is at one position.
type Mark struct {
	Kind MarkKind `json:"k"`
	At   float64  `json:"a"`
	N    int      `json:"n,omitempty"` // of a row of the ledger: which of the order's it is
	Text string   `json:"x,omitempty"`
}

// MarkKind says what happened.
type MarkKind string

// The kinds of marks.
const (
	Read     MarkKind = "read"
	Sent     MarkKind = "sent"   // a write, on its way
	Won      MarkKind = "won"    // the first row of the ledger, or one of as many as the order has units
	Second   MarkKind = "second" // a later one
	Refused  MarkKind = "refused"
	Unknown  MarkKind = "unknown"
	Failed   MarkKind = "failed"
	Renewed  MarkKind = "renewed"
	Released MarkKind = "released"
	LeaseEnd MarkKind = "leaseend"
	Loss     MarkKind = "loss" // the holder learns of it
	Dies     MarkKind = "dies"
	Call     MarkKind = "call"
)

// Step is one of the facts in words, in the order in which they came.
type Step struct {
	At    float64 `json:"at"`
	Clock string  `json:"clock"`
	Who   string  `json:"who,omitempty"`
	Text  string  `json:"text"`
	Lost  bool    `json:"lost,omitempty"` // the property is lost from here on

	// Of a run: what its driver believes from then on, and what is true.
	Believed string `json:"believed,omitempty"`
	True     string `json:"true,omitempty"`
	// Of a schedule: who believes to hold, who holds, and what the servers have.
	Believes []string `json:"believes,omitempty"`
	Holds    []string `json:"holds,omitempty"`
	Stores   []string `json:"stores,omitempty"`
}
