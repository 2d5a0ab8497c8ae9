package load

import (
	"context"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// Plan is a workload known beforehand: every driver at every order. The drivers
// of one order are sent back to back, alternating over the targets; the seed
// permutes orders and drivers.
type Plan struct {
	targets []string // base URLs
	first   int64    // id of the first order
	orders  []int32  // permuted offsets from first
	drivers int
	seed    uint64

	mu    sync.Mutex
	ended bool
	next  int
	queue []int // drivers of the current order, permuted
}

// NewPlan plans the grabs of drivers 1 to drivers on each of so many orders,
// whose ids begin at first.
func NewPlan(targets []string, first int64, orders, drivers int, seed uint64) *Plan {
	p := &Plan{targets: targets, first: first, orders: make([]int32, orders), drivers: drivers, seed: seed}
	for i := range p.orders {
		p.orders[i] = int32(i)
	}
	rand.New(rand.NewPCG(seed, 0)).Shuffle(orders, func(i, j int) {
		p.orders[i], p.orders[j] = p.orders[j], p.orders[i]
	})
	return p
}

// Requests implements Workload.
func (p *Plan) Requests() int { return len(p.orders) * p.drivers }

// End says that no more of it is to be sent.
func (p *Plan) End() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
}

func (p *Plan) isEnded() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended
}

func (p *Plan) through(next http.RoundTripper) http.RoundTripper { return next }

func (p *Plan) take() (Request, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next == p.Requests() || p.ended {
		return Request{}, false
	}
	i, k := p.next/p.drivers, p.next%p.drivers
	if k == 0 {
		p.queue = rand.New(rand.NewPCG(p.seed, uint64(i)+1)).Perm(p.drivers)
	}
	r := Request{
		Target: p.targets[p.next%len(p.targets)],
		Order:  p.first + int64(p.orders[i]),
		Driver: int64(p.queue[k]) + 1,
	}
	p.next++
	return r, true
}

// pacer sends the plan at the rate of cfg.
func (p *Plan) pacer(ctx context.Context, cfg Config, timer *timer) pacer {
	interval := time.Duration(0)
	if cfg.Rate > 0 {
		interval = time.Duration(float64(time.Second) / cfg.Rate)
	}
	together := 1
	if cfg.Together {
		together = p.drivers
	}
	return openLoop{noRate{}, ctx, timer, interval, uint64(together), uint64(p.Requests()), p.isEnded}
}

// openLoop gives every request a time at which it is due, counted from the
// beginning of the attack, whatever became of the requests before it.
type openLoop struct {
	noRate
	ctx      context.Context
	timer    *timer
	interval time.Duration // 0: all at once
	together uint64        // so many are due with the first of them
	total    uint64
	ended    func() bool
}

// tick is the finest schedule: above 500/s, what falls into one tick is due
// together at its end, because waking up for each request would cost as much
// as sending it.
const tick = 2 * time.Millisecond

func (p openLoop) due(n uint64) time.Duration {
	d := time.Duration(n-n%p.together) * p.interval
	if p.interval < tick {
		d = (d + tick - 1).Truncate(tick)
	}
	return d
}

// Pace waits by itself until the next request is due, because vegeta's own
// sleep wakes up to a millisecond late, which would count as latency.
func (p openLoop) Pace(elapsed time.Duration, hits uint64) (time.Duration, bool) {
	if hits >= p.total || p.ctx.Err() != nil || p.ended() {
		return 0, true
	}
	if ahead := p.due(hits) - elapsed; ahead > 0 {
		return 0, !p.timer.sleep(p.ctx, ahead)
	}
	return 0, false
}
