package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"
)

// TestTraces checks that each request of the load has a trace, from the driver to the calls that
// the instances make to the lock server.
func TestTraces(t *testing.T) {
	type span struct{ service, name, parent string }
	var mu sync.Mutex
	spans := map[string]span{} // by id
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var sent collector.ExportTraceServiceRequest
		if err != nil || proto.Unmarshal(body, &sent) != nil {
			t.Errorf("%v, %d bytes", err, len(body))
		}
		mu.Lock()
		defer mu.Unlock()
		for _, resource := range sent.ResourceSpans {
			service := ""
			for _, a := range resource.Resource.Attributes {
				if a.Key == "service.name" {
					service = a.Value.GetStringValue()
				}
			}
			for _, scope := range resource.ScopeSpans {
				for _, s := range scope.Spans {
					spans[string(s.SpanId)] = span{service, s.Name, string(s.ParentSpanId)}
				}
			}
		}
	}))
	defer s.Close()
	code, stdout, stderr := output(t, loadgen(t, "run", "-strategies", "setnx", "-orders", "3", "-drivers", "4", "-seed", "1", "-quiet", "-otlp", s.URL))
	if code != int(exitDone) {
		t.Fatalf("exit %d\n%s%s", code, stdout, stderr)
	}
	paths := map[string]int{}
	for _, s := range spans {
		path := ""
		for ok := true; ok; s, ok = spans[s.parent] {
			path = "/" + s.service + " " + s.name + path
		}
		paths[path]++
	}
	t.Logf("%v", paths)
	const grab = "/loadgen driver/grabsvc grab"
	for path, want := range map[string]int{"/loadgen driver": 12, grab: 12, grab + "/grabsvc acquire": 12, grab + "/grabsvc claim": 3} {
		if paths[path] != want {
			t.Errorf("%s: %d spans, want %d", path, paths[path], want)
		}
	}
	if paths[grab+"/grabsvc acquire/grabsvc redis"] < 12 || paths[grab+"/grabsvc claim/grabsvc db"] < 3 {
		t.Errorf("calls to the servers are missing: %v", paths)
	}
}
