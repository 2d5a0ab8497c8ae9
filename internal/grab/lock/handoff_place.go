package lock

import (
	"context"
	"time"
)

// place is one attempt on a lock, from the first request to the release: first
// it asks, then perhaps it is queued, at last it may hold the lease.
type place struct {
	*oldHandoffLocker
	ctx    context.Context // the acquire's values, without its end
	wait   time.Duration
	key    string
	keys   []any
	number uint64
	wake   chan wakeup // one slot; if it is full, the one in it leads to the same

	// The waiter's own.
	traces bool        // there may be something of it in Redis
	again  bool        // others may stand before the number that was drawn with its lease
	landed chan answer // one slot; nil: it never crossed with others

	// Guarded by mu.
	state  placeState
	line   *line
	name   string    // in Redis
	joined int64     // the number drawn when it was first queued: its place for good; 0: never queued
	drawn  int64     // the number drawn by the last reply that said queued
	since  time.Time // no grant that follows that reply is older
	due    time.Time // when the place is to be checked, or the lease to be renewed
	fence  int64
	end    time.Time // when the lease must be taken for lost
	lost   chan struct{}
	run    *run // under which the lease stands in Redis; nil: under its own name
}

type placeState int

const (
	asking placeState = iota
	queued
	holding
	gone // lost, released or left: nothing is to be done for it any more
)

// obtain asks, and waits to be woken, until the lease is ours or the wait is
// over.
func (p *place) obtain(ctx context.Context) error {
	giveUp := time.Now().Add(p.wait)
	for {
		a, err := p.ask(ctx, giveUp)
		switch {
		case err != nil:
			return err
		case a.n > 0:
			if p.hold(a) {
				return ctx.Err()
			}
			// The reply took longer than the lease lives (F12). The same name may take again.
		case a.n < 0:
			if ok, err := p.await(ctx, giveUp); ok || err != nil {
				return err
			}
		case p.wait > 0:
			// Nobody is queued who could not be woken.
			if err := p.line.open(ctx, giveUp); err != nil {
				return err
			}
		}
		if !time.Now().Before(giveUp) {
			return ErrBusy
		}
	}
}

// answer is what became of a request: a lease with the fence n, a place in the
// queue under the number -n, or, if n is 0, neither.
type answer struct {
	sent time.Time
	n    int64
	err  error
}

// ask makes the request of an acquire, and once more if it failed: the same name
// may take again, so it does no harm if the first was carried out (F25).
// A request that is under way is not given up with ctx. It would be carried out
// all the same, perhaps after its own undoing (F14).
func (p *place) ask(ctx context.Context, giveUp time.Time) (a answer, err error) {
	for range 2 {
		if err := ctx.Err(); err != nil {
			return a, err
		}
		if err := p.choose(ctx); err != nil {
			return a, err
		}
		p.again = p.again || p.traces
		if p.mayQueue() && !p.traces {
			if a, err = p.cross(ctx, giveUp); err != nil {
				return a, err
			}
		} else {
			a = p.request()
		}
		if a.err == nil {
			p.traces = a.n != 0
			return a, nil
		}
	}
	if ctx.Err() != nil {
		return a, ctx.Err()
	}
	return a, a.err
}

// mayQueue says whether the place wants to wait, and could be woken.
func (p *place) mayQueue() bool { return p.wait > 0 && p.line.isUp() }

// request asks for this place alone.
func (p *place) request() answer {
	if !p.traces && p.expectsFree() {
		if a, done := p.take(); done {
			return a
		}
	}
	script, args := handoffTry, append(make([]any, 0, 3), p.name, p.ttl)
	if p.mayQueue() {
		script = handoffAcquire
	}
	if p.traces {
		args = append(args, p.joined)
	}
	p.traces = true
	a := answer{sent: time.Now()}
	if a.n, a.err = script.run(p.ctx, p.env.Redis, p.keys, args...).Int64(); a.n < 0 {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.queue(a.sent, -a.n)
	}
	return a
}

// choose names the place after the line on which it can be woken now. That is
// another one if a master of a Cluster has taken over, and what is left under
// the old name is undone.
func (p *place) choose(ctx context.Context) error {
	client, addr, err := p.nodeOf(ctx, p.key)
	if err != nil {
		return err
	}
	old := p.name
	p.mu.Lock()
	p.state, p.line = asking, p.lineTo(client, addr)
	p.name = nameOf(p.line.channel, p.number)
	p.mu.Unlock()
	if old != "" && old != p.name {
		p.undo(ctx, old)
	}
	return nil
}

// queue takes in that the place is queued under the number n. It is called with
// mu held.
func (p *place) queue(sent time.Time, n int64) {
	if p.joined == 0 {
		p.joined = n
		p.crowd(p.key).queued[n] = p
	}
	p.state, p.drawn, p.since, p.due = queued, n, sent, sent.Add(p.check)
	p.wakeBy(p.due)
}

// await waits to be woken. It is false if it is time to ask again.
func (p *place) await(ctx context.Context, giveUp time.Time) (bool, error) {
	timer := time.NewTimer(time.Until(giveUp))
	defer timer.Stop()
	select {
	case w := <-p.wake:
		return p.accept(w), ctx.Err()
	case <-timer.C:
		return false, ErrBusy
	case <-ctx.Done():
		return false, ctx.Err()
	case <-p.closing:
		return false, errClosed
	}
}

