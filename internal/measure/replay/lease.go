package replay

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/explore/schedule"
	"grablab/internal/grab"
	"grablab/internal/service/control"
	"grablab/internal/tap"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/wait"
)

// grant is a lease that a server has granted or renewed, with the earliest time at which the lease
// may end.
type grant struct {
	*actor
	server string
	key    string
	dump   string        // the key's value when the lease was granted
	at     time.Duration // earliest possible grant time (CLOCK_MONOTONIC)
	until  time.Duration // earliest possible lease end
	// lacksExpiry means that the key never expires. In that case, the replay treats the lease as if
	// it ended after one TTL.
	lacksExpiry bool
	released    bool // whether the holder has released the lease
}

// entry is a Redis key's value and remaining TTL.
type entry struct {
	dump string
	ttl  time.Duration // -1 if the key does not expire
}

// leases records which leases the servers have granted to the actors, and when each of them may
// end. All times are of CLOCK_MONOTONIC.
type leases struct {
	key    string        // the lock's main key
	ttl    time.Duration // a key that never expires counts as a lease of this length
	quorum int           // how many servers must have granted a lease
	grants []grant
	// expired is the latest lease end that the steps so far allow. If a lease with a later end has
	// already expired, the machine was too slow, so the replay proves nothing.
	expired time.Duration
}

func (r *replayer) newLeases(order int64) leases {
	return leases{key: grab.Key(r.Strategy.Name, order), ttl: r.Schedule.TTL, quorum: len(r.servers)/2 + 1}
}

// note records which lease a call has granted, renewed or released. To find out, it compares the
// server's keys before and after the call. since is when the call was sent.
func (l *leases) note(p *actor, s schedule.Step, since time.Duration, before, after map[string]entry) {
	switch tap.Phase(s.Phase) {
	case tap.Release:
		if maps.EqualFunc(before, after, func(a, b entry) bool { return a.dump == b.dump }) {
			return
		}
		for i := range l.grants {
			if g := &l.grants[i]; g.actor == p && g.server == s.Target {
				g.released = true
			}
		}
	case tap.Acquire, tap.Renew:
		if s.Target != schedule.DB {
			p.asked = since
		}
		if key, e, ok := l.grantedKey(before, after); ok {
			l.grant(p, s.Target, key, e, since)
		}
	}
}

// grantedKey compares two readings of a server and returns the key of a lease that was granted or
// renewed in between. If there are several, it prefers the lock's main key.
func (l *leases) grantedKey(before, after map[string]entry) (key string, e entry, ok bool) {
	for _, k := range slices.Sorted(maps.Keys(after)) {
		was, there := before[k]
		is := after[k]
		if there && was.dump == is.dump && is.ttl <= was.ttl {
			continue
		}
		if !ok || k == l.key || is.ttl > 0 && is.ttl < e.ttl && key != l.key {
			key, e, ok = k, is, true
		}
	}
	return key, e, ok
}

func (l *leases) grant(p *actor, server, key string, e entry, since time.Duration) {
	g := grant{actor: p, server: server, key: key, dump: e.dump, at: since, until: since + e.ttl, lacksExpiry: e.ttl <= 0}
	if g.lacksExpiry {
		g.until = since + l.ttl
	}
	l.grants = append(l.grants, g)
}

// latest returns each actor's last lease on each server at the given time.
func (l *leases) latest(at time.Duration) []grant {
	var last []grant
	for _, g := range l.grants {
		if g.at > at {
			continue
		}
		same := func(o grant) bool { return o.actor == g.actor && o.server == g.server }
		last = append(slices.DeleteFunc(last, same), g)
	}
	return last
}

// left returns how long an actor's lease lasts after the given time. For Redlock, a majority
// of servers decides. If no lease was recorded, the actor's last call counts as its beginning.
func (l *leases) left(p *actor, at time.Duration) time.Duration {
	left := catalog.Map(catalog.Filter(l.latest(at), func(g grant) bool { return g.actor == p }), func(g grant) time.Duration { return g.until - at })
	if len(left) == 0 {
		return p.asked + l.ttl - at
	}
	slices.SortFunc(left, func(a, b time.Duration) int { return cmp.Compare(b, a) })
	return left[min(l.quorum, len(left))-1]
}

