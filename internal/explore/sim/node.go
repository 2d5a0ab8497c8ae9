package sim

import (
	"sync/atomic"
	"time"

	"grablab/internal/explore/search"
)

// epoch is the initial time in each testing/synctest bubble.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// node is a simulated lock server. All schedules reuse the same nodes, so each schedule begins by
// resetting them.
type node struct {
	lockServer
	name string
	// cancels means that clients stop waiting for a reply when their context ends. It is false for
	// Redis, because go-redis stops only at a deadline.
	cancels bool

	drift     float64            // how much faster its clock runs than the clients' clocks, as a fraction
	ahead     time.Duration      // how far its clock has jumped, in addition to drift
	down      atomic.Bool        // whether it is unreachable; clients check this when they dial
	eventHash search.Fingerprint // a hash of all events on this server
	replyHash search.Fingerprint // a hash of all its replies
}

// A lockServer is a simulated server that stores locks, such as Redis or etcd.
type lockServer interface {
	reset() // restores the initial state
	// contents returns one line for each key, in the form "key = value".
	contents() string
	// state adds to the fingerprint everything except the contents that can influence the server's
	// future behavior.
	state(search.Fingerprint) search.Fingerprint
	// leaseOf returns the remaining TTL of the lease with this value, or 0 if the lease never
	// expires. In a queue, only the first entry counts as a lease.
	leaseOf(value string) (ttl time.Duration, ok bool)
	timePassed()
	disconnect() // closes its clients' connections
}

// A shortener is a lockServer whose leases end earlier by d if its clock jumps ahead by d.
type shortener interface{ shortenLeases(d time.Duration) }

// A latecomer is a lockServer that can execute a call even after the caller has given up.
type latecomer interface{ arrive(*call) }

// A notifier is a lockServer that tells its clients about changes.
type notifier interface {
	listeners(key string) int // returns how many subscriptions or watches concern only the lock with this key
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

// isDisturbed reports whether the server is down, its clock has jumped, or a message from it is late.
func (n *node) isDisturbed() bool {
	r, ok := n.lockServer.(*redisServer)
	return n.down.Load() || n.ahead != 0 || ok && len(r.messages.held) > 0
}

func (n *node) now() time.Time {
	now := time.Now()
	return now.Add(n.ahead + time.Duration(n.drift*float64(now.Sub(epoch))))
}

// until returns the time until the server's clock shows then.
func (n *node) until(then time.Time) time.Duration {
	return time.Duration(float64(then.Sub(n.now())) / (1 + n.drift))
}

func (n *node) jump(d time.Duration) {
	n.ahead += d
	if s, ok := n.lockServer.(shortener); ok {
		s.shortenLeases(d)
	}
	n.timePassed()
}
