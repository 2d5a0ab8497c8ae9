package bench

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"grablab/internal/check"
	"grablab/internal/history"
	"grablab/internal/order"
)

// proof is how a property of the explorer shows on real servers.
type proof struct {
	property string
	judge    func(*take, context.Context, check.Evidence) (broken bool, why string, err error)
}

// proofs lists the properties that can be judged.
var proofs = []proof{
	{oneWinner, byChecker(oneWinner, "the ledger")},
	{"live-overlap", (*take).liveOverlap},
	{"late-holder", (*take).lateHolder},
	{"stale-write", byChecker("no-stale-write", "ledger and events")},
	{"fence", byChecker("fence-monotone", "the events")},
	{"stuck", (*take).stuck},
}

// forcible are the names of the properties that can be judged.
func forcible() []string {
	names := make([]string, len(proofs))
	for i, p := range proofs {
		names[i] = p.property
	}
	return names
}

// conclude judges after the last step, and once more when everybody has gone on
// to his end.
func (t *take) conclude(ctx context.Context) (Forced, error) {
	if err := t.settle(ctx, arriving); err != nil {
		return Forced{}, err
	}
	if err := t.inTime(len(t.Schedule.Steps) - 1); err != nil {
		return Forced{}, err
	}
	f, err := t.judge(ctx, "after the last step")
	if err != nil || f.Violated {
		return f, err
	}
	if err := t.end(ctx); err != nil {
		return Forced{}, err
	}
	return t.judge(ctx, "when everybody had ended")
}

func (t *take) judge(ctx context.Context, when string) (Forced, error) {
	e, err := t.evidence(ctx)
	if err != nil {
		return Forced{}, err
	}
	i := slices.IndexFunc(proofs, func(p proof) bool { return p.property == t.Schedule.Property })
	broken, why, err := proofs[i].judge(t, ctx, e)
	return Forced{Violated: broken, Why: why + ", " + when}, err
}

// evidence is what ledger and events say of the order by now.
func (t *take) evidence(ctx context.Context) (check.Evidence, error) {
	e := check.Evidence{Excludes: t.Strategy.Excludes, Guard: t.Strategy.GuardedBy(t.cfg.Guard)}
	if err := t.takeOver(func(x history.Event) { t.events = append(t.events, x) }); err != nil {
		return e, fmt.Errorf("bench: events were lost: %w", err)
	}
	scan := check.Scan{Since: t.seen, UntilClaim: t.Strategy.UntilClaim}
	for _, x := range t.events {
		scan.Add(x)
	}
	e.Record = scan.Record()
	if e.Record.Lost > 0 {
		return e, fmt.Errorf("bench: %d events are missing", e.Record.Lost)
	}
	var err error
	e.Ledger, err = t.books.Ledger(ctx, t.order, 1)
	return e, err
}

// byChecker asks the checker of that name, which looks at what by names.
func byChecker(name, by string) func(*take, context.Context, check.Evidence) (bool, string, error) {
	return func(_ *take, _ context.Context, e check.Evidence) (bool, string, error) {
		i := slices.IndexFunc(check.Checkers, func(c check.Checker) bool { return c.Name == name })
		if i < 0 {
			return false, "", fmt.Errorf("bench: there is no checker %s", name)
		}
		v := check.Checkers[i].Check(e)
		return v.Result == check.Fail, fmt.Sprintf("%s (seen in %s)", v.Why, by), nil
	}
}

// holder is the actor of a hold.
func (t *take) holder(h check.Hold) *performer { return t.who(h.Driver, h.Instance) }

func (t *take) who(driver int64, instance string) *performer {
	for _, p := range t.actors {
		if p.driver == driver && p.member().name == instance {
			return p
		}
	}
	return nil
}

// liveOverlap: a lock was granted while another holder was inside, and by the
// servers that granted them both leases ran.
func (t *take) liveOverlap(_ context.Context, e check.Evidence) (bool, string, error) {
	for _, second := range e.Record.Holds {
		for _, first := range e.Record.Holds {
			a, b := t.holder(second), t.holder(first)
			if a == b || first.From >= second.From || first.Closed && first.To <= second.From {
				continue
			}
			mine, his := t.leaseLeft(a, second.From), t.leaseLeft(b, second.From)
			if mine > 0 && his > 0 {
				return true, fmt.Sprintf("%s got the lock while %s was inside, whose lease had at least %v to run, as its servers said (seen in the events and by PTTL)",
					a.Actor.Name, b.Actor.Name, his.Round(time.Millisecond)), nil
			}
		}
	}
	return false, "nobody got the lock while the lease of a holder ran (seen in the events and by PTTL)", nil
}

// lateHolder: a claim was written by one whose lease had run out, while another
// was inside.
func (t *take) lateHolder(_ context.Context, e check.Evidence) (bool, string, error) {
	for _, effect := range e.Record.Effects {
		a := t.who(effect.Driver, effect.Instance)
		if !effect.Sure || t.leaseLeft(a, effect.From) > 0 {
			continue
		}
		for _, h := range e.Record.Holds {
			b := t.holder(h)
			if b != a && h.From < effect.From && h.Read > 0 && (!h.Closed || h.To > effect.To) {
				return true, fmt.Sprintf("%s wrote after its lease had run out, and %s was inside (seen in the events and by PTTL)", a.Actor.Name, b.Actor.Name), nil
			}
		}
	}
	return false, "nobody wrote after his lease while another was inside (seen in the events and by PTTL)", nil
}

// stuck has everybody end, and asks for the order as a fresh driver would.
func (t *take) stuck(ctx context.Context, _ check.Evidence) (bool, string, error) {
	if err := t.end(ctx); err != nil {
		return false, "", err
	}
	stuck, err := t.stuckOrders(ctx, t.order, 1, t.Schedule.TTL)
	if len(stuck) > 0 {
		return true, "all leases had run out, and a fresh grab was neither grabbed nor taken (seen by probes)", err
	}
	return false, "a fresh grab was answered (seen by probes)", err
}

// winners are the actors in the ledger, in its order.
func (t *take) winners(rows []order.Grab) string {
	names := make([]string, len(rows))
	for i, g := range rows {
		names[i] = fmt.Sprintf("driver %d", g.Driver)
		if p := t.who(g.Driver, g.Instance); p != nil {
			names[i] = p.Actor.Name
		}
	}
	return strings.Join(names, " and ")
}
