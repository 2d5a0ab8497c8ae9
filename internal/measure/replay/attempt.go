package replay

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"grablab/internal/explore/schedule"
	"grablab/internal/history"
	"grablab/internal/service/control"
	"grablab/internal/tap"
	"grablab/internal/testbed/wait"
)

// attempt is one replay of the schedule. Each attempt uses a new order.
type attempt struct {
	*replayer
	order   int64
	began   time.Time
	actors  actors
	leases  leases
	killed  map[int]bool      // instances that were killed and not restarted yet
	seen    map[string]uint64 // number of each instance's last event before this attempt
	events  []history.Event
	leftOut int // number of skipped steps; another strategy than the schedule's may not reach every step
}

// clearTimeout is the timeout of the clean-up after an attempt.
const clearTimeout = 30 * time.Second

// neverError says why a strategy can never reach a step of the schedule.
type neverError string

func (e neverError) Error() string { return string(e) }

func impossible(why string, args ...any) error { return neverError(fmt.Sprintf(why, args...)) }

// attempt replays the schedule once, on a new order.
func (r *replayer) attempt(ctx context.Context) (f Result, err error) {
	t := &attempt{replayer: r, killed: map[int]bool{}, seen: r.fleet.Events.Seen()}
	if t.order, err = r.store.Create(ctx, 1, max(r.Schedule.Stock, 1)); err != nil {
		return f, err
	}
	t.actors, t.leases = r.assign(), r.newLeases(t.order)
	defer func() { err = errors.Join(err, t.clear(context.WithoutCancel(ctx))) }()
	for n := range r.fleet.Instances {
		if err := t.hold(ctx, n+1); err != nil {
			return f, err
		}
	}
	t.began = time.Now()
	for i, s := range r.Schedule.Steps {
		if err := t.step(ctx, i, s); err != nil {
			return f, err
		}
	}
	f, err = t.conclude(ctx)
	f.LeftOut = t.leftOut
	return f, err
}

// allCalls is the name of the breakpoint that stops all calls of all actors.
const allCalls = "all"

// hold makes instance n stop before every remote call of its actors.
func (t *attempt) hold(ctx context.Context, n int) error {
	var hold control.Hold
	for _, a := range t.actors.on(n) {
		hold.First, hold.Count = t.order, 1
		hold.Drivers = append(hold.Drivers, a.driver)
	}
	return t.fleet.Instances[n-1].SetHold(ctx, allCalls, hold)
}

type move struct {
	schedule.Step
	index int
	actor *actor // the driver that takes the step; nil if the step has none
}

func (t *attempt) step(ctx context.Context, i int, s schedule.Step) error {
	seen, err := t.do(ctx, move{s, i, t.actors.named(s.Actor)})
	if why, ok := errors.AsType[neverError](err); ok {
		if t.usesOwnStrategy() {
			return t.cannot(i, "%s", why)
		}
		t.leftOut++
		seen, err = fmt.Sprintf("skipped: %s", why), nil
	}
	if err != nil {
		return err
	}
	t.say("%s", strings.TrimRight(fmt.Sprintf("%7d ms  %-32s %s", time.Since(t.began).Milliseconds(), s, seen), " "))
	return t.inTime(i)
}

func (t *attempt) do(ctx context.Context, m move) (seen string, err error) {
	if m.Target != "" && m.Target != schedule.DB && t.servers[m.Target] == nil {
		return "", impossible("%s has no server %s", t.Strategy.Name, m.Target)
	}
	kind := kinds[m.Kind]
	if kind.settle > 0 {
		if err := t.awaitAll(ctx, kind.settle); err != nil {
			return "", err
		}
	}
	return kind.do(t, ctx, m)
}

// execute is a function that runs a step and describes what happened.
type execute = func(t *attempt, ctx context.Context, m move) (seen string, err error)

