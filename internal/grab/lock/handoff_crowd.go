package lock

import (
	"context"
	"slices"
	"time"
)

// crowd is those of a process who want one key.
type crowd struct {
	crossing bool             // a request for a place in the queue is under way
	ashore   []*place         // those who cross together with the next
	queued   map[int64]*place // by the number of their place, for as long as they wait
	fence    int64            // the highest that one of them had meanwhile
}

// crowd is called with mu held.
func (l *oldHandoffLocker) crowd(key string) *crowd {
	c, ok := l.crowds[key]
	if !ok {
		c = &crowd{queued: map[int64]*place{}}
		l.crowds[key] = c
	}
	return c
}

// tidy forgets a crowd that is none. It is called with mu held.
func (l *oldHandoffLocker) tidy(key string, c *crowd) {
	if !c.crossing && len(c.ashore) == 0 && len(c.queued) == 0 {
		delete(l.crowds, key)
	}
}

// stand ends the waiting of the place in its crowd. It is called with mu held.
func (p *place) stand() {
	if c, ok := p.crowds[p.key]; ok && c.queued[p.joined] == p {
		delete(c.queued, p.joined)
		p.tidy(p.key, c)
	}
}

// cross asks for the lease or a place in the queue, one request at a time of a
// process and key: who comes meanwhile goes with the next, all together. So
// they draw neighbouring numbers, and can hand the lease on among themselves.
// err: the wait was over before anything was sent.
func (p *place) cross(ctx context.Context, giveUp time.Time) (a answer, err error) {
	if p.embark() {
		a = p.request()
		p.mu.Lock()
		defer p.mu.Unlock()
		if next := p.nextAshore(p.key); next != nil {
			p.running.Go(func() { p.ferry(next) })
		}
		return a, nil
	}
	timer := time.NewTimer(time.Until(giveUp))
	defer timer.Stop()
	select {
	case a = <-p.landed:
		return a, nil
	case <-timer.C:
		err = ErrBusy
	case <-ctx.Done():
		err = ctx.Err()
	case <-p.closing:
		err = errClosed
	}
	if p.disembark() {
		return a, err
	}
	return <-p.landed, nil // too late: it has left, and must not be given up
}

// embark is true if nobody is crossing, and puts the place ashore otherwise.
func (p *place) embark() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.crowd(p.key)
	if !c.crossing {
		c.crossing = true
		return true
	}
	p.landed = make(chan answer, 1)
	c.ashore = append(c.ashore, p)
	return false
}

// disembark is true if the place was still ashore.
func (p *place) disembark() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	c, ok := p.crowds[p.key]
	if !ok {
		return false // it has landed, and so have all others
	}
	i := slices.Index(c.ashore, p)
	if i < 0 {
		return false
	}
	c.ashore = slices.Delete(c.ashore, i, i+1)
	p.tidy(p.key, c)
	return true
}

// nextAshore ends a crossing. It returns those who cross next; nil: nobody. It
// is called with mu held.
func (l *oldHandoffLocker) nextAshore(key string) []*place {
	c := l.crowd(key)
	n := min(len(c.ashore), handoffNames)
	if n == 0 || l.closed {
		c.crossing = false
		l.tidy(key, c)
		return nil
	}
	next := slices.Clone(c.ashore[:n])
	c.ashore = slices.Delete(c.ashore, 0, n)
	return next
}

// ferry takes places across until nobody is left ashore.
func (l *oldHandoffLocker) ferry(together []*place) {
	for together != nil {
		first := together[0]
		args := append(make([]any, 0, 1+len(together)), l.ttl)
		for _, p := range together {
			p.traces = true
			args = append(args, p.name)
		}
		sent := time.Now()
		n, err := handoffJoin.run(first.ctx, l.env.Redis, first.keys, args...).Int64()
		together = l.land(together, answer{sent, n, err})
	}
}

// land tells all who crossed what became of it, and returns those who are next.
// The numbers are a row: n, or -n, is the first's. Only he can have the lease.
func (l *oldHandoffLocker) land(together []*place, a answer) []*place {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, p := range together {
		if i > 0 && a.err == nil {
			a.n = -max(a.n, -a.n) - 1
		}
		if a.n < 0 {
			p.queue(a.sent, -a.n)
		}
		p.landed <- a
	}
	return l.nextAshore(together[0].key)
}

// run is a lease that is handed on within a process: Redis knows it by the name
// of the first who had it.
type run struct {
	first  *place
	served []any // names of the others who had it, which are in the queue yet
}

// handOver gives the lease to the next in the queue, if that is known to wait in
// this very process: numbers are drawn one by one, so that nobody can stand
// between n and n+1. The lease stays what it is, with the time that it has left:
// if that is to be renewed, or the fence is not above all that were had here,
// Redis is asked: a higher one was given out by a server that forgot the lease.
// It is called with mu held, by who holds it.
func (p *place) handOver(now time.Time) bool {
	number := p.joined
	if number == 0 && !p.again {
		number = p.fence // it was free
	}
	c, ok := p.crowds[p.key]
	if !ok || p.closed || !now.Before(p.due) || p.run != nil && len(p.run.served) == handoffNames {
		return false
	}
	q, ok := c.queued[number+1]
	if !ok || q.state != queued || q.joined <= max(p.fence, c.fence) {
		return false
	}
	if p.run == nil {
		p.run = &run{first: p} // which stays known: its name does in Redis
	} else {
		delete(p.places, p.number)
	}
	p.run.served = append(p.run.served, q.name)
	q.run = p.run
	q.carry(q.joined, p.end, p.due)
	select {
	case q.wake <- wakeup{}:
	default: // it is about to look
	}
	return true
}

// forget takes the place, and the run that ends with it, out of what the locker
// knows.
func (p *place) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.places, p.number)
	if p.run != nil {
		delete(p.places, p.run.first.number)
	}
}

// standing is the name that the lease has in Redis.
func (p *place) standing() string {
	if p.run == nil {
		return p.name
	}
	return p.run.first.name
}

// served are the names that are to be taken out of the queue with the lease.
func (p *place) served() []any {
	if p.run == nil {
		return nil
	}
	return p.run.served
}

// abandon ends a run whose lease was lost: one of those who had it may have come
// to another, by its turn in the queue.
func (p *place) abandon() {
	if names := p.served(); len(names) > 0 {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.handOn(p.key, names...)
	}
}
