package bench

import (
	"context"
	"errors"
	"slices"
	"time"

	"grablab/internal/check"
	"grablab/internal/fault"
	"grablab/internal/order"
	"grablab/internal/stack"
	"grablab/internal/tap"
)

// act is one strike of a scene: what leads to it, and what comes of it.
type act struct {
	*scene
	cast    []part // one for each order
	healing stack.Heals
}

// Names of traps.
const (
	victims  = "victims"
	rivals   = "rivals"
	releases = "releases" // of victims
)

const (
	// arrival is what the victims may take to come to where the fault strikes.
	arrival = 5 * time.Second
	// look is how often a scene is looked at.
	look = 10 * time.Millisecond
)

// courses are what follows a strike, step by step.
var courses = map[fault.Course][]func(*act, context.Context) error{
	fault.AfterHeal:  {(*act).sendRivals, (*act).awaitRivals, (*act).heal, (*act).letVictimsGo, (*act).letRivalsGo, (*act).awaitAnswers},
	fault.BeforeHeal: {(*act).sendRivals, (*act).awaitRivals, (*act).watchReleases, (*act).letVictimsGo, (*act).letRivalsGo, (*act).awaitReleases, (*act).heal, (*act).awaitAnswers},
	fault.AtOnce:     {(*act).letVictimsGo, (*act).sendRivals, (*act).awaitQuiet, (*act).heal, (*act).letRivalsGo, (*act).awaitAnswers},
	fault.Never:      {(*act).leaveVictims, (*act).sendRivals, (*act).awaitRivalsAnswers},
	fault.Killed:     {(*act).sendRivals, (*act).awaitAnswers},
}

// play strikes once the victims stand where the fault does, and leaves nothing
// unhealed.
func (a *act) play(ctx context.Context, of fault.Act) (err error) {
	defer func() { err = errors.Join(err, a.heal(ctx)) }()
	steps := []func(*act, context.Context) error{doing(of.Before), (*act).sendVictims, (*act).holdRivals, doing(of.Strike)}
	for _, step := range append(steps, courses[a.fault.Course]...) {
		if err := step(a, ctx); err != nil {
			return err
		}
	}
	return nil
}

// calm has everybody come at once, and nothing happen.
func (a *act) calm(ctx context.Context) error {
	for _, p := range a.cast {
		a.waves.send(append([]shot{p.victim}, p.rivals...))
	}
	return a.awaitAnswers(ctx)
}

// doing is a step of the fault, whose heal is kept also if it fails half-way.
func doing(step fault.Step) func(*act, context.Context) error {
	return func(a *act, ctx context.Context) error {
		if step == nil {
			return nil
		}
		heal, err := step(ctx, a.lease(a.cell))
		if heal != nil {
			a.healing = append(a.healing, heal)
		}
		return err
	}
}

// heal needs no context: it is done also for a run that has been interrupted.
func (a *act) heal(context.Context) error {
	healing := a.healing
	a.healing = nil
	return healing.All()
}

// sendVictims returns once each has been caught where the fault strikes, or has
// been answered without coming by.
func (a *act) sendVictims(ctx context.Context) error {
	trap := tap.Trap{Point: a.fault.AimAt(a.strategy), Pass: a.fault.Pass}
	if err := a.setTrap(ctx, a.victim, victims, trap); err != nil {
		return err
	}
	for _, p := range a.cast {
		a.waves.send([]shot{p.victim})
	}
	var caught []tap.Caught
	err := a.until(ctx, arrival, func() (bool, error) {
		var err error
		caught, err = a.victim.caught(ctx, victims, len(a.cast), look)
		return a.all(func(p part) bool { return a.isAnswered(p.victim) || isAmong(caught, p.victim) }), err
	})
	*a.cell.Struck += len(caught)
	return err
}

func (a *act) setTrap(ctx context.Context, p player, name string, trap tap.Trap) error {
	trap.First, trap.Count = a.cast[0].victim.order, len(a.cast)
	return p.trap(ctx, name, trap)
}

func isAmong(caught []tap.Caught, s shot) bool {
	return slices.Contains(caught, tap.Caught{Order: s.order, Driver: s.driver})
}

// holdsRivals: under a fence that is compared at the write alone, the older
// token must write first for both to be let through (F34).
func (a *act) holdsRivals() bool {
	return a.fault.HoldRivals || a.cell.Guard == order.FenceWrite && a.fault.Course < fault.Never
}

// holdRivals has a rival that is ready to claim wait. Victims, who have been
// caught before, are not.
func (a *act) holdRivals(ctx context.Context) error {
	if !a.holdsRivals() {
		return nil
	}
	trap := tap.Trap{Point: tap.Point{Phase: tap.Claim, N: 1}}
	return errors.Join(a.setTrap(ctx, a.victim, rivals, trap), a.setTrap(ctx, a.rival, rivals, trap))
}

func (a *act) sendRivals(context.Context) error {
	for _, p := range a.cast {
		a.waves.send(p.rivals)
	}
	return nil
}

// patience is how long the rivals have while the fault lasts.
func (a *act) patience() time.Duration {
	return time.Duration(a.fault.Patience * float64(a.lease(a.cell)))
}

