package sim

import (
	"net"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// A ZooKeeper is a simulated ZooKeeper server that belongs to no schedule. Tests of a lock use it to
// play their own schedules. It must run in a bubble of testing/synctest.
type ZooKeeper struct{ server *zkServer }

// NewZooKeeper returns a server that contains only [lock.ZooKeeperRoot].
func NewZooKeeper() ZooKeeper {
	s := newZKServer("zookeeper")
	s.reset()
	return ZooKeeper{s}
}

// Dial opens a connection. It never fails.
func (z ZooKeeper) Dial() (net.Conn, error) { return z.server.dial(nil, 0) }

// Contents returns one line for each node.
func (z ZooKeeper) Contents() string { return z.server.contents() }

// Sessions returns the number of sessions that have not ended.
func (z ZooKeeper) Sessions() int {
	z.server.mu.Lock()
	defer z.server.mu.Unlock()
	return len(z.server.sessions)
}

// Expire ends the session that owns the ephemeral node at path. The server deletes the session's
// nodes and closes its connection, as it does when the session has timed out. It does nothing if no
// session owns the node.
func (z ZooKeeper) Expire(path string) {
	z.server.mu.Lock()
	defer z.server.mu.Unlock()
	if n, ok := z.server.nodes[path]; ok && z.server.sessions[n.owner] != nil {
		z.server.endLocked(z.server.sessions[n.owner])
	}
}

// Delete deletes a node unless it has children.
func (z ZooKeeper) Delete(path string) {
	z.server.mu.Lock()
	defer z.server.mu.Unlock()
	z.server.deleteLocked(path, -1)
}

// RemoveContainers deletes all containers whose last child is gone, as a real server does once a
// minute.
func (z ZooKeeper) RemoveContainers() {
	z.server.mu.Lock()
	defer z.server.mu.Unlock()
	for _, path := range z.server.sortedLocked() {
		if n := z.server.nodes[path]; n.container && n.created > 0 {
			z.server.deleteLocked(path, -1)
		}
	}
}

// An Etcd is a simulated etcd server that belongs to no schedule. Tests of a lock use it to play
// their own schedules. It must run in a bubble of testing/synctest.
type Etcd struct{ server *etcdServer }

// NewEtcd returns a server without keys.
func NewEtcd() Etcd {
	s := newEtcdServer("etcd")
	s.reset()
	return Etcd{s}
}

// Client returns a client that is always connected. Interceptors in opts can delay or refuse its
// calls, except for watches. The caller must close the client.
func (e Etcd) Client(opts ...grpc.DialOption) (*clientv3.Client, error) {
	return e.server.client(&instance{}, opts...)
}

// Contents returns one line for each key.
func (e Etcd) Contents() string { return e.server.contents() }

// Leases returns the number of leases that have not ended.
func (e Etcd) Leases() int {
	e.server.mu.Lock()
	defer e.server.mu.Unlock()
	return len(e.server.leases)
}

// Watches returns the number of watches that clients have not cancelled.
func (e Etcd) Watches() int { return e.server.listeners("") }

// Expire ends the lease of a key and deletes the keys of that lease. It does nothing if the key has
// no lease.
func (e Etcd) Expire(key string) {
	e.server.mu.Lock()
	defer e.server.mu.Unlock()
	if kv, ok := e.server.keys[key]; ok && e.server.leases[kv.Lease] != nil {
		e.server.endLocked(e.server.leases[kv.Lease])
	}
}
