package load

import (
	"net/http"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"grablab/internal/grab/trace"
	"grablab/internal/testbed/target"
)

// TestOrderOfASpan checks that a span identifies the order by the service's ID, if the service has
// its own IDs, and by the number otherwise.
func TestOrderOfASpan(t *testing.T) {
	named, _, err := target.Spec{Path: "/grab/{order_uuid}"}.Compile()
	if err != nil {
		t.Fatal(err)
	}
	id := "0b7a1f2e-52a4-4d2c-9a52-6f1f7bb0c0de"
	number, err := named.IDs.Add([]string{id})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		shape *target.Shape
		order int64
		want  any
	}{{nil, 7, int64(7)}, {target.Own, 7, int64(7)}, {named, number, id}} {
		spans := tracetest.NewInMemoryExporter()
		tracer := trace.New(sdk.NewSimpleSpanProcessor(spans), "test", "test")
		send := traced(tracer, tt.shape, roundTripper(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
		}))
		req, err := http.NewRequest(http.MethodPost, Request{Target: "http://a", Order: tt.order, Driver: 1}.URL([]byte("/grab")), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := send.RoundTrip(req); err != nil {
			t.Fatal(err)
		}
		var got any
		for _, span := range spans.GetSpans() {
			for _, a := range span.Attributes {
				if a.Key == "order" {
					got = a.Value.AsInterface()
				}
			}
		}
		if got != tt.want {
			t.Errorf("order is %v, want %v", got, tt.want)
		}
		tracer.Close()
	}
}
