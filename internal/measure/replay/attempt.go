package replay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"grablab/internal/explore/schedule"
	"grablab/internal/grab"
	"grablab/internal/history"
	"grablab/internal/service/control"
	"grablab/internal/tap"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/wait"
)

// attempt forces a schedule once, on an order of its own.
type attempt struct {
	*replayer
	order   int64
	began   time.Time
	actors  []*actor
	grants  []grant
	expired time.Duration // leases that ended before this time ended because the schedule let time pass
	down    map[string]stack.Heal
	ahead   map[int]time.Duration // how far the clock of an instance is ahead
	killed  map[int]bool          // instances that are killed and not restarted yet
	seen    map[string]uint64     // last event of each instance before this attempt
	events  []history.Event
	leftOut int // steps that another strategy did not reach
}

// actor is an actor of the schedule on a real instance.
type actor struct {
	schedule.Actor
	in            *fleet.Instance
	driver        int64
	begun         bool
	dead, stopped bool
	asked         time.Duration // when its last call for a lease was released (CLOCK_MONOTONIC)
	hangUp        context.CancelFunc
	over          chan struct{} // closed when the request has ended, with or without an answer
	answer        string        // valid after over is closed
}

// clearTimeout bounds the clean-up after an attempt.
const clearTimeout = 30 * time.Second

// neverError says why a strategy cannot reach a step.
type neverError string

func (e neverError) Error() string { return string(e) }

func impossible(why string, args ...any) error { return neverError(fmt.Sprintf(why, args...)) }

