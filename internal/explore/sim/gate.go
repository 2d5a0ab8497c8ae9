package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/explore/schedule"
	"grablab/internal/explore/search"
	"grablab/internal/tap"
)

// gate blocks every remote call until a step of the schedule decides whether the call's reply
// arrives, arrives late or is lost.
type gate struct {
	world  *world
	leases *leaseBook

	mu           sync.Mutex    // never held while a goroutine waits
	ungated      bool          // whether calls pass without a step; dead actors' calls stay blocked
	starting     bool          // whether an instance is starting; dead actors' calls then pass too
	passed       atomic.Int64  // the number of calls that passed without a step
	waiting      []*call       // calls that have not been sent yet
	late         []*call       // calls that a server has executed, with replies still to arrive
	inFlight     []*call       // calls that may still arrive, although their callers have given up
	arrived      chan struct{} // receives a value when a call has arrived at the gate or a grab has ended
	mayLeaveLock bool          // whether a lock may remain after a call that was given up or refused
	recording    bool          // whether to record each call's text, for a replay
	did          []string      // the texts of the last step's calls, if recording is true
}

var (
	errOver = errors.New("sim: the schedule is over")
	errDown = errors.New("sim: the server cannot be reached")
	errLost = errors.New("sim: the reply is lost")
)

// call is one remote call. It blocks until a step of the schedule releases it, and blocks once more
// if the schedule delays the reply.
type call struct {
	actor  *actor
	phase  tap.Phase
	n      int // counts the actor's calls with the same phase and target; 0 if not numbered yet
	target string
	node   *node // nil for a call to the database
	ctx    context.Context

	decided   chan schedule.Kind
	outcome   schedule.Kind // the kind of step that decided the call, such as ReplyLost; 0 if none has
	deliver   func()        // executes a SUBSCRIBE, because its caller does not wait at the gate
	sent      [][]any       // the commands, which may arrive after the caller has given up
	request   any           // a request to etcd; it may arrive late, like sent
	awaits    bool          // whether the client needs a connection before it sends the call
	lost      error         // the client's error for a lost reply; nil means errLost
	renewed   []lookedFor   // for a renewal: the leases that it tried to extend
	waiters   actorSet      // for a renewal: the actors in other processes that were waiting
	releasing bool          // whether the actor began its release before this call
	text      func() string // formats the request and its reply after the call
}

func (c *call) step(kind schedule.Kind) schedule.Step {
	return schedule.Step{Kind: kind, Actor: c.actor.name, Phase: string(c.phase), N: c.n, Target: c.target}
}

func (c *call) matches(s schedule.Step) bool {
	return c.actor.name == s.Actor && c.n == s.N && c.target == s.Target && string(c.phase) == s.Phase
}

// compareCalls defines a fixed order of calls, which is needed because goroutines arrive in random
// order.
func compareCalls(a, b *call) int {
	return cmp.Or(a.actor.index-b.actor.index, strings.Compare(string(a.phase), string(b.phase)), strings.Compare(a.target, b.target), a.n-b.n)
}

// through blocks a call until the schedule releases it, and then sends it. It returns the error
// that the caller sees, for example after a lost reply.
func (g *gate) through(ctx context.Context, inst *instance, c *call, send func(context.Context) error) error {
	c.ctx, c.phase = ctx, phaseOf(ctx)
	c.actor = g.actorOf(inst, tap.OpFrom(ctx, tap.Op{}).Driver)
	if ctx.Err() != nil {
		return send(ctx) // the client notices that the context has ended
	}
	err := g.wait(c, &g.waiting)
	if err == nil && (c.outcome == schedule.GivenUp || c.outcome == schedule.RequestLost) {
		err = c.loss()
	}
	if err != nil {
		g.noteReply(c, err)
		return err
	}
	if err = errDown; c.node != nil && c.node.down.Load() {
		inst.impede()
	}
	// If c.lost is set, the client itself notices that the server is down, so send the call anyway.
	if c.node == nil || !c.node.down.Load() || c.lost != nil {
		if ctx.Err() != nil {
			ctx = context.WithoutCancel(ctx) // go-redis cannot withdraw a sent request
		}
		g.leases.noteRelease(c)
		if c.outcome == schedule.SentTwice { // send it twice, because the first reply is lost
			g.leases.update(c, send(ctx))
		}
		err = send(ctx)
	}
	g.leases.update(c, err)
	switch c.outcome {
	case schedule.ReplyLost:
		err = c.loss()
	case schedule.ReplyLate:
		if gone := g.wait(c, &g.late); gone != nil {
			err = gone
		}
	}
	g.noteReply(c, err)
	return err
}

