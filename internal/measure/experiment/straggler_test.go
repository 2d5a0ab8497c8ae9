package experiment

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab"
	"grablab/internal/history"
	"grablab/internal/order"
)

// lateService is a service with two instances, which write every grab only after its client has
// closed the connection.
type lateService struct {
	mu       sync.Mutex
	inFlight int
	grabs    map[string][]order.Grab // rows by order
}

func (s *lateService) instance(name string) http.Handler {
	mux := http.NewServeMux()
	answer := func(pattern string, view func(*http.Request) any) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { _ = json.NewEncoder(w).Encode(view(r)) })
	}
	answer("GET /healthz", func(*http.Request) any { return grab.Health{Status: "ok", Instance: name} })
	answer("GET /strategies", func(*http.Request) any { return []string{"none"} })
	answer("PUT /strategy", func(*http.Request) any { return grab.CurrentStrategy{Name: "none", LeaseMS: 50} })
	answer("POST /orders", func(r *http.Request) any {
		var asked grab.OrdersView
		_ = json.NewDecoder(r.Body).Decode(&asked)
		asked.FirstID = 1
		return asked
	})
	answer("GET /orders/{id}", func(r *http.Request) any {
		s.mu.Lock()
		defer s.mu.Unlock()
		return grab.OrderView{Grabs: s.grabs[r.PathValue("id")]}
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		fmt.Fprintf(w, "# TYPE grab_in_flight gauge\ngrab_in_flight %d\n", s.inFlight)
	})
	mux.HandleFunc("POST /orders/{id}/grab", func(w http.ResponseWriter, r *http.Request) {
		var by struct {
			Driver int64 `json:"driver_id"`
		}
		_ = json.NewDecoder(r.Body).Decode(&by)
		if by.Driver >= history.ProbeDriver {
			w.WriteHeader(http.StatusConflict)
			return
		}
		s.count(1)
		defer s.count(-1)
		untilHungUp(r)
		time.Sleep(300 * time.Millisecond)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.grabs[r.PathValue("id")] = append(s.grabs[r.PathValue("id")], order.Grab{Driver: by.Driver, Instance: name})
	})
	return mux
}

func (s *lateService) count(by int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight += by
}

// TestStragglersAreCounted checks that the audit waits for grabs whose clients timed out, and
// counts their rows.
func TestStragglersAreCounted(t *testing.T) {
	const orders, drivers = 2, 4
	service := &lateService{grabs: map[string][]order.Grab{}}
	cfg := small(t, "", "none")
	cfg.Orders, cfg.Drivers, cfg.Rate, cfg.Timeout = orders, drivers, 0, 300*time.Millisecond
	for _, name := range []string{"late-1", "late-2"} {
		server := httptest.NewServer(service.instance(name))
		t.Cleanup(server.Close)
		cfg.Target.URLs = append(cfg.Target.URLs, server.URL)
	}
	run, err := execute(t, t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	c := run.Cells[0]
	if c.Outcomes[grab.Timeout] != orders*drivers {
		t.Fatalf("%v %v: want every client to give up", c.Outcomes, c.Errors)
	}
	if c.Grabs == nil || *c.Grabs != orders*drivers || *c.UnacknowledgedGrabs != orders*drivers || *c.DoubleGrabs != orders*(drivers-1) {
		t.Errorf("%s (%s): %v grabs, %v of them unacknowledged, %v double", c.Verdict, c.Reason,
			figure(c.Grabs), figure(c.UnacknowledgedGrabs), figure(c.DoubleGrabs))
	}
	if c.Verdict != catalog.Unsafe {
		t.Errorf("the cell is %s (%s)", c.Verdict, c.Reason)
	}
}

func figure(n *int) string {
	if n == nil {
		return "unknown"
	}
	return fmt.Sprint(*n)
}