// kinds lists the kinds of steps that a replay supports.
var kinds = map[schedule.Kind]struct {
	do execute
	// settle limits how long the replay waits, before the step, until every actor has stopped at a call
	// or has ended. It is short for steps that let time pass, because an actor may be waiting for
	// exactly that time to pass.
	settle time.Duration
}{
	schedule.Begins:       {do: (*attempt).begin},
	schedule.Call:         {do: releaseAs(control.Delivered)},
	schedule.ReplyLost:    {do: releaseAs(control.ReplyLost)},
	schedule.RequestLost:  {do: releaseAs(control.Refused)},
	schedule.ReplyLate:    {do: releaseAs(control.ReplyDelayed)},
	schedule.GivenUp:      {do: releaseAs(control.Refused)},
	schedule.Hears:        {do: (*attempt).deliver},
	schedule.Paused:       {do: (*attempt).pause, settle: arrivalTimeout},
	schedule.Resumes:      {do: (*attempt).resume},
	schedule.Dies:         {do: (*attempt).kill, settle: arrivalTimeout},
	schedule.InstanceDies: {do: (*attempt).kill, settle: arrivalTimeout},
	schedule.Passes:       {do: (*attempt).pass, settle: 300 * time.Millisecond},
	schedule.NextTimer:    {do: (*attempt).nextTimer},
	schedule.LeaseEnd:     {do: (*attempt).leaseEnd, settle: 300 * time.Millisecond},
	schedule.Restarts:     {do: (*attempt).restartServer},
}

// begin sends the actor's request without waiting for the answer.
func (t *attempt) begin(ctx context.Context, m move) (string, error) {
	p := m.actor
	if err := t.restart(ctx, p.Instance); err != nil {
		return "", err
	}
	ctx, p.hangUp = context.WithCancel(context.WithoutCancel(ctx))
	body := strings.NewReader(fmt.Sprintf(`{"driver_id":%d}`, p.driver))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, fmt.Sprintf("%s/orders/%d/grab", p.in.URL, t.order), body)
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	p.begun = true
	go func() {
		defer close(p.ended)
		p.answer = ask(req)
	}()
	return "", nil
}

func (t *attempt) call(p *actor, s schedule.Step) control.Call {
	return control.Call{Order: t.order, Driver: p.driver, Phase: tap.Phase(s.Phase), N: s.N, Target: s.Target}
}

const (
	arrivalTimeout = 15 * time.Second // how long to wait until a call reaches its breakpoint
	pollInterval   = 3 * time.Millisecond
)

func releaseAs(as control.Outcome) execute {
	return func(t *attempt, ctx context.Context, m move) (string, error) { return t.release(ctx, m, as) }
}

// release waits until the actor has stopped at a call, lets the call continue, and waits for the
// reply.
func (t *attempt) release(ctx context.Context, m move, as control.Outcome) (string, error) {
	call := t.call(m.actor, m.Step)
	if err := t.await(ctx, m.actor, call); err != nil {
		return "", err
	}
	before, err := t.look(ctx, m.Target)
	if err != nil {
		return "", err
	}
	since := t.clock()
	ctx, cancel := context.WithTimeout(ctx, arrivalTimeout)
	defer cancel()
	answer, err := m.actor.in.Release(ctx, allCalls, call, as)
	switch {
	case answer.Code == control.NotHeld, answer.Code == control.Deadline:
		return "", fmt.Errorf("%w: line %d, %q: the caller stopped waiting for this call before the schedule could continue", ErrTooSlow, t.Lines[m.index], m.Step)
	case ctx.Err() != nil:
		return "", t.cannot(m.index, "it got no answer within %v", arrivalTimeout)
	case err != nil:
		return "", err
	}
	after, err := t.look(ctx, m.Target)
	if err != nil {
		return "", err
	}
	t.leases.note(m.actor, m.Step, since, before, after)
	return t.describe(ctx, m.Step, as, answer.Error, after)
}

