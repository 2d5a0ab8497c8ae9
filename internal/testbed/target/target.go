// Package target describes a service under test: where to send grabs, what they look like, and what
// the replies mean. A grab is a request in which a driver tries to win an order.
//
// A Spec contains a service's calls as text, from flags or a target file (ReadFile). Compile turns
// it into a Shape, which builds requests and interprets replies. Own is grabsvc's shape. Start
// reading at Shape.
package target

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"grablab/internal/grab"
)

// Target is a running service to test.
type Target struct {
	URLs  []string // instance base URLs, or the name of a registry that lists them; empty if there is no service
	PIDs  []int    // process ID of each instance, for faults; nil if unknown
	Shape *Shape   // nil means Own
	Token string   // bearer token for control calls
	// FirstOrder is the first order ID to use. It is 0 if an HTTP call opens the orders, because
	// the call returns their IDs.
	FirstOrder int64
	// ProbeDrivers is the first driver ID for test requests after the load. It defaults to
	// history.ProbeDriver.
	ProbeDrivers int64
	Open         *Opening // how to open orders; nil means POST /orders, or not at all
	Database     Database
	Lease        time.Duration // assumed lock lifetime without renewal; 0 means DefaultLease
	// NoExpiry means that the lock lasts until its driver releases it, or until a connection ends. Lease then only
	// determines how long faults last.
	NoExpiry bool
	// Idempotent means that a driver may win an order several times, and that these count as one
	// win.
	Idempotent bool
	// Compensation is how long the service may take to undo a second driver's win. If it is 0, no
	// order may ever have two winners.
	Compensation time.Duration
	// Strategies lists the strategies to test, by the names that the service uses. If it is nil,
	// all strategies are tested.
	Strategies []string
}

// Database describes the database in which the service stores the winners.
type Database struct {
	DSN   string // empty if the database is unknown
	Query string // SQL query for the winners; empty if the program must not read them
}

// Opening says how to open orders, either with an HTTP call or with SQL.
type Opening struct {
	Method string
	Path   Template // the call's path; empty if SQL is used
	Body   Template
	// DefaultBody means that the user has not given a body, so Body is the default.
	DefaultBody bool
	ID          Source     // where the reply contains the first order ID, or all order IDs
	SQL         []Template // SQL statements, used instead of the call
}

// Shape says what a grab request looks like and what the replies mean.
type Shape struct {
	Method string
	Path   Template // the part of the URL that follows the base URL
	Body   Template
	Header []Header
	IDs    *IDs // order IDs for the placeholder {order_uuid}

	Grabbed, Taken, Busy Rule
	// Later says how to get the result from a service that responds before it decides. It is nil
	// for other services.
	Later *Later
	// AssumesGrabbed means that the default rule for wins applies, because the user has not given
	// one.
	AssumesGrabbed bool
	// ReadsHeaders means that at least one rule examines a header of the reply.
	ReadsHeaders bool
	// TryOnce is a query string that tells the service not to wait for the lock. It is empty if the
	// service has no such option.
	TryOnce string

	wroteNothing Rule        // matches replies that prove that the service has written nothing
	fixed        http.Header // headers that are the same in every request
	readsBody    bool        // whether a rule reads the body of the reply
}

// Header is a header that every grab request contains.
type Header struct {
	Name  string
	Value Template
}

const (
	ownPath = "/orders/{order}/grab"
	ownBody = `{"driver_id":{driver}}`

	ownGrabbed, ownTaken, ownBusy = "200", "409", "423"
)

// Plain is the default shape for a service other than grabsvc. Such a service may have written
// something even if it replies with status 503.
var Plain = must(Spec{}.shape())

// Own is grabsvc's shape. If grabsvc replies with status 503, it has certainly written nothing.
var Own = func() *Shape {
	s := *Plain
	s.wroteNothing, s.TryOnce = must(ParseRule("503")), "?wait=0"
	return &s
}()

// must returns v, or panics if err is not nil. A panic means that a constant in this package is
// invalid.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// prepare computes the fields that are the same for all requests.
func (s *Shape) prepare() {
	s.fixed = http.Header{}
	if len(s.Body.parts) > 0 {
		s.fixed.Set("Content-Type", "application/json")
	}
	for _, h := range s.Header {
		s.fixed.Del(h.Name)
		s.Body.isForm = s.Body.isForm || h.Name == "Content-Type" && strings.HasPrefix(h.Value.text, "application/x-www-form-urlencoded")
	}
	for _, h := range s.Header {
		if !h.varies() {
			s.fixed.Add(h.Name, h.Value.text)
		}
	}
	for _, r := range []Rule{s.Grabbed, s.Taken, s.Busy, s.wroteNothing} {
		s.readsBody = s.readsBody || r.reads(fromJSON, fromXML, fromText)
		s.ReadsHeaders = s.ReadsHeaders || r.reads(fromHeader)
	}
}

func (h Header) varies() bool { return h.Value.Has(grabSlots...) }

// Request returns the path, body and header for a driver's request for an order. Several requests
// may share the header, so the caller must not change it.
func (s *Shape) Request(order, driver int64) (path, body []byte, header http.Header) {
	header = s.fixed
	for _, h := range s.Header {
		if !h.varies() {
			continue
		}
		if len(header) == len(s.fixed) {
			header = header.Clone()
		}
		header.Add(h.Name, string(h.Value.grab(nil, order, driver, s.IDs)))
	}
	return s.Path.grab(nil, order, driver, s.IDs), s.Body.grab(nil, order, driver, s.IDs), header
}

// Fixed returns a copy of the headers that are the same in every grab request.
func (s *Shape) Fixed() http.Header { return s.fixed.Clone() }

// MaxBody limits how many bytes of a reply are read. Rules about the body do not match a longer
// reply.
const MaxBody = 16 << 10

