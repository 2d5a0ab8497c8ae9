package sim

import (
	"sync/atomic"
	"time"

	"grablab/internal/explore/search"
)

// epoch is the time at which a bubble of testing/synctest begins.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// node is a simulated lock server. All schedules share it, so each schedule begins with a reset.
type node struct {
	lockServer
	name string
	// cancels reports whether clients stop waiting for a reply when their context ends. Redis
	// clients stop only at a deadline.
	cancels bool

	drift     float64            // the fraction by which its clock runs faster than the clients' clocks
	ahead     time.Duration      // how far its clock has jumped, in addition to drift
	down      atomic.Bool        // it cannot be reached; clients check this when they dial
	eventHash search.Fingerprint // a hash of all events on it
	replyHash search.Fingerprint // a hash of all its replies
}

// lockServer contains the methods that the simulation needs from a server.
type lockServer interface {
	reset() // restores the initial state
	close()
	// contents returns one line for each key, in the form "key = value".
	contents() string
	// state adds to the fingerprint what affects future behaviour but is not in the contents.
	state(search.Fingerprint) search.Fingerprint
	// leaseOf finds the lease with this value and its remaining TTL, or 0 if it never expires. In a
	// queue, only the first entry is a lease.
	leaseOf(value string) (ttl time.Duration, ok bool)
	timePassed()
	disconnect() // closes the connections of its clients
}

// Optional abilities of a lockServer.
type (
	// A forgetter loses its data when it restarts.
	forgetter interface{ restart() }
	// A latecomer can execute a call whose caller has stopped waiting.
	latecomer interface{ arrive(*call) }
	// pinged reports whether a client renews the lease by itself in the background.
	pinged interface{ pinged(value string) bool }
	// sessioned is a server whose clients need a session. It reports whether an instance has one.
	sessioned interface{ connected(*instance) bool }
	// settler waits until its clients have reconnected after an outage.
	settler interface{ settle() }
)

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

// reset restores the initial state.
func (n *node) reset() {
	n.ahead, n.eventHash, n.replyHash = 0, search.EmptyFingerprint, 0
	n.down.Store(false)
	n.lockServer.reset()
}

// now returns the time on the node's clock.
func (n *node) now() time.Time {
	now := time.Now()
	return now.Add(n.ahead + time.Duration(n.drift*float64(now.Sub(epoch))))
}

// until returns how much time must pass until the server's clock shows then.
func (n *node) until(then time.Time) time.Duration {
	return time.Duration(float64(then.Sub(n.now())) / (1 + n.drift))
}

// jump moves the node's clock by d.
func (n *node) jump(d time.Duration) {
	n.ahead += d
	n.timePassed()
}
