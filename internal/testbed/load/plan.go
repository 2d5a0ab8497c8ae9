package load

import (
	"context"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Plan is a workload in which every driver tries to grab every order. The requests for an order are
// consecutive and alternate between the targets. The sequence of orders and drivers depends on the
// seed.
type Plan struct {
	targets []string // base URLs of the instances
	first   int64    // ID of the first order
	orders  []int32  // the orders in random sequence, as offsets from first
	drivers int
	seed    uint64
	share   Share

	ended atomic.Bool

	mu     sync.Mutex
	sent   int
	queue  []int // shuffled drivers of the order at index queued
	queued int   // index of the order whose drivers are in queue; -1 at first
}

// Share is a part of a plan: every Count-th request, beginning with the one at Index.
type Share struct{ Index, Count int }

// at converts the index of a request in the share to the index of the same request in the whole plan.
func (s Share) at(n int) int { return s.Index + n*s.Count }

// NewPlan returns a plan for orders with consecutive IDs, beginning with first. Driver numbers
// start at 1.
func NewPlan(targets []string, first int64, orders, drivers int, seed uint64) *Plan {
	p := &Plan{targets: targets, first: first, orders: make([]int32, orders), drivers: drivers, seed: seed, share: Share{0, 1}, queued: -1}
	for i := range p.orders {
		p.orders[i] = int32(i)
	}
	rand.New(rand.NewPCG(seed, 0)).Shuffle(orders, func(i, j int) {
		p.orders[i], p.orders[j] = p.orders[j], p.orders[i]
	})
	return p
}

// Order returns order i of the plan. If i is even, the first request for this order goes to the
// first target.
func (p *Plan) Order(i int) int64 { return p.first + int64(p.orders[i]) }

// Split limits the plan to a share of its requests, which keep their due times.
func (p *Plan) Split(s Share) { p.share = s }

// Requests returns the number of requests in the share.
func (p *Plan) Requests() int {
	return (len(p.orders)*p.drivers - p.share.Index + p.share.Count - 1) / p.share.Count
}

// End stops the plan, so that it sends no more requests.
func (p *Plan) End() { p.ended.Store(true) }

func (p *Plan) through(next http.RoundTripper) http.RoundTripper { return next }

// take returns the next request of the plan. It returns false if the plan has ended.
func (p *Plan) take() (Request, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sent == p.Requests() || p.ended.Load() {
		return Request{}, false
	}
	next := p.share.at(p.sent)
	i, k := next/p.drivers, next%p.drivers
	if i != p.queued {
		p.queue, p.queued = rand.New(rand.NewPCG(p.seed, uint64(i)+1)).Perm(p.drivers), i
	}
	p.sent++
	return Request{
		Target: p.targets[next%len(p.targets)],
		Order:  p.Order(i),
		Driver: int64(p.queue[k]) + 1,
	}, true
}

// Due returns when request n of the share is due, counted from the start.
func (p *Plan) Due(cfg Config, n uint64) time.Duration {
	return p.pacer(context.Background(), cfg, nil).due(n)
}

// pacer returns a pacer that spaces the requests so that all shares together reach cfg.Rate.
func (p *Plan) pacer(ctx context.Context, cfg Config, timer *timer) pacer {
	interval := time.Duration(0)
	if cfg.Rate > 0 {
		interval = time.Duration(float64(time.Second) / cfg.Rate)
	}
	return openLoop{noRate{}, p, ctx, timer, interval, cfg.Together}
}

// openLoop is a pacer with a fixed schedule. It does not wait for earlier requests to end.
type openLoop struct {
	noRate
	plan     *Plan
	ctx      context.Context
	timer    *timer
	interval time.Duration // 0 sends all requests at once
	together bool          // whether most drivers of an order are due at the same time
}

// tick is the shortest interval between due times. In a fast load, several requests are due per
// tick, because waking up for each of them would cost as much as sending it.
const tick = 2 * time.Millisecond

func (p openLoop) due(n uint64) time.Duration {
	at := p.plan.share.at(int(n))
	d := time.Duration(at) * p.interval
	if p.together {
		k := at % p.plan.drivers
		d = time.Duration(at-k)*p.interval + p.late(k)
	}
	if p.interval < tick {
		d = (d + tick - 1).Truncate(tick)
	}
	return d
}

// late returns how long after an order's first driver its driver k arrives. Three quarters of the
// drivers arrive together, to reveal races. The others arrive while an earlier driver may be at work,
// to reveal locks that let a late driver in. For example, a pool may give the late driver the holder's
// database session. The length of the work is unknown, so each late driver waits twice as long as the
// one before.
func (p openLoop) late(k int) time.Duration {
	drivers := p.plan.drivers
	if k < drivers-drivers/4 {
		return 0
	}
	return time.Duration(drivers) * p.interval >> (drivers - k)
}

// Pace sleeps until the next request is due. It does not leave this to vegeta, whose sleep may end
// a millisecond late and so increase the measured latency.
func (p openLoop) Pace(elapsed time.Duration, hits uint64) (time.Duration, bool) {
	if hits >= uint64(p.plan.Requests()) || p.ctx.Err() != nil || p.plan.ended.Load() {
		return 0, true
	}
	if ahead := p.due(hits) - elapsed; ahead > 0 {
		return 0, !p.timer.sleep(p.ctx, ahead)
	}
	return 0, false
}
