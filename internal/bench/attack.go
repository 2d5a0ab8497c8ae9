package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

// plan is what is fired: every driver at every order. The drivers of one order
// go back to back, alternating over the targets; the seed permutes orders and
// drivers.
type plan struct {
	targets []string // base URLs
	first   int64    // id of the first order
	orders  []int32  // permuted offsets from first
	drivers int
	seed    uint64

	mu    sync.Mutex
	next  int
	queue []int // drivers of the order at hand, permuted
}

func newPlan(targets []string, first int64, orders, drivers int, seed uint64) *plan {
	p := &plan{targets: targets, first: first, orders: make([]int32, orders), drivers: drivers, seed: seed}
	for i := range p.orders {
		p.orders[i] = int32(i)
	}
	rand.New(rand.NewPCG(seed, 0)).Shuffle(orders, func(i, j int) {
		p.orders[i], p.orders[j] = p.orders[j], p.orders[i]
	})
	return p
}

func (p *plan) requests() int { return len(p.orders) * p.drivers }

// salvo is what an attack fires.
type salvo interface {
	requests() int
	shoot() (shot, bool) // the next one; false: there is none
	// schedule says when. The pacer is asked by one goroutine.
	schedule(ctx context.Context, load Load, alarm *alarm) schedule
}

// schedule is when the requests of an attack are sent.
type schedule interface {
	vegeta.Pacer
	due(n uint64) time.Duration // when request n was to be sent, from the beginning
}

// shot is one planned request.
type shot struct {
	target string
	order  int64
	driver int64
}

func (p *plan) shoot() (shot, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next == p.requests() {
		return shot{}, false
	}
	i, k := p.next/p.drivers, p.next%p.drivers
	if k == 0 {
		p.queue = rand.New(rand.NewPCG(p.seed, uint64(i)+1)).Perm(p.drivers)
	}
	s := shot{
		target: p.targets[p.next%len(p.targets)],
		order:  p.first + int64(p.orders[i]),
		driver: int64(p.queue[k]) + 1,
	}
	p.next++
	return s, true
}

var jsonHeader = http.Header{"Content-Type": {"application/json"}}

// targeter is the salvo as vegeta asks for it. The driver rides in the URL's
// fragment, which no client sends: so the raw results tell who asked for what
// even where no answer came.
func targeter(from salvo) vegeta.Targeter {
	return func(t *vegeta.Target) error {
		s, ok := from.shoot()
		if !ok {
			return vegeta.ErrNoTargets
		}
		id := strconv.FormatInt(s.driver, 10)
		t.Method = http.MethodPost
		t.URL = s.target + "/orders/" + strconv.FormatInt(s.order, 10) + "/grab#" + id
		t.Body = []byte(`{"driver_id":` + id + `}`)
		t.Header = jsonHeader
		return nil
	}
}

// parseShot reads the URL of a result back.
func parseShot(url string) (shot, error) {
	rest, driver, ok := strings.Cut(url, "/grab#")
	at := strings.LastIndex(rest, "/orders/")
	if !ok || at < 0 {
		return shot{}, fmt.Errorf("bench: no grab: %q", url)
	}
	s := shot{target: rest[:at]}
	var e1, e2 error
	s.order, e1 = strconv.ParseInt(rest[at+len("/orders/"):], 10, 64)
	s.driver, e2 = strconv.ParseInt(driver, 10, 64)
	return s, errors.Join(e1, e2)
}

// schedule sends them at the rate of the load.
func (p *plan) schedule(ctx context.Context, load Load, alarm *alarm) schedule {
	interval := time.Duration(0)
	if load.Rate > 0 {
		interval = time.Duration(float64(time.Second) / load.Rate)
	}
	return pacer{ctx, alarm, interval, uint64(p.requests())}
}

// pacer is an open loop: every request has a time at which it is due, counted
// from the beginning of the attack, whatever became of those before it.
type pacer struct {
	ctx      context.Context
	alarm    *alarm
	interval time.Duration // 0: all at once
	total    uint64
}

// tick is the finest schedule: above 500/s, what falls into one tick is due
// together at its end, because waking up for each request would cost as much
// as sending it.
const tick = 2 * time.Millisecond

// due is when request n is to be sent.
func (p pacer) due(n uint64) time.Duration {
	d := time.Duration(n) * p.interval
	if p.interval < tick {
		d = (d + tick - 1).Truncate(tick)
	}
	return d
}

// Pace waits by itself until the next request is due, because vegeta's own
// sleep wakes up to a millisecond late, which would count as latency.
func (p pacer) Pace(elapsed time.Duration, hits uint64) (time.Duration, bool) {
	if hits >= p.total || p.ctx.Err() != nil {
		return 0, true
	}
	if wait := p.due(hits) - elapsed; wait > 0 {
		return 0, !p.alarm.sleep(p.ctx, wait)
	}
	return 0, false
}

