package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"grablab/internal/explore/search"
	"grablab/internal/schedule"
	"grablab/internal/tap"
)

var (
	errOver = errors.New("sim: the schedule is over")
	errDown = errors.New("sim: the server cannot be reached")
	errLost = errors.New("sim: the reply is lost")
)

// call is one remote call. It stands at the gate until a step lets it through,
// and there again if its reply is late.
type call struct {
	actor  *actor
	phase  tap.Phase
	n      int
	target string
	node   *node // nil: the database
	ctx    context.Context

	chosen chan fate
	fate   fate
	flight func()        // what arrives, where nobody waits at the gate
	sent   [][]any       // the commands, should the caller give them up
	text   func() string // what was asked and answered, once it was
}

// fate is what a step does to a call.
type fate int

const (
	delivered fate = iota
	lost
	delayed
	givenUp
)

func (c *call) step(kind schedule.Kind) schedule.Step {
	return schedule.Step{Kind: kind, Actor: c.actor.name, Phase: string(c.phase), N: c.n, Target: c.target}
}

func (c *call) is(s schedule.Step) bool {
	return c.actor.name == s.Actor && c.n == s.N && c.target == s.Target && string(c.phase) == s.Phase
}

// compareCalls is the order of moves: goroutines arrive in any.
func compareCalls(a, b *call) int {
	if a.actor != b.actor {
		return a.actor.index - b.actor.index
	}
	if a.phase != b.phase {
		return strings.Compare(string(a.phase), string(b.phase))
	}
	if a.target != b.target {
		return strings.Compare(a.target, b.target)
	}
	return a.n - b.n
}

// through makes one call when and as the schedule will have it.
func (x *execution) through(ctx context.Context, inst *instance, c *call, send func(context.Context) error) error {
	c.ctx = ctx
	x.name(inst, c)
	if c.ctx.Err() != nil {
		return send(ctx) // and the client finds out
	}
	if err := x.park(c, &x.waiting); err != nil {
		x.heard(c, err)
		return err
	}
	if c.fate == givenUp {
		x.heard(c, errLost)
		return errLost
	}
	err := errDown
	if c.node == nil || !c.node.down {
		err = send(onItsWay(ctx))
	}
	x.applied(c, err)
	switch c.fate {
	case lost:
		err = errLost
	case delayed:
		if gone := x.park(c, &x.late); gone != nil {
			err = gone
		}
	}
	x.heard(c, err)
	return err
}

