package sim

import (
	"sync/atomic"
	"time"

	"grablab/internal/explore/search"
)

// epoch is when a bubble of testing/synctest begins.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// node is a lock server without a socket. It lives outside of the bubbles and is
// made as new for each schedule.
type node struct {
	lockServer
	name string
	// cancels: its clients stop waiting for a reply when their context ends. Those of
	// Redis heed a deadline alone.
	cancels bool

	drift   float64            // by what share its clock runs faster than the clients'
	ahead   time.Duration      // of its clock, beside that
	down    atomic.Bool        // it cannot be reached; clients look when they dial
	past    search.Fingerprint // all that has happened to it
	replies search.Fingerprint // all that it has replied
}

// lockServer is what a node runs. Calls of its clients come to it from any goroutine, its
// methods are called between two steps.
type lockServer interface {
	reset() // makes it as new
	close()
	// contents is what it holds, a line for each key: "key = value".
	contents() string
	// state adds what decides how it goes on, and is not in its contents.
	state(search.Fingerprint) search.Fingerprint
	// leaseOf finds the lease that stores a value, and for how long it lives; 0: for
	// ever. A queue is no lease, but for the first in it.
	leaseOf(value string) (ttl time.Duration, ok bool)
	timePassed()
	disconnect() // its clients
}

// What some servers can do.
type (
	// forgetter loses what it holds when it restarts.
	forgetter interface{ restart() }
	// latecomer applies a call that its caller has given up.
	latecomer interface{ arrive(*call) }
	// pinged says whether a client keeps the lease that stores a value alive by itself,
	// without a call of the lock.
	pinged interface{ pinged(value string) bool }
	// sessioned serves only clients that have a session, and tells which instances have one.
	sessioned interface{ connected(*instance) bool }
	// settler lets its clients go on that have lost their connection.
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

// reset makes the node as new.
func (n *node) reset() {
	n.ahead, n.past, n.replies = 0, search.EmptyFingerprint, 0
	n.down.Store(false)
	n.lockServer.reset()
}

// now is the node's clock.
func (n *node) now() time.Time {
	now := time.Now()
	return now.Add(n.ahead + time.Duration(n.drift*float64(now.Sub(epoch))))
}

// until is for how long it is until then, by the clients' clocks.
func (n *node) until(then time.Time) time.Duration {
	return time.Duration(float64(then.Sub(n.now())) / (1 + n.drift))
}

// jump sets the clock ahead.
func (n *node) jump(d time.Duration) {
	n.ahead += d
	n.timePassed()
}