// look reads all of the order's keys on a lock server.
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
		// A key may have expired since the list was read, so ignore missing keys.
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

// inTime returns ErrTooSlow if the machine was so slow that a lease has expired earlier than the
// schedule allows.
func (t *attempt) inTime(i int) error {
	now := t.clock()
	for _, g := range t.leases.latest(now) {
		if !g.released && g.until < now && g.until > t.leases.expired {
			return fmt.Errorf("%w: at line %d, %q, %s's lease on %s had already expired", ErrTooSlow, t.Lines[i], t.Schedule.Steps[i], g.Actor.Name, g.server)
		}
	}
	return nil
}

func (t *attempt) pass(ctx context.Context, m move) (string, error) {
	t.leases.expired = max(t.leases.expired, t.clock()+m.Duration)
	if !wait.For(ctx, m.Duration) {
		return "", context.Cause(ctx)
	}
	return "by the real clock", nil
}

// leaseEnd waits until the next lease has expired on its server.
func (t *attempt) leaseEnd(ctx context.Context, _ move) (string, error) {
	now := t.clock()
	running := slices.DeleteFunc(t.leases.latest(now), func(g grant) bool { return g.released || g.until <= max(now, t.leases.expired) })
	if len(running) == 0 {
		return "", impossible("no lease is valid")
	}
	next := slices.MinFunc(running, func(a, b grant) int { return cmp.Compare(a.until, b.until) })
	// Leases that began together should end together, so allow for a small difference.
	t.leases.expired = next.until + t.Schedule.TTL/100
	if !wait.For(ctx, next.until-now+time.Millisecond) {
		return "", context.Cause(ctx)
	}
	if next.lacksExpiry {
		return fmt.Sprintf("%s has no lease that expires: a TTL has passed since %s took the lock", next.server, next.Actor.Name), nil
	}
	return t.awaitEnd(ctx, next)
}

// awaitEnd waits until the lease is gone from its server.
func (t *attempt) awaitEnd(ctx context.Context, g grant) (string, error) {
	ended, err := wait.Until(ctx, pollInterval, arrivalTimeout, func() (bool, error) {
		held, err := t.look(ctx, g.server)
		return held[g.key].dump != g.dump, err
	})
	if err == nil && !ended {
		err = fmt.Errorf("replay: %s's lease should have expired, but its key is still on %s", g.Actor.Name, g.server)
	}
	return fmt.Sprintf("%s's lease has expired on %s", g.Actor.Name, g.server), err
}

// timerLeases is how long the replay waits for a strategy's timer, in TTLs.
const timerLeases = 8

// nextTimer waits until a timer of the strategy makes the next call in the schedule. If the call
// does not come in time, nextTimer fails.
func (t *attempt) nextTimer(ctx context.Context, m move) (string, error) {
	next := m.index + 1
	if next == len(t.Schedule.Steps) || t.Schedule.Steps[next].Kind != schedule.Call {
		return "", t.cannot(m.index, "the action of this timer cannot be held")
	}
	s := t.Schedule.Steps[next]
	p := t.actors.named(s.Actor)
	call := t.call(p, s)
	came, err := wait.Until(ctx, pollInterval, timerLeases*t.Schedule.TTL+t.Schedule.Wait, func() (bool, error) {
		t.leases.expired = max(t.leases.expired, t.clock())
		held, err := t.held(ctx, p)
		return slices.ContainsFunc(held, func(c control.Held) bool { return c.Call == call }), err
	})
	if err == nil && !came {
		err = impossible("no call came")
	}
	return fmt.Sprintf("%s reaches its %s", p.Actor.Name, s.CallName()), err
}

// describe returns the text for a printed step: the reply to a call, and the server's state after
// the call.
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
			facts = append(facts, "ledger: "+t.actors.winners(rows))
		}
		return strings.Join(facts, "; "), err
	}
	for _, key := range slices.Sorted(maps.Keys(after)) {
		facts = append(facts, fmt.Sprintf("%s %s", key, isAlive(after[key].ttl)))
	}
	if len(after) == 0 {
		facts = append(facts, "the key does not exist")
	}
	return strings.Join(facts, "; "), nil
}

func isAlive(ttl time.Duration) string {
	if ttl < 0 {
		return "never expires"
	}
	return fmt.Sprintf("expires in %v", ttl.Round(time.Millisecond))
}