// onItsWay is for a request that was sent before its context ended: go-redis
// does not take it back.
func onItsWay(ctx context.Context) context.Context {
	if ctx.Err() != nil {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

// name says whose call it is. Those of an instance's background, which belong
// to no one grab, count as its first actor's.
func (x *execution) name(inst *instance, c *call) {
	c.phase = phaseOf(c.ctx)
	x.mu.Lock()
	defer x.mu.Unlock()
	c.actor = x.actorOf(inst, tap.OpFrom(c.ctx, tap.Op{}).Driver)
}

func phaseOf(ctx context.Context) tap.Phase {
	return cmp.Or(tap.OpFrom(ctx, tap.Op{}).Phase, tap.Renew)
}

// count numbers the calls that have come to the gate in the last step. Those of
// one instant are told apart by what they ask: they come in any order. For the
// same reason their phase is looked at again: a renewal that is due at once may
// come before the acquire has returned, or after.
func (x *execution) count() {
	x.mu.Lock()
	defer x.mu.Unlock()
	var fresh []*call
	for _, line := range [][]*call{x.waiting, x.inFlight} {
		for _, c := range line {
			if c.n == 0 {
				if c.ctx != nil {
					c.phase = phaseOf(c.ctx)
				}
				fresh = append(fresh, c)
			}
		}
	}
	if len(fresh) > 1 {
		slices.SortFunc(fresh, func(a, b *call) int {
			if order := compareCalls(a, b); order != 0 {
				return order
			}
			return strings.Compare(fmt.Sprint(a.sent), fmt.Sprint(b.sent))
		})
	}
	for _, c := range fresh {
		c.n = c.actor.count(c.phase, c.target)
	}
}

// actorOf is called with mu held.
func (x *execution) actorOf(inst *instance, driver int64) *actor {
	for _, a := range x.actors {
		if a.inst == inst && (driver == 0 || driver == a.driver) {
			return a
		}
	}
	return x.probe
}

// park holds a call until it is chosen, or until its context ends, which a
// process that is stopped does not notice.
func (x *execution) park(c *call, line *[]*call) error {
	x.mu.Lock()
	if x.open && (!c.actor.dead || x.starting) {
		x.passed++
		x.mu.Unlock()
		return nil
	}
	c.chosen = make(chan fate, 1)
	*line = append(*line, c)
	x.mu.Unlock()
	x.arrive()
	patience, stop := c.patience()
	defer stop()
	select {
	case c.fate = <-c.chosen:
		return nil
	case <-x.ended:
		return errOver
	case <-patience:
		<-c.ctx.Done() // of the two timers, this may be the second
	}
	if x.leaves(c, line) {
		return c.givesUp()
	}
	select {
	case c.fate = <-c.chosen:
		return nil
	case <-x.ended:
		return errOver
	}
}

// patience ends when the caller does not wait any longer: for a database, with
// its context. Once a request is on its way, go-redis heeds a deadline alone.
func (c *call) patience() (over <-chan time.Time, stop func()) {
	if c.node == nil {
		over := make(chan time.Time)
		undo := context.AfterFunc(c.ctx, func() { close(over) })
		return over, func() { undo() }
	}
	deadline, ok := c.ctx.Deadline()
	if !ok {
		return nil, func() {}
	}
	timer := time.NewTimer(time.Until(deadline))
	return timer.C, func() { timer.Stop() }
}

func (c *call) givesUp() error {
	if c.node == nil {
		return c.ctx.Err()
	}
	return context.DeadlineExceeded
}

// leaves is for a caller who does not wait any longer, which the process of a
// stopped one does not notice. The request may arrive all the same.
func (x *execution) leaves(c *call, line *[]*call) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	i := slices.Index(*line, c)
	if c.actor.paused || c.actor.dead || i < 0 {
		return false
	}
	*line = slices.Delete(*line, i, i+1)
	if line == &x.waiting && c.sent != nil {
		x.inFlight = append(x.inFlight, c)
	}
	x.excused = true
	x.arrive()
	return true
}

// choose decides the fate of a call that stands in line.
func (x *execution) choose(line *[]*call, s schedule.Step, f fate) bool {
	x.mu.Lock()
	i := slices.IndexFunc(*line, func(c *call) bool { return c.is(s) })
	if i < 0 {
		x.mu.Unlock()
		return false
	}
	c := (*line)[i]
	*line = slices.Delete(*line, i, i+1)
	if f == givenUp {
		x.inFlight = append(x.inFlight, c)
	}
	x.mu.Unlock()
	if c.flight == nil {
		c.chosen <- f
		return true
	}
	c.flight()
	x.applied(c, nil)
	x.heard(c, nil)
	return true
}

// arrive says that somebody has something to do.
func (x *execution) arrive() {
	select {
	case x.arrived <- struct{}{}:
	default:
	}
}

// heard takes a reply into what the actors have seen: as a sum, because of two
// that come in one instant nobody can say which was first.
func (x *execution) heard(c *call, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	h := c.Fingerprint().Number(int64(x.elapsed()))
	if err != nil {
		h = h.Text(err.Error())
	}
	text := c.text()
	if x.telling {
		x.did = append(x.did, fmt.Sprintf("%s: %s\n", c.target, text))
	}
	if c.node == nil {
		c.actor.seen += h.Text(text)
		return
	}
	c.node.told += h.Text(text)
}

// Fingerprint is of a call, but for its server.
func (c *call) Fingerprint() search.Fingerprint {
	return search.EmptyFingerprint.Text(c.actor.name).Text(string(c.phase)).Number(int64(c.n))
}
