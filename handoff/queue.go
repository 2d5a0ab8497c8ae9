package handoff

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// cleanupTimeout bounds the undoing of what an acquire may have done.
const cleanupTimeout = time.Second

// queue is all of one key in this process: those who wait for its lock, first come, first
// served, and the one turn that stands for them in Redis.
type queue struct {
	*Locker
	key  string
	keys []any

	// Guarded by the Locker's mu.
	waiters []*Lease
	state   state
	turn    string          // its name in Redis; of each turn another
	past    string          // the name of the last one that was given back or lost
	ctx     context.Context // of the caller for whom requests are made
	since   time.Time       // no lease that the turn may be granted is older
	others  bool            // wait for the lease
	doubt   bool            // a request of the turn came to no reply: it may be carried out at any time
	grant   *message        // that came before the turn is known to be queued, or to be young
	looking bool            // a look is under way
	due     time.Time       // when to look, ask or renew next
	alarm   time.Time       // when the timer fires; zero: it does not
	timer   *time.Timer

	// Of the lease.
	holder     *Lease
	end        time.Time // when it must be taken for lost
	next, last int64     // the tokens that are left
	budget     int       // how many more may have it in this turn, if others wait
	renewing   bool

	// Of the fast path: the lock is probably free, and its counter there.
	leftFree bool      // it was released here, when nobody waited
	counted  time.Time // when a script has last set when the counter expires
}

type state int

const (
	idle   state = iota // nothing is in Redis, and nobody waits
	asking              // a request is under way that decides how it goes on
	apart               // somebody else has the lease, and a message could not come: ask again
	queued              // the turn stands in the queue
	held                // it has the lease
)

// startLocked begins a turn.
func (q *queue) startLocked() {
	q.turns++
	q.state, q.turn = asking, q.channel+"/"+strconv.FormatUint(q.turns, 10)
	q.ctx, q.others, q.doubt, q.grant, q.looking = q.waiters[0].ctx, false, false, nil, false
}

// proceedLocked goes on when the process has nothing in Redis.
func (q *queue) proceedLocked() {
	if len(q.waiters) == 0 {
		q.state, q.turn, q.ctx = idle, "", nil
		q.retireLocked(q)
		return
	}
	q.startLocked()
	q.background(q.ask)
}

// dropLocked takes the turn out of Redis, for nobody waits any more.
func (q *queue) dropLocked() {
	ctx, turn := q.ctx, q.turn
	q.state = asking
	q.background(func() { q.abandon(ctx, turn) })
}

// abandon takes the turn out of Redis, and goes on.
func (q *queue) abandon(ctx context.Context, turn string) {
	q.undo(ctx, turn)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.proceedLocked()
}

// undo takes a name out of Redis: its place, or its lease, which goes to the next. If that fails
// a message for the name undoes it again, or the lease expires.
func (q *queue) undo(ctx context.Context, turn string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	name := &argument{text: turn}
	for range 2 {
		if _, err := q.run(ctx, q.scripts.release, q.keys, name, ""); err == nil {
			return
		}
	}
}

// ask asks for the lease or a place.
func (q *queue) ask() {
	q.mu.Lock()
	ctx, turn, mode, fast := q.ctx, q.turn, "join", ""
	if q.leftFree && time.Since(q.counted) < fastFor {
		fast = "fast"
	}
	// Where more is under way a script is better, which may share its round trip.
	plain := fast != "" && q.single != nil && len(q.queues) <= direct
	q.leftFree = false
	if !q.subscribed || len(q.waiters) > 0 && q.waiters[0].try {
		mode = "try"
	}
	q.mu.Unlock()
	sent := time.Now()
	n, err := q.request(ctx, turn, mode, fast, plain)
	if err != nil {
		q.undo(ctx, turn)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case err != nil:
		q.failLocked(fmt.Errorf("handoff: acquire %s: %w", q.key, err), false)
		q.proceedLocked()
	case n == replyBusy:
		q.failLocked(ErrBusy, true)
		if q.subscribed || len(q.waiters) == 0 {
			q.proceedLocked()
			return
		}
		q.state, q.due = apart, sent.Add(q.check)
		q.wakeByLocked(q.due)
		q.openLocked()
	case granted(n):
		if fast == "" {
			q.counted = sent
		}
		q.holdLocked(sent, n)
	default:
		q.queuedLocked(sent)
	}
}

// failLocked fails those who wait, or only those who try.
func (q *queue) failLocked(err error, tries bool) {
	q.waiters = slices.DeleteFunc(q.waiters, func(le *Lease) bool {
		if tries && !le.try {
			return false
		}
		le.decideLocked(err)
		return true
	})
}

// leave ends the waiting of a caller, unless it was served. Who leaves as the last takes the
// turn out of Redis.
func (q *queue) leave(le *Lease, err error) {
	q.mu.Lock()
	i := slices.Index(q.waiters, le)
	if i >= 0 {
		le.err = err
		q.waiters = slices.Delete(q.waiters, i, i+1)
	}
	if i < 0 || len(q.waiters) > 0 || q.state != queued && q.state != apart {
		q.mu.Unlock() // who asks finds out
		return
	}
	turn := q.turn
	q.state = asking
	q.mu.Unlock()
	q.abandon(le.ctx, turn)
}