// await waits until the actor has stopped at the given call. If the actor can never make the call,
// await returns a neverError.
func (t *attempt) await(ctx context.Context, p *actor, call control.Call) error {
	if !p.begun || p.dead {
		return impossible("%s's grab is not in progress", p.Actor.Name)
	}
	if p.stopped {
		return impossible("%s's process is stopped", p.Actor.Name)
	}
	for began := time.Now(); ; {
		over := p.hasEnded() // read this first: the list of stopped calls is final only after the request has ended
		held, err := t.held(ctx, p)
		if err != nil {
			return err
		}
		others := false
		for _, c := range held {
			if c.Call == call && c.State == control.Waiting {
				return nil
			}
			others = others || c.Driver == p.driver
		}
		waited := time.Since(began)
		switch {
		case over:
			return impossible("%s has been answered: %s", p.Actor.Name, p.answer)
		case others && waited > t.otherCallTimeout():
			return impossible("%s waits at another call", p.Actor.Name)
		case waited > arrivalTimeout:
			return impossible("%s made no such call within %v (the replay cannot stop a subscription or a timer of the lock)", p.Actor.Name, arrivalTimeout)
		case !wait.For(ctx, pollInterval):
			return context.Cause(ctx)
		}
	}
}

// otherCallTimeout returns how long to wait for a call if the actor has stopped at a different
// call. An actor may send several calls at once, so the right call may still come.
func (t *attempt) otherCallTimeout() time.Duration {
	if t.usesOwnStrategy() {
		return 2 * time.Second
	}
	return 500 * time.Millisecond
}

// held returns the calls and replies that are stopped at the actor's instance. It returns
// ErrTooSlow if the deadline of a call has already passed, except for renewals.
func (t *attempt) held(ctx context.Context, p *actor) ([]control.Held, error) {
	calls, err := p.in.Held(ctx, allCalls, 0, 0)
	missed := func(c control.Held) bool { return c.State == control.Expired && c.Phase != tap.Renew }
	if err == nil && t.leases.expired == 0 && slices.ContainsFunc(calls, missed) {
		err = fmt.Errorf("%w: the replay delayed a call until its deadline had passed", ErrTooSlow)
	}
	return slices.DeleteFunc(calls, func(c control.Held) bool { return c.State != control.Waiting && c.State != control.Replied }), err
}

// deliver passes a delayed reply on to the actor.
func (t *attempt) deliver(ctx context.Context, m move) (string, error) {
	answer, err := m.actor.in.Release(ctx, allCalls, t.call(m.actor, m.Step), control.ReplyDelivered)
	if answer.Code == control.NotHeld {
		return "", impossible("no reply to that call is delayed")
	}
	return "its reply arrived", err
}

// awaitAll waits until every actor has stopped at a call or has ended, but no longer than within.
func (t *attempt) awaitAll(ctx context.Context, within time.Duration) error {
	_, err := wait.Until(ctx, pollInterval, within, func() (bool, error) {
		all := true
		for _, p := range t.actors {
			if !p.begun || p.stopped || p.hasEnded() {
				continue
			}
			held, err := t.held(ctx, p)
			if err != nil {
				return false, err
			}
			all = all && slices.ContainsFunc(held, func(c control.Held) bool { return c.Driver == p.driver })
		}
		return all, nil
	})
	return err
}

// clear cleans up instances and servers before the next attempt.
func (t *attempt) clear(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, clearTimeout)
	defer cancel()
	errs := []error{t.releaseAll(ctx)}
	for _, p := range t.actors {
		if p.begun {
			p.hangUp()
			<-p.ended
		}
	}
	_, err := t.fleet.Drain(ctx, 0, clearTimeout/2)
	errs = append(errs, err)
	return errors.Join(append(errs, t.fleet.ReadEvents(t.keep))...)
}

// releaseAll lets all processes and calls continue.
func (t *attempt) releaseAll(ctx context.Context) (err error) {
	for _, p := range t.actors {
		_, failed := t.resume(ctx, move{actor: p})
		err = errors.Join(err, failed)
	}
	for n, in := range t.fleet.Instances {
		err = errors.Join(err, t.restart(ctx, n+1), in.SetHold(ctx, allCalls, control.Hold{}))
	}
	return err
}

// end lets every actor continue and waits until all of them have ended.
func (t *attempt) end(ctx context.Context) error {
	if err := t.releaseAll(ctx); err != nil {
		return err
	}
	for _, p := range t.actors {
		if !p.begun {
			continue
		}
		select {
		case <-p.ended:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
