package sim

import (
	"sync/atomic"
	"time"

	"grablab/internal/explore/search"
)

// epoch is the initial time of the clock in each bubble of testing/synctest.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// node is a simulated lock server. All schedules use the same nodes, so each node is reset at the
// start of a schedule.
type node struct {
	lockServer
	name string
	// cancels means that clients stop waiting for a reply when their context ends. It is false for
	// Redis, whose clients stop only at a deadline.
	cancels bool

	drift     float64            // the fraction by which its clock is faster than the clients' clocks
	ahead     time.Duration      // how far its clock has jumped, in addition to drift
	down      atomic.Bool        // whether it cannot be reached; clients check this when they dial
	eventHash search.Fingerprint // a hash of everything that has happened on this server
	replyHash search.Fingerprint // a hash of all its replies
}

// A lockServer is a simulated server of any kind that stores locks.
type lockServer interface {
	reset() // restores the initial state
	// contents returns one line for each key, in the form "key = value".
	contents() string
	// state adds to the fingerprint everything outside of its contents that can influence the
	// server's future behavior.
	state(search.Fingerprint) search.Fingerprint
	// leaseOf returns the remaining TTL of the lease with this value, or 0 if the lease never
	// expires. In a queue, only the first entry counts as a lease.
	leaseOf(value string) (ttl time.Duration, ok bool)
	timePassed()
	disconnect() // closes the connections of its clients
}

// A latecomer is a lockServer that can still execute a call whose caller has stopped waiting.
type latecomer interface{ arrive(*call) }

// A notifier is a lockServer that tells its clients about changes.
type notifier interface {
	listeners(key string) int // returns how many subscriptions or watches only concern the lock with this key
}

func newNode(name string) (*node, error) {
	switch name {
	case "zookeeper":
		return newZKServer(name).node, nil
	case "etcd":
		return newEtcdServer(name).node, nil
	default:
		r, err := newRedisServer(name)
		if err != nil {
			return nil, err
		}
		return r.node, nil
	}
}

func (n *node) reset() {
	n.ahead, n.eventHash, n.replyHash = 0, search.EmptyFingerprint, 0
	n.down.Store(false)
	n.lockServer.reset()
}

func (n *node) now() time.Time {
	now := time.Now()
	return now.Add(n.ahead + time.Duration(n.drift*float64(now.Sub(epoch))))
}

// until returns how long it takes until the server's clock shows the time then.
func (n *node) until(then time.Time) time.Duration {
	return time.Duration(float64(then.Sub(n.now())) / (1 + n.drift))
}

func (n *node) jump(d time.Duration) {
	n.ahead += d
	n.timePassed()
}