// unsent reports whether the client could not send the call yet, because the server is down.
func (c *call) unsent() bool { return c.awaits && c.node.down.Load() }

// loss returns the error that the caller sees if the reply is lost.
func (c *call) loss() error { return cmp.Or(c.lost, errLost) }

func phaseOf(ctx context.Context) tap.Phase {
	return cmp.Or(tap.OpFrom(ctx, tap.Op{}).Phase, tap.Renew)
}

// actorOf returns the actor that made a call. Background calls have no driver, so they count as
// calls of the instance's first actor.
func (g *gate) actorOf(inst *instance, driver int64) *actor {
	return cmp.Or(catalog.First(g.world.actors, func(a *actor) bool { return a.inst == inst && (driver == 0 || driver == a.driver) }), g.world.probe)
}

// numberCalls numbers the calls that the last step has caused. They arrive in random order, so it
// first sorts them by content.
func (g *gate) numberCalls() (fresh []*call) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range slices.Concat(g.waiting, g.inFlight) {
		if c.n == 0 {
			if c.ctx != nil { // the phase changes if a renewal arrives before its acquire has returned
				c.phase = phaseOf(c.ctx)
			}
			fresh = append(fresh, c)
		}
	}
	slices.SortFunc(fresh, func(a, b *call) int {
		if order := compareCalls(a, b); order != 0 {
			return order
		}
		return strings.Compare(fmt.Sprint(a.sent), fmt.Sprint(b.sent))
	})
	for _, c := range fresh {
		name := [2]string{string(c.phase), c.target}
		c.actor.counts[name]++
		c.n = c.actor.counts[name]
	}
	return fresh
}

// forgetReleases clears the field releasing of new calls whose actors have reacquired the lock,
// because these calls do not belong to the earlier release.
func (g *gate) forgetReleases(fresh []*call) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range fresh {
		c.releasing = c.releasing && c.actor.releasing
	}
}

// wait blocks until the schedule decides the call, or until the call's context ends. While the
// process is paused, it ignores the end of the context.
func (g *gate) wait(c *call, line *[]*call) error {
	g.mu.Lock()
	if g.ungated && (!c.actor.dead || g.starting) {
		g.passed.Add(1)
		g.mu.Unlock()
		return nil
	}
	c.decided, c.releasing = make(chan schedule.Kind, 1), c.actor.releasing
	*line = append(*line, c)
	g.mu.Unlock()
	g.signal()
	patience, stop := c.patience()
	defer stop()
	for {
		select {
		case c.outcome = <-c.decided:
			return nil
		case <-g.world.ended:
			return errOver
		case <-patience:
		}
		<-c.ctx.Done() // the context's timer may be due now but fire a little later
		switch {
		case !g.abandon(c, line):
			patience = nil
		case c.heedsContext():
			return c.ctx.Err()
		default:
			return context.DeadlineExceeded
		}
	}
}

// patience returns a channel that is ready when the caller gives up the call. Database clients give
// up when their context ends, but go-redis only at a deadline.
func (c *call) patience() (over <-chan struct{}, stop func()) {
	switch deadline, ok := c.ctx.Deadline(); {
	case c.heedsContext():
		return c.ctx.Done(), func() {}
	case !ok:
		return nil, func() {}
	default:
		ctx, cancel := context.WithDeadline(context.WithoutCancel(c.ctx), deadline)
		return ctx.Done(), cancel
	}
}

func (c *call) heedsContext() bool { return c.node == nil || c.node.cancels }

// passes reports whether calls of running actors need no step.
func (g *gate) passes() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.ungated
}

// abandon removes a call whose caller has given up. It returns false if the call must stay, for
// example because its process is paused.
func (g *gate) abandon(c *call, line *[]*call) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(*line, c)
	if c.actor.paused() || c.actor.dead || c.actor.hung && c.phase != tap.Renew || i < 0 {
		return false
	}
	*line = slices.Delete(*line, i, i+1)
	if line == &g.waiting {
		g.giveUpLocked(c)
	}
	g.mayLeaveLock = true
	g.signal()
	return true
}

// takeLocked removes and returns the call that a step names, or returns nil if the call is not in
// the list.
func takeLocked(line *[]*call, s schedule.Step) *call {
	i := slices.IndexFunc(*line, func(c *call) bool { return c.matches(s) })
	if i < 0 {
		return nil
	}
	c := (*line)[i]
	*line = slices.Delete(*line, i, i+1)
	return c
}