// attempt forces the schedule on a fresh order and judges the result.
func (r *replayer) attempt(ctx context.Context) (f Result, err error) {
	t := &attempt{replayer: r, down: map[string]stack.Heal{}, ahead: map[int]time.Duration{}, killed: map[int]bool{}, seen: r.fleet.Events.Seen()}
	if t.order, err = r.store.CreateStock(ctx, 1, max(r.Schedule.Stock, 1)); err != nil {
		return f, err
	}
	t.assign()
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

// assign gives every actor a driver, starting with 1, and its instance.
func (t *attempt) assign() {
	for i, a := range t.Schedule.Actors {
		p := &actor{Actor: a, in: t.fleet.Instances[a.Instance-1], driver: int64(i) + 1, over: make(chan struct{})}
		if same := t.named(a.As); same != nil {
			p.driver = same.driver
		}
		t.actors = append(t.actors, p)
	}
}

func (t *attempt) named(name string) *actor {
	i := slices.IndexFunc(t.actors, func(p *actor) bool { return p.Actor.Name == name })
	if i < 0 {
		return nil
	}
	return t.actors[i]
}

// on returns the actors of an instance.
func (t *attempt) on(n int) []*actor {
	return slices.DeleteFunc(slices.Clone(t.actors), func(p *actor) bool { return p.Instance != n })
}

// allCalls is the name of the hold that covers every call of a schedule.
const allCalls = "all"

// hold holds every call of the actors of instance n. Background calls that belong to no
// single grab count as calls of its first actor, as in the explorer.
func (t *attempt) hold(ctx context.Context, n int) error {
	var hold control.Hold
	for _, a := range t.on(n) {
		hold.First, hold.Count = t.order, 1
		hold.Drivers = append(hold.Drivers, a.driver)
	}
	return t.fleet.Instances[n-1].SetHold(ctx, allCalls, hold)
}

// step forces one step and prints what was observed.
func (t *attempt) step(ctx context.Context, i int, s schedule.Step) error {
	seen, err := t.do(ctx, i, s)
	if why := neverError(""); errors.As(err, &why) {
		if t.usesOwnStrategy() {
			return t.cannot(i, "%s", why)
		}
		t.leftOut++
		seen, err = fmt.Sprintf("left out: %s", why), nil
	}
	if err != nil {
		return err
	}
	t.say("%s", strings.TrimRight(fmt.Sprintf("%7d ms  %-32s %s", time.Since(t.began).Milliseconds(), s, seen), " "))
	return t.inTime(i)
}

func (t *attempt) do(ctx context.Context, i int, s schedule.Step) (seen string, err error) {
	p := t.named(s.Actor)
	if s.Target != "" && s.Target != schedule.DB && t.servers[s.Target] == nil {
		return "", impossible("%s has no server %s", t.Strategy.Name, s.Target)
	}
	if within := awaitAllTimeouts[s.Kind]; within > 0 {
		if err := t.awaitAll(ctx, within); err != nil {
			return "", err
		}
	}
	switch s.Kind {
	case schedule.Begins:
		return "", t.begin(ctx, p)
	case schedule.Call:
		return t.release(ctx, i, p, s, control.Delivered)
	case schedule.ReplyLost:
		return t.release(ctx, i, p, s, control.ReplyLost)
	case schedule.ReplyLate:
		return t.release(ctx, i, p, s, control.ReplyDelayed)
	case schedule.GivenUp:
		return t.release(ctx, i, p, s, control.Refused)
	case schedule.Hears:
		return t.deliver(ctx, p, s)
	case schedule.Paused:
		return t.pause(i, p)
	case schedule.Resumes:
		return t.resume(p)
	case schedule.Cancelled:
		return t.cancel(ctx, p)
	case schedule.Dies:
		return t.kill(i, p.Instance, p)
	case schedule.InstanceDies:
		return t.kill(i, s.Instance, nil)
	case schedule.ClientClock:
		return t.setClock(ctx, s.Instance, s.Duration)
	case schedule.Passes:
		return t.pass(ctx, s.Duration)
	case schedule.NextTimer:
		return t.nextTimer(ctx, i)
	case schedule.LeaseEnd:
		return t.leaseEnd(ctx)
	case schedule.Restarts:
		return "killed, and started again empty", t.stack.Restart(ctx, s.Target)
	case schedule.Down:
		return t.takeDown(s.Target)
	case schedule.Up:
		return t.bringUp(s.Target)
	case schedule.NodeClock:
		t.jumped(s.Target, s.Duration)
		return "every expiry there moved", t.stack.Jump(ctx, s.Target, s.Duration)
	default:
		return "", t.cannot(i, "such a step is not known")
	}
}

// setClock advances the wall clock of instance n by the given duration.
func (t *attempt) setClock(ctx context.Context, n int, by time.Duration) (string, error) {
	if err := t.restart(ctx, n); err != nil {
		return "", err
	}
	t.ahead[n] += by
	return "as its strategies see it", t.fleet.Instances[n-1].SetClock(ctx, t.ahead[n])
}

// begin sends the actor's request and does not wait for the answer.
func (t *attempt) begin(ctx context.Context, p *actor) error {
	if err := t.restart(ctx, p.Instance); err != nil {
		return err
	}
	ctx, p.hangUp = context.WithCancel(context.WithoutCancel(ctx))
	body := bytes.NewReader(fmt.Appendf(nil, `{"driver_id":%d}`, p.driver))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.in.URL+"/orders/"+strconv.FormatInt(t.order, 10)+"/grab", body)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	p.begun = true
	go func() {
		defer close(p.over)
		p.answer = ask(req)
	}()
	return nil
}

// ask sends a grab and describes the outcome as its client sees it.
func ask(req *http.Request) string {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return "no answer: " + fleet.OneLine(err.Error())
	}
	defer resp.Body.Close()
	var answer grab.Answer
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return "no whole answer: " + fleet.OneLine(err.Error())
	}
	return fmt.Sprintf("%d %s", resp.StatusCode, answer.Outcome)
}

// call returns the call that a step names.
func (t *attempt) call(p *actor, s schedule.Step) control.Call {
	return control.Call{Order: t.order, Driver: p.driver, Phase: tap.Phase(s.Phase), N: s.N, Target: s.Target}
}

func (p *actor) isOver() bool {
	select {
	case <-p.over:
		return true
	default:
		return p.dead
	}
}

const (
	arrivalTimeout = 15 * time.Second // for a call to arrive
	pollInterval   = 3 * time.Millisecond
)

