// Package target describes a service under test: where grabs are sent, what they look
// like, and what its answers mean.
//
// A Spec is the calls of a service as flags say them, or a file (ReadFile), whose keys are
// those flags. Compile makes the Shape of it, by which requests are built and answers
// understood; that of our own instances is Own. Begin at Shape.
package target

import (
	"cmp"
	"fmt"
	"net/http"
	"time"

	"grablab/internal/grab"
)

// Target is a service that was started elsewhere.
type Target struct {
	URLs  []string // base URLs of its instances; none: there is no such target
	PIDs  []int    // of their processes, one for each, which faults may strike; nil: none may
	Shape *Shape   // nil: Own
	Token string   // bearer token for its control calls
	// FirstOrder is where orders begin if they are not opened by a call: cells take
	// consecutive ids from it. 0: they are.
	FirstOrder int64
	// ProbeDrivers is the first of the drivers who try the orders after the load. If it is 0,
	// probes use the drivers from history.ProbeDriver on.
	ProbeDrivers int64
	Open         *Opening // how orders are opened; nil: by POST /orders, or not at all
	Database     Database
	Lease        time.Duration // for how long its lock lives without renewal; 0: DefaultLease
	// Strategies are those asked for, by the target's own names; nil: all that it has.
	Strategies []string
}

// Database is where the target keeps its ledger.
type Database struct {
	DSN   string // "": it is not known
	Query string // reads the ledger; "": it is not read
}

// Opening says how orders are opened: by a call, or by statements in the database.
type Opening struct {
	Method  string
	Path    Template // "": by statements
	Body    Template
	FirstID Path       // of the first order, in the answer
	SQL     []Template // any of them: instead of a call
}

// Shape is how a service is asked for a grab, and what its answers mean.
type Shape struct {
	Method string
	Path   Template // behind the base URL
	Body   Template
	Header []Header

	Grabbed, Taken, Busy Rule
	// AssumesGrabbed says that the user gave no rule for grabbed, so that it is the default.
	AssumesGrabbed bool
	// sure is of answers which say that the grab has failed and nothing was written.
	sure Rule

	fixed  http.Header // what is the same in every request
	reads  bool        // the rules read the answer
	probes string      // query of a grab that does not wait for the lock
}

// Header is one header of every grab.
type Header struct {
	Name  string
	Value Template
}

const (
	ownPath = "/orders/{order}/grab"
	ownBody = `{"driver_id":{driver}}`

	ownGrabbed, ownTaken, ownBusy = "200", "409", "423"
)

// Plain is the shape of a service of which only the grab's call is known: that of our own
// instances, but that nothing is believed of its failures.
var Plain = func() *Shape {
	s, err := Spec{}.shape()
	if err != nil {
		panic(err)
	}
	return s
}()

// Own is the shape of our own instances: with 503 they say that nothing was written.
var Own = func() *Shape {
	s := *Plain
	s.sure, s.probes = mustRule("503"), "?wait=0"
	return &s
}()

// prepare works out what follows from the fields.
func (s *Shape) prepare() {
	s.fixed = http.Header{}
	if len(s.Body.parts) > 0 {
		s.fixed.Set("Content-Type", "application/json")
	}
	for _, h := range s.Header {
		s.fixed.Del(h.Name)
	}
	for _, h := range s.Header {
		if !h.varies() {
			s.fixed.Add(h.Name, h.Value.Fill(nil))
		}
	}
	for _, r := range []Rule{s.Grabbed, s.Taken, s.Busy, s.sure} {
		s.reads = s.reads || r.readsBody()
	}
}

func (h Header) varies() bool { return h.Value.Has(orderID) || h.Value.Has(driverID) }

// Request is the grab of an order by a driver: the path behind the base URL, and what is
// sent with it. The header may be shared, and must not be changed.
func (s *Shape) Request(order, driver int64) (path, body []byte, header http.Header) {
	header = s.fixed
	for _, h := range s.Header {
		if !h.varies() {
			continue
		}
		if len(header) == len(s.fixed) {
			header = header.Clone()
		}
		header.Add(h.Name, string(h.Value.grab(nil, order, driver)))
	}
	return s.Path.grab(nil, order, driver), s.Body.grab(nil, order, driver), header
}

// Fixed is the headers that do not depend on the grab.
func (s *Shape) Fixed() http.Header { return s.fixed.Clone() }

// TryOnce is the query of a grab that does not wait for the lock; "": it cannot be asked for.
func (s *Shape) TryOnce() string { return s.probes }

// MaxBody is the number of bytes of an answer that rules read. A longer answer is cut, and no
// rule about a field matches it.
const MaxBody = 16 << 10

// Meaning is what an answer says of its grab.
type Meaning struct {
	Outcome grab.Outcome
	// Unsure: the grab may have happened all the same.
	Unsure bool
	Kind   string // of the error, where there is one
}