// giveUpLocked keeps a call whose caller has given up, because the call may still reach the server.
// It drops transactions and calls through a broken network.
func (g *gate) giveUpLocked(c *call) {
	if c.sent != nil && !c.actor.inst.cut[c.network()] && !c.isTransaction() {
		g.inFlight = append(g.inFlight, c)
	}
}

func (c *call) isTransaction() bool {
	return slices.ContainsFunc(c.sent, func(args []any) bool { return strings.EqualFold(fmt.Sprint(args[0]), "exec") })
}

// decide releases the call that a step names. It returns false if there is no such call.
func (g *gate) decide(line *[]*call, s schedule.Step) bool {
	g.mu.Lock()
	c := takeLocked(line, s)
	if c != nil && s.Kind == schedule.GivenUp {
		g.giveUpLocked(c)
		g.mayLeaveLock = true
	}
	g.mu.Unlock()
	switch {
	case c == nil:
		return false
	case c.deliver == nil:
		c.decided <- s.Kind
	default:
		c.deliver()
		g.leases.update(c, nil)
		g.noteReply(c, nil)
	}
	return true
}

// isCut reports whether err means that no reply arrived, for example because of a network failure.
func isCut(err error) bool {
	return errors.Is(err, errLost) || errors.Is(err, errDown) || errors.Is(err, context.DeadlineExceeded)
}

// signal wakes the goroutine in sleep.
func (g *gate) signal() {
	select {
	case g.arrived <- struct{}{}:
	default:
	}
}

// forgetSignal discards a pending signal. Otherwise, the next sleep would return at once.
func (g *gate) forgetSignal() {
	select {
	case <-g.arrived:
	default:
	}
}

// sleep waits until a call arrives or a grab ends, but at most for d. It returns true if it has
// timed out.
func (g *gate) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-g.arrived:
		return false
	case <-timer.C:
		return true
	}
}

// noteReply adds a reply to the state hash. It sums up the hashes of replies, so that the order of
// simultaneous replies does not matter.
func (g *gate) noteReply(c *call, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	h := c.fingerprint().Number(int64(g.world.elapsed()))
	if err != nil {
		h = h.Text(err.Error())
		c.actor.releaseCut = c.actor.releaseCut || c.phase == tap.Release && isCut(err)
	} else {
		c.answerLocked()
	}
	text := c.text()
	if g.recording {
		g.did = append(g.did, fmt.Sprintf("%s: %s\n", c.target, text))
	}
	if c.node == nil {
		c.actor.observed += h.Text(text)
		return
	}
	c.node.replyHash += h.Text(text)
}

// fingerprint returns a hash of the call and its commands. The hash does not depend on the server.
func (c *call) fingerprint() search.Fingerprint {
	f := search.EmptyFingerprint
	for _, args := range c.sent {
		for _, arg := range args {
			text, ok := arg.(string)
			if !ok {
				text = fmt.Sprint(arg)
			}
			f = f.Text(text)
		}
		f = f.Number(int64(len(args)))
	}
	return f.Text(c.actor.name).Text(string(c.phase)).Number(int64(c.n))
}

// subscribe makes a subscription wait until the schedule releases it. It returns false if the
// subscription need not wait.
func (g *gate) subscribe(inst *instance, c *call) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.actor = g.subscriberLocked(inst); c.ctx != nil {
		c.actor = g.actorOf(inst, tap.OpFrom(c.ctx, tap.Op{}).Driver)
	}
	if g.ungated || c.actor == g.world.probe {
		return false
	}
	g.waiting = append(g.waiting, c)
	g.signal()
	return true
}

// hasCallLocked reports whether meets is true for any call that has not ended. A call that its caller
// has given up counts too.
func (g *gate) hasCallLocked(meets func(*call) bool) bool {
	return slices.ContainsFunc(slices.Concat(g.waiting, g.late, g.inFlight), meets)
}

// withdraw removes a waiting subscription that its client no longer needs.
func (g *gate) withdraw(c *call) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting = slices.DeleteFunc(g.waiting, func(other *call) bool { return other == c })
}

// subscriberLocked returns the actor to which it attributes a process's subscription. This is the last
// of the process's actors that wait for the lock.
func (g *gate) subscriberLocked(inst *instance) *actor {
	found := g.actorOf(inst, 0)
	for _, a := range g.world.actors {
		if a.inst == inst && a.begun && !a.done && !a.granted {
			found = a
		}
	}
	return found
}
