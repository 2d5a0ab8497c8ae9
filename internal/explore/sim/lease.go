package sim

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/history"
	"grablab/internal/tap"

	"github.com/redis/go-redis/v9"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// leaseBook records which actor has a lease on which server.
type leaseBook struct {
	cluster *Cluster
	world   *world
	gate    *gate
	causes  *causes

	strayRenewal string // describes a renewal that was not allowed; "" if there was none
	tooLong      string // describes a lease that its holder believes to last too long; "" if there was none
}

// serverLease is a lease from one server. It ends when that server's clock reaches until.
type serverLease struct {
	node  *node
	until time.Time
}

func (l serverLease) isValid() bool { return l.until.After(l.node.now()) }

// update records how a call has changed the leases. err is the server's error, or nil.
func (l *leaseBook) update(c *call, err error) {
	l.gate.mu.Lock()
	defer l.gate.mu.Unlock()
	if c.node == nil {
		return
	}
	c.node.eventHash = c.node.eventHash.Number(int64(c.fingerprint())).Number(int64(l.world.elapsed())).Number(int64(c.outcome)).Flag(err == nil)
	if err == nil || err == redis.Nil {
		l.noteLeasesLocked(c)
	}
}

// noteLeasesLocked records which leases exist after a call. A release can hand over the lock to
// another actor, so it checks all actors.
func (l *leaseBook) noteLeasesLocked(c *call) {
	if !l.cluster.locks() {
		return
	}
	l.causes.noteFreedLocked(c)
	if !l.cluster.showsToken {
		l.causes.noteOverwrittenLocked(c)
		if c.phase == tap.Acquire || c.phase == tap.Renew {
			c.actor.lease(serverLease{c.node, c.node.now().Add(l.cluster.TTL)})
		}
		return
	}
	// With several nodes, the clean-up of an earlier attempt may come after the next attempt has begun.
	if token := tokenIn(c); token != "" && token != c.actor.value && !slices.Contains(c.actor.earlier, token) {
		c.actor.earlier = append(c.actor.earlier, c.actor.value)
		c.actor.value, c.actor.leases = token, nil // forget an earlier attempt's leases, because they are not part of this one
	}
	switch {
	case c.phase == tap.Renew:
		l.noteRenewalLocked(c)
	case c.phase == tap.Acquire && l.extendsLease(c):
		c.actor.noteAsked(l.world.elapsed(), askEvery)
	}
	if _, ok := c.node.lockServer.(*redisServer); !ok && c.phase != tap.Release {
		// The client may have lost its place in the queue, so forget its lease. findLeasesLocked
		// records the lease again if it still exists.
		c.actor.leases = nil
	}
	l.findLeasesLocked(c.node)
}

// These limits define busy waiting. On average, a waiting client may ask for the lock once per
// askEvery. In a burst, it may ask askAtOnce times. The same limits apply to renewals, even if they fail.
const (
	askEvery  = 20 * time.Millisecond
	askAtOnce = 8
)

// noteAsked records that a client asks for the lock or renews its lease, which it may do once per every.
// It is a leaky bucket, so old requests stop counting after a while.
func (a *actor) noteAsked(now, every time.Duration) {
	a.rest = max(0, a.rest-(now-a.asked)) + every
	a.asked = now
}

// noteRenewals records the renewals among new calls. A short lease must be renewed more often.
func (l *leaseBook) noteRenewals(fresh []*call) {
	for _, c := range fresh {
		if c.phase == tap.Renew && c.node != nil && l.extendsLease(c) {
			c.actor.noteAsked(l.world.elapsed(), min(askEvery, l.cluster.TTL/20))
		}
	}
}

// noteRenewalLocked records the effect of a renewal. It compares the lease's old and new end, so
// call it before recording the new end.
func (l *leaseBook) noteRenewalLocked(c *call) {
	// On a ZooKeeper server, each call renews its instance's session, even if the reply is lost.
	_, sessions := c.node.lockServer.(*zkServer)
	_, keepAlive := c.request.(*pb.LeaseKeepAliveRequest) // it names no token, but each actor has a lease of its own
	if l.cluster.Strategy.Promises.Turns {
		c.waiters |= l.world.actorsThat(func(a *actor) bool { return a.inst != c.actor.inst && l.gate.isQueuedLocked(a) })
	}
	for _, a := range l.world.actors {
		ttl, ok := c.node.leaseOf(a.value)
		before, until := a.until(c.node), c.node.now().Add(cmp.Or(ttl, l.cluster.TTL))
		switch own := c.names(a.value) || keepAlive && a == c.actor; {
		case own && a == c.actor && c.releasing && !l.causes.isDisturbed() && l.extendsLease(c):
			l.strayRenewal = fmt.Sprintf("%s sent a renewal after its release", a.name)
		case own:
			c.renewed = append(c.renewed, lookedFor{a, !ok})
		case sessions || !l.extendsLease(c): // a clean-up may hand the lock to another actor
		case a != c.actor && ok && !before.IsZero() && until.Sub(before) > time.Millisecond:
			l.strayRenewal = fmt.Sprintf("%s's renewal has extended %s's lease", c.actor.name, a.name)
		}
	}
}

