package replay

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"grablab/internal/explore/schedule"
	"grablab/internal/grab"
	"grablab/internal/service/control"
	"grablab/internal/tap"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/wait"
)

// grant is a lease that a server gave to an actor, or gave anew, as the server
// itself says for how long.
type grant struct {
	*actor
	server string
	key    string
	dump   string        // the value then
	at     time.Duration // CLOCK_MONOTONIC: no later than the grant
	until  time.Duration // no later than its end
	// kept: the server expires nothing; the lease is a TTL from the call on.
	kept     bool
	returned bool // its holder has released it
}

// entry is a key of the order on a server.
type entry struct {
	dump string
	ttl  time.Duration // -1: it does not expire
}

// look reads what a server holds of the order. Of the database nothing is read.
func (t *attempt) look(ctx context.Context, server string) (map[string]entry, error) {
	if server == schedule.DB {
		return nil, nil
	}
	client := t.servers[server]
	keys, err := client.Keys(ctx, fmt.Sprintf("*{%d}*", t.order)).Result()
	if err != nil {
		return nil, fmt.Errorf("replay: %s: %w", server, err)
	}
	held := map[string]entry{}
	for _, key := range keys {
		// A key may go between the questions.
		ttl, err := client.PTTL(ctx, key).Result()
		if err != nil {
			return nil, fmt.Errorf("replay: %s: %w", server, err)
		}
		if dump, err := client.Dump(ctx, key).Result(); err == nil {
			held[key] = entry{dump, ttl}
		}
	}
	return held, nil
}

// note takes in what a call has changed on its server. since is when it was let go.
func (t *attempt) note(p *actor, s schedule.Step, since time.Duration, before, after map[string]entry) {
	switch tap.Phase(s.Phase) {
	case tap.Release:
		if !maps.EqualFunc(before, after, func(a, b entry) bool { return a.dump == b.dump }) {
			t.returned(p, s.Target)
		}
	case tap.Acquire, tap.Renew:
		if s.Target != schedule.DB {
			p.asked = since
		}
		if key, e, ok := t.granted(before, after); ok {
			t.grant(p, s.Target, key, e, since)
		}
	}
}

// granted finds the key of a lease that was given or prolonged: that of the lock
// itself, if it is among those.
func (t *attempt) granted(before, after map[string]entry) (key string, e entry, ok bool) {
	for _, k := range slices.Sorted(maps.Keys(after)) {
		was, there := before[k]
		is := after[k]
		if there && was.dump == is.dump && is.ttl <= was.ttl {
			continue
		}
		lock := k == grab.Key(t.Strategy.Name, t.order)
		if !ok || lock || is.ttl > 0 && is.ttl < e.ttl && key != grab.Key(t.Strategy.Name, t.order) {
			key, e, ok = k, is, true
		}
	}
	return key, e, ok
}

func (t *attempt) grant(p *actor, server, key string, e entry, since time.Duration) {
	g := grant{actor: p, server: server, key: key, dump: e.dump, at: since, until: since + e.ttl, kept: e.ttl <= 0}
	if g.kept {
		g.until = since + t.Schedule.TTL
	}
	t.grants = append(t.grants, g)
}

func (t *attempt) returned(p *actor, server string) {
	for i := range t.grants {
		if g := &t.grants[i]; g.actor == p && g.server == server {
			g.returned = true
		}
	}
}

// jumped moves the end of every lease of a server.
func (t *attempt) jumped(server string, d time.Duration) {
	now := t.clock()
	for _, g := range t.grants {
		if g.server == server && !g.kept && !g.returned {
			g.at, g.until = now, g.until-d
			t.grants = append(t.grants, g)
		}
	}
	t.expired = max(t.expired, now)
}

// latest has of each actor and server the last grant before a time.
func (t *attempt) latest(at time.Duration) []grant {
	var last []grant
	for _, g := range t.grants {
		if g.at > at {
			continue
		}
		same := func(o grant) bool { return o.actor == g.actor && o.server == g.server }
		last = append(slices.DeleteFunc(last, same), g)
	}
	return last
}

// leaseLeft is for how long the actor's lease had to run at that time, by the
// servers that granted it; with several, by a majority of them. A stamp may be
// that of the same millisecond that was there before: then the server was not
// seen to grant anything, and the lease runs from the last call to it.
func (t *attempt) leaseLeft(p *actor, at time.Duration) time.Duration {
	var left []time.Duration
	for _, g := range t.latest(at) {
		if g.actor == p {
			left = append(left, g.until-at)
		}
	}
	if len(left) == 0 {
		return p.asked + t.Schedule.TTL - at
	}
	quorum := min(len(t.servers)/2+1, len(left))
	slices.SortFunc(left, func(a, b time.Duration) int { return cmp.Compare(b, a) })
	return left[quorum-1]
}

