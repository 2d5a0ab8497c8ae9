package grab_test

import (
	"context"
	"fmt"
	"maps"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/grab/trace"
	"grablab/internal/order"
	"grablab/internal/tap"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// TestTrace checks the spans of two grabs of one order. The second driver waits for the lock. Its grab
// must continue the trace from the header of its request.
func TestTrace(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	tracer := trace.New(sdk.NewSimpleSpanProcessor(spans), "grabsvc", "8004")
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1})
	t.Cleanup(func() { client.Close() })
	client.AddHook(tap.Redis(tracer.Tap(nil), "8004", "redis"))
	store := new(order.Mem)
	id, err := store.Create(t.Context(), 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	s, err := grab.New(grab.Config{
		Instance: "8004", Orders: store, Strategy: "setnx-fenced", Work: 100 * time.Millisecond, Trace: tracer,
		Lock: lock.Env{Node: "8004", Redis: client, Orders: store, TTL: time.Minute, Wait: time.Minute, Now: time.Now, Token: func() string { return "t" }, Rand: func() float64 { return 0.5 }},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	handler := grab.NewHandler(s, grab.HTTPConfig{Timeout: time.Minute, Metrics: grab.NewMetrics()})
	post := func(driver int, parent string) {
		req := httptest.NewRequest("POST", fmt.Sprintf("/orders/%d/grab", id), strings.NewReader(fmt.Sprintf(`{"driver_id":%d}`, driver)))
		req.Host = "127.0.0.1"
		if parent != "" {
			req.Header.Set("traceparent", parent)
		}
		handler.ServeHTTP(httptest.NewRecorder(), req)
	}
	first := make(chan struct{})
	go func() {
		defer close(first)
		post(1, "")
	}()
	eventually(t, "the lock is taken", func() bool { return len(server.Keys()) > 0 })
	const traceID, parentID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	post(2, "00-"+traceID+"-"+parentID+"-01")
	<-first

	names := map[bool][]string{} // by whether the span belongs to the second driver
	parents := map[string]string{}
	all := spans.GetSpans()
	for _, span := range all {
		parents[span.SpanContext.SpanID().String()] = span.Name
	}
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, span := range all {
		second := span.SpanContext.TraceID().String() == traceID
		names[second] = append(names[second], parents[span.Parent.SpanID().String()]+"/"+span.Name)
		fmt.Fprintf(table, "%.8s\t%s\t%s\t%.1f ms", span.SpanContext.TraceID(), parents[span.Parent.SpanID().String()], span.Name, span.EndTime.Sub(span.StartTime).Seconds()*1000)
		for _, a := range span.Attributes {
			fmt.Fprintf(table, "\t%s=%s", a.Key, a.Value.String())
		}
		fmt.Fprintln(table)
		if span.Name == trace.Grab && second && span.Parent.SpanID().String() != parentID {
			t.Errorf("the parent of the grab is %s, want the driver's span", span.Parent.SpanID())
		}
		if span.Name == trace.Grab {
			got := map[string]string{}
			for _, a := range span.Attributes {
				got[string(a.Key)] = a.Value.String()
			}
			n, outcome := "1", "grabbed"
			if second {
				n, outcome = "2", "taken"
			}
			want := map[string]string{"order": "1", "driver": n, "strategy": "setnx-fenced", "token": "t", "fence": n, "outcome": outcome, "reason": ""}
			if !maps.Equal(got, want) {
				t.Errorf("the attributes of the grab are %v, want %v", got, want)
			}
		}
	}
	table.Flush()
	t.Logf("\n%s", &text)
	for _, want := range []string{"/grab", "grab/acquire", "acquire/redis", "grab/read", "grab/work", "grab/claim", "grab/release", "release/redis"} {
		if !slices.Contains(names[false], want) {
			t.Errorf("the first trace lacks %s: %q", want, names[false])
		}
	}
	for _, want := range []string{"/grab", "grab/acquire", "acquire/redis", "grab/read", "grab/release", "release/redis"} {
		if !slices.Contains(names[true], want) {
			t.Errorf("the second trace lacks %s: %q", want, names[true])
		}
	}
	for _, none := range []string{"grab/work", "grab/claim"} {
		if slices.Contains(names[true], none) {
			t.Errorf("the second trace has %s, although the order was taken", none)
		}
	}
}

// BenchmarkTrace measures the CPU time of a grab in memory, with and without spans. The case "nil"
// measures only the calls that a grab without spans makes to its Tracer.
//
//	go test ./internal/grab -run '^$' -bench BenchmarkTrace
func BenchmarkTrace(b *testing.B) {
	const spansOfGrab = 6 // grab, acquire, read, work, claim and release
	b.Run("nil", func(b *testing.B) {
		b.ReportAllocs()
		var none *trace.Tracer
		before := cpuTime()
		for b.Loop() {
			for range spansOfGrab {
				_, span := none.Begin(context.Background(), trace.Work)
				span.End()
			}
		}
		b.ReportMetric(float64(cpuTime()-before)/float64(b.N), "cpu-ns/op")
	})
	for name, tracer := range map[string]*trace.Tracer{
		"off": nil,
		"on":  trace.New(sdk.NewBatchSpanProcessor(tracetest.NewNoopExporter()), "grabsvc", "8004"),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			next := newTracedGrabber(b, nil, tracer)
			before := cpuTime()
			for b.Loop() {
				next()
			}
			b.ReportMetric(float64(cpuTime()-before)/float64(b.N), "cpu-ns/op")
		})
		tracer.Close()
	}
}
