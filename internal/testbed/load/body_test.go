package load

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"grablab/internal/testbed/target"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

// TestRecordedResponseMeansTheSame sends grabs to services with bodies of every size around the limit.
// Some services return the result at once, and others return it later. For every kind of rule, the
// recorded response must have the same meaning as the whole response.
func TestRecordedResponseMeansTheSame(t *testing.T) {
	rules := []string{`text:!~"lost$"`, `json:.won==true`, `xml:/won==1`, `header:X-Won=="yes"`, "200"}
	for later, rules := range map[string][]string{"": rules, "202 -> /results/{order}/{driver}": rules[:2]} {
		for _, rule := range rules {
			shape, _, err := target.Spec{Path: "/{order}/{driver}", Grabbed: rule, Taken: "409", Later: later}.Compile()
			if err != nil {
				t.Fatal(err)
			}
			for _, begin := range []string{"won", `{"won":true}`, "<won>1</won>"} {
				t.Run(fmt.Sprintf("%s, later %q, %s", rule, later, begin), func(t *testing.T) {
					t.Parallel() // a client that gets no result waits for the timeout
					for _, size := range []int{target.MaxBody - 1, target.MaxBody, target.MaxBody + 1, 2 * target.MaxBody} {
						body := begin + strings.Repeat(" ", size-len(begin))
						if begin == "won" {
							body = body[:size-len("lost")] + "lost"
						}
						recordedAsWhole(t, shape, body)
					}
				})
			}
		}
	}
}

// recordedAsWhole compares the meaning of a response with the meaning of what an attack records.
func recordedAsWhole(t *testing.T, shape *target.Shape, body string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if shape.Later != nil && r.Method == http.MethodPost {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		w.Header().Set("X-Won", "yes")
		fmt.Fprint(w, body)
	}))
	defer s.Close()
	header := http.Header{"X-Won": {"yes"}}
	want := shape.Meaning(http.StatusOK, header, []byte(body))
	noResult := shape.Later != nil && !shape.IsResult(http.StatusOK, header, []byte(body))
	cfg := Config{Orders: 1, Drivers: 1, Timeout: 10 * time.Second, MaxWorkers: 1, Shape: shape}
	if noResult {
		cfg.Timeout = 60 * time.Millisecond
	}
	results := 0
	err := Attack(t.Context(), NewPlan([]string{s.URL}, 1, 1, 1, 1), cfg, func(r *vegeta.Result, _ time.Time) {
		results++
		got := shape.Meaning(int(r.Code), r.Headers, r.Body)
		if (r.Code == 0) != noResult || r.Code != 0 && got != want {
			t.Errorf("%d bytes: status %d, %+v; want %+v, no result: %v", len(body), r.Code, got, want, noResult)
		}
	})
	if err != nil || results != 1 {
		t.Errorf("%d results, %v", results, err)
	}
}