func (q *queue) script(ctx context.Context, turn, mode, fast string) (int64, error) {
	return q.run(ctx, q.scripts.acquire, q.keys, &argument{text: turn}, q.ttl, mode, fast)
}

// request asks, and once more if that failed: the same name may ask again.
func (q *queue) request(ctx context.Context, turn, mode, fast string, plain bool) (n int64, err error) {
	if plain {
		n, err = q.take(ctx, turn)
	}
	if err == nil && !granted(n) {
		n, err = q.script(ctx, turn, mode, fast)
	}
	if err != nil {
		q.mu.Lock()
		q.doubt = true // it may be carried out when the turn is over: others who wait then say so
		q.openLocked()
		q.mu.Unlock()
		n, err = q.script(ctx, turn, mode, "")
	}
	return n, err
}

// take tries for the lease with two plain commands, which cost less than a script. They are
// not one step, but come in this order: if the lease ran out between them and others had it, the
// reply comes too late to be believed.
func (q *queue) take(ctx context.Context, turn string) (int64, error) {
	pipe := q.single.Pipeline()
	set, draw := pipe.SetNX(ctx, q.key, turn, q.opt.TTL), pipe.IncrBy(ctx, q.keys[2].(string), blockSize)
	if _, err := pipe.Exec(ctx); err != nil || !set.Val() {
		return 0, err
	}
	return draw.Val(), nil
}

// endOf is when a lease must be given up that cannot have begun before since: a hundredth
// before its time, for clocks run at slightly different rates.
func (l *Locker) endOf(since time.Time) time.Time { return since.Add(l.opt.TTL - l.opt.TTL/100) }

// queuedLocked takes in that the turn stands in the queue, which was not so before since.
func (q *queue) queuedLocked(since time.Time) {
	if len(q.waiters) == 0 {
		q.dropLocked()
		return
	}
	q.state, q.since, q.due = queued, since, since.Add(q.check)
	if q.grant != nil {
		q.acceptLocked(*q.grant)
	} else {
		q.wakeByLocked(q.due)
	}
}

// acceptLocked takes a lease that was granted by a message, if it is surely young: it was granted
// after the last request that found the turn in the queue. If it may be old, that is looked at.
func (q *queue) acceptLocked(m message) {
	if time.Since(q.since) <= q.opt.TTL/2 {
		q.holdLocked(q.since, m.n)
		return
	}
	q.grant = &m
	q.lookLocked()
}

// lookLocked finds out what became of the turn: a message may have been lost, or the holder
// may have died.
func (q *queue) lookLocked() {
	if q.looking {
		return
	}
	q.looking = true
	ctx, turn, sent := q.ctx, q.turn, time.Now()
	q.background(func() {
		n, err := q.script(ctx, turn, "look", "")
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.state != queued || q.turn != turn {
			return
		}
		q.looking = false
		switch {
		case err != nil:
			q.due = time.Now().Add(q.check)
			q.wakeByLocked(q.due)
		case granted(n):
			q.holdLocked(sent, n)
		case n == replyGone:
			q.proceedLocked()
		default:
			q.queuedLocked(sent)
		}
	})
}

// holdLocked takes in that the turn has a lease that began no earlier than since, and n as the
// last token of its block. If it may be over by now, those who wait begin anew.
func (q *queue) holdLocked(since time.Time, n int64) {
	now := time.Now()
	if len(q.waiters) == 0 || !now.Before(q.endOf(since)) {
		q.dropLocked()
		return
	}
	q.others = q.others || n < 0
	q.last = max(n, -n)
	q.state, q.grant, q.renewing = held, nil, false
	q.next, q.end, q.due = q.last-blockSize+1, q.endOf(since), since.Add(q.opt.TTL/3)
	q.budget = len(q.waiters)
	q.serveLocked(now, false)
	q.wakeByLocked(q.due)
}

// serveLocked makes the first who waits the holder.
func (q *queue) serveLocked(now time.Time, local bool) {
	le := q.waiters[0]
	q.waiters = slices.Delete(q.waiters, 0, 1)
	le.turn, le.nth, le.fence = q.turn, blockSize-1-(q.last-q.next), q.next
	le.waited, le.since, le.local = now.Sub(le.since), now, local
	q.next++
	q.budget--
	q.holder, q.ctx = le, le.ctx
	le.decideLocked(nil)
}