// Rate is what a plot of the attack shows.
func (p pacer) Rate(time.Duration) float64 {
	if p.interval <= 0 {
		return 0
	}
	return float64(time.Second) / float64(p.interval)
}

// rest sleeps for d; false: ctx was done first.
func rest(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// until looks every so often whether it is so, until it is or the time is up.
// It looks once in any case, and tells what it saw last.
func until(ctx context.Context, every, within time.Duration, so func() (bool, error)) (bool, error) {
	for end := time.Now().Add(within); ; {
		ok, err := so()
		if err != nil || ok || !time.Now().Before(end) {
			return ok, err
		}
		if !rest(ctx, every) {
			return false, context.Cause(ctx)
		}
	}
}

// attack fires the salvo and hands every result to each, one at a time, in the
// order in which they ended. began is what the pacer counted from. When ctx is
// done no more requests are sent, and those in flight are given up.
func attack(ctx context.Context, p salvo, load Load, each func(r *vegeta.Result, due time.Time)) error {
	conns := &conns{open: map[net.Conn]struct{}{}}
	transport := &http.Transport{
		DialContext: conns.dial, MaxIdleConnsPerHost: load.MaxWorkers,
		WriteBufferSize: 1 << 10, ReadBufferSize: 2 << 10, // a grab fits, and a stall opens thousands of connections
	}
	defer transport.CloseIdleConnections()
	attacker := vegeta.NewAttacker(
		vegeta.Client(&http.Client{
			Transport:     sender{ctx, transport},
			Timeout:       load.Timeout,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}),
		vegeta.Workers(uint64(min(vegeta.DefaultWorkers, load.MaxWorkers))),
		vegeta.MaxWorkers(uint64(load.MaxWorkers)),
		vegeta.MaxBody(maxBody),
	)
	stop := context.AfterFunc(ctx, func() { attacker.Stop(); conns.cut() })
	defer stop()

	alarm, err := newAlarm()
	if err != nil {
		return err
	}
	defer alarm.close()
	pace := p.schedule(ctx, load, alarm)
	began := time.Now() // within microseconds of vegeta's own reading
	for r := range attacker.Attack(targeter(p), pace, 0, "") {
		if r.URL == "" {
			continue // a worker that found the plan empty
		}
		r.Headers = nil // nobody reads them, and they double the size of the record
		each(r, began.Add(pace.due(r.Seq)))
	}
	return context.Cause(ctx)
}

const maxBody = 16 << 10

// sender names what kept a request from being answered.
type sender struct {
	run context.Context
	http.RoundTripper
}

// RoundTrip sends req; a failure begins with its kind.
func (s sender) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := s.RoundTripper.RoundTrip(req)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", failureKind(s.run, err), err)
	}
	return resp, nil
}

// conns are the connections of one attack, so that all of them can be cut at
// once. A context for each request would cost more than the rest of its account.
type conns struct {
	mu    sync.Mutex
	open  map[net.Conn]struct{}
	isCut bool
}

func (c *conns) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{KeepAlive: 30 * time.Second}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isCut {
		conn.Close()
		return nil, net.ErrClosed
	}
	c.open[conn] = struct{}{}
	return &trackedConn{conn, c}, nil
}

// cut gives up every request in flight, and all that are still to come.
func (c *conns) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isCut = true
	for conn := range c.open {
		conn.Close()
	}
}

type trackedConn struct {
	net.Conn
	of *conns
}

func (t *trackedConn) Close() error {
	t.of.mu.Lock()
	delete(t.of.open, t.Conn)
	t.of.mu.Unlock()
	return t.Conn.Close()
}

// Kinds of failure without an answer.
const (
	kindInterrupted = "interrupted"
	kindTimeout     = "timeout"
	kindRefused     = "refused" // surely not received
	kindReset       = "reset"   // may have been received
	kindOther       = "other"
)

func failureKind(run context.Context, err error) string {
	var ne net.Error
	switch {
	case run.Err() != nil:
		return kindInterrupted
	case errors.Is(err, syscall.ECONNREFUSED):
		return kindRefused
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, context.Canceled), errors.As(err, &ne) && ne.Timeout():
		return kindTimeout
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return kindReset
	default:
		return kindOther
	}
}

// kindOfResult reads the kind back from the text that vegeta keeps: the
// sender put it between the URL and the cause.
func kindOfResult(text string) string {
	for _, kind := range []string{kindInterrupted, kindTimeout, kindRefused, kindReset} {
		if strings.Contains(text, `": `+kind+": ") {
			return kind
		}
	}
	if strings.Contains(text, "Client.Timeout") { // while the body was read
		return kindTimeout
	}
	return kindOther
}
