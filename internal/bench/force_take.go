package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"grablab/internal/history"
	"grablab/internal/instance"
	course "grablab/internal/schedule"
	"grablab/internal/stack"
	"grablab/internal/tap"
)

// take is a schedule being forced once, on an order of its own.
type take struct {
	*conductor
	order   int64
	began   time.Time
	actors  []*performer
	grants  []grant
	expired time.Duration // leases that ended by then, did so because the schedule let time pass
	down    map[string]stack.Heal
	ahead   map[int]time.Duration // of the clock of an instance
	gone    map[int]bool          // instances that were killed, and do not run
	seen    map[string]uint64     // events before
	events  []history.Event
	left    int
}

// performer is an actor of the schedule, on a real instance.
type performer struct {
	course.Actor
	player
	driver        int64
	begun         bool
	dead, stopped bool
	asked         time.Duration // CLOCK_MONOTONIC: when its last call for a lease was let go
	hangUp        context.CancelFunc
	over          chan struct{} // closes when the client has an answer, or none
	answer        string        // once over is closed
}

// neverError says why a strategy does not come to a step.
type neverError string

func (e neverError) Error() string { return string(e) }

func never(why string, args ...any) error { return neverError(fmt.Sprintf(why, args...)) }

// take forces the schedule on a fresh order, and judges what has come of it.
func (c *conductor) take(ctx context.Context) (f Forced, err error) {
	t := &take{conductor: c, down: map[string]stack.Heal{}, ahead: map[int]time.Duration{}, gone: map[int]bool{}, seen: maps.Clone(c.record.seen)}
	if t.order, err = c.books.Create(ctx, 1); err != nil {
		return f, err
	}
	t.cast()
	defer func() { err = errors.Join(err, t.clear(context.WithoutCancel(ctx))) }()
	for _, n := range t.instances() {
		if err := t.shut(ctx, n); err != nil {
			return f, err
		}
	}
	t.began = time.Now()
	for i, s := range c.Schedule.Steps {
		if err := t.step(ctx, i, s); err != nil {
			return f, err
		}
	}
	f, err = t.conclude(ctx)
	f.LeftOut = t.left
	return f, err
}

// cast gives every actor a driver, from 1, and its instance.
func (t *take) cast() {
	for i, a := range t.Schedule.Actors {
		p := &performer{Actor: a, player: player{t.fleet, a.Instance - 1, t.Strategy.Name}, driver: int64(i) + 1, over: make(chan struct{})}
		for _, b := range t.actors {
			if b.Actor.Name == a.As {
				p.driver = b.driver
			}
		}
		t.actors = append(t.actors, p)
	}
}

// instances are the players of the instances that take part.
func (t *take) instances() []player {
	players := make([]player, len(t.fleet.instances))
	for i := range players {
		players[i] = player{t.fleet, i, t.Strategy.Name}
	}
	return players
}

func (t *take) named(name string) *performer {
	i := slices.IndexFunc(t.actors, func(p *performer) bool { return p.Actor.Name == name })
	if i < 0 {
		return nil
	}
	return t.actors[i]
}

// on lists the actors of an instance.
func (t *take) on(n int) []*performer {
	return slices.DeleteFunc(slices.Clone(t.actors), func(p *performer) bool { return p.Instance != n })
}

// shut has every call of the actors of an instance wait. What its background
// sends for no one grab counts as its first actor's, as in the explorer.
func (t *take) shut(ctx context.Context, p player) error {
	hold := tap.Hold{Order: t.order}
	for _, a := range t.on(p.n + 1) {
		hold.Drivers = append(hold.Drivers, a.driver)
	}
	if len(hold.Drivers) > 0 {
		hold.Background = hold.Drivers[0]
	}
	return p.lab(ctx, http.MethodPut, "/lab/gate", hold, nil)
}

// step forces one step, and says what was seen.
func (t *take) step(ctx context.Context, i int, s course.Step) error {
	seen, err := t.do(ctx, i, s)
	if why := neverError(""); errors.As(err, &why) {
		if t.own() {
			return t.cannot(i, "%s", why)
		}
		t.left++
		seen, err = fmt.Sprintf("left out: %s", why), nil
	}
	if err != nil {
		return err
	}
	t.say("%s", strings.TrimRight(fmt.Sprintf("%7d ms  %-32s %s", time.Since(t.began).Milliseconds(), s, seen), " "))
	return t.inTime(i)
}

