package experiment

import (
	"context"
	"errors"
	"slices"
	"time"

	"grablab/internal/control"
	"grablab/internal/fault"
	"grablab/internal/fleet"
	"grablab/internal/load"
	"grablab/internal/order"
	"grablab/internal/stack"
	"grablab/internal/tap"
	"grablab/internal/wait"
)

// strike is one strike of an injection: what leads to it, and what comes of it.
type strike struct {
	*injection
	contests []contest
	heals    stack.Heals
}

// Names of holds.
const (
	holders    = "holders"
	contenders = "contenders"
	releases   = "releases" // of the faulted holders
)

const (
	arrivalTimeout = 5 * time.Second // for the faulted holders to come to where the fault strikes
	pollInterval   = 10 * time.Millisecond
)

// courses are the steps after a fault was injected, by when it is healed.
var courses = map[fault.Course][]func(*strike, context.Context) error{
	fault.AfterHeal:  {(*strike).sendContenders, (*strike).awaitContenders, (*strike).heal, (*strike).releaseHolders, (*strike).releaseContenders, (*strike).awaitAnswers},
	fault.BeforeHeal: {(*strike).sendContenders, (*strike).awaitContenders, (*strike).watchReleases, (*strike).releaseHolders, (*strike).releaseContenders, (*strike).awaitReleases, (*strike).heal, (*strike).awaitAnswers},
	fault.AtOnce:     {(*strike).releaseHolders, (*strike).sendContenders, (*strike).awaitQuiet, (*strike).heal, (*strike).releaseContenders, (*strike).awaitAnswers},
	fault.Never:      {(*strike).leaveHolders, (*strike).sendContenders, (*strike).awaitContenderAnswers},
	fault.Killed:     {(*strike).sendContenders, (*strike).awaitAnswers},
}

// run strikes once the faulted holders are held where the fault strikes, and
// leaves nothing unhealed.
func (s *strike) run(ctx context.Context, of fault.Strike) (err error) {
	defer func() { err = errors.Join(err, s.heal(ctx)) }()
	steps := []func(*strike, context.Context) error{doing(of.Before), (*strike).sendHolders, (*strike).holdContenders, doing(of.Do)}
	for _, step := range append(steps, courses[s.fault.Course]...) {
		if err := step(s, ctx); err != nil {
			return err
		}
	}
	return nil
}

// withoutFault has all drivers come at once.
func (s *strike) withoutFault(ctx context.Context) error {
	for _, c := range s.contests {
		s.bursts.Send(append([]load.Request{c.holder}, c.contenders...))
	}
	return s.awaitAnswers(ctx)
}

// doing is a step of the fault, whose heal is kept also if it fails midway.
func doing(step fault.Step) func(*strike, context.Context) error {
	return func(s *strike, ctx context.Context) error {
		if step == nil {
			return nil
		}
		heal, err := step(ctx, s.lease(s.cell))
		if heal != nil {
			s.heals = append(s.heals, heal)
		}
		return err
	}
}

// heal needs no context: it is done also for a run that has been interrupted.
func (s *strike) heal(context.Context) error {
	heals := s.heals
	s.heals = nil
	return heals.All()
}

// sendHolders returns once each is held where the fault strikes, or has
// been answered without coming there.
func (s *strike) sendHolders(ctx context.Context) error {
	hold := control.Hold{At: s.fault.AimAt(s.strategy), Pass: s.fault.Pass}
	if err := s.setHold(ctx, s.struck, holders, hold); err != nil {
		return err
	}
	for _, c := range s.contests {
		s.bursts.Send([]load.Request{c.holder})
	}
	held, err := s.awaitHeld(ctx, holders, arrivalTimeout)
	*s.cell.Struck += len(held)
	return err
}

// awaitHeld returns once each faulted holder has met the hold of that name, or has
// been answered, with those that have met it.
func (s *strike) awaitHeld(ctx context.Context, name string, within time.Duration) (held []control.Held, err error) {
	err = s.until(ctx, within, func() (bool, error) {
		held, err = s.struck.Held(ctx, name, len(s.contests), pollInterval)
		return s.all(func(c contest) bool { return s.isAnswered(c.holder) || isAmong(held, c.holder) }), err
	})
	return held, err
}

// setHold sets a hold on the orders of the strike.
func (s *strike) setHold(ctx context.Context, in *fleet.Instance, name string, hold control.Hold) error {
	hold.First, hold.Count = s.contests[0].holder.Order, len(s.contests)
	return in.SetHold(ctx, name, hold)
}

func isAmong(held []control.Held, r load.Request) bool {
	return slices.ContainsFunc(held, func(c control.Held) bool { return c.Order == r.Order && c.Driver == r.Driver })
}

// holdsContenders: under a fence that is compared at the write alone, the older
// token must write first for both to be let through (F34).
func (s *strike) holdsContenders() bool {
	return s.fault.HoldContenders || s.cell.Guard == order.FenceWrite && s.fault.Course < fault.Never
}

// holdContenders has contenders wait before they claim. The faulted holders, who
// have been held before, do not.
func (s *strike) holdContenders(ctx context.Context) error {
	if !s.holdsContenders() {
		return nil
	}
	hold := control.Hold{At: control.Point{Phase: tap.Claim, N: 1}}
	return errors.Join(s.setHold(ctx, s.struck, contenders, hold), s.setHold(ctx, s.other, contenders, hold))
}

