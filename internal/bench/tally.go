package bench

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"time"

	"grablab/internal/check"
	"grablab/internal/grab"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

// tally keeps the accounts of one attack as its answers come in. Its memory
// grows with the orders that are under way and with the grabs, not with the
// requests.
type tally struct {
	drivers int
	names   map[string]string // instance by target, until an answer says better

	requests int
	outcomes map[grab.Outcome]int
	errors   map[string]int
	servedBy map[string]int
	competed map[string]bool // instances of which some attempt got as far as the lock

	scheduled, sent latencies
	lastEnd         time.Time

	open      map[int64]*fight // orders under way
	contended int
	tried     int          // orders of which somebody got past the lock
	told      []check.Pair // who was answered "grabbed"
	unsure    []check.Pair // who may have the order all the same
	doubles   int          // by the answers
	doubled   int          // orders
	won       int          // orders, by the answers
}

// fight is what is known of one order while its drivers are under way.
type fight struct {
	left  int
	spans []span
	won   int
	tried bool
}

type span struct{ from, to time.Time }

func newTally(drivers int, names map[string]string) *tally {
	return &tally{
		drivers: drivers, names: names,
		outcomes: noOutcomes(), errors: map[string]int{}, servedBy: map[string]int{}, competed: map[string]bool{},
		scheduled: newLatencies(), sent: newLatencies(),
		open: map[int64]*fight{},
	}
}

// noOutcomes counts every outcome, and none of them yet.
func noOutcomes() map[grab.Outcome]int {
	none := make(map[grab.Outcome]int, len(grab.Outcomes))
	for _, o := range grab.Outcomes {
		none[o] = 0
	}
	return none
}

// add books one result, which was due at the given time.
func (t *tally) add(r *vegeta.Result, due time.Time) error {
	s, err := parseShot(r.URL)
	if err != nil {
		return err
	}
	outcome, kind := classify(r)
	if r.Code != 0 {
		name := or(field(r.Body, "instance"), t.names[s.target])
		t.servedBy[name]++
		if reached(outcome) {
			t.competed[name] = true
		}
	}
	t.requests++
	t.outcomes[outcome]++
	if kind != "" {
		t.errors[kind]++
	}

	end := r.Timestamp.Add(r.Latency)
	t.scheduled.add(end.Sub(due))
	t.sent.add(r.Latency)
	if end.After(t.lastEnd) {
		t.lastEnd = end
	}
	if outcome == grab.Timeout || kind == kindReset || kind == kindOther || kind == kindInterrupted {
		t.unsure = append(t.unsure, check.Pair{Order: s.order, Driver: s.driver})
	}
	t.settle(s, outcome, span{r.Timestamp, end})
	return nil
}

// reached says whether an attempt got as far as the lock. One that failed
// contends with nobody.
func reached(o grab.Outcome) bool {
	return o == grab.Grabbed || o == grab.Taken || o == grab.Busy
}

// classify turns a result into an outcome and, where there is one, the kind of
// error. The status code alone decides: a foreign service need not send a body.
// A request that timed out or broke off may have happened.
func classify(r *vegeta.Result) (grab.Outcome, string) {
	switch r.Code {
	case 0:
		kind := kindOfResult(r.Error)
		if kind == kindTimeout {
			return grab.Timeout, kind
		}
		return grab.Failed, kind
	case http.StatusOK:
		return grab.Grabbed, ""
	case http.StatusConflict:
		return grab.Taken, ""
	case http.StatusLocked:
		return grab.Busy, ""
	case http.StatusGatewayTimeout:
		return grab.Timeout, or(field(r.Body, "reason"), "http 504")
	default:
		return grab.Failed, or(field(r.Body, "reason"), fmt.Sprintf("http %d", r.Code))
	}
}

// field is the plain string of that name in an answer, "" if there is none. It
// looks for it as an instance writes it, for to decode every answer would cost
// as much again as all the rest of its account.
func field(body []byte, name string) string {
	_, rest, ok := bytes.Cut(body, []byte(`"`+name+`":"`))
	if !ok {
		return ""
	}
	value, _, ok := bytes.Cut(rest, []byte{'"'})
	if !ok {
		return ""
	}
	return string(value)
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// settle books the result with its order, and closes the order's account when
// its last driver has been answered.
func (t *tally) settle(s shot, outcome grab.Outcome, sp span) {
	f := t.open[s.order]
	if f == nil {
		f = &fight{left: t.drivers}
		t.open[s.order] = f
	}
	f.left--
	if reached(outcome) {
		f.spans = append(f.spans, sp)
	}
	switch outcome {
	case grab.Grabbed:
		f.won++
		f.tried = true
		t.told = append(t.told, check.Pair{Order: s.order, Driver: s.driver})
	case grab.Taken:
		f.tried = true
	}
	if f.left == 0 {
		t.close(s.order, f)
	}
}

func (t *tally) close(id int64, f *fight) {
	delete(t.open, id)
	if overlapping(f.spans) {
		t.contended++
	}
	if f.tried {
		t.tried++
	}
	if f.won > 0 {
		t.won++
	}
	if f.won > 1 {
		t.doubles += f.won - 1
		t.doubled++
	}
}

// finish closes the accounts of the orders that an interruption left open.
func (t *tally) finish() {
	for id, f := range t.open {
		t.close(id, f)
	}
}

// overlapping says whether any two of the spans have an instant in common. It
// sorts them.
func overlapping(spans []span) bool {
	slices.SortFunc(spans, func(a, b span) int { return a.from.Compare(b.from) })
	for i := 1; i < len(spans); i++ {
		if spans[i].from.Before(spans[i-1].to) { // no earlier one ended later, or we had returned
			return true
		}
	}
	return false
}