// release ends the holder's lease, whose end is known to be yet to come. It is called
// with mu held, and unlocks it.
func (q *queue) release(ctx context.Context, now time.Time) error {
	q.holder = nil
	if len(q.waiters) > 0 && q.next <= q.last && (!q.others || q.budget > 0) {
		q.serveLocked(now, true)
		q.mu.Unlock()
		return nil
	}
	turn, next := &argument{text: q.turn}, ""
	q.turn, q.state = "", asking
	if q.past = turn.text; q.doubt {
		q.past = ""
	}
	if len(q.waiters) > 0 && (q.subscribed || !q.others) { // else it would be passed over
		q.startLocked()
		next = q.turn
	}
	end, free := q.end, next == "" && !q.others
	q.mu.Unlock()

	n, err := q.pass(ctx, end, turn, next, free)
	q.mu.Lock()
	defer q.mu.Unlock()
	if n == replyGone && turn.sent.Load() > 1 && time.Now().Before(end) {
		n = replyQueued // an earlier sending has done it, whose reply was lost
	}
	switch {
	case err != nil:
		q.proceedLocked()
		return fmt.Errorf("handoff: release %s: %w", q.key, err)
	case n == replyGone:
		q.proceedLocked()
		return ErrLost
	case granted(n):
		q.holdLocked(now, n)
	case next != "":
		q.queuedLocked(now)
	default:
		q.leftFree = n == replyBusy
		q.proceedLocked()
	}
	return nil
}

// pass asks for the lease of a turn to be passed on, again and again until the lease has ended. free: nobody is
// known to wait for it.
func (q *queue) pass(ctx context.Context, end time.Time, turn *argument, next string, free bool) (n int64, err error) {
	request := context.WithoutCancel(ctx)
	for pause := time.Millisecond; ; pause *= 2 {
		if free {
			n, err = q.run(request, q.scripts.free, q.keys[:1], turn)
			if free = err != nil; !free {
				turn.sent.Add(-1) // this one is known
			}
		}
		if !free && n != replyBusy {
			n, err = q.run(request, q.scripts.release, q.keys, turn, next)
		}
		if err == nil || ctx.Err() != nil || !time.Now().Before(end) {
			return n, err
		}
		sleep(ctx, min(pause, q.check))
	}
}

// expireLocked loses a lease whose time is over.
func (q *queue) expireLocked(now time.Time) {
	if q.state == held && !now.Before(q.end) {
		q.loseLocked("it could not be renewed in time")
	}
}

func (q *queue) loseLocked(why string) {
	q.opt.Logger.Warn("handoff: lease lost", "key", q.key, "turn", q.turn, "why", why)
	q.holder.endLocked(ErrLost)
	if f := q.opt.Hooks.Lost; f != nil {
		go f(q.key)
	}
	q.holder, q.past = nil, q.turn // what is left of its time is the holder's, to find out
	q.proceedLocked()
}

func (q *queue) renewLocked() {
	if q.renewing {
		return
	}
	q.renewing = true
	parent, turn, sent := q.ctx, q.turn, time.Now()
	q.background(func() {
		ctx, cancel := context.WithTimeout(parent, q.opt.TTL/3)
		n, err := q.run(ctx, q.scripts.renew, q.keys[:1], &argument{text: turn}, q.ttl)
		cancel()
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.turn != turn || q.state != held {
			return
		}
		q.renewing = false
		now := time.Now()
		switch {
		case !now.Before(q.end): // a confirmation that comes after the end does not bring a lease back
			q.expireLocked(now)
			return
		case err != nil:
			q.opt.Logger.Warn("handoff: renewal failed", "key", q.key, "turn", turn, "error", err)
			q.due = now.Add(q.opt.TTL / 10)
		case n == replyGone:
			q.loseLocked("the server does not have it")
			return
		default:
			q.end, q.due = q.endOf(sent), sent.Add(q.opt.TTL/3)
			if n < 0 {
				q.othersLocked()
			}
		}
		q.wakeByLocked(q.due)
	})
}

// othersLocked takes in that others wait: from now on those who wait here may have the lease,
// and no more.
func (q *queue) othersLocked() {
	if !q.others {
		q.others, q.budget = true, len(q.waiters)
	}
}

// deliver takes a message to the queue that it is for.
func (l *Locker) deliver(m message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.queueLocked(m.key)
	switch {
	case m.name != q.turn:
		if m.name != q.past { // of a turn that was given up: what it has in Redis is nobody's
			q.background(func() { q.undo(context.Background(), m.name) })
		}
	case q.state == held && m.n <= 0:
		q.othersLocked()
	case q.state == held: // it came twice
	case m.n == 0:
		q.others = true
	case q.state == queued:
		q.acceptLocked(m)
	default:
		q.grant = &m
	}
	if q.state == idle {
		l.retireLocked(q)
	}
}

// wakeByLocked has the timer fire by t. An alarm before t stays: setting it anew for each acquire
// would cost more than to be woken for nothing.
func (q *queue) wakeByLocked(t time.Time) {
	if !q.alarm.IsZero() && !t.Before(q.alarm) {
		return
	}
	q.alarm = t
	q.timer.Reset(time.Until(t))
}

func (q *queue) fire() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.alarm = time.Time{}
	if !q.closed {
		q.attendLocked(time.Now())
	}
}

// attendLocked does what is due.
func (q *queue) attendLocked(now time.Time) {
	q.expireLocked(now)
	due := !now.Before(q.due)
	switch {
	case q.state == held && (due || q.renewing):
		q.renewLocked()
		q.wakeByLocked(q.end)
	case q.state == queued && due:
		q.lookLocked()
	case q.state == apart && due:
		q.proceedLocked()
	case q.state != idle && q.state != asking:
		q.wakeByLocked(q.due)
	}
}