func (s *strike) sendContenders(context.Context) error {
	for _, c := range s.contests {
		s.bursts.Send(c.contenders)
	}
	return nil
}

// patience is how long the contenders have while the fault lasts.
func (s *strike) patience() time.Duration {
	return time.Duration(s.fault.Patience * float64(s.lease(s.cell)))
}

// awaitContenders returns once a contender has claimed every order, or is held
// before it, or all of them have been answered; at the latest when they have had
// their time, or when those who are held have lost a third of their own leases.
func (s *strike) awaitContenders(ctx context.Context) error {
	var since time.Time
	return s.until(ctx, s.patience(), func() (bool, error) {
		held := s.held(ctx)
		if len(held) > 0 && since.IsZero() {
			since = time.Now()
		}
		claimed := s.claimed(ctx)
		return !since.IsZero() && time.Since(since) > s.lease(s.cell)/3 || s.all(func(c contest) bool {
			return held[c.holder.Order] || slices.ContainsFunc(c.contenders, claimed) || !slices.ContainsFunc(c.contenders, s.isPending)
		}), nil
	})
}

// held are the orders of which a contender is held. A stopped instance does not
// answer, and counts for none.
func (s *strike) held(ctx context.Context) map[int64]bool {
	orders := map[int64]bool{}
	if !s.holdsContenders() {
		return orders
	}
	for _, in := range []*fleet.Instance{s.other, s.struck} {
		ctx, cancel := context.WithTimeout(ctx, 2*pollInterval)
		held, _ := in.Held(ctx, contenders, len(s.contests), 0)
		cancel()
		for _, c := range held {
			orders[c.Order] = true
		}
	}
	return orders
}

// awaitQuiet returns once all drivers have been answered or are held, or the
// contenders have had their time.
func (s *strike) awaitQuiet(ctx context.Context) error {
	return s.until(ctx, s.patience(), func() (bool, error) {
		held := s.held(ctx)
		return s.all(func(c contest) bool {
			return !s.isPending(c.holder) && (held[c.holder.Order] || !slices.ContainsFunc(c.contenders, s.isPending))
		}), nil
	})
}

func (s *strike) releaseHolders(ctx context.Context) error { return s.struck.RemoveHold(ctx, holders) }

// leaveHolders has the cell end without the faulted holders.
func (s *strike) leaveHolders(context.Context) error {
	s.workload.hung += len(s.contests)
	return nil
}

// releaseContenders waits until the faulted holders have claimed, for less than
// what is left of the contenders' own leases.
func (s *strike) releaseContenders(ctx context.Context) error {
	if !s.holdsContenders() {
		return nil
	}
	err := s.until(ctx, s.lease(s.cell)/3, func() (bool, error) {
		claimed := s.claimed(ctx)
		return s.all(func(c contest) bool { return claimed(c.holder) || s.isAnswered(c.holder) }), nil
	})
	return errors.Join(err, s.struck.RemoveHold(ctx, contenders), s.other.RemoveHold(ctx, contenders))
}

func (s *strike) watchReleases(ctx context.Context) error {
	return s.setHold(ctx, s.struck, releases, control.Hold{At: control.Point{Phase: tap.Release, N: 1}, Pass: true})
}

// awaitReleases returns once every faulted holder has sent its release, or has
// been answered without one.
func (s *strike) awaitReleases(ctx context.Context) error {
	_, err := s.awaitHeld(ctx, releases, s.cfg.Load.Timeout)
	return errors.Join(err, s.struck.RemoveHold(ctx, releases))
}

func (s *strike) awaitContenderAnswers(ctx context.Context) error {
	return s.until(ctx, s.cfg.Load.Timeout, func() (bool, error) {
		return s.all(func(c contest) bool { return !slices.ContainsFunc(c.contenders, s.isPending) }), nil
	})
}

func (s *strike) awaitAnswers(ctx context.Context) error {
	return s.until(ctx, s.cfg.Load.Timeout, func() (bool, error) {
		return s.all(func(c contest) bool {
			return s.isAnswered(c.holder) && !slices.ContainsFunc(c.contenders, s.isPending)
		}), nil
	})
}

// all says whether something holds for every order of the strike.
func (s *strike) all(holds func(contest) bool) bool {
	return !slices.ContainsFunc(s.contests, func(c contest) bool { return !holds(c) })
}

func (s *strike) isPending(r load.Request) bool { return !s.isAnswered(r) }

func (s *strike) isAnswered(r load.Request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answered[r]
}

// claimed returns whether the driver of a request has claimed, by the ledger. A
// ledger that cannot be read, because the database is what was struck, shows no
// claim.
func (s *strike) claimed(ctx context.Context) func(load.Request) bool {
	rows, _ := s.orders.Ledger(ctx, s.contests[0].holder.Order, len(s.contests))
	return func(r load.Request) bool {
		return slices.ContainsFunc(rows, func(g order.Grab) bool { return g.Order == r.Order && g.Driver == r.Driver })
	}
}

// until polls until the condition holds or the time is up, which is no error.
func (s *strike) until(ctx context.Context, within time.Duration, condition func() (bool, error)) error {
	_, err := wait.Until(ctx, pollInterval, within, condition)
	return err
}
