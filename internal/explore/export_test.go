package explore

import (
	"context"
	"testing"

	"grablab/internal/catalog"
	"grablab/internal/explore/schedule"
	"grablab/internal/explore/sim"
	"grablab/internal/grab/lock"
	"grablab/internal/order"
)

// Expected returns the verdict that we expect under the given faults, for an order with one unit.
func Expected(s lock.Strategy, guard order.Guard, faults []catalog.Fault) catalog.Verdict {
	return claimsUnder(Config{TTL: DefaultTTL}, sim.Setting{Strategy: s, Guard: guard, Stock: 1}, faults).all
}

// WrongGuard makes each check of a guard find a mistake, until t ends.
func WrongGuard(t *testing.T, mistake string) {
	right := checkGuard
	t.Cleanup(func() { checkGuard = right })
	checkGuard = func(context.Context, order.Guard) (string, error) { return mistake, nil }
}

// Replay replays one schedule in this process.
func Replay(ctx context.Context, bubble Bubble, sched schedule.Schedule, strategy string) (Result, error) {
	return ReplayBy(ctx, bubble, nil, sched, strategy)
}
