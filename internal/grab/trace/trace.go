// Package trace traces grabs: it sends their spans to an OpenTelemetry collector. Start reading at
// Tracer.
//
// Each grab is one trace. The span "driver" covers the load generator's request, and the span
// "grab" covers the service's work. The children of "grab" are its phases: acquire, read, work,
// claim and release. Each remote call is a child of its phase, and is named after the server.
package trace

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"grablab/internal/tap"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// These are the names of spans that stand for neither a tap.Phase nor a remote call.
const (
	Driver = "driver"
	Grab   = "grab"
	Work   = "work"
)

const (
	// queueSize is how many spans may be queued. Further spans are dropped.
	queueSize = 1 << 16
	// closeTimeout limits how long Close waits for the collector.
	closeTimeout = 5 * time.Second
)

// Tracer creates spans and sends them to an OpenTelemetry collector. A nil Tracer does nothing.
type Tracer struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	warn     func(error) // called if spans cannot be sent
}

// CheckURL returns an error if text is not the URL of a collector.
func CheckURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		return fmt.Errorf("%q must be the URL of an OpenTelemetry collector, such as http://127.0.0.1:4318", text)
	}
	return nil
}

// Dial returns a Tracer that sends spans to the collector at url with OTLP over HTTP. If url is
// empty, it returns nil. It passes collector errors to warn. The caller must close the Tracer.
func Dial(ctx context.Context, url, service, instance string, warn func(error)) (*Tracer, error) {
	if url == "" {
		return nil, nil
	}
	if scheme, rest, _ := strings.Cut(url, "://"); !strings.Contains(strings.TrimRight(rest, "/"), "/") {
		url = scheme + "://" + strings.TrimRight(rest, "/") + "/v1/traces"
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(url))
	if err != nil {
		return nil, err
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(warn)) // OpenTelemetry has only one global error handler
	t := New(sdk.NewBatchSpanProcessor(exporter, sdk.WithMaxQueueSize(queueSize)), service, instance)
	t.warn = warn
	return t, nil
}

// New returns a Tracer that passes its spans to a span processor.
func New(to sdk.SpanProcessor, service, instance string) *Tracer {
	about := resource.NewSchemaless(attribute.String("service.name", service), attribute.String("service.instance.id", instance))
	p := sdk.NewTracerProvider(sdk.WithSpanProcessor(to), sdk.WithResource(about))
	return &Tracer{p, p.Tracer("grablab"), func(error) {}}
}

// Close sends the remaining spans and stops the Tracer.
func (t *Tracer) Close() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		t.warn(err)
	}
}

// Extract returns a context that continues the trace of an incoming request. If the request has no
// traceparent header, it returns ctx.
func (t *Tracer) Extract(ctx context.Context, header http.Header) context.Context {
	if t == nil {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.HeaderCarrier(header))
}

// Inject adds a traceparent header to an outgoing request.
func (t *Tracer) Inject(ctx context.Context, header http.Header) {
	if t != nil {
		propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(header))
	}
}

// Span is a span that has started and not ended.
type Span = trace.Span

// kinds maps spans that cross a process boundary to their OpenTelemetry kind. All other spans have
// the default, internal.
var kinds = map[string]trace.SpanKind{Driver: trace.SpanKindClient, Grab: trace.SpanKindServer}

// Begin starts a child of the span in ctx. The returned context contains the new span. A nil Tracer
// returns a span that does nothing.
func (t *Tracer) Begin(ctx context.Context, name string) (context.Context, Span) {
	if t == nil {
		return ctx, trace.SpanFromContext(context.Background()) // not the caller's span, which must not end here
	}
	return t.tracer.Start(ctx, name, trace.WithSpanKind(kinds[name]))
}

// Tap returns a tap that creates a span for each remote call in a grab. If next is not nil, the
// call then goes through next.
func (t *Tracer) Tap(next tap.Tap) tap.Tap {
	if t == nil {
		return next
	}
	return func(ctx context.Context, op tap.Op, send func(context.Context) error) error {
		if next != nil {
			sent := send
			send = func(ctx context.Context) error { return next(ctx, op, sent) }
		}
		if !trace.SpanContextFromContext(ctx).IsValid() {
			return send(ctx)
		}
		ctx, span := t.tracer.Start(ctx, op.Target, trace.WithSpanKind(trace.SpanKindClient),
			trace.WithAttributes(attribute.String("phase", string(op.Phase))))
		defer span.End()
		err := send(ctx)
		if err != nil && !errors.Is(err, redis.Nil) {
			span.SetStatus(codes.Error, err.Error())
		}
		return err
	}
}