func (t *take) do(ctx context.Context, i int, s course.Step) (seen string, err error) {
	p := t.named(s.Actor)
	if s.Target != "" && s.Target != course.DB && t.servers[s.Target] == nil {
		return "", never("%s has no server %s", t.Strategy.Name, s.Target)
	}
	switch s.Kind {
	case course.Begins:
		return "", t.begin(ctx, p)
	case course.Call:
		return t.let(ctx, i, p, s, tap.Goes)
	case course.ReplyLost:
		return t.let(ctx, i, p, s, tap.Loses)
	case course.ReplyLate:
		return t.let(ctx, i, p, s, tap.Lingers)
	case course.GivenUp:
		return t.let(ctx, i, p, s, tap.GivenUp)
	case course.Hears:
		return t.hear(ctx, p, s)
	case course.Paused:
		return t.pause(ctx, i, p)
	case course.Resumes:
		return t.resume(p)
	case course.Cancelled:
		return t.cancel(ctx, p)
	case course.Dies:
		return t.kill(ctx, i, p.Instance, p)
	case course.InstanceDies:
		return t.kill(ctx, i, s.Instance, nil)
	case course.ClientClock:
		return t.setClock(ctx, t.on(s.Instance)[0].player, s.Duration)
	case course.Passes:
		return t.pass(ctx, s.Duration)
	case course.NextTimer:
		return t.nextTimer(ctx, i)
	case course.LeaseEnd:
		return t.leaseEnd(ctx)
	case course.Restarts:
		return "killed, and started again empty", t.stack.Restart(ctx, s.Target)
	case course.Down:
		return t.cut(s.Target)
	case course.Up:
		return t.heal(s.Target)
	case course.NodeClock:
		t.jumped(s.Target, s.Duration)
		return "every expiry there moved", t.stack.Jump(ctx, s.Target, s.Duration)
	default:
		return "", t.cannot(i, "nobody knows how")
	}
}

// setClock moves the wall clock of an instance by so much more.
func (t *take) setClock(ctx context.Context, p player, by time.Duration) (string, error) {
	if err := t.revive(ctx, p); err != nil {
		return "", err
	}
	t.ahead[p.n+1] += by
	return "as its strategies see it", p.SetClock(ctx, t.ahead[p.n+1])
}

// begin sends the actor's request, and leaves it under way.
func (t *take) begin(ctx context.Context, p *performer) error {
	if err := t.revive(ctx, p.player); err != nil {
		return err
	}
	ctx, p.hangUp = context.WithCancel(context.WithoutCancel(ctx))
	body := bytes.NewReader(fmt.Appendf(nil, `{"driver_id":%d}`, p.driver))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.member().url+"/orders/"+strconv.FormatInt(t.order, 10)+"/grab", body)
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

// ask is the outcome of a grab as its client hears it.
func ask(req *http.Request) string {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return "no answer: " + oneLine(err.Error())
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return "no whole answer: " + oneLine(err.Error())
	}
	return fmt.Sprintf("%d %s", resp.StatusCode, field(b, "outcome"))
}

// call is what a step of the actor is called at the gate.
func (p *performer) call(s course.Step) tap.Call {
	return tap.Call{Driver: p.driver, Phase: tap.Phase(s.Phase), N: s.N, Target: s.Target}
}

func (p *performer) isOver() bool {
	select {
	case <-p.over:
		return true
	default:
		return p.dead
	}
}

const (
	// arriving is what a call may take to come to the gate.
	arriving = 15 * time.Second
	// elsewhere and strange are how long somebody is waited for who stands before
	// another call, for he may send several at a time; strange is for another
	// strategy than that of the schedule, which often stands elsewhere.
	elsewhere = 2 * time.Second
	strange   = elsewhere / 4
	// peek is how often a gate is looked at.
	peek = 3 * time.Millisecond
)

