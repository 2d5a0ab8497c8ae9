package fleet

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"grablab/internal/testbed/target"
)

// TestCallsAreSentOnce checks that a probe, and the call that opens orders, reach the target exactly
// once. This must also be true if the target closes the connection without a response, or redirects.
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
				case r.URL.Path == "/warm": // afterwards, the client reuses this connection for the next request
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
					t.Error("a grab without a valid response returned no error")
				}
			}
			_, _ = f.client.do(t.Context(), http.MethodGet, s.URL+"/warm", nil, http.Header{})
			if _, err := f.Create(t.Context(), 1, 1); err == nil {
				t.Error("Create without a valid response returned no error")
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
