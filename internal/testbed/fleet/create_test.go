package fleet

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"grablab/internal/testbed/target"
)

// TestCreateRefusesWrongAnswers checks that Create returns an error if the response does not match
// the request, for example if it contains another number of orders.
func TestCreateRefusesWrongAnswers(t *testing.T) {
	for answer, wanted := range map[string]struct {
		units int
		ok    bool
	}{
		`{"first_id":1,"count":3}`:                   {1, true},
		`{"first_id":9223372036854775804,"count":3}`: {1, true},
		`{"first_id":-1,"count":3}`:                  {1, false},
		`{"first_id":0,"count":3}`:                   {1, false},
		`{"first_id":1,"count":300}`:                 {1, false},
		`{"first_id":1,"count":2}`:                   {1, false},
		`{"first_id":1,"count":-3}`:                  {1, false},
		`{"first_id":9223372036854775807,"count":3}`: {1, false},
		`{}`:                                 {1, false},
		`{"first_id":1,"count":3,"stock":5}`: {5, true},
		`{"first_id":2,"count":3}`:           {5, false}, // the target does not support units
		`{"first_id":1,"count":3,"stock":1}`: {5, false},
	} {
		target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusCreated)
			fmt.Fprint(w, answer)
		}))
		f := newFleet("")
		f.Instances = []*Instance{{ID: "target", URL: target.URL}}
		if first, err := f.Create(t.Context(), 3, wanted.units); (err == nil) != wanted.ok {
			t.Errorf("%s: Create: %d, %v", answer, first, err)
		}
		target.Close()
	}
}

// TestErrorsNameTheRequest checks that an error names the request that failed.
func TestErrorsNameTheRequest(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }))
	defer server.Close()
	f := newFleet("")
	in := &Instance{ID: "target", URL: server.URL, fleet: f}
	f.Instances = []*Instance{in}
	if _, err := f.Create(t.Context(), 3, 1); err == nil || !strings.Contains(err.Error(), "POST "+server.URL+"/orders: HTTP 500") {
		t.Errorf("orders: %v", err)
	}
	if _, err := in.Grab(t.Context(), 7, 1); err == nil || !strings.Contains(err.Error(), "the test grab of order 7 at instance 1 failed: HTTP 500") {
		t.Errorf("grab: %v", err)
	}
}

// TestNamedOrders opens orders whose IDs the service chooses. KeepsLedger must ask for the ledger by that
// ID. After a failed call, Create must stop early.
func TestNamedOrders(t *testing.T) {
	shape, open, err := target.Spec{Path: "/orders/{order_uuid}/grab", OpenOrders: []string{"POST /orders {} -> json:.id"}}.Compile()
	if err != nil {
		t.Fatal(err)
	}
	var calls atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := calls.Add(1)
		switch {
		case r.Method == http.MethodPost && n <= 3:
			fmt.Fprintf(w, `{"id":"order-%d"}`, n)
		case strings.HasPrefix(r.URL.Path, "/orders/order-"):
			fmt.Fprint(w, `{"grabs":[]}`)
		default:
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer server.Close()
	f := newFleet("")
	f.Shape, f.open, f.Instances = shape, open, []*Instance{{ID: "target", URL: server.URL}}
	first, err := f.Create(t.Context(), 3, 1)
	if err != nil || !f.KeepsLedger(t.Context(), first) {
		t.Errorf("order %d, %v: there is no ledger for the ID %s", first, err, shape.OrderText(first))
	}
	if _, err := f.Create(t.Context(), 1000, 1); err == nil || !strings.Contains(err.Error(), "HTTP 500") || calls.Load() > 100 {
		t.Errorf("%v after %d calls", err, calls.Load())
	}
}
