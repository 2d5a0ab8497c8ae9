package lock

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// So many requests go into one pipeline …
	handoffBatch = 256
	// … and so many names into the check of one queue: no script may hold up
	// the server.
	handoffNames = 256
)

// mind looks after all that the locker holds or waits for, on one timer: it
// renews leases, checks places and closes Lost in time. What is due together
// goes out together. While such a round is under way the leases are watched.
func (l *oldHandoffLocker) mind() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var round chan struct{} // closes when the round under way is over; nil: there is none
	for {
		select {
		case <-l.closing:
			if round != nil {
				<-round
			}
			return
		case <-round:
			round = nil
		case <-l.nudged:
		case <-timer.C:
		}
		errands, alarm := l.look(time.Now(), round == nil)
		if len(errands) > 0 {
			done := make(chan struct{})
			round = done
			go func() {
				defer close(done)
				l.run(errands)
			}()
		}
		if alarm.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(alarm))
		}
	}
}

// wakeBy has the minder look by t. It is called with mu held.
func (l *oldHandoffLocker) wakeBy(t time.Time) {
	if earliest(l.alarm, t) == l.alarm {
		return
	}
	l.alarm = t
	select {
	case l.nudged <- struct{}{}:
	default:
	}
}

// earliest takes a zero time for never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// look closes what is lost, returns what is to be sent, if a round may begin,
// and when to look again. The end of a round is looked at in any case.
//
// An alarm that is yet to come outlives the place that it was set for. If it
// went with it, every acquire that is alone would have to wake the minder anew,
// which takes as long as a fifth of the round trip and more.
func (l *oldHandoffLocker) look(now time.Time, mayBegin bool) (due []*errand, alarm time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var ends, dues time.Time
	if l.alarm.After(now) {
		ends = l.alarm
	}
	for _, p := range l.places {
		p.expire(now)
		switch p.state {
		case holding:
			ends, dues = earliest(ends, p.end), earliest(dues, p.due)
		case queued:
			dues = earliest(dues, p.due)
		}
	}
	l.alarm = ends
	switch {
	case !mayBegin:
	case dues.IsZero() || dues.After(now):
		l.alarm = earliest(ends, dues)
	default:
		due = l.errands(now.Add(l.check / 4))
	}
	return due, l.alarm
}

// errand is one request of a round: the renewal of a lease, or the check of
// some places in one queue.
type errand struct {
	script *handoffScript
	keys   []any
	args   []any
	places []*place
	reply  *redis.Cmd
}

// errands returns what is due by t. It is called with mu held.
func (l *oldHandoffLocker) errands(t time.Time) []*errand {
	var held, waiting []*place
	for _, p := range l.places {
		switch {
		case p.state == holding && !p.due.After(t):
			held = append(held, p)
		case p.state == queued && !p.due.After(t):
			waiting = append(waiting, p)
		}
	}
	byNumber := func(a, b *place) int { return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.number, b.number)) }
	slices.SortFunc(held, byNumber)
	slices.SortFunc(waiting, byNumber)

	var all []*errand
	for _, p := range held {
		all = append(all, &errand{
			script: handoffRenew, keys: p.keys[:2], args: []any{p.standing(), l.ttl}, places: []*place{p},
		})
	}
	for i, p := range waiting {
		if i == 0 || p.key != waiting[i-1].key || len(all[len(all)-1].places) == handoffNames {
			all = append(all, &errand{script: handoffCheck, keys: p.keys})
		}
		e := all[len(all)-1]
		e.args, e.places = append(e.args, p.name), append(e.places, p)
	}
	if len(waiting) > 0 {
		for _, n := range l.lines {
			n.ping()
		}
	}
	return all
}

// run makes a round. A request for one place alone is made in the name of its
// acquire; a batch belongs to none.
func (l *oldHandoffLocker) run(errands []*errand) {
	for batch := range slices.Chunk(errands, handoffBatch) {
		ctx := context.Background()
		if len(batch) == 1 && len(batch[0].places) == 1 {
			ctx = batch[0].places[0].ctx
		}
		ctx, cancel := context.WithTimeout(ctx, l.env.TTL/3)
		sent := time.Now()
		if l.send(ctx, batch, false) {
			l.send(ctx, batch, true)
		}
		cancel()
		l.learn(batch, sent)
	}
}

// send is true if the server did not know a script: one that was restarted
// has forgotten them.
func (l *oldHandoffLocker) send(ctx context.Context, batch []*errand, whole bool) (unknown bool) {
	pipe := l.env.Redis.Pipeline()
	for _, e := range batch {
		e.reply = e.script.command(ctx, whole, e.keys, e.args...)
		_ = pipe.Process(ctx, e.reply)
	}
	_, _ = pipe.Exec(ctx) // each reply has its own error
	return slices.ContainsFunc(batch, func(e *errand) bool { return redis.HasErrorPrefix(e.reply.Err(), "NOSCRIPT") })
}

// learn takes in what was sent no earlier than sent.
func (l *oldHandoffLocker) learn(batch []*errand, sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for _, e := range batch {
		if e.script == handoffRenew {
			renewed, err := e.reply.Int64()
			e.places[0].renewed(now, sent, renewed == 1, err)
			continue
		}
		reply, err := e.reply.Slice()
		if err != nil || len(reply) != 1+len(e.places) {
			reply = nil
		}
		l.checked(e, now, sent, reply)
	}
}

// renewed takes in what became of a renewal. One that is confirmed after the
// end does not bring a lease back. It is called with mu held.
func (p *place) renewed(now, sent time.Time, ok bool, err error) {
	p.expire(now)
	switch {
	case p.state != holding:
	case err != nil:
		p.due = now.Add(p.env.TTL / 10)
	case !ok:
		p.lose()
	default:
		p.end, p.due = handoffEnd(sent, p.env.TTL), sent.Add(p.env.TTL/3)
	}
}

// checked takes in the reply to a check; nil: there was none. It is called
// with mu held.
func (l *oldHandoffLocker) checked(e *errand, now, sent time.Time, reply []any) {
	var holder string
	if reply != nil {
		holder, _ = reply[0].(string)
	}
	for i, p := range e.places {
		if p.state != queued {
			continue
		}
		p.due = now.Add(l.check)
		if reply == nil {
			continue
		}
		score, isQueued := reply[i+1].(string)
		number, _ := parseNumber(score)
		switch {
		case !isQueued || p.name == holder:
			// The wake-up was lost, or the place: it is worth asking.
			p.signal(wakeup{})
		case number == p.drawn:
			// Still in the queue, as it was told: whatever is granted comes after sent.
			p.since = sent
		}
	}
	// The lease may have been handed to one of ours who is not there any more,
	// and the wake-up for it lost as well.
	if p := e.places[0]; isOn(holder, p.line) && l.placeNamed(holder) == nil {
		l.handOn(p.key, holder)
	}
}

// isOn says whether a name is one of the line's.
func isOn(name string, n *line) bool {
	number, ok := placeOf(name)
	return ok && name == nameOf(n.channel, number)
}
