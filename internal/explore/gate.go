package explore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"grablab/internal/schedule"
	"grablab/internal/tap"
)

var (
	errOver = errors.New("explore: the schedule is over")
	errDown = errors.New("explore: the server cannot be reached")
	errLost = errors.New("explore: the reply is lost")
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
func (w *world) through(ctx context.Context, inst *instance, c *call, send func(context.Context) error) error {
	c.ctx = ctx
	w.name(inst, c)
	if c.ctx.Err() != nil {
		return send(ctx) // and the client finds out
	}
	if err := w.park(c, &w.waiting); err != nil {
		w.heard(c, err)
		return err
	}
	if c.fate == givenUp {
		w.heard(c, errLost)
		return errLost
	}
	err := errDown
	if c.node == nil || !c.node.down {
		err = send(onItsWay(ctx))
	}
	w.applied(c, err)
	switch c.fate {
	case lost:
		err = errLost
	case delayed:
		if gone := w.park(c, &w.late); gone != nil {
			err = gone
		}
	}
	w.heard(c, err)
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
func (w *world) name(inst *instance, c *call) {
	c.phase = phaseOf(c.ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	c.actor = w.actorOf(inst, tap.Within(c.ctx, tap.Op{}).Driver)
}

func phaseOf(ctx context.Context) tap.Phase {
	return cmp.Or(tap.Within(ctx, tap.Op{}).Phase, tap.Renew)
}

// count numbers the calls that have come to the gate in the last step. Those of
// one instant are told apart by what they ask: they come in any order. For the
// same reason their phase is looked at again: a renewal that is due at once may
// come before the acquire has returned, or after.
func (w *world) count() {
	w.mu.Lock()
	defer w.mu.Unlock()
	var fresh []*call
	for _, line := range [][]*call{w.waiting, w.strays} {
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
func (w *world) actorOf(inst *instance, driver int64) *actor {
	for _, a := range w.actors {
		if a.inst == inst && (driver == 0 || driver == a.driver) {
			return a
		}
	}
	return w.probe
}

// park holds a call until it is chosen, or until its context ends, which a
// process that is stopped does not notice.
func (w *world) park(c *call, line *[]*call) error {
	w.mu.Lock()
	if w.open && (!c.actor.dead || w.starting) {
		w.passed++
		w.mu.Unlock()
		return nil
	}
	c.chosen = make(chan fate, 1)
	*line = append(*line, c)
	w.mu.Unlock()
	w.arrive()
	patience, stop := c.patience()
	defer stop()
	select {
	case c.fate = <-c.chosen:
		return nil
	case <-w.ended:
		return errOver
	case <-patience:
		<-c.ctx.Done() // of the two timers, this may be the second
	}
	if w.leaves(c, line) {
		return c.givesUp()
	}
	select {
	case c.fate = <-c.chosen:
		return nil
	case <-w.ended:
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
func (w *world) leaves(c *call, line *[]*call) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.Index(*line, c)
	if c.actor.paused || c.actor.dead || i < 0 {
		return false
	}
	*line = slices.Delete(*line, i, i+1)
	if line == &w.waiting && c.sent != nil {
		w.strays = append(w.strays, c)
	}
	w.excused = true
	w.arrive()
	return true
}

// choose decides the fate of a call that stands in line.
func (w *world) choose(line *[]*call, s schedule.Step, f fate) bool {
	w.mu.Lock()
	i := slices.IndexFunc(*line, func(c *call) bool { return c.is(s) })
	if i < 0 {
		w.mu.Unlock()
		return false
	}
	c := (*line)[i]
	*line = slices.Delete(*line, i, i+1)
	if f == givenUp {
		w.strays = append(w.strays, c)
	}
	w.mu.Unlock()
	if c.flight == nil {
		c.chosen <- f
		return true
	}
	c.flight()
	w.applied(c, nil)
	w.heard(c, nil)
	return true
}

// arrive says that somebody has something to do.
func (w *world) arrive() {
	select {
	case w.arrived <- struct{}{}:
	default:
	}
}

// heard takes a reply into what the actors have seen: as a sum, because of two
// that come in one instant nobody can say which was first.
func (w *world) heard(c *call, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := c.sum().number(int64(w.elapsed()))
	if err != nil {
		h = h.text(err.Error())
	}
	text := c.text()
	if w.telling {
		w.did = append(w.did, fmt.Sprintf("%s: %s\n", c.target, text))
	}
	if c.node == nil {
		c.actor.seen += h.text(text)
		return
	}
	c.node.told += h.text(text)
}

// sum is of a call, but for its server.
func (c *call) sum() sum {
	return emptySum.text(c.actor.name).text(string(c.phase)).number(int64(c.n))
}