// accept takes a lease that was handed over: in this process, when it is there
// already, or pushed, if it is surely young (F12). A fence from before the place
// was last queued belongs to an earlier grant, of which nothing is known; one
// that is not is no older than since. In doubt it costs one round trip to ask.
func (p *place) accept(w wakeup) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state != queued {
		return true
	}
	if w.fence >= max(p.drawn, 1) && time.Since(p.since) <= p.env.TTL/2 && p.begin(p.since, w.fence) {
		return true
	}
	p.state = asking // before somebody hands over to a place that will not look
	return false
}

// hold makes the place the lease that was granted, unless it may be over by now.
func (p *place) hold(a answer) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.begin(a.sent, a.n)
}

// begin makes the place a lease that began no earlier than since, unless it may
// be over by now. It is called with mu held.
func (p *place) begin(since time.Time, fence int64) bool {
	end := handoffEnd(since, p.env.TTL)
	if !time.Now().Before(end) {
		return false
	}
	p.carry(fence, end, since.Add(p.env.TTL/3))
	return true
}

// carry makes the place a lease. It is called with mu held.
func (p *place) carry(fence int64, end, due time.Time) {
	if c, ok := p.crowds[p.key]; ok {
		c.fence = max(c.fence, fence)
	}
	p.stand()
	p.state, p.fence, p.lost, p.end, p.due = holding, fence, make(chan struct{}), end, due
	p.wakeBy(due)
}

// leave undoes what an acquire that fails may have done. It forgets the place
// first: should it come to nothing, a wake-up finds nobody and is handed on.
func (p *place) leave(ctx context.Context) {
	if _, handed := p.retire(); handed {
		return
	}
	p.forget()
	p.undo(ctx, append([]any{p.standing()}, p.served()...)...)
}

// undo takes names of the place out of Redis. If the lease was handed to one of
// them meanwhile, it goes to the next.
func (p *place) undo(ctx context.Context, names ...any) {
	if !p.traces {
		return
	}
	p.traces = false
	ctx, cancel := cleanupContext(ctx)
	defer cancel()
	p.takeOut(ctx, p.keys, names)
}

// retire takes the place out of the minder's care. held: it was a lease and not
// lost; handed: it is a neighbour's now.
func (p *place) retire() (held, handed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.expire(now)
	if held = p.state == holding; held {
		handed = p.handOver(now)
	}
	p.stand()
	p.state = gone
	return held, handed
}

// signal never waits. It is called with mu held.
func (p *place) signal(w wakeup) {
	if p.state != asking && p.state != queued {
		return
	}
	select {
	case p.wake <- w:
	default:
	}
}

func (p *place) Token() string { return p.name }
func (p *place) Fence() uint64 { return uint64(p.fence) }

// Lost looks at the clock itself: when a process that was stopped goes on, its
// holder may run before the minder does.
func (p *place) Lost() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expire(time.Now())
	return p.lost
}

// expire is called with mu held.
func (p *place) expire(now time.Time) {
	if p.state == holding && !now.Before(p.end) {
		p.lose()
	}
}

// lose is called with mu held.
func (p *place) lose() {
	p.state = gone
	close(p.lost)
}

// Release is one round trip, or none if a neighbour takes over, or two for the first
// who is waited for. A request that failed is sent again, for as long as the lease
// lives: its connection may have been cut, and others wait.
func (p *place) Release(ctx context.Context) error {
	held, handed := p.retire()
	if handed {
		return nil
	}
	defer p.forget()
	short, again := p.alone(), false
	for pause := time.Millisecond; ; {
		reply, err := p.giveBack(ctx, short)
		switch {
		case err == nil && reply == int64(-1):
			short = false
			continue
		case err == nil && reply == int64(0):
			// Not ours any more. If it cannot have run out, a release did it whose reply was lost.
			if again && held && time.Now().Before(p.end) {
				return nil
			}
			p.abandon()
			return ErrLost
		case err == nil:
			p.released(reply)
			return nil
		case ctx.Err() != nil || !time.Now().Before(p.end):
			return err
		}
		sleep(ctx, min(pause, p.check))
		pause, again = 2*pause, true
	}
}

// alone says whether the lock was free when the place took it, and nobody of this
// process has come since.
func (p *place) alone() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.joined == 0 && p.run == nil && p.crowds[p.key] == nil
}

// released takes in who has the lease now.
func (p *place) released(reply any) {
	if next, ok := reply.(string); ok {
		p.forget() // a request of its own that came late may have put it next
		p.deliver(next)
	} else if reply == int64(1) {
		p.leftFree()
	}
}

// giveBack asks for the lease to be ended, or handed to the next. The short way
// does nothing if somebody waits.
func (p *place) giveBack(ctx context.Context, short bool) (reply any, err error) {
	if short {
		return handoffRelease.run(ctx, p.env.Redis, p.keys[:1], p.name).Result()
	}
	args := append([]any{p.standing(), p.fence}, p.served()...)
	return handoffNext.run(ctx, p.env.Redis, p.keys, args...).Result()
}
