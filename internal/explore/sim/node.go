package sim

import (
	"sync/atomic"
	"time"

	"grablab/internal/explore/search"
)

// epoch is the time at which a bubble of testing/synctest begins.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// node is a simulated lock server. All schedules share it, so each begins with a reset.
type node struct {
	lockServer
	name string
	// cancels reports whether clients stop waiting for a reply when their context ends. Redis
	// clients only stop at a deadline.
	cancels bool

	drift     float64            // the fraction by which its clock runs faster than the clients' clocks
	ahead     time.Duration      // how far its clock has jumped, in addition to drift
	down      atomic.Bool        // it cannot be reached; clients check this when they dial
	eventHash search.Fingerprint // a hash of all events on it
	replyHash search.Fingerprint // a hash of all its replies
}

// lockServer contains the methods that the simulation needs from a server. Clients reach it in
// their own ways.
type lockServer interface {
	reset() // restores the initial state
	close()
	// contents returns one line for each key, in the form "key = value".
	contents() string
	// state adds what determines future behaviour but is missing in the contents.
	state(search.Fingerprint) search.Fingerprint
	// leaseOf finds the lease with a value, and its remaining TTL, where 0 means that it never
	// expires. In a queue, only the first entry counts.
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
	// sessioned serves only clients with a session, and reports which instances have one.
	sessioned interface{ connected(*instance) bool }
	// settler waits until its clients have recovered from lost connections.
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

// until returns how long it takes until the server's clock shows the given time.
func (n *node) until(then time.Time) time.Duration {
	return time.Duration(float64(then.Sub(n.now())) / (1 + n.drift))
}

// jump moves the node's clock by d.
func (n *node) jump(d time.Duration) {
	n.ahead += d
	n.timePassed()
}