// release releases one call when it is held, and returns when the call has been answered.
func (t *attempt) release(ctx context.Context, i int, p *actor, s schedule.Step, as control.Outcome) (string, error) {
	call := t.call(p, s)
	if err := t.await(ctx, p, call); err != nil {
		return "", err
	}
	before, err := t.look(ctx, s.Target)
	if err != nil {
		return "", err
	}
	since := t.clock()
	ctx, cancel := context.WithTimeout(ctx, arrivalTimeout)
	defer cancel()
	answer, err := p.in.Release(ctx, allCalls, call, as)
	switch {
	case answer.Code == control.NotHeld, answer.Code == control.Deadline:
		return "", fmt.Errorf("%w: line %d, %q: its deadline passed", ErrTooSlow, t.Lines[i], s)
	case ctx.Err() != nil:
		return "", t.cannot(i, "it was not answered within %v", arrivalTimeout)
	case err != nil:
		return "", err
	}
	after, err := t.look(ctx, s.Target)
	if err != nil {
		return "", err
	}
	t.note(p, s, since, before, after)
	return t.describe(ctx, s, as, answer.Error, after)
}

// await returns when the call is held.
func (t *attempt) await(ctx context.Context, p *actor, call control.Call) error {
	if !p.begun || p.dead {
		return impossible("%s is not under way", p.Actor.Name)
	}
	if p.stopped {
		return impossible("%s is stopped", p.Actor.Name)
	}
	for began := time.Now(); ; {
		over := p.isOver() // read this before the held calls: if the request is over, the list is final
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
			return impossible("no such call of %s came within %v (a subscription, or a timer of its own, cannot be held)", p.Actor.Name, arrivalTimeout)
		case !wait.For(ctx, pollInterval):
			return context.Cause(ctx)
		}
	}
}

// otherCallTimeout returns how long await waits for a call while another call of the same actor
// is held. An actor may send several calls at once. A strategy other than the
// schedule's often waits at another call forever.
func (t *attempt) otherCallTimeout() time.Duration {
	if t.usesOwnStrategy() {
		return 2 * time.Second
	}
	return 500 * time.Millisecond
}

// held returns the calls and replies that are held on the actor's instance. It returns
// ErrTooSlow if the deadline of a call has passed although the schedule let no time pass.
// Missed renewals do not count, because the end of the lease shows in another way.
func (t *attempt) held(ctx context.Context, p *actor) ([]control.Held, error) {
	calls, err := p.in.Held(ctx, allCalls, 0, 0)
	missed := func(c control.Held) bool { return c.State == control.Expired && c.Phase != tap.Renew }
	if err == nil && t.expired == 0 && slices.ContainsFunc(calls, missed) {
		err = fmt.Errorf("%w: the deadline of a held call passed", ErrTooSlow)
	}
	return slices.DeleteFunc(calls, func(c control.Held) bool { return c.State != control.Waiting && c.State != control.Replied }), err
}

// deliver releases the held reply of a call.
func (t *attempt) deliver(ctx context.Context, p *actor, s schedule.Step) (string, error) {
	answer, err := p.in.Release(ctx, allCalls, t.call(p, s), control.ReplyDelivered)
	if answer.Code == control.NotHeld {
		return "", impossible("no reply of that call is held")
	}
	return "its reply arrived", err
}