// Meaning is a grab's result according to its reply.
type Meaning struct {
	Outcome grab.Outcome
	// Unsure means that the grab may have succeeded although its reply reports a failure.
	Unsure bool
	Kind   string // the kind of error, if any
}

// Meaning interprets a reply. If exactly one rule matches, that rule determines the outcome.
// Otherwise, the grab failed or timed out. Unsure is false if the reply proves that nothing was
// written, as most 4xx statuses do.
func (s *Shape) Meaning(status int, header http.Header, body []byte) Meaning {
	kind := fmt.Sprintf("http %d", status)
	a := &reply{status: status, header: header, body: body, cut: len(body) > MaxBody}
	if s.readsBody && a.cut {
		kind += fmt.Sprintf(" with a body cut at %d KiB", MaxBody>>10)
	}
	found := make([]grab.Outcome, 0, 3)
	for _, m := range [...]struct {
		outcome grab.Outcome
		rule    Rule
	}{{grab.Grabbed, s.Grabbed}, {grab.Taken, s.Taken}, {grab.Busy, s.Busy}} {
		if m.rule.holds(a) {
			found = append(found, m.outcome)
		}
	}
	switch {
	case len(found) == 1:
		return Meaning{Outcome: found[0]}
	case len(found) > 1:
		return Meaning{grab.Failed, true, fmt.Sprintf("both %s and %s", found[0], found[1])}
	case status == http.StatusGatewayTimeout, status == http.StatusRequestTimeout, status == clientClosed: // the handler may still work on the grab
		return Meaning{grab.Timeout, true, kind}
	}
	refused := status >= 400 && status < 500 || s.wroteNothing.holds(a)
	return Meaning{grab.Failed, !refused, kind}
}

// clientClosed is the status with which nginx reports that the client has closed the connection.
const clientClosed = 499

// Says returns the shape's rules as text for a report.
func (s *Shape) Says() Rules {
	return Rules{s.Grabbed.String(), s.Taken.String(), s.Busy.String()}
}

// Rules contains each outcome's rules as text.
type Rules struct {
	Grabbed string `json:"grabbed"`
	Taken   string `json:"taken"`
	Busy    string `json:"busy"`
}

// shape parses all parts of the specification. A part that is not set gets the
// value that our own service needs.
func (spec Spec) shape() (*Shape, error) {
	s := &Shape{IDs: &IDs{}, AssumesGrabbed: spec.Grabbed == ""}
	err := field("method", &s.Method)(ParseMethod(cmp.Or(spec.Method, http.MethodPost)))
	body := ownBody
	switch {
	case spec.Body != nil:
		body = *spec.Body
	case s.Method == http.MethodGet:
		body = ""
	}
	err = cmp.Or(err,
		field("path", &s.Path)(ParsePath(cmp.Or(spec.Path, ownPath))),
		field("body", &s.Body)(ParseBody(body)),
		field("header", &s.Header)(parseHeaders(spec.Headers)),
		field("grabbed", &s.Grabbed)(ParseRule(cmp.Or(spec.Grabbed, ownGrabbed))),
		field("taken", &s.Taken)(ParseRule(cmp.Or(spec.Taken, ownTaken))),
		field("busy", &s.Busy)(ParseRule(cmp.Or(spec.Busy, ownBusy))),
	)
	if err == nil && spec.Later != "" {
		err = field("later", &s.Later)(ParseLater(spec.Later))
	}
	if err != nil {
		return nil, err
	}
	if err := s.check(spec); err != nil {
		return nil, err
	}
	s.prepare()
	return s, nil
}

// field returns a function that stores a field's value. If the function gets an error, it adds the
// field name.
func field[T any](name string, into *T) func(T, error) error {
	return func(v T, err error) error {
		if err != nil {
			return &FieldError{name, err}
		}
		*into = v
		return nil
	}
}

// check returns an error if two of the user's rules contradict each other, or if requests do not
// name the order. It removes a default rule that contradicts a rule from the user.
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
				return &FieldError{b.key, fmt.Errorf("a response with status %d matches the rules for both %s and %s: change one of them", status, a.key, b.key)}
			case a.given:
				*b.rule = Rule{}
			default:
				*a.rule = Rule{}
			}
		}
	}
	if len(s.Grabbed.terms) == 0 {
		return &FieldError{"grabbed", fmt.Errorf("no rule matches a winner's response: set grabbed to one, for example 200")}
	}
	if err := s.checkLater(); err != nil {
		return &FieldError{"later", err}
	}
	if s.has(orderID) && s.has(orderUUID) {
		return &FieldError{"path", fmt.Errorf("{order} and {order_uuid} are different ids of an order: use only one of these placeholders")}
	}
	if !s.has(orderID, orderUUID) {
		return &FieldError{"path", fmt.Errorf("without {order}, every grab would be for the same order: add {order} to the path, the body or a header")}
	}
	return nil
}

func (s *Shape) has(names ...string) bool {
	return s.Path.Has(names...) || s.Body.Has(names...) ||
		slices.ContainsFunc(s.Header, func(h Header) bool { return h.Value.Has(names...) })
}

// TellsDrivers reports whether a grab request contains the driver's id.
func (s *Shape) TellsDrivers() bool { return s.has(driverID, driverUUID, driverName) }

// FieldError means that a field in a Spec is invalid.
type FieldError struct {
	Field string // the key in a target file, which is also the flag name
	Err   error
}

// Error returns the field name and the text of Err.
func (e *FieldError) Error() string { return e.Field + ": " + e.Err.Error() }

// Unwrap returns Err.
func (e *FieldError) Unwrap() error { return e.Err }

// DefaultLease is the assumed TTL if the service does not report it.
const DefaultLease = 30 * time.Second