// inTime is ErrTooSlow if a lease has run out where the schedule let no time pass.
func (t *attempt) inTime(i int) error {
	now := t.clock()
	for _, g := range t.latest(now) {
		if !g.returned && g.until < now && g.until > t.expired {
			return fmt.Errorf("%w: at line %d, %q, the lease of %s on %s had run out", ErrTooSlow, t.Lines[i], t.Schedule.Steps[i], g.Actor.Name, g.server)
		}
	}
	return nil
}

// pass waits for so long.
func (t *attempt) pass(ctx context.Context, d time.Duration) (string, error) {
	end := t.clock() + d
	t.expired = max(t.expired, end)
	if !wait.For(ctx, d) {
		return "", context.Cause(ctx)
	}
	return "by the real clock", nil
}

// leaseEnd waits until the next lease has run out, as its server says.
func (t *attempt) leaseEnd(ctx context.Context) (string, error) {
	now := t.clock()
	running := slices.DeleteFunc(t.latest(now), func(g grant) bool { return g.returned || g.until <= max(now, t.expired) })
	if len(running) == 0 {
		return "", never("no lease runs")
	}
	next := slices.MinFunc(running, func(a, b grant) int { return cmp.Compare(a.until, b.until) })
	// Those that were granted in the same moment end in the same moment.
	t.expired = next.until + t.Schedule.TTL/100
	if !wait.For(ctx, next.until-now+time.Millisecond) {
		return "", context.Cause(ctx)
	}
	if next.kept {
		return fmt.Sprintf("%s expires nothing: a TTL has passed since %s took the lock", next.server, next.Actor.Name), nil
	}
	return t.awaitEnd(ctx, next)
}

// awaitEnd returns once the server no longer knows of the lease.
func (t *attempt) awaitEnd(ctx context.Context, g grant) (string, error) {
	ended, err := wait.Until(ctx, pollInterval, arrivalTimeout, func() (bool, error) {
		held, err := t.look(ctx, g.server)
		return held[g.key].dump != g.dump, err
	})
	if err == nil && !ended {
		err = fmt.Errorf("replay: the lease of %s does not end on %s", g.Actor.Name, g.server)
	}
	return fmt.Sprintf("the lease of %s has run out on %s", g.Actor.Name, g.server), err
}

// timerLeases is for how many leases a timer is waited for.
const timerLeases = 8

// nextTimer waits until the call of the next step is held. Where the
// next step is no call, the timer cannot be seen.
func (t *attempt) nextTimer(ctx context.Context, i int) (string, error) {
	if i+1 == len(t.Schedule.Steps) || t.Schedule.Steps[i+1].Kind != schedule.Call {
		return "", t.cannot(i, "what the timer is for cannot be held")
	}
	s := t.Schedule.Steps[i+1]
	p := t.named(s.Actor)
	call := t.call(p, s)
	came, err := wait.Until(ctx, pollInterval, timerLeases*t.Schedule.TTL+t.Schedule.Wait, func() (bool, error) {
		t.expired = max(t.expired, t.clock())
		held, err := t.held(ctx, p)
		return slices.ContainsFunc(held, func(c control.Held) bool { return c.Call == call }), err
	})
	if err == nil && !came {
		err = never("no call came")
	}
	return fmt.Sprintf("%s comes to its %s", p.Actor.Name, s.CallName()), err
}

// describe says what a call was answered, and what its server holds then.
func (t *attempt) describe(ctx context.Context, s schedule.Step, as control.Outcome, answer string, after map[string]entry) (string, error) {
	var facts []string
	if as != control.Delivered {
		facts = append(facts, string(as))
	}
	if answer != "" {
		facts = append(facts, fleet.OneLine(answer))
	}
	if s.Target == schedule.DB {
		rows, err := t.store.Ledger(ctx, t.order, 1)
		if len(rows) > 0 {
			facts = append(facts, "ledger: "+t.winners(rows))
		}
		return strings.Join(facts, "; "), err
	}
	for _, key := range slices.Sorted(maps.Keys(after)) {
		facts = append(facts, fmt.Sprintf("%s %s", key, lives(after[key].ttl)))
	}
	if len(after) == 0 {
		facts = append(facts, "nothing stands there")
	}
	return strings.Join(facts, "; "), nil
}

func lives(ttl time.Duration) string {
	if ttl < 0 {
		return "stands for ever"
	}
	return fmt.Sprintf("lives for %v", ttl.Round(time.Millisecond))
}
