package sim

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"grablab/internal/history"
	"grablab/internal/tap"

	"github.com/redis/go-redis/v9"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// leaseBook knows which leases the servers have granted to which actors. It looks at what
// a server stores after each call.
type leaseBook struct {
	cluster *Cluster
	world   *world
	gate    *gate
	causes  *causes

	strayRenewal string // what a renewal did to the lease of another actor, or ""
}

// serverLease is what one server has granted, until then on its own clock.
type serverLease struct {
	node  *node
	until time.Time
}

// runs says whether it does, by that server's clock.
func (l serverLease) runs() bool { return l.until.After(l.node.now()) }

// applied is called when a server has carried out a call, or has not: then with
// the error.
func (l *leaseBook) applied(c *call, err error) {
	l.gate.mu.Lock()
	defer l.gate.mu.Unlock()
	if c.node == nil {
		l.world.dbState = 0
		return
	}
	c.node.past = c.node.past.Text(c.actor.name).Text(string(c.phase)).Number(int64(c.n)).Number(int64(l.world.elapsed())).Number(int64(c.outcome)).Flag(err == nil)
	if err == nil || err == redis.Nil {
		l.noteLeasesLocked(c)
	}
}

// noteLeasesLocked notes which leases there are after c. They are those of every
// actor whose value the server stores, for a release may have brought one to
// another actor. A lock that stores no token is believed.
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
	c.actor.value = cmp.Or(tokenIn(c), c.actor.value)
	switch {
	case c.phase == tap.Renew:
		l.noteRenewalLocked(c)
	case c.phase == tap.Acquire && l.lengthens(c):
		c.actor.noteAsked(l.world.elapsed())
	}
	if _, ok := c.node.lockServer.(*redisServer); !ok && c.phase != tap.Release {
		// A lock takes its place back by itself when it finds it lost, though the server's
		// session may run on.
		c.actor.leases = nil
	}
	l.findLeasesLocked(c.node)
}

// askEvery is how often a waiter may ask a server in the long run, and askAtOnce for how many
// requests it may do so without any pause.
const (
	askEvery  = 20 * time.Millisecond
	askAtOnce = 8
)

// noteAsked is for a request for the lock, as a leaky bucket counts them.
func (a *actor) noteAsked(now time.Duration) {
	a.rest = max(0, a.rest-(now-a.asked)) + askEvery
	a.asked = now
}

// noteRenewalLocked notes what a renewal has done, before the leases are noted anew.
func (l *leaseBook) noteRenewalLocked(c *call) {
	for _, a := range l.world.actors {
		ttl, ok := c.node.leaseOf(a.value)
		before, until := a.until(c.node), c.node.now().Add(cmp.Or(ttl, l.cluster.TTL))
		switch own := c.names(a.value); {
		case own && a == c.actor && c.releasing && !l.causes.disturbed() && l.lengthens(c):
			l.strayRenewal = fmt.Sprintf("a renewal of %s was sent after its release", a.name)
		case own:
			c.gone = append(c.gone, lookedFor{a, !ok})
		case a != c.actor && ok && !before.IsZero() && until.Sub(before) > time.Millisecond:
			l.strayRenewal = fmt.Sprintf("a renewal of %s has lengthened the lease of %s", c.actor.name, a.name)
		}
	}
}

// lengthens says whether a call asks for more time, as a clean-up does not.
func (l *leaseBook) lengthens(c *call) bool {
	if _, ok := c.request.(*pb.LeaseKeepAliveRequest); ok {
		return true
	}
	millis, seconds := strconv.FormatInt(l.cluster.TTL.Milliseconds(), 10), strconv.FormatInt(int64(l.cluster.TTL.Seconds()), 10)
	return slices.ContainsFunc(c.sent, func(args []any) bool {
		if len(args) > 3 && slices.Contains([]any{"eval", "evalsha"}, args[0]) {
			args = args[3:] // the number of keys is no time
		}
		return slices.ContainsFunc(args, func(arg any) bool {
			text := fmt.Sprint(arg)
			return text == millis || text == seconds
		})
	})
}

// findLeasesLocked notes the leases that a server has granted.
func (l *leaseBook) findLeasesLocked(n *node) {
	for _, a := range l.world.actors {
		if ttl, ok := n.leaseOf(a.value); ok {
			a.lease(serverLease{n, n.now().Add(cmp.Or(ttl, l.cluster.TTL))})
		}
	}
}

