package load

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// Bursts is a workload to which Send adds groups of requests. It is safe for concurrent use.
type Bursts struct {
	mu       sync.Mutex
	requests []Request
	sent     []time.Time // when each request was due
	next     int
	ended    bool
	changed  sync.Cond                      // signals a Send, an End, or the end of the attack
	hangUps  map[Request]context.CancelFunc // disconnects the client of each sent request
}

// NewBursts returns a workload that has no requests yet.
func NewBursts() *Bursts {
	b := &Bursts{hangUps: map[Request]context.CancelFunc{}}
	b.changed.L = &b.mu
	return b
}

// Send sends all of the requests at the same time.
func (b *Bursts) Send(requests []Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	for _, r := range requests {
		b.requests, b.sent = append(b.requests, r), append(b.sent, now)
	}
	b.changed.Broadcast()
}

// HangUp closes a running request's connection, like a client that gives up. The request's result
// is a timeout.
func (b *Bursts) HangUp(r Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if hangUp := b.hangUps[r]; hangUp != nil {
		hangUp()
	}
}

// through returns a RoundTripper that lets HangUp cancel its requests.
func (b *Bursts) through(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		r, err := ParseRequest(req.URL.String())
		if err != nil {
			return nil, err
		}
		ctx, hangUp := context.WithCancel(req.Context()) // no leak: the client's timeout ends req.Context
		b.mu.Lock()
		b.hangUps[r] = hangUp
		b.mu.Unlock()
		return next.RoundTrip(req.WithContext(ctx))
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip calls f, so that any function of this type is an http.RoundTripper.
func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// End ends the workload, so that Attack returns after the last result.
func (b *Bursts) End() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	b.changed.Broadcast()
}

// Requests returns how many requests have been sent so far.
func (b *Bursts) Requests() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.requests)
}

func (b *Bursts) take() (Request, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next == len(b.requests) {
		return Request{}, false
	}
	b.next++
	return b.requests[b.next-1], true
}

func (b *Bursts) pacer(ctx context.Context, _ Config, _ *timer) pacer {
	return burstPacer{noRate{}, b, ctx, time.Now()}
}

type burstPacer struct {
	noRate
	*Bursts
	ctx   context.Context
	began time.Time
}

// Pace waits until the next request is due, or returns true if there are no more requests.
func (p burstPacer) Pace(_ time.Duration, hits uint64) (time.Duration, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	stop := context.AfterFunc(p.ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.changed.Broadcast()
	})
	defer stop()
	for hits >= uint64(len(p.requests)) && !p.ended && p.ctx.Err() == nil {
		p.changed.Wait()
	}
	return 0, hits >= uint64(len(p.requests)) || p.ctx.Err() != nil
}

func (p burstPacer) due(n uint64) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sent[n].Sub(p.began)
}
