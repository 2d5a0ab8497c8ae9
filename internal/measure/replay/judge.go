package replay

import (
	"context"
	"fmt"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/check"
	"grablab/internal/grab"
	"grablab/internal/history"
)

// proofs maps each property to the function that checks it after a replay on real servers.
var proofs = map[string]func(*attempt, context.Context, check.Evidence) (broken bool, why string, err error){
	catalog.OneWinner:      byChecker(catalog.OneWinner, "the ledger"),
	catalog.LeaseExclusive: (*attempt).leaseExclusive,
	catalog.StaleWrite:     byChecker(catalog.StaleWrite, "ledger and events"),
	catalog.FenceMonotone:  byChecker(catalog.FenceMonotone, "the events"),
	catalog.StuckOrder:     (*attempt).stuck,
}

// conclude checks the property twice: after the last step, and after all actors have ended.
func (t *attempt) conclude(ctx context.Context) (Result, error) {
	if err := t.awaitAll(ctx, arrivalTimeout); err != nil {
		return Result{}, err
	}
	if err := t.inTime(len(t.Schedule.Steps) - 1); err != nil {
		return Result{}, err
	}
	f, err := t.judge(ctx, "after the last step")
	if err != nil || f.Violated {
		return f, err
	}
	if err := t.end(ctx); err != nil {
		return Result{}, err
	}
	return t.judge(ctx, "when all had ended")
}

func (t *attempt) judge(ctx context.Context, when string) (Result, error) {
	e, err := t.evidence(ctx)
	if err != nil {
		return Result{}, err
	}
	broken, why, err := proofs[t.Schedule.Property](t, ctx, e)
	return Result{Violated: broken, Grabs: len(e.Ledger), Why: why + ", " + when}, err
}

func (t *attempt) keep(e history.Event) { t.events = append(t.events, e) }

func (t *attempt) evidence(ctx context.Context) (check.Evidence, error) {
	e := check.Evidence{Units: t.Schedule.Stock, Excludes: t.Strategy.Excludes, Guard: t.Strategy.GuardedBy(t.guard())}
	if err := t.fleet.ReadEvents(t.keep); err != nil {
		return e, fmt.Errorf("replay: events were lost: %w", err)
	}
	scan := check.Scan{Since: t.seen, UntilClaim: t.Strategy.UntilClaim}
	for _, x := range t.events {
		scan.Add(x)
	}
	e.Record = scan.Record()
	if e.Record.MissingEvents > 0 {
		return e, fmt.Errorf("replay: %d events are missing, so the properties cannot be checked: run the command again", e.Record.MissingEvents)
	}
	var err error
	e.Ledger, err = t.store.Ledger(ctx, t.order, 1)
	return e, err
}

// byChecker returns a function that checks a property with its checker from package check. The
// parameter by says which data the checker reads.
func byChecker(property, by string) func(*attempt, context.Context, check.Evidence) (bool, string, error) {
	return func(_ *attempt, _ context.Context, e check.Evidence) (bool, string, error) {
		v := check.Judge(e, property)[0]
		return v.Result == check.Fail, fmt.Sprintf("%s (seen in %s)", v.Why, by), nil
	}
}

// leaseExclusive reports whether an actor got the lock while another actor held it and both leases
// were valid on the servers.
func (t *attempt) leaseExclusive(_ context.Context, e check.Evidence) (bool, string, error) {
	for _, second := range e.Record.Holds {
		for _, first := range e.Record.Holds {
			a, b := t.actors.who(second.Driver, second.Instance), t.actors.who(first.Driver, first.Instance)
			if a == b || first.From >= second.From || first.Closed && first.To <= second.From {
				continue
			}
			taken, live := t.leases.left(a, second.From), t.leases.left(b, second.From)
			if taken > 0 && live > 0 {
				return true, fmt.Sprintf("%s got the lock while %s was inside, although %[2]s's lease had at least %[3]v left (seen in the events and by PTTL)",
					a.Actor.Name, b.Actor.Name, live.Round(time.Millisecond)), nil
			}
		}
	}
	return false, "no actor got the lock while another actor's lease was still valid (checked in the events and with PTTL)", nil
}

// stuck reports whether a new driver cannot win the order even after all actors have ended.
func (t *attempt) stuck(ctx context.Context, _ check.Evidence) (bool, string, error) {
	if err := t.end(ctx); err != nil {
		return false, "", err
	}
	var told grab.Outcome
	stuck, err := t.fleet.StuckOrders(ctx, t.order, 1, t.Schedule.TTL, nil, func(_, _ int64, outcome grab.Outcome) { told = outcome })
	if err == nil && told == grab.Taken {
		ledger, err := t.store.Ledger(ctx, t.order, 1)
		if left := max(t.Schedule.Stock, 1) - len(ledger); err != nil || left > 0 {
			return left > 0, fmt.Sprintf("a new driver was told that the order was taken, but %s not in the ledger (seen by probes)", catalog.Plural(left, "unit is", "units are")), err
		}
	}
	if len(stuck) > 0 {
		return true, "all leases had expired, but a new driver got no answer (seen by probes)", err
	}
	return false, "a new driver got an answer (seen by probes)", err
}
