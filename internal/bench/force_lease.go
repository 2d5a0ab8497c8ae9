package bench

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"grablab/internal/grab"
	course "grablab/internal/schedule"
	"grablab/internal/tap"
)

// grant is a lease that a server gave to an actor, or gave anew, as the server
// itself says for how long.
type grant struct {
	*performer
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
func (t *take) look(ctx context.Context, server string) (map[string]entry, error) {
	if server == course.DB {
		return nil, nil
	}
	client := t.servers[server]
	keys, err := client.Keys(ctx, fmt.Sprintf("*{%d}*", t.order)).Result()
	if err != nil {
		return nil, fmt.Errorf("bench: %s: %w", server, err)
	}
	held := map[string]entry{}
	for _, key := range keys {
		// A key may go between the questions.
		ttl, err := client.PTTL(ctx, key).Result()
		if err != nil {
			return nil, fmt.Errorf("bench: %s: %w", server, err)
		}
		if dump, err := client.Dump(ctx, key).Result(); err == nil {
			held[key] = entry{dump, ttl}
		}
	}
	return held, nil
}

// note takes in what a call has changed on its server. since is when it was let go.
func (t *take) note(p *performer, s course.Step, since time.Duration, before, after map[string]entry) {
	switch tap.Phase(s.Phase) {
	case tap.Release:
		if !maps.Equal(dumps(before), dumps(after)) {
			t.returned(p, s.Target)
		}
	case tap.Acquire, tap.Renew:
		if s.Target != course.DB {
			p.asked = since
		}
		if key, e, ok := t.granted(before, after); ok {
			t.grant(p, s.Target, key, e, since)
		}
	}
}

func dumps(held map[string]entry) map[string]string {
	all := map[string]string{}
	for key, e := range held {
		all[key] = e.dump
	}
	return all
}

// granted finds the key of a lease that was given or prolonged: that of the lock
// itself, if it is among those.
func (t *take) granted(before, after map[string]entry) (key string, e entry, ok bool) {
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

func (t *take) grant(p *performer, server, key string, e entry, since time.Duration) {
	g := grant{performer: p, server: server, key: key, dump: e.dump, at: since, kept: e.ttl <= 0}
	if g.kept {
		g.until = since + t.Schedule.TTL
	} else {
		g.until = since + e.ttl
	}
	t.grants = append(t.grants, g)
}

func (t *take) returned(p *performer, server string) {
	for i := range t.grants {
		if g := &t.grants[i]; g.performer == p && g.server == server {
			g.returned = true
		}
	}
}

// jumped moves the end of every lease of a server.
func (t *take) jumped(server string, d time.Duration) {
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
func (t *take) latest(at time.Duration) []grant {
	var last []grant
	for _, g := range t.grants {
		if g.at > at {
			continue
		}
		same := func(o grant) bool { return o.performer == g.performer && o.server == g.server }
		last = append(slices.DeleteFunc(last, same), g)
	}
	return last
}

// leaseLeft is for how long the actor's lease had to run at that time, by the
// servers that granted it; with several, by a majority of them. A stamp may be
// that of the same millisecond which stood there before: then nobody saw the
// server grant anything, and the lease runs from his last call to it.
func (t *take) leaseLeft(p *performer, at time.Duration) time.Duration {
	var left []time.Duration
	for _, g := range t.latest(at) {
		if g.performer == p {
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
func (t *take) inTime(i int) error {
	now := t.clock()
	for _, g := range t.latest(now) {
		if !g.returned && g.until < now && g.until > t.expired {
			return fmt.Errorf("%w: at line %d, %q, the lease of %s on %s had run out", ErrTooSlow, t.Lines[i], t.Schedule.Steps[i], g.Actor.Name, g.server)
		}
	}
	return nil
}

// pass waits for so long, from when everybody has come to rest.
func (t *take) pass(ctx context.Context, d time.Duration) (string, error) {
	if err := t.settle(ctx, calming); err != nil {
		return "", err
	}
	end := t.clock() + d
	t.expired = max(t.expired, end)
	if !rest(ctx, d) {
		return "", context.Cause(ctx)
	}
	return "by the real clock", nil
}

// leaseEnd waits until the next lease has run out, as its server says.
func (t *take) leaseEnd(ctx context.Context) (string, error) {
	if err := t.settle(ctx, calming); err != nil {
		return "", err
	}
	now := t.clock()
	running := slices.DeleteFunc(t.latest(now), func(g grant) bool { return g.returned || g.until <= max(now, t.expired) })
	if len(running) == 0 {
		return "", never("no lease runs")
	}
	next := slices.MinFunc(running, func(a, b grant) int { return cmp.Compare(a.until, b.until) })
	// Those that were granted in the same moment end in the same moment.
	t.expired = next.until + t.Schedule.TTL/100
	if !rest(ctx, next.until-now+time.Millisecond) {
		return "", context.Cause(ctx)
	}
	if next.kept {
		return fmt.Sprintf("%s expires nothing: a TTL has passed since %s took the lock", next.server, next.Actor.Name), nil
	}
	return t.awaitEnd(ctx, next)
}

// awaitEnd returns once the server no longer knows of the lease.
func (t *take) awaitEnd(ctx context.Context, g grant) (string, error) {
	for {
		held, err := t.look(ctx, g.server)
		if err != nil {
			return "", err
		}
		if e, there := held[g.key]; !there || e.dump != g.dump {
			return fmt.Sprintf("the lease of %s has run out on %s", g.Actor.Name, g.server), nil
		}
		if !rest(ctx, peek) {
			return "", context.Cause(ctx)
		}
	}
}

// horizon is after how many leases it is no use to wait any longer.
const horizon = 8

// nextTimer waits until the call of the next step comes to the gate. Where the
// next step is none, nobody can see the timer.
func (t *take) nextTimer(ctx context.Context, i int) (string, error) {
	if i+1 == len(t.Schedule.Steps) || t.Schedule.Steps[i+1].Kind != course.Call {
		return "", t.cannot(i, "what the timer is for comes to no gate")
	}
	s := t.Schedule.Steps[i+1]
	p := t.named(s.Actor)
	call := p.call(s)
	came, err := until(ctx, peek, horizon*t.Schedule.TTL+t.Schedule.Wait, func() (bool, error) {
		t.expired = max(t.expired, t.clock())
		line, err := t.standing(ctx, p)
		return slices.ContainsFunc(line, func(s tap.Standing) bool { return s.Call == call }), err
	})
	if err == nil && !came {
		err = never("nobody came to the gate")
	}
	return fmt.Sprintf("%s comes to its %s", p.Actor.Name, s.CallName()), err
}

// describe says what a call was answered, and what stands on its server then.
func (t *take) describe(ctx context.Context, s course.Step, f tap.Fate, answer string, after map[string]entry) (string, error) {
	var facts []string
	if f != tap.Goes {
		facts = append(facts, string(f))
	}
	if answer != "" {
		facts = append(facts, oneLine(answer))
	}
	if s.Target == course.DB {
		rows, err := t.books.Ledger(ctx, t.order, 1)
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

// isDeadline says whether a call ended because its time was up.
func isDeadline(answer string) bool {
	return strings.Contains(answer, context.DeadlineExceeded.Error()) || strings.Contains(answer, "i/o timeout")
}