// noteBelief checks whether a holder overestimates how long its lease lasts. believed is 0 if the
// event is not about a lease.
func (l *leaseBook) noteBelief(a *actor, believed time.Duration) {
	if believed == 0 {
		return
	}
	a.believed = l.world.elapsed() + believed
	if believed == history.Endless {
		a.believed = 0
	}
	left := l.leaseLeft(a)
	exact := !l.countsTwice() && l.usesLeases() && l.cluster.showsToken && left > 0 && !l.causes.dataLost
	for _, n := range l.cluster.nodes {
		ttl, stored := n.leaseOf(a.value)
		exact = exact && n.ahead == 0 && (!stored || ttl > 0)
	}
	if exact && (believed == history.Endless || believed > left+time.Millisecond) && !a.dead {
		l.tooLong = fmt.Sprintf("%s's lease lasts for %s, but %s believes that it lasts longer", a.name, left.Round(time.Millisecond), a.name)
	}
}

// noteRelease records whether a server still stores the lease that a release is about to delete.
// Only the first request counts, because it deletes the lease even if its reply is lost. A release that
// frees another driver's lock also succeeds, so for such a lock, only an empty server counts.
func (l *leaseBook) noteRelease(c *call) {
	a := c.actor
	if c.phase != tap.Release || c.node == nil || !l.cluster.showsToken || !l.cluster.locks() {
		return
	}
	l.gate.mu.Lock()
	defer l.gate.mu.Unlock()
	if slices.Contains(a.askedOn, c.node) {
		return
	}
	a.askedOn = append(a.askedOn, c.node)
	if stored := c.node.contents(); a.held != "" && !mentions(stored, a.held) && (stored == "" || !l.cluster.isBlind()) {
		a.goneOn = append(a.goneOn, c.node)
	}
}

// extendsLease reports whether a call extends a lease, which means that the TTL is among its
// arguments.
func (l *leaseBook) extendsLease(c *call) bool {
	if _, ok := c.request.(*pb.LeaseKeepAliveRequest); ok {
		return true
	}
	millis, seconds := strconv.FormatInt(l.cluster.TTL.Milliseconds(), 10), strconv.FormatInt(int64(l.cluster.TTL.Seconds()), 10)
	return slices.ContainsFunc(c.sent, func(args []any) bool {
		if len(args) > 3 && slices.Contains([]any{"eval", "evalsha"}, args[0]) {
			args = args[3:] // skip the number of keys, because it is not a duration
		}
		return slices.ContainsFunc(args, func(arg any) bool {
			text := fmt.Sprint(arg)
			return text == millis || text == seconds
		})
	})
}

// findLeasesLocked records the end of each lease on the server.
func (l *leaseBook) findLeasesLocked(n *node) {
	for _, a := range l.world.actors {
		if ttl, ok := n.leaseOf(a.value); ok {
			a.lease(serverLease{n, n.now().Add(cmp.Or(ttl, l.cluster.TTL))})
		}
	}
}

// storesAnyOf reports whether the call's server stores anything that the call's actor may have to
// clean up.
func (l *leaseBook) storesAnyOf(c *call) bool {
	return !c.actor.until(c.node).IsZero() || slices.ContainsFunc(append(slices.Clip(c.actor.earlier), c.actor.value), func(value string) bool {
		return mentions(c.node.contents(), value)
	})
}

// names reports whether any of the call's arguments contains value as a complete token.
func (c *call) names(value string) bool {
	return slices.ContainsFunc(slices.Concat(c.sent...), func(arg any) bool {
		text, ok := arg.(string)
		return ok && mentions(text, value)
	})
}

// mentions reports whether text contains value as a complete token, so that token-1-10 does not
// mention token-1-1.
func mentions(text, value string) bool {
	for value != "" {
		_, rest, found := strings.Cut(text, value)
		if !found {
			return false
		}
		if rest == "" || rest[0] < '0' || rest[0] > '9' {
			return true
		}
		text = rest
	}
	return false
}

// until returns when the actor's lease on the server ends, or the zero Time if there is no such
// lease.
func (a *actor) until(n *node) time.Time {
	return catalog.First(a.leases, func(l serverLease) bool { return l.node == n }).until
}

func (a *actor) lease(l serverLease) {
	a.leases = append(slices.DeleteFunc(a.leases, func(old serverLease) bool { return old.node == l.node }), l)
}

// tokenIn returns the token that an acquire sends. It returns "" for other calls and for an acquire
// without a token.
func tokenIn(c *call) string {
	if c.phase != tap.Acquire {
		return ""
	}
	for _, arg := range slices.Concat(c.sent...) {
		if text, ok := arg.(string); ok && strings.Contains(text, tokenPrefix) {
			return text
		}
	}
	return ""
}

func (l *leaseBook) usesLeases() bool { return len(l.cluster.nodes) > 0 && l.cluster.locks() }

// quorum returns how many servers must grant a lease, or 0 if there are no lock servers.
func (l *leaseBook) quorum() int { return min(len(l.cluster.nodes), len(l.cluster.nodes)/2+1) }

