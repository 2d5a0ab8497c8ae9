package experiment

import (
	"bytes"
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"time"

	"grablab/internal/check"
	"grablab/internal/grab"
	"grablab/internal/load"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

// accounting counts the answers of one attack as they come in. Its memory grows
// with the orders that are open and with the grabs, not with the requests.
type accounting struct {
	drivers int
	names   map[string]string // instance by target, until an answer says better

	requests int
	outcomes map[grab.Outcome]int
	errors   map[string]int
	servedBy map[string]int
	competed map[string]bool // instances of which an attempt got as far as the lock

	scheduled, sent load.Histogram
	lastEnd         time.Time

	open      map[int64]*orderState // orders with drivers that are not answered
	contended int
	tried     int          // orders on which a driver got past the lock
	told      []check.Pair // drivers that were answered "grabbed"
	unsure    []check.Pair // drivers that may have the order all the same
}

// orderState is what is known of one order while it has drivers that are not answered.
type orderState struct {
	left  int
	spans []span
	tried bool
}

type span struct{ from, to time.Time }

func newAccounting(drivers int, names map[string]string) *accounting {
	return &accounting{
		drivers: drivers, names: names,
		outcomes: noOutcomes(), errors: map[string]int{}, servedBy: map[string]int{}, competed: map[string]bool{},
		scheduled: load.NewHistogram(), sent: load.NewHistogram(),
		open: map[int64]*orderState{},
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

// add counts one result, which was due at the given time.
func (a *accounting) add(r *vegeta.Result, due time.Time) error {
	s, err := load.ParseRequest(r.URL)
	if err != nil {
		return err
	}
	outcome, kind := classify(r)
	if r.Code != 0 {
		name := cmp.Or(field(r.Body, "instance"), a.names[s.Target])
		a.servedBy[name]++
		if reached(outcome) {
			a.competed[name] = true
		}
	}
	a.requests++
	a.outcomes[outcome]++
	if kind != "" {
		a.errors[kind]++
	}

	end := r.Timestamp.Add(r.Latency)
	a.scheduled.Add(end.Sub(due))
	a.sent.Add(r.Latency)
	if end.After(a.lastEnd) {
		a.lastEnd = end
	}
	if outcome == grab.Timeout || kind == load.Reset || kind == load.Other || kind == load.Interrupted {
		a.unsure = append(a.unsure, check.Pair{Order: s.Order, Driver: s.Driver})
	}
	a.addToOrder(s, outcome, span{r.Timestamp, end})
	return nil
}

// reached says whether an attempt got as far as the lock. One that failed
// does not contend.
func reached(o grab.Outcome) bool {
	return o == grab.Grabbed || o == grab.Taken || o == grab.Busy
}

// classify turns a result into an outcome and, where there is one, the kind of
// error. The status code alone decides: a foreign service need not send a body.
// A request that timed out or broke off may have happened.
func classify(r *vegeta.Result) (grab.Outcome, string) {
	switch r.Code {
	case 0:
		kind := load.FailureOf(r.Error)
		if kind == load.Timeout {
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
		return grab.Timeout, cmp.Or(field(r.Body, "reason"), "http 504")
	default:
		return grab.Failed, cmp.Or(field(r.Body, "reason"), fmt.Sprintf("http %d", r.Code))
	}
}

// field is the plain string of that name in an answer, "" if there is none. It
// looks for it as an instance writes it, because decoding every answer would
// cost as much again as all else that is done with it.
func field(body []byte, name string) string {
	_, rest, _ := bytes.Cut(body, []byte(`"`+name+`":"`))
	value, _, ok := bytes.Cut(rest, []byte{'"'})
	if !ok {
		return ""
	}
	return string(value)
}

// addToOrder counts the result for its order, and closes the order when its
// last driver has been answered.
func (a *accounting) addToOrder(s load.Request, outcome grab.Outcome, sp span) {
	f := a.open[s.Order]
	if f == nil {
		f = &orderState{left: a.drivers}
		a.open[s.Order] = f
	}
	f.left--
	if reached(outcome) {
		f.spans = append(f.spans, sp)
	}
	switch outcome {
	case grab.Grabbed:
		f.tried = true
		a.told = append(a.told, check.Pair{Order: s.Order, Driver: s.Driver})
	case grab.Taken:
		f.tried = true
	}
	if f.left == 0 {
		a.close(s.Order, f)
	}
}

func (a *accounting) close(id int64, f *orderState) {
	delete(a.open, id)
	if overlapping(f.spans) {
		a.contended++
	}
	if f.tried {
		a.tried++
	}
}

// finish closes the orders that an interruption left open.
func (a *accounting) finish() {
	for id, f := range a.open {
		a.close(id, f)
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
