package grab_test

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"grablab/internal/grab"
	"grablab/internal/order"
)

// TestSellsItsStock checks that an order of several units is sold until no unit is left, and that each
// driver gets one unit. It checks both the answers and the order that GET returns.
func TestSellsItsStock(t *testing.T) {
	for _, strategy := range []string{"setnx", "mysql-cas", "setnx-fenced", "setnx-fence-write"} {
		t.Run(strategy, func(t *testing.T) {
			r := newRig(t, settings{grab: grab.Config{Strategy: strategy}})
			if w := r.call(t, request("POST", "/orders", `{"count":1,"stock":2}`)); w.Body.String() != `{"first_id":101,"count":1,"stock":2}` {
				t.Fatal(w.Body)
			}
			for i, want := range []struct {
				driver  int
				outcome grab.Outcome
				reason  string
				shown   string
			}{
				{1, grab.Grabbed, "", `"status":0,"driver_id":1,`},
				{1, grab.Taken, grab.PerDriver, `"units":2,"stock":1`},
				{2, grab.Grabbed, "", `"units":2,"stock":0`},
				{3, grab.Taken, "", `"status":1,"driver_id":2,`},
			} {
				a := answerOf(t, r.call(t, request("POST", "/orders/101/grab", fmt.Sprintf(`{"driver_id":%d}`, want.driver))))
				if a.Outcome != want.outcome || a.Reason != want.reason {
					t.Errorf("grab %d: %+v, want %s %s", i+1, a, want.outcome, want.reason)
				}
				if w := r.call(t, request("GET", "/orders/101", "")); !strings.Contains(w.Body.String(), want.shown) {
					t.Errorf("after grab %d: %s, want …%s…", i+1, w.Body, want.shown)
				}
			}
		})
	}
}

// TestTwoRequestsOfOneDriver checks two simultaneous requests of a driver who is allowed one unit. The
// naive guard counts the driver's units before the work, so both requests get a unit. A guard that
// counts them during the write grants only one.
func TestTwoRequestsOfOneDriver(t *testing.T) {
	for strategy, want := range map[string]int{"none": 2, "mysql-cas": 1} {
		t.Run(strategy, func(t *testing.T) {
			r := newRig(t, settings{grab: grab.Config{Strategy: strategy, Work: 200 * time.Millisecond}})
			id, err := r.store.Create(t.Context(), 1, 5)
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan struct{})
			for range 2 {
				go func() {
					r.ServeHTTP(httptest.NewRecorder(), request("POST", fmt.Sprintf("/orders/%d/grab", id), `{"driver_id":42}`))
					done <- struct{}{}
				}()
			}
			<-done
			<-done
			if held, err := r.store.Held(t.Context(), id, 42); err != nil || held != want {
				t.Errorf("the driver has %d units, %v, want %d", held, err, want)
			}
		})
	}
}

// TestPerDriver checks that a driver can get two units with -per-driver 2, but not three.
func TestPerDriver(t *testing.T) {
	for _, strategy := range []string{"setnx", "mysql-cas"} {
		r := newRig(t, settings{grab: grab.Config{Strategy: strategy, PerDriver: 2}})
		id, err := r.store.Create(t.Context(), 1, 5)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []string{"", "", grab.PerDriver} {
			a := answerOf(t, r.call(t, request("POST", fmt.Sprintf("/orders/%d/grab", id), `{"driver_id":42}`)))
			if a.Reason != want {
				t.Errorf("%s, grab %d: %+v, want reason %q", strategy, i+1, a, want)
			}
		}
		if o, err := r.store.Read(t.Context(), id, 0); err != nil || o.Stock != 3 || o.Status != order.Open {
			t.Errorf("%s: the row is %+v, %v", strategy, o, err)
		}
	}
}
