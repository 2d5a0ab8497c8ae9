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
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

// Config is the size and shape of a load.
type Config struct {
	Orders     int
	Drivers    int           // of each order
	Rate       float64       // requests/s over all instances; 0: all at once
	Duration   time.Duration // given instead of Orders: as many as fit at Rate
	Timeout    time.Duration // of one request
	MaxWorkers int           // requests in flight at most
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
	transport := &http.Transport{
		DialContext: conns.dial, MaxIdleConnsPerHost: cfg.MaxWorkers,
		WriteBufferSize: 1 << 10, ReadBufferSize: 2 << 10, // a grab fits, and a stall opens thousands of connections
	}
	defer transport.CloseIdleConnections()
	attacker := vegeta.NewAttacker(
		vegeta.Client(&http.Client{
			Transport:     failureNamer{ctx, w.through(transport)},
			Timeout:       cfg.Timeout,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}),
		vegeta.Workers(uint64(min(vegeta.DefaultWorkers, cfg.MaxWorkers))),
		vegeta.MaxWorkers(uint64(cfg.MaxWorkers)),
		vegeta.MaxBody(maxBody),
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
	for r := range attacker.Attack(targeter(w), pacer, 0, "") {
		if r.URL == "" {
			continue // a worker that found nothing left to send
		}
		r.Headers = nil // they are never read, and double the size of the record
		each(r, began.Add(pacer.due(r.Seq)))
	}
	return context.Cause(ctx)
}

const maxBody = 16 << 10

var jsonHeader = http.Header{"Content-Type": {"application/json"}}

// targeter is the workload as vegeta asks for it. The driver is in the URL's
// fragment, which no client sends: so the raw results tell which driver asked
// for which order even where no answer came.
func targeter(w Workload) vegeta.Targeter {
	return func(t *vegeta.Target) error {
		r, ok := w.take()
		if !ok {
			return vegeta.ErrNoTargets
		}
		id := strconv.FormatInt(r.Driver, 10)
		t.Method = http.MethodPost
		t.URL = r.Target + "/orders/" + strconv.FormatInt(r.Order, 10) + "/grab#" + id
		t.Body = []byte(`{"driver_id":` + id + `}`)
		t.Header = jsonHeader
		return nil
	}
}

// ParseRequest reads the URL of a result back.
func ParseRequest(url string) (Request, error) {
	rest, driver, ok := strings.Cut(url, "/grab#")
	at := strings.LastIndex(rest, "/orders/")
	if !ok || at < 0 {
		return Request{}, fmt.Errorf("load: not the URL of a grab: %q", url)
	}
	r := Request{Target: rest[:at]}
	var e1, e2 error
	r.Order, e1 = strconv.ParseInt(rest[at+len("/orders/"):], 10, 64)
	r.Driver, e2 = strconv.ParseInt(driver, 10, 64)
	return r, errors.Join(e1, e2)
}