// let lets one call go, once it has come to the gate, and returns when it has
// been answered.
func (t *take) let(ctx context.Context, i int, p *performer, s course.Step, f tap.Fate) (string, error) {
	call := p.call(s)
	if err := t.await(ctx, p, call); err != nil {
		return "", err
	}
	before, err := t.look(ctx, s.Target)
	if err != nil {
		return "", err
	}
	since := t.clock()
	var gone instance.Gone
	ctx, cancel := context.WithTimeout(ctx, arriving)
	defer cancel()
	err = p.lab(ctx, http.MethodPost, "/lab/gate/calls", instance.Going{Call: call, Fate: f}, &gone)
	switch {
	case isNotFound(err), isDeadline(gone.Answer):
		return "", fmt.Errorf("%w: line %d, %q: its deadline passed", ErrTooSlow, t.Lines[i], s)
	case ctx.Err() != nil:
		return "", t.cannot(i, "it was not answered within %v", arriving)
	case err != nil:
		return "", err
	}
	after, err := t.look(ctx, s.Target)
	if err != nil {
		return "", err
	}
	t.note(p, s, since, before, after)
	return t.describe(ctx, s, f, gone.Answer, after)
}

// await returns once the call stands at the gate.
func (t *take) await(ctx context.Context, p *performer, call tap.Call) error {
	if !p.begun || p.dead {
		return never("%s is not under way", p.Actor.Name)
	}
	if p.stopped {
		return never("%s is stopped", p.Actor.Name)
	}
	for began := time.Now(); ; {
		over := p.isOver() // before the look, which would miss nothing then
		line, err := t.standing(ctx, p)
		if err != nil {
			return err
		}
		others := false
		for _, s := range line {
			if s.Call == call && !s.Replied {
				return nil
			}
			others = others || s.Driver == p.driver
		}
		waited := time.Since(began)
		switch {
		case over:
			return never("%s has been answered: %s", p.Actor.Name, p.answer)
		case others && waited > t.patience():
			return never("%s stands before another call", p.Actor.Name)
		case waited > arriving:
			return never("no such call of %s came within %v (a subscription, or a timer of its own, comes to no gate)", p.Actor.Name, arriving)
		case !rest(ctx, peek):
			return context.Cause(ctx)
		}
	}
}

func (t *take) patience() time.Duration {
	if t.own() {
		return elsewhere
	}
	return strange
}

// standing is the line at the gate of an instance. ErrTooSlow: a call has left
// it because its deadline passed, though the schedule let no time pass. Renewals
// apart: when they are missed, a lease runs out, and that is seen.
func (t *take) standing(ctx context.Context, p *performer) ([]tap.Standing, error) {
	var state instance.GateState
	err := p.lab(ctx, http.MethodGet, "/lab/gate", nil, &state)
	missed := func(c tap.Call) bool { return c.Phase != tap.Renew }
	if err == nil && t.expired == 0 && slices.ContainsFunc(state.Late, missed) {
		err = fmt.Errorf("%w: the deadline of a call passed at the gate", ErrTooSlow)
	}
	return state.Standing, err
}

// hear lets the reply of a call go.
func (t *take) hear(ctx context.Context, p *performer, s course.Step) (string, error) {
	err := p.lab(ctx, http.MethodPost, "/lab/gate/calls", instance.Going{Call: p.call(s)}, nil)
	if isNotFound(err) {
		return "", never("no reply of that call stands at the gate")
	}
	return "its reply arrived", err
}

func isNotFound(err error) bool {
	var status *statusError
	return errors.As(err, &status) && status.code == http.StatusNotFound
}

// settle returns once everybody who is under way stands at the gate or has been
// answered, or after a while: then he waits for something else.
func (t *take) settle(ctx context.Context, within time.Duration) error {
	_, err := until(ctx, peek, within, func() (bool, error) {
		calm := true
		for _, p := range t.actors {
			if !p.begun || p.stopped || p.isOver() {
				continue
			}
			line, err := t.standing(ctx, p)
			if err != nil {
				return false, err
			}
			calm = calm && slices.ContainsFunc(line, func(s tap.Standing) bool { return s.Driver == p.driver })
		}
		return calm, nil
	})
	return err
}

// calming is how long somebody is waited for who may be waiting for something else.
const calming = 300 * time.Millisecond

// pause stops the process if nobody else there has a step until it goes on. Else
// the gate alone holds the actor.
func (t *take) pause(ctx context.Context, i int, p *performer) (string, error) {
	if err := t.settle(ctx, arriving); err != nil {
		return "", err
	}
	for _, s := range t.Schedule.Steps[i+1:] {
		if s.Kind == course.Resumes && s.Actor == p.Actor.Name {
			break
		}
		if other := t.named(s.Actor); other != nil && other != p && other.Instance == p.Instance || s.Instance == p.Instance {
			return "its calls stay at the gate, for others go on in its process", nil
		}
	}
	p.stopped = true
	return "SIGSTOP", p.Signal(syscall.SIGSTOP)
}