// awaitRivals returns once a rival has claimed every order, or stands before
// it, or all of them have been answered; at the latest when they have had
// their time, or when those who stand have lost a third of their own leases.
func (a *act) awaitRivals(ctx context.Context) error {
	var since time.Time
	return a.until(ctx, a.patience(), func() (bool, error) {
		stand := a.standing(ctx)
		if len(stand) > 0 && since.IsZero() {
			since = time.Now()
		}
		claimed := a.claimed(ctx)
		return !since.IsZero() && time.Since(since) > a.lease(a.cell)/3 || a.all(func(p part) bool {
			return stand[p.victim.order] || slices.ContainsFunc(p.rivals, claimed) || !slices.ContainsFunc(p.rivals, a.isPending)
		}), nil
	})
}

// standing are the orders of which a rival is held. An instance that lies still
// does not tell.
func (a *act) standing(ctx context.Context) map[int64]bool {
	orders := map[int64]bool{}
	if !a.holdsRivals() {
		return orders
	}
	for _, p := range []player{a.rival, a.victim} {
		ctx, cancel := context.WithTimeout(ctx, 2*look)
		caught, _ := p.caught(ctx, rivals, len(a.cast), 0)
		cancel()
		for _, c := range caught {
			orders[c.Order] = true
		}
	}
	return orders
}

// awaitQuiet returns once everybody has been answered or is held, or the rivals
// have had their time.
func (a *act) awaitQuiet(ctx context.Context) error {
	return a.until(ctx, a.patience(), func() (bool, error) {
		stand := a.standing(ctx)
		return a.all(func(p part) bool {
			return !a.isPending(p.victim) && (stand[p.victim.order] || !slices.ContainsFunc(p.rivals, a.isPending))
		}), nil
	})
}

func (a *act) letVictimsGo(ctx context.Context) error { return a.victim.lift(ctx, victims) }

// leaveVictims has the cell end without them.
func (a *act) leaveVictims(context.Context) error {
	a.trial.hung += len(a.cast)
	return nil
}

// letRivalsGo waits until the victims have claimed, for less than what is left
// of the rivals' own leases.
func (a *act) letRivalsGo(ctx context.Context) error {
	if !a.holdsRivals() {
		return nil
	}
	err := a.until(ctx, a.lease(a.cell)/3, func() (bool, error) {
		claimed := a.claimed(ctx)
		return a.all(func(p part) bool { return claimed(p.victim) || a.isAnswered(p.victim) }), nil
	})
	return errors.Join(err, a.victim.lift(ctx, rivals), a.rival.lift(ctx, rivals))
}

func (a *act) watchReleases(ctx context.Context) error {
	return a.setTrap(ctx, a.victim, releases, tap.Trap{Point: tap.Point{Phase: tap.Release, N: 1}, Pass: true})
}

// awaitReleases returns once no victim is still to release its lock, as far as
// it sends anything.
func (a *act) awaitReleases(ctx context.Context) error {
	err := a.until(ctx, a.cfg.Load.Timeout, func() (bool, error) {
		sent, err := a.victim.caught(ctx, releases, len(a.cast), look)
		return a.all(func(p part) bool { return a.isAnswered(p.victim) || isAmong(sent, p.victim) }), err
	})
	return errors.Join(err, a.victim.lift(ctx, releases))
}

func (a *act) awaitVictims(ctx context.Context) error {
	return a.until(ctx, a.cfg.Load.Timeout, func() (bool, error) {
		return a.all(func(p part) bool { return a.isAnswered(p.victim) }), nil
	})
}

func (a *act) awaitRivalsAnswers(ctx context.Context) error {
	return a.until(ctx, a.cfg.Load.Timeout, func() (bool, error) {
		return a.all(func(p part) bool { return !slices.ContainsFunc(p.rivals, a.isPending) }), nil
	})
}

func (a *act) awaitAnswers(ctx context.Context) error {
	return errors.Join(a.awaitVictims(ctx), a.awaitRivalsAnswers(ctx))
}

// all says whether something is so of every order of the act.
func (a *act) all(so func(part) bool) bool {
	return !slices.ContainsFunc(a.cast, func(p part) bool { return !so(p) })
}

func (a *act) isPending(s shot) bool { return !a.isAnswered(s) }

func (a *act) isAnswered(s shot) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.answered[check.Pair{Order: s.order, Driver: s.driver}]
}

// claimed tells by the ledger who has. A ledger that cannot be read, for the
// database is what was struck, tells of nobody.
func (a *act) claimed(ctx context.Context) func(shot) bool {
	rows, _ := a.books.Ledger(ctx, a.cast[0].victim.order, len(a.cast))
	return func(s shot) bool {
		return slices.ContainsFunc(rows, func(g order.Grab) bool { return g.Order == s.order && g.Driver == s.driver })
	}
}

// until looks until it is so, or the time is up. That is no error.
func (a *act) until(ctx context.Context, within time.Duration, so func() (bool, error)) error {
	_, err := until(ctx, look, within, so)
	return err
}
