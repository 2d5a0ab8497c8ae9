// Package load uses vegeta to send grabs to the instances under test. A grab is a request in which
// a driver tries to win an order. Each request is due at a fixed time, even if earlier ones have no
// response yet.
//
// A Workload determines which grabs are sent and when. A Plan sends them at a steady rate, and
// Bursts sends groups on demand. Attack reports each result with its due time, so that latency can
// be measured from the schedule (without coordinated omission). Start at Attack.
package load

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"grablab/internal/grab/trace"
	"grablab/internal/testbed/target"

	vegeta "github.com/tsenart/vegeta/v12/lib"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
)

// Config determines the size and rate of a load. Attack ignores Orders, Drivers and Duration: the caller
// makes the workload from them.
type Config struct {
	Orders     int
	Drivers    int           // drivers per order
	Rate       float64       // requests/s over all instances; 0 sends all at once
	Together   bool          // whether to send all requests for an order at the same time
	Duration   time.Duration // how long the load should last; if it is set, loadgen computes Orders from it
	Timeout    time.Duration // timeout for one request
	MaxWorkers int           // largest number of requests in flight
	Shape      *target.Shape // how to send a grab; nil means grabsvc's calls
	Trace      *trace.Tracer // traces each request; may be nil
	Asking     Asking        // called before each request for a result; may be nil
}

// Request is a driver's attempt to win an order.
type Request struct {
	Target string // base URL of the instance
	Order  int64
	Driver int64
}

// Workload is a source of requests: a *Plan or a *Bursts.
type Workload interface {
	// Requests returns the number of requests in the workload so far.
	Requests() int

	take() (Request, bool) // returns the next request, or false if there is none
	through(http.RoundTripper) http.RoundTripper
	pacer(ctx context.Context, cfg Config, timer *timer) pacer
}

// pacer decides when requests are sent. It is not safe for concurrent use.
type pacer interface {
	vegeta.Pacer
	due(n uint64) time.Duration // returns when request n is due, since the start of the attack
}

// noRate implements the Rate method of vegeta.Pacer, which vegeta needs only for plots.
type noRate struct{}

// Rate returns 0, because vegeta needs a rate only for plots.
func (noRate) Rate(time.Duration) float64 { return 0 }

// Attack sends the workload's requests. After every result, it calls each with the time at which
// the request was due. These calls are not concurrent. When ctx ends, Attack cancels running
// requests and returns the cause.
func Attack(ctx context.Context, w Workload, cfg Config, each func(r *vegeta.Result, due time.Time)) error {
	transport := target.SendOnce(&http.Transport{
		DialContext: dialUntil(ctx), MaxIdleConnsPerHost: cfg.MaxWorkers,
		WriteBufferSize: 1 << 10, ReadBufferSize: 2 << 10, // small buffers are enough for a grab, and a stall can open thousands of connections
	})
	defer transport.CloseIdleConnections()
	attacker := vegeta.NewAttacker(
		vegeta.Client(&http.Client{
			Transport:     failureNamer{ctx, w.through(traced(cfg.Trace, cfg.Shape, Decide(transport, cfg.Shape, cfg.Asking)))},
			Timeout:       cfg.Timeout,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}),
		vegeta.Workers(uint64(min(vegeta.DefaultWorkers, cfg.MaxWorkers))),
		vegeta.MaxWorkers(uint64(cfg.MaxWorkers)),
		vegeta.MaxBody(target.MaxBody+1), // one byte more shows that a body was cut
	)
	stop := context.AfterFunc(ctx, func() { attacker.Stop() })
	defer stop()

	timer, err := newTimer()
	if err != nil {
		return err
	}
	defer timer.close()
	pacer := w.pacer(ctx, cfg, timer)
	began := time.Now() // vegeta reads the clock within microseconds of this line
	for r := range attacker.Attack(targeter(w, cmp.Or(cfg.Shape, target.Own)), pacer, 0, "") {
		if r.URL == "" {
			continue // this worker found no request to send
		}
		if cfg.Shape == nil || !cfg.Shape.ReadsHeaders {
			r.Headers = nil // headers would double the size of the record
		}
		each(r, began.Add(pacer.due(r.Seq)))
	}
	return context.Cause(ctx)
}

// targeter turns requests into vegeta targets. It stores the order and driver in the URL fragment,
// which vegeta records but HTTP clients do not send.
func targeter(w Workload, shape *target.Shape) vegeta.Targeter {
	return func(t *vegeta.Target) error {
		r, ok := w.take()
		if !ok {
			return vegeta.ErrNoTargets
		}
		path, body, header := shape.Request(r.Order, r.Driver)
		t.Method, t.Body, t.Header = shape.Method, body, header
		t.URL = r.URL(path)
		return nil
	}
}

// URL returns the URL of the request. Its fragment contains the order and the driver, for
// ParseRequest.
func (r Request) URL(path []byte) string {
	url := append(append(make([]byte, 0, len(r.Target)+len(path)+32), r.Target...), path...)
	url = strconv.AppendInt(append(url, '#'), r.Order, 10)
	url = strconv.AppendInt(append(url, ','), r.Driver, 10)
	return string(strconv.AppendInt(append(url, ','), int64(len(r.Target)), 10))
}

// ParseRequest restores a Request from the URL that Request.URL returned.
func ParseRequest(url string) (Request, error) {
	var r Request
	at := max(0, strings.LastIndexByte(url, '#'))
	order, rest, _ := strings.Cut(url[at:], ",")
	driver, length, _ := strings.Cut(rest, ",")
	var e1, e2, e3 error
	var n int
	r.Order, e1 = strconv.ParseInt(strings.TrimPrefix(order, "#"), 10, 64)
	r.Driver, e2 = strconv.ParseInt(driver, 10, 64)
	n, e3 = strconv.Atoi(length)
	if e1 != nil || e2 != nil || e3 != nil || n < 0 || n > at {
		return r, fmt.Errorf("load: %q is not the URL of a grab request", url)
	}
	r.Target = url[:n]
	return r, nil
}

// traced returns a transport that starts a trace for each request, and passes the trace on in
// headers.
func traced(t *trace.Tracer, shape *target.Shape, next http.RoundTripper) http.RoundTripper {
	if t == nil {
		return next
	}
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		r, err := ParseRequest(req.URL.String())
		if err != nil {
			return nil, err
		}
		ctx, span := t.Begin(req.Context(), trace.Driver)
		defer span.End()
		order := attribute.Int64("order", r.Order)
		if shape.NamesOrders() {
			order = attribute.String("order", shape.OrderText(r.Order))
		}
		span.SetAttributes(order, attribute.Int64("driver", r.Driver))
		req = req.Clone(ctx)
		t.Inject(ctx, req.Header)
		resp, err := next.RoundTrip(req)
		if err != nil {
			span.SetStatus(codes.Error, err.Error())
			return resp, err
		}
		span.SetAttributes(attribute.Int("http.response.status_code", resp.StatusCode))
		return resp, nil
	})
}