func (t *take) resume(p *performer) (string, error) {
	if !p.stopped {
		return "", nil
	}
	p.stopped = false
	return "SIGCONT", p.Signal(syscall.SIGCONT)
}

// cancel has the client hang up, and returns once the instance knows.
func (t *take) cancel(ctx context.Context, p *performer) (string, error) {
	if err := t.settle(ctx, arriving); err != nil {
		return "", err
	}
	p.hangUp()
	knows, err := until(ctx, peek, arriving, func() (bool, error) {
		line, err := t.standing(ctx, p)
		return !slices.ContainsFunc(line, func(s tap.Standing) bool {
			return s.Driver == p.driver && !s.Cancelled && cancellable(s.Phase)
		}), err
	})
	if err == nil && !knows {
		err = fmt.Errorf("%w: the instance did not notice that the client of %s hung up", ErrTooSlow, p.Actor.Name)
	}
	return "its client hung up", err
}

// cancellable: what writes or releases runs to its end, whatever the client does.
func cancellable(p tap.Phase) bool { return p == tap.Acquire || p == tap.Read }

// kill ends the process, and with it everybody who is under way there. only is
// who dies; nil: whoever is there.
func (t *take) kill(ctx context.Context, i, n int, only *performer) (string, error) {
	if err := t.settle(ctx, arriving); err != nil {
		return "", err
	}
	here := t.on(n)
	for _, p := range here {
		if p.begun && !p.isOver() {
			if only != nil && p != only {
				return "", t.cannot(i, "%s is under way in the same process", p.Actor.Name)
			}
			p.dead = true
		}
	}
	if err := here[0].Signal(syscall.SIGKILL); err != nil {
		return "", err
	}
	t.ahead[n], t.gone[n] = 0, true
	return "SIGKILL", nil
}

// revive starts an instance again that was killed, once somebody needs it:
// leases run on while it starts.
func (t *take) revive(ctx context.Context, p player) error {
	if !t.gone[p.n+1] {
		return nil
	}
	delete(t.gone, p.n+1)
	if err := p.Restart(ctx); err != nil {
		return err
	}
	return t.shut(ctx, p)
}

// cut has a server refuse everybody, with what it knows.
func (t *take) cut(server string) (string, error) {
	if t.down[server] != nil {
		return "is already", nil
	}
	heal, err := t.routes[server].Each((*stack.Route).Refuse)
	if err != nil {
		return "", err
	}
	t.down[server] = heal
	return "the ways to it refuse", nil
}

func (t *take) heal(server string) (string, error) {
	heal := t.down[server]
	delete(t.down, server)
	if heal == nil {
		return "is already", nil
	}
	return "the ways to it are open", heal()
}

// clear leaves the instances and the servers as a next take needs them.
func (t *take) clear(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, auditTimeout)
	defer cancel()
	errs := []error{t.letAll(ctx)}
	for _, p := range t.actors {
		if p.begun {
			p.hangUp()
			<-p.over
		}
	}
	_, err := t.lane.settle(ctx, 0)
	errs = append(errs, err)
	for n, ahead := range t.ahead {
		if ahead != 0 {
			errs = append(errs, t.on(n)[0].SetClock(ctx, 0))
		}
	}
	return errors.Join(append(errs, t.takeOver(func(history.Event) {}))...)
}

// letAll heals what is not healed, has every process go on, and opens the gates.
func (t *take) letAll(ctx context.Context) error {
	var errs []error
	for server := range t.down {
		_, err := t.heal(server)
		errs = append(errs, err)
	}
	for _, p := range t.actors {
		_, err := t.resume(p)
		errs = append(errs, err)
	}
	for _, p := range t.instances() {
		errs = append(errs, t.revive(ctx, p), p.lab(ctx, http.MethodDelete, "/lab/gate", nil, nil))
	}
	return errors.Join(errs...)
}

// end has everybody go on to his end.
func (t *take) end(ctx context.Context) error {
	if err := t.letAll(ctx); err != nil {
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