// countsTwice reports whether the lock counts one server twice by mistake. If so, its majority
// differs from the simulation's.
func (l *leaseBook) countsTwice() bool { return slices.Contains(l.cluster.Strategy.Breaks, "F20") }

// leaseLeft returns how long the actor's lease remains valid by the clocks of a majority of
// servers.
func (l *leaseBook) leaseLeft(a *actor) time.Duration { return l.leaseLeftBy(a, (*node).now) }

func (l *leaseBook) leaseLeftBy(a *actor, now func(*node) time.Time) time.Duration {
	quorum := min(l.quorum(), len(a.leases))
	if quorum == 0 {
		return 0
	}
	left := catalog.Map(a.leases, func(l serverLease) time.Duration { return l.until.Sub(now(l.node)) })
	slices.Sort(left)
	return left[len(left)-quorum]
}

// holds reports whether an actor still has its lock by the servers' clocks. A releasing actor has
// the lock as long as a majority of servers stores it.
func (l *leaseBook) holds(a *actor) bool {
	switch {
	case !l.usesLeases():
		return !a.releasing
	case a.releasing && (!l.cluster.showsToken || l.timesStored(a) < l.quorum()):
		return false
	default:
		return l.leaseLeft(a) > 0
	}
}

// timesStored returns how many servers store the actor's lease.
func (l *leaseBook) timesStored(a *actor) int {
	return len(catalog.Filter(l.cluster.nodes, func(n *node) bool { _, ok := n.leaseOf(a.value); return ok }))
}

// nextLeaseEndLocked returns the actor whose lease ends next, and the time until then. If no lease
// will end, the actor is nil.
func (l *leaseBook) nextLeaseEndLocked() (holder *actor, left time.Duration) {
	for _, a := range l.world.actors {
		if until := l.leaseEndLocked(a); until > 0 && (holder == nil || until < left) {
			holder, left = a, until
		}
	}
	return holder, left
}

// leaseEndLocked returns the time until the actor's first lease ends, or 0 if none will end.
func (l *leaseBook) leaseEndLocked(a *actor) (left time.Duration) {
	for _, granted := range a.leases {
		until := granted.node.until(granted.until)
		if until > 0 && !a.released && (left == 0 || until < left) && !l.isKeptAlive(a) && !l.cleanedUp(a, granted.node) {
			left = until
		}
	}
	return left
}

// cleanedUp reports whether an actor has ended without leaving a lease on the server.
func (l *leaseBook) cleanedUp(a *actor, n *node) bool {
	_, stored := n.leaseOf(a.value)
	return l.cluster.showsToken && a.done && !stored
}

// isKeptAlive reports whether the client library renews the actor's lease in the background.
func (l *leaseBook) isKeptAlive(a *actor) bool {
	return slices.ContainsFunc(a.leases, func(l serverLease) bool {
		s, ok := l.node.lockServer.(*zkServer)
		return ok && s.pinged(a.value)
	})
}

// renewalDueLocked reports whether one of the instance's renewals is waiting and could continue.
func (l *leaseBook) renewalDueLocked(from *instance) bool {
	return l.cluster.renews && slices.ContainsFunc(l.gate.waiting, func(c *call) bool {
		return c.phase == tap.Renew && c.actor.inst == from && c.canGo()
	})
}

// inherit records the lease of an actor that got the lock without sending a call itself. Either its
// process has handed over the lock, or another actor's release has queued a request for the process. In
// the second case, the actor's token begins with the stored name of that request.
func (l *leaseBook) inherit(a *actor) {
	if !l.cluster.showsToken || l.leaseLeft(a) > 0 {
		return
	}
	for _, b := range l.world.actors {
		if b.inst != a.inst || b == a || b.granted && !b.releasing || l.leaseLeft(b) <= 0 {
			continue
		}
		if slices.ContainsFunc(l.cluster.nodes, func(n *node) bool { _, ok := n.leaseOf(b.value); return ok }) {
			a.value, a.leases = b.value, b.leases
			b.value, b.token, b.leases = "", "", nil // the stored value no longer belongs to b
			return
		}
	}
	queued := a.token[:max(strings.LastIndexByte(a.token, '.'), 0)]
	if _, ok := l.cluster.nodes[0].leaseOf(queued); ok {
		a.value, a.leases = queued, nil
		l.gate.mu.Lock()
		defer l.gate.mu.Unlock()
		l.findLeasesLocked(l.cluster.nodes[0])
	}
}

// leasedActors returns the actors with a valid lease.
func (l *leaseBook) leasedActors() actorSet {
	l.gate.mu.Lock() // needed because a timer may end a session at this moment
	defer l.gate.mu.Unlock()
	return l.world.actorsThat(func(a *actor) bool { return l.leaseLeft(a) > 0 })
}

// byLeases reports whether checking this event depends on which leases are still valid.
func (e event) byLeases() bool {
	return e.Op == history.Lost || e.Op == history.Acquire && e.Kind == history.OK ||
		e.Op == history.Claim && e.Kind == history.OK || e.Op == history.Release && e.Kind != history.Invoke
}
