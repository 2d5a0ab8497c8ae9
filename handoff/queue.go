package handoff

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// cleanupTimeout is how long the Locker tries to undo a failed request.
const cleanupTimeout = time.Second

// queue holds this process's callers that wait for one key. In Redis, a single entry called a turn
// stands for all of them. The turn waits in the Redis queue, gets the lease, and then serves one
// caller after another.
type queue struct {
	*Locker
	key  string
	keys []any

	// The Locker's mu guards these fields.
	waiters    []*Lease
	state      state
	turn       string          // the current turn's name in Redis
	past       string          // the name of the last turn whose lease was released or lost
	ctx        context.Context // the context for requests, from one of the callers
	since      time.Time       // the earliest time at which a granted lease may have begun
	others     bool            // whether other processes wait for the lease
	unanswered bool            // whether a request without a reply may still take effect
	grant      *message        // a lease that cannot be accepted yet; may be nil
	looking    bool            // whether a check of the turn in Redis is running
	due        time.Time       // when the next check, request or renewal is due
	alarm      time.Time       // when the timer fires; zero if it is stopped
	timer      *time.Timer

	// These fields describe the lease that this process has, if any.
	holder     *Lease
	end        time.Time // when the lease counts as lost
	next, last int64     // the range of unused tokens
	budget     int       // how many more callers this turn may serve if other processes wait
	renewing   bool

	// These fields are for the fast path, which works only while the lock is free and its fencing
	// token counter exists in Redis.
	leftUnlocked    bool      // whether this process was the last holder and no one waited
	counterExtended time.Time // when a script last extended the counter's TTL
}

type state int

const (
	idle   state = iota // no caller waits
	asking              // a request is in flight, and its reply determines the next state
	apart               // another process has the lease, and this one polls because its subscription is not ready
	queued              // this process waits in the Redis queue
	held                // this process has the lease
)

func (q *queue) startLocked() {
	q.turns++
	q.state, q.turn = asking, q.channel+"/"+strconv.FormatUint(q.turns, 10)
	q.ctx, q.others, q.unanswered, q.grant, q.looking = q.waiters[0].ctx, false, false, nil, false
}

// proceedLocked requests the lock again if any caller is waiting. Call it only after the previous
// request is gone from Redis.
func (q *queue) proceedLocked() {
	if len(q.waiters) == 0 {
		q.state, q.turn, q.ctx = idle, "", nil
		q.retireLocked(q)
		return
	}
	q.startLocked()
	q.background(q.ask)
}

// dropLocked removes this process's lock request from Redis in the background, even if the Locker is
// closed. If callers are still waiting, it then requests the lock again.
func (q *queue) dropLocked() {
	ctx, turn := q.ctx, q.turn
	q.state = asking
	q.goLocked(func() { q.abandon(ctx, turn) })
}

// abandon removes a lock request from Redis. If callers are still waiting, it then requests the
// lock again.
func (q *queue) abandon(ctx context.Context, turn string) {
	q.undo(ctx, turn)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.proceedLocked()
}

// undo removes a lock request from Redis, and releases its lease if Redis has granted one. If this
// fails, the lease expires after its TTL.
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

// ask requests the lock from Redis. If another process has the lock, Redis may put the request in a
// queue.
func (q *queue) ask() {
	q.mu.Lock()
	ctx, turn, mode, fast := q.ctx, q.turn, "join", ""
	if q.leftUnlocked && time.Since(q.counterExtended) < fastFor {
		fast = "fast"
	}
	// If several requests are in flight, use scripts instead of plain commands, because scripts can
	// share a round trip.
	plain := fast != "" && q.single != nil && len(q.queues) <= maxDirect
	q.leftUnlocked = false
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
	case n == replyAlien:
		q.failLocked(fmt.Errorf("acquire %s: %w", q.key, ErrProtocol), false)
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
			q.counterExtended = sent
		}
		q.holdLocked(sent, n)
	default:
		q.queuedLocked(sent)
	}
}

// failLocked makes waiting callers return err. If tries is true, this affects only callers
// that try once.
func (q *queue) failLocked(err error, tries bool) {
	q.waiters = slices.DeleteFunc(q.waiters, func(le *Lease) bool {
		if tries && !le.try {
			return false
		}
		le.decideLocked(err)
		return true
	})
}