// names says whether a value is among what was sent.
func (c *call) names(value string) bool {
	return slices.ContainsFunc(c.sent, func(args []any) bool {
		return slices.ContainsFunc(args, func(arg any) bool {
			text, ok := arg.(string)
			return ok && mentions(text, value)
		})
	})
}

// mentions says whether the whole of a value is in a text: token-1-1 is not in token-1-10.
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

// until is when the lease of the actor ends that a node has granted; the zero Time: it has
// granted none.
func (a *actor) until(n *node) time.Time {
	for _, l := range a.leases {
		if l.node == n {
			return l.until
		}
	}
	return time.Time{}
}

func (a *actor) lease(l serverLease) {
	a.leases = append(slices.DeleteFunc(a.leases, func(old serverLease) bool { return old.node == l.node }), l)
}

// tokenIn is the argument with a token in it of a call that takes a lock; "":
// there is none.
func tokenIn(c *call) string {
	if c.phase != tap.Acquire {
		return ""
	}
	for _, args := range c.sent {
		for _, arg := range args {
			if text, ok := arg.(string); ok && strings.Contains(text, tokenPrefix) {
				return text
			}
		}
	}
	return ""
}

// onAnyNode says whether a server has yet to free what it granted the actor.
func (a *actor) onAnyNode() bool {
	return slices.ContainsFunc(a.leases, serverLease.runs)
}

// leased says whether the strategy's locks are leases of lock servers.
func (l *leaseBook) leased() bool { return len(l.cluster.nodes) > 0 && l.cluster.locks() }

// quorum is how many servers have to grant a lease; 0: there are no leases.
func (l *leaseBook) quorum() int { return min(len(l.cluster.nodes), len(l.cluster.nodes)/2+1) }

// leaseLeft is for how long the actor's lease still runs by the clocks of the
// servers that granted it; with several, of a majority of them.
func (l *leaseBook) leaseLeft(a *actor) time.Duration { return l.leaseLeftBy(a, (*node).now) }

func (l *leaseBook) leaseLeftBy(a *actor, now func(*node) time.Time) time.Duration {
	quorum := min(l.quorum(), len(a.leases))
	if quorum == 0 {
		return 0
	}
	left := make([]time.Duration, len(a.leases))
	for i, l := range a.leases {
		left[i] = l.until.Sub(now(l.node))
	}
	slices.Sort(left)
	return left[len(left)-quorum]
}

// nextLeaseEndLocked returns the actor whose lease ends next, and how long that lease still
// runs. It returns nil if no lease will end.
func (l *leaseBook) nextLeaseEndLocked() (holder *actor, left time.Duration) {
	for _, a := range l.world.actors {
		for _, granted := range a.leases {
			until := granted.node.until(granted.until)
			if until > 0 && !a.released && (holder == nil || until < left) && !l.keptAlive(a) {
				holder, left = a, until
			}
		}
	}
	return holder, left
}

// keptAlive says whether the client of the actor keeps its lease alive by itself.
func (l *leaseBook) keptAlive(a *actor) bool {
	return slices.ContainsFunc(a.leases, func(l serverLease) bool {
		p, ok := l.node.lockServer.(pinged)
		return ok && p.pinged(a.value)
	})
}

// renewalDueLocked says whether a renewal could go through that an instance has sent,
// for one of its holders or for all.
func (l *leaseBook) renewalDueLocked(from *instance) bool {
	return l.cluster.renews && slices.ContainsFunc(l.gate.waiting, func(c *call) bool {
		return c.phase == tap.Renew && c.actor.inst == from && c.canGo()
	})
}

// inherit lets a have the lease of a releasing actor of its instance, if that is
// still stored on a server and a has none: an instance may hand a lease on to the
// next waiter without a call.
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
			b.value, b.token, b.leases = "", "", nil // what a server stores is not b's any more
			return
		}
	}
}

// leasedActors has a bit for each actor whose lease runs.
func (l *leaseBook) leasedActors() (set uint8) {
	l.gate.mu.Lock() // a session may end by a timer of its own
	defer l.gate.mu.Unlock()
	for i, a := range l.world.actors {
		if l.leaseLeft(a) > 0 {
			set |= 1 << i
		}
	}
	return set
}

// byLeases says whether the properties judge an event by which leases run.
func (e event) byLeases() bool {
	return e.Op == history.Lost || e.Op == history.Acquire && e.Kind == history.OK ||
		e.Op == history.Claim && e.Kind == history.OK || e.Op == history.Release && e.Kind != history.Invoke
}
