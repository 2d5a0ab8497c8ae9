// Package load fires grabs at the instances under test: an open-loop attack by
// vegeta, in which every request has a time at which it is due, whatever became
// of those before it.
//
// A Workload says which grabs are sent and when: a Plan at a steady rate, or
// Bursts that a scenario sends as it goes. Attack sends it and hands on each
// result with the time at which its request was due, so that latency can be
// counted from the schedule too (coordinated omission). Begin at Attack.
package load

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"grablab/internal/testbed/target"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

// Config is the size and shape of a load.
type Config struct {
	Orders     int
	Drivers    int           // of each order
	Rate       float64       // requests/s over all instances; 0: all at once
	Together   bool          // at that rate, but the drivers of an order at once
	Duration   time.Duration // given instead of Orders: as many as fit at Rate
	Timeout    time.Duration // of one request
	MaxWorkers int           // requests in flight at most
	Shape      *target.Shape // of a grab; nil: our own instances'
}

// Request is one planned grab.
type Request struct {
	Target string // base URL
	Order  int64
	Driver int64
}

// Workload is what an attack sends: *Plan or *Bursts.
type Workload interface {
	// Requests counts those that are planned so far.
	Requests() int

	take() (Request, bool) // the next one; false: there is none
	through(http.RoundTripper) http.RoundTripper
	pacer(ctx context.Context, cfg Config, timer *timer) pacer
}

// pacer decides when requests are sent. It is asked by one goroutine.
type pacer interface {
	vegeta.Pacer
	due(n uint64) time.Duration // when request n was to be sent, from the beginning
}

// noRate: vegeta asks a pacer for its rate to draw plots, which we do not.
type noRate struct{}

// Rate is 0.
func (noRate) Rate(time.Duration) float64 { return 0 }

// Attack sends the workload and hands every result to each, one at a time, in
// the order in which they ended, with the time at which it was due. When ctx is
// done no more requests are sent, those in flight are given up, and the cause is
// returned.
func Attack(ctx context.Context, w Workload, cfg Config, each func(r *vegeta.Result, due time.Time)) error {
	conns := &conns{open: map[net.Conn]struct{}{}}
	transport := target.SendOnce(&http.Transport{
		DialContext: conns.dial, MaxIdleConnsPerHost: cfg.MaxWorkers,
		WriteBufferSize: 1 << 10, ReadBufferSize: 2 << 10, // a grab fits, and a stall opens thousands of connections
	})
	defer transport.CloseIdleConnections()
	attacker := vegeta.NewAttacker(
		vegeta.Client(&http.Client{
			Transport:     failureNamer{ctx, w.through(transport)},
			Timeout:       cfg.Timeout,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}),
		vegeta.Workers(uint64(min(vegeta.DefaultWorkers, cfg.MaxWorkers))),
		vegeta.MaxWorkers(uint64(cfg.MaxWorkers)),
		vegeta.MaxBody(target.MaxBody+1), // one byte more shows that a body was cut
	)
	stop := context.AfterFunc(ctx, func() { attacker.Stop(); conns.cut() })
	defer stop()

	timer, err := newTimer()
	if err != nil {
		return err
	}
	defer timer.close()
	pacer := w.pacer(ctx, cfg, timer)
	began := time.Now() // within microseconds of vegeta's own reading
	for r := range attacker.Attack(targeter(w, cmp.Or(cfg.Shape, target.Own)), pacer, 0, "") {
		if r.URL == "" {
			continue // a worker that found nothing left to send
		}
		r.Headers = nil // they are never read, and double the size of the record
		each(r, began.Add(pacer.due(r.Seq)))
	}
	return context.Cause(ctx)
}

// targeter is the workload as vegeta asks for it. What no client sends, the fragment of
// the URL, says which driver asks for which order, and where in the URL the target ends:
// so the raw results tell even where no answer came.
func targeter(w Workload, shape *target.Shape) vegeta.Targeter {
	return func(t *vegeta.Target) error {
		r, ok := w.take()
		if !ok {
			return vegeta.ErrNoTargets
		}
		path, body, header := shape.Request(r.Order, r.Driver)
		t.Method, t.Body, t.Header = shape.Method, body, header
		url := append(append(make([]byte, 0, len(r.Target)+len(path)+32), r.Target...), path...)
		url = strconv.AppendInt(append(url, '#'), r.Order, 10)
		url = strconv.AppendInt(append(url, ','), r.Driver, 10)
		t.URL = string(strconv.AppendInt(append(url, ','), int64(len(r.Target)), 10))
		return nil
	}
}

// ParseRequest reads the URL of a result back.
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
		return r, fmt.Errorf("load: not the URL of a grab: %q", url)
	}
	r.Target = url[:n]
	return r, nil
}