// awaitAll returns when every actor that has begun has a held call or an answer. After
// within it returns anyway, because an actor may wait for something else.
func (t *attempt) awaitAll(ctx context.Context, within time.Duration) error {
	_, err := wait.Until(ctx, pollInterval, within, func() (bool, error) {
		all := true
		for _, p := range t.actors {
			if !p.begun || p.stopped || p.isOver() {
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

// awaitAllTimeouts lists the steps that need awaitAll first. Before time passes, actors
// often wait for something else, so the timeout is short there.
var awaitAllTimeouts = map[schedule.Kind]time.Duration{
	schedule.Paused:       arrivalTimeout,
	schedule.Cancelled:    arrivalTimeout,
	schedule.Dies:         arrivalTimeout,
	schedule.InstanceDies: arrivalTimeout,
	schedule.Passes:       300 * time.Millisecond,
	schedule.LeaseEnd:     300 * time.Millisecond,
}

// pause stops the process if no other actor in it has a step before the actor resumes.
// Otherwise it only holds the actor's calls.
func (t *attempt) pause(i int, p *actor) (string, error) {
	for _, s := range t.Schedule.Steps[i+1:] {
		if s.Kind == schedule.Resumes && s.Actor == p.Actor.Name {
			break
		}
		if other := t.named(s.Actor); other != nil && other != p && other.Instance == p.Instance || s.Instance == p.Instance {
			return "its calls stay held, because other actors continue in its process", nil
		}
	}
	p.stopped = true
	return "SIGSTOP", p.in.Signal(syscall.SIGSTOP)
}

func (t *attempt) resume(p *actor) (string, error) {
	if !p.stopped {
		return "", nil
	}
	p.stopped = false
	return "SIGCONT", p.in.Signal(syscall.SIGCONT)
}

// cancel makes the client hang up, and returns when the instance has noticed.
func (t *attempt) cancel(ctx context.Context, p *actor) (string, error) {
	p.hangUp()
	knows, err := wait.Until(ctx, pollInterval, arrivalTimeout, func() (bool, error) {
		held, err := t.held(ctx, p)
		return !slices.ContainsFunc(held, func(c control.Held) bool {
			return c.Driver == p.driver && !c.Cancelled && cancellable(c.Phase)
		}), err
	})
	if err == nil && !knows {
		err = fmt.Errorf("%w: the instance did not notice that the client of %s hung up", ErrTooSlow, p.Actor.Name)
	}
	return "its client hung up", err
}

// cancellable reports whether a client that hangs up ends the phase. A write and a release
// always run to their end.
func cancellable(p tap.Phase) bool { return p == tap.Acquire || p == tap.Read }

// kill ends the process of instance n and with it every actor there. If only is not nil, it
// must be the only active actor there.
func (t *attempt) kill(i, n int, only *actor) (string, error) {
	here := t.on(n)
	for _, p := range here {
		if p.begun && !p.isOver() {
			if only != nil && p != only {
				return "", t.cannot(i, "%s is under way in the same process", p.Actor.Name)
			}
			p.dead = true
		}
	}
	if err := here[0].in.Signal(syscall.SIGKILL); err != nil {
		return "", err
	}
	t.ahead[n], t.killed[n] = 0, true
	return "SIGKILL", nil
}

// restart starts instance n again if it was killed. This happens when the instance is
// needed, because leases keep running while it starts.
func (t *attempt) restart(ctx context.Context, n int) error {
	if !t.killed[n] {
		return nil
	}
	delete(t.killed, n)
	if err := t.fleet.Instances[n-1].Restart(ctx); err != nil {
		return err
	}
	return t.hold(ctx, n)
}

// takeDown makes a server refuse every client. The server keeps its data.
func (t *attempt) takeDown(server string) (string, error) {
	if t.down[server] != nil {
		return "was down already", nil
	}
	heal, err := t.routes[server].Each((*stack.Route).Refuse)
	if err != nil {
		return "", err
	}
	t.down[server] = heal
	return "the routes to it refuse", nil
}

// bringUp makes a server accept clients again.
func (t *attempt) bringUp(server string) (string, error) {
	heal := t.down[server]
	delete(t.down, server)
	if heal == nil {
		return "was up already", nil
	}
	return "the routes to it are open", heal()
}

// clear resets the instances and servers for the next attempt.
func (t *attempt) clear(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, clearTimeout)
	defer cancel()
	errs := []error{t.releaseAll(ctx)}
	for _, p := range t.actors {
		if p.begun {
			p.hangUp()
			<-p.over
		}
	}
	_, err := t.fleet.Drain(ctx, 0, clearTimeout/2)
	errs = append(errs, err)
	for n, ahead := range t.ahead {
		if ahead != 0 {
			errs = append(errs, t.fleet.Instances[n-1].SetClock(ctx, 0))
		}
	}
	return errors.Join(append(errs, t.fleet.ReadEvents(t.keep))...)
}

// releaseAll heals all faults, continues every process and releases every call.
func (t *attempt) releaseAll(ctx context.Context) error {
	var errs []error
	for server := range t.down {
		_, err := t.bringUp(server)
		errs = append(errs, err)
	}
	for _, p := range t.actors {
		_, err := t.resume(p)
		errs = append(errs, err)
	}
	for n, in := range t.fleet.Instances {
		errs = append(errs, t.restart(ctx, n+1), in.SetHold(ctx, allCalls, control.Hold{}))
	}
	return errors.Join(errs...)
}

// end lets every actor continue to its end.
func (t *attempt) end(ctx context.Context) error {
	if err := t.releaseAll(ctx); err != nil {
		return err
	}
	for _, p := range t.actors {
		if !p.begun {
			continue
		}
		select {
		case <-p.over:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