// leave ends one caller's wait. If no other caller is waiting, it also removes the lock request
// from Redis.
func (q *queue) leave(le *Lease, err error) {
	q.mu.Lock()
	i := slices.Index(q.waiters, le)
	if i >= 0 {
		le.err = err
		q.waiters = slices.Delete(q.waiters, i, i+1)
	}
	if i < 0 || len(q.waiters) > 0 || q.state != queued && q.state != apart {
		q.mu.Unlock() // another caller or a running request still needs the entry in Redis
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

// request asks Redis for the lock, and retries once after an error. The retry is safe, because the
// request is idempotent.
func (q *queue) request(ctx context.Context, turn, mode, fast string, plain bool) (n int64, err error) {
	if plain {
		n, err = q.take(ctx, turn)
	}
	if err == nil && !granted(n) {
		n, err = q.script(ctx, turn, mode, fast)
	}
	if err != nil {
		q.mu.Lock()
		q.unanswered = true // the first request may still take effect later and cause a message
		q.openLocked()
		q.mu.Unlock()
		n, err = q.script(ctx, turn, mode, "")
	}
	return n, err
}

// take tries to acquire the lock with two plain commands, which are cheaper than a script. It
// returns 0 if another client has the lock.
func (q *queue) take(ctx context.Context, turn string) (int64, error) {
	pipe := q.single.Pipeline()
	set, draw := pipe.SetNX(ctx, q.key, turn, q.opt.TTL), pipe.IncrBy(ctx, q.keys[2].(string), blockSize)
	if _, err := pipe.Exec(ctx); err != nil || !set.Val() {
		return 0, err
	}
	return draw.Val(), nil
}

// endOf returns when the Locker gives up a lease that began at since. To allow for clock drift,
// that time is 1 % of the TTL before the lease's real end.
func (l *Locker) endOf(since time.Time) time.Time { return since.Add(l.opt.TTL - l.opt.TTL/100) }

// queuedLocked records that Redis has queued the request. since is a time before which the lease
// for this request cannot begin.
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

// acceptLocked accepts a lease that a message has announced. If the message may be old,
// acceptLocked first asks Redis whether this process still has the lease.
func (q *queue) acceptLocked(m message) {
	if time.Since(q.since) <= q.opt.TTL/2 {
		q.holdLocked(q.since, m.n)
		return
	}
	q.grant = &m
	q.lookLocked()
}

// lookLocked asks Redis whether this process has the lease. Waiting for a message is not enough,
// because the message may be lost or the holder may have died.
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
		case n == replyAlien:
			q.failLocked(fmt.Errorf("acquire %s: %w", q.key, ErrProtocol), false)
			q.dropLocked()
		default:
			q.queuedLocked(sent)
		}
	})
}

// holdLocked records a lease that began at since or later, and gives the lock to the first caller.
// If the lease may have expired already, it requests the lock again. n is the lease's last fencing
// token, negated if other processes wait.
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

// serveLocked gives the lock to this process's longest-waiting caller.
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

// release gives the lock to the next caller, or returns the lease to Redis. The caller must hold
// mu, and release unlocks it.
func (q *queue) release(ctx context.Context, now time.Time) error {
	q.holder = nil
	if len(q.waiters) > 0 && q.next <= q.last && (!q.others || q.budget > 0) {
		q.serveLocked(now, true)
		q.mu.Unlock()
		return nil
	}
	turn, next := &argument{text: q.turn}, ""
	q.turn, q.state = "", asking
	if q.past = turn.text; q.unanswered {
		q.past = ""
	}
	if len(q.waiters) > 0 && (q.subscribed || !q.others) { // a turn that has to wait needs a subscription
		q.startLocked()
		next = q.turn
	}
	end, free := q.end, next == "" && !q.others
	q.mu.Unlock()

	n, err := q.pass(ctx, end, turn, next, free)
	q.mu.Lock()
	defer q.mu.Unlock()
	if n == replyGone && turn.sent.Load() > 1 && time.Now().Before(end) {
		n = replyQueued // an earlier copy of this request handed over the lease, but its reply was lost
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
		q.leftUnlocked = n == replyFree
		q.proceedLocked()
	}
	return nil
}

// pass releases the lease in Redis, which gives the lease to the next process. It retries failed
// requests until ctx is done or the lease expires. free means that no other process seems to be
// waiting.
func (q *queue) pass(ctx context.Context, end time.Time, turn *argument, next string, free bool) (n int64, err error) {
	request := context.WithoutCancel(ctx)
	for pause := time.Millisecond; ; pause *= 2 {
		if free {
			n, err = q.run(request, q.scripts.free, q.keys[:1], turn)
			if free = err != nil; !free {
				turn.sent.Add(-1) // the result of this request is known
			}
		}
		if !free && n != replyFree {
			n, err = q.run(request, q.scripts.release, q.keys, turn, next)
		}
		if err == nil || ctx.Err() != nil || !time.Now().Before(end) {
			return n, err
		}
		sleep(ctx, min(pause, q.check))
	}
}

// expireLocked gives up the lease if it has expired.
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
	q.holder, q.past = nil, q.turn // leave the lease in Redis until it expires, so that the holder has time to notice the loss
	q.proceedLocked()
}

// renewLocked renews the lease in the background, unless a renewal is already running.
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
		case !now.Before(q.end): // a late confirmation does not restore a lease
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

// othersLocked records that other processes wait. From now on, this turn serves only callers that
// are already waiting, so that the other processes get their turn.
func (q *queue) othersLocked() {
	if !q.others {
		q.others, q.budget = true, len(q.waiters)
	}
}

// deliver handles a message from the subscription: a lease for this process, or the news that other
// processes wait.
func (l *Locker) deliver(m message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.queueLocked(m.key)
	switch {
	case m.name != q.turn:
		if m.name != q.past { // this process has given the turn up, so Redis must forget it
			q.background(func() { q.undo(context.Background(), m.name) })
		}
	case q.state == held && m.n <= 0:
		q.othersLocked()
	case q.state == held: // the message is a duplicate
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

// wakeByLocked makes the timer fire no later than t. It never moves the timer to a later time,
// because an extra wake-up costs less than a reset.
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
	q.attendLocked(time.Now()) // after Close, this call only reports a lost lease
}

// attendLocked runs the queue's next task if it is due: renew the lease, check the Redis queue, or
// request the lock again.
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