// Meaning of an answer. What no rule knows is an error. Such an answer of 400 to 499 says
// that the grab was refused; any other may hide one: a service may fail behind its write.
func (s *Shape) Meaning(status int, body []byte) Meaning {
	var doc *any
	kind := fmt.Sprintf("http %d", status)
	switch {
	case !s.reads:
	case len(body) > MaxBody:
		kind += fmt.Sprintf(" with a body cut at %d KiB", MaxBody>>10)
	default:
		if x, ok := decode(body); ok {
			doc = &x
		}
	}
	var found [3]grab.Outcome
	n := 0
	for _, m := range [...]reading{{grab.Grabbed, s.Grabbed}, {grab.Taken, s.Taken}, {grab.Busy, s.Busy}} {
		if m.rule.holds(status, doc) {
			found[n] = m.outcome
			n++
		}
	}
	switch {
	case n == 1:
		return Meaning{Outcome: found[0]}
	case n > 1:
		return Meaning{grab.Failed, true, fmt.Sprintf("both %s and %s", found[0], found[1])}
	case status == http.StatusGatewayTimeout:
		return Meaning{grab.Timeout, true, "http 504"}
	}
	refused := status >= 400 && status < 500 || s.sure.holds(status, doc)
	return Meaning{grab.Failed, !refused, kind}
}

// reading is what a rule takes an answer for.
type reading struct {
	outcome grab.Outcome
	rule    Rule
}

// Says is how the outcomes are told apart, as a report says it.
func (s *Shape) Says() Rules {
	return Rules{s.Grabbed.String(), s.Taken.String(), s.Busy.String()}
}

// Rules are those of a shape, as they were written.
type Rules struct {
	Grabbed string `json:"grabbed"`
	Taken   string `json:"taken"`
	Busy    string `json:"busy"`
}

// shape compiles what the spec says of the calls.
func (spec Spec) shape() (*Shape, error) {
	s := &Shape{Method: cmp.Or(spec.Method, http.MethodPost), AssumesGrabbed: spec.Grabbed == ""}
	body := ownBody
	switch {
	case spec.Body != nil:
		body = *spec.Body
	case s.Method == http.MethodGet:
		body = ""
	}
	var err error
	for _, f := range []struct {
		key  string
		read func() error
	}{
		{"path", func() error {
			s.Path, err = parsePathTemplate(cmp.Or(spec.Path, ownPath), orderID, driverID)
			return err
		}},
		{"body", func() error { s.Body, err = ParseTemplate(body, orderID, driverID); return err }},
		{"header", func() error { s.Header, err = parseHeaders(spec.Headers); return err }},
		{"grabbed", func() error { s.Grabbed, err = ParseRule(cmp.Or(spec.Grabbed, ownGrabbed)); return err }},
		{"taken", func() error { s.Taken, err = ParseRule(cmp.Or(spec.Taken, ownTaken)); return err }},
		{"busy", func() error { s.Busy, err = ParseRule(cmp.Or(spec.Busy, ownBusy)); return err }},
	} {
		if err := f.read(); err != nil {
			return nil, &FieldError{f.key, err}
		}
	}
	if err := s.check(spec); err != nil {
		return nil, err
	}
	s.prepare()
	return s, nil
}

// check refuses a shape that can tell nothing. A rule that was not given yields to those that were.
func (s *Shape) check(spec Spec) error {
	rules := []struct {
		key   string
		rule  *Rule
		given bool
	}{{"grabbed", &s.Grabbed, spec.Grabbed != ""}, {"taken", &s.Taken, spec.Taken != ""}, {"busy", &s.Busy, spec.Busy != ""}}
	for i, a := range rules {
		for _, b := range rules[i+1:] {
			status, both := a.rule.overlaps(*b.rule)
			switch {
			case !both:
			case a.given && b.given:
				return &FieldError{b.key, fmt.Errorf("an answer of %d would be both %s and %s", status, a.key, b.key)}
			case a.given:
				*b.rule = Rule{}
			default:
				*a.rule = Rule{}
			}
		}
	}
	if len(s.Grabbed.terms) == 0 {
		return &FieldError{"grabbed", fmt.Errorf("no answer is left that means grabbed; say which does")}
	}
	if !s.has(orderID) {
		return &FieldError{"path", fmt.Errorf("{order} stands neither there nor in the body or a header: every grab would be of the same order")}
	}
	return nil
}

func (s *Shape) has(name string) bool {
	if s.Path.Has(name) || s.Body.Has(name) {
		return true
	}
	for _, h := range s.Header {
		if h.Value.Has(name) {
			return true
		}
	}
	return false
}

// TellsDrivers says whether the service is told which driver grabs.
func (s *Shape) TellsDrivers() bool { return s.has(driverID) }

// FieldError is what is wrong with a field of a spec.
type FieldError struct {
	Field string // by its key in a file, which is also the flag's name
	Err   error
}

// Error names the field.
func (e *FieldError) Error() string { return e.Field + ": " + e.Err.Error() }

// Unwrap is what is wrong.
func (e *FieldError) Unwrap() error { return e.Err }

// DefaultLease is for how long a target's lock is taken to live where that is not known.
const DefaultLease = 30 * time.Second
