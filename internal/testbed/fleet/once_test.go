package fleet

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"grablab/internal/testbed/target"
)

// A probe, and the call that opens orders, reach the target once: also where it ends a
// connection without an answer, or redirects.
func TestCallsAreSentOnce(t *testing.T) {
	for _, spec := range []target.Spec{
		{Method: "GET", Path: "/grab/{order}/{driver}", OpenOrders: []string{"GET /open"}},
		{Path: "/grab/{order}/{driver}", Headers: []string{"Idempotency-Key: fixed"}, OpenOrders: []string{"/open"}},
		{Path: "/grab/{order}/{driver}", Headers: []string{"Idempotency-Key: {driver}"}, Body: new(""), OpenOrders: []string{"/open"}},
	} {
		for _, redirect := range []int{0, 307, 308} {
			var mu sync.Mutex
			seen := map[string]int{}
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				seen[r.URL.Path]++
				mu.Unlock()
				switch {
				case r.URL.Path == "/warm": // so that the next request is on a connection that was kept
				case redirect > 0:
					http.Redirect(w, r, "/elsewhere", redirect)
				default:
					panic(http.ErrAbortHandler)
				}
			}))
			defer s.Close()
			f := newFleet("")
			var err error
			if f.Shape, f.open, err = spec.Compile(); err != nil {
				t.Fatal(err)
			}
			f.Instances = []*Instance{{ID: "a", URL: s.URL, fleet: f}}
			for driver := range int64(3) {
				_, _ = f.client.do(t.Context(), http.MethodGet, s.URL+"/warm", nil, http.Header{})
				if _, err := f.Instances[0].Grab(t.Context(), 1, driver); err == nil {
					t.Error("a grab without an answer that means anything")
				}
			}
			_, _ = f.client.do(t.Context(), http.MethodGet, s.URL+"/warm", nil, http.Header{})
			if _, err := f.Create(t.Context(), 1, 1); err == nil {
				t.Error("orders were opened without an answer")
			}
			mu.Lock()
			defer mu.Unlock() // the server may still count a request whose client has gone
			for path, n := range seen {
				if path != "/warm" && n != 1 || path == "/elsewhere" {
					t.Errorf("%+v, redirect %d: %s was sent %d times", spec, redirect, path, n)
				}
			}
			if len(seen) != 5 {
				t.Errorf("calls: %v", seen)
			}
		}
	}
}
