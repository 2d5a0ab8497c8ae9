package trace_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"grablab/internal/grab/trace"
	"grablab/internal/tap"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"
)

// TestDial checks that a collector has received all spans when Close returns, and that the path
// defaults to /v1/traces.
func TestDial(t *testing.T) {
	for _, path := range []string{"", "/", "/custom/traces"} {
		var got []string
		s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			var sent collector.ExportTraceServiceRequest
			if err := errors.Join(err, proto.Unmarshal(body, &sent)); err != nil {
				t.Error(err)
			}
			for _, resource := range sent.ResourceSpans {
				for _, a := range resource.Resource.Attributes {
					got = append(got, r.URL.Path, a.Value.GetStringValue())
				}
				for _, scope := range resource.ScopeSpans {
					for _, span := range scope.Spans {
						got = append(got, span.Name)
					}
				}
			}
		}))
		tracer, err := trace.Dial(t.Context(), s.URL+path, "grabsvc", "8004", func(err error) { t.Error(err) })
		if err != nil {
			t.Fatal(err)
		}
		_, span := tracer.Begin(t.Context(), trace.Grab)
		span.End()
		tracer.Close()
		s.Close()
		want := path
		if strings.Trim(path, "/") == "" {
			want = "/v1/traces"
		}
		if !slices.Equal(got, []string{want, "8004", want, "grabsvc", "grab"}) {
			t.Errorf("%q: the collector got %q", path, got)
		}
	}
}

// TestDialWithoutCollector checks that the callback gets an error if no collector is reachable.
func TestDialWithoutCollector(t *testing.T) {
	var warned error
	tracer, err := trace.Dial(t.Context(), "http://127.0.0.1:1", "grabsvc", "8004", func(err error) { warned = err })
	if err != nil {
		t.Fatal(err)
	}
	_, span := tracer.Begin(t.Context(), trace.Grab)
	span.End()
	tracer.Close()
	if warned == nil {
		t.Error("no warning")
	}
}

func TestCheckURL(t *testing.T) {
	for text, valid := range map[string]bool{"http://h:4318": true, "https://h/x": true, "h:4318": false, "http://u:p@h": false, "": false} {
		if err := trace.CheckURL(text); (err == nil) != valid {
			t.Errorf("CheckURL(%q): %v", text, err)
		}
	}
}

// newTracer returns a Tracer, and a function that returns its spans.
func newTracer(t *testing.T) (*trace.Tracer, func() tracetest.SpanStubs) {
	t.Helper()
	spans := tracetest.NewInMemoryExporter()
	return trace.New(sdk.NewSimpleSpanProcessor(spans), "grabsvc", "8004"), spans.GetSpans
}

// TestCalls checks that each remote call of a grab gets a span, with the error of the call.
func TestCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tracer, spans := newTracer(t)
		call := tracer.Tap(nil)
		takes := func(d time.Duration, err error) func(context.Context) error {
			return func(context.Context) error {
				time.Sleep(d)
				return err
			}
		}
		ctx, grab := tracer.Begin(t.Context(), trace.Grab)
		ctx, acquire := tracer.Begin(ctx, string(tap.Acquire))
		redisCall := func(d time.Duration, err error) {
			if got := call(ctx, tap.Op{Target: "redis", Phase: tap.Acquire}, takes(d, err)); got != err {
				t.Errorf("the tap returned %v, want %v", got, err)
			}
		}
		redisCall(2*time.Millisecond, redis.Nil)
		time.Sleep(10 * time.Millisecond)
		redisCall(3*time.Millisecond, io.EOF)
		time.Sleep(20 * time.Millisecond)
		acquire.End()
		time.Sleep(30 * time.Millisecond)
		redisCall(time.Millisecond, nil) // a renewal
		grab.End()

		var got []string
		for _, s := range spans() {
			text := s.Name + " " + s.EndTime.Sub(s.StartTime).String()
			if s.Status.Code == codes.Error {
				text += " " + s.Status.Description
			}
			got = append(got, text)
		}
		want := []string{"redis 2ms", "redis 3ms EOF", "acquire 35ms", "redis 1ms", "grab 66ms"}
		if !slices.Equal(got, want) {
			t.Errorf("the spans are %q, want %q", got, want)
		}
	})
}

// TestTapOutsideAGrab checks that a call that belongs to no grab, such as a ping, gets no span.
func TestTapOutsideAGrab(t *testing.T) {
	tracer, spans := newTracer(t)
	sent := 0
	next := func(ctx context.Context, _ tap.Op, send func(context.Context) error) error { return send(ctx) }
	if err := tracer.Tap(next)(t.Context(), tap.Op{Target: "redis"}, func(context.Context) error { sent++; return nil }); err != nil || sent != 1 || len(spans()) > 0 {
		t.Errorf("%v, sent %d times, %v", err, sent, spans())
	}
}

// TestNoTracer checks that a nil Tracer allocates no memory, and that its Tap returns the next tap.
func TestNoTracer(t *testing.T) {
	var none *trace.Tracer
	ctx, header := t.Context(), http.Header{}
	if n := testing.AllocsPerRun(100, func() {
		ctx := none.Extract(ctx, header)
		ctx, span := none.Begin(ctx, trace.Grab)
		span.SetStatus(codes.Error, "")
		span.End()
		none.Inject(ctx, header)
		none.Close()
	}); n != 0 || len(header) > 0 {
		t.Errorf("%v allocations, header %v", n, header)
	}
	if none.Tap(nil) != nil {
		t.Error("a tap without a Tracer")
	}
	if tracer, err := trace.Dial(ctx, "", "", "", nil); tracer != nil || err != nil {
		t.Errorf("Dial: %v, %v", tracer, err)
	}
}
