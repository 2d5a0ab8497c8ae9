package experiment

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/target"
)

// TestFirstOrderIsNotOpen checks the message that appears if every driver of the first order is told
// that the order is taken. The message depends on whether the program or the user opened the order. If
// a driver won, there must be no message.
func TestFirstOrderIsNotOpen(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	defer srv.Close()
	for _, tt := range []struct {
		name string
		spec target.Spec
		want string
	}{
		{"opened by a statement", target.Spec{OpenOrders: []string{"sql: INSERT INTO orders (id) VALUES ({order})"}}, "may read an old state"},
		{"opened by a call", target.Spec{OpenOrders: []string{"POST /orders -> .first_id"}}, "may read an old state"},
		{"opened by the user", target.Spec{}, "Was it used before?"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.spec.Path = "/orders/{order}/grab"
			at := target.Target{URLs: []string{srv.URL}, FirstOrder: 7}
			var err error
			if at.Shape, at.Open, err = tt.spec.Compile(); err != nil {
				t.Fatal(err)
			}
			f, err := fleet.Attach(t.Context(), at)
			if err != nil {
				t.Fatal(err)
			}
			a := newAccounting(3, nil, at.Shape)
			a.first = &orderState{id: 7, taken: 3}
			if got := a.notOpen(f); !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want a message with %q", got, tt.want)
			}
			a.first.grabbed = 1
			if got := a.notOpen(f); got != "" {
				t.Errorf("a driver won: got %q, want no message", got)
			}
		})
	}
}
