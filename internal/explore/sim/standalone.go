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
func (z ZooKeeper) Dial() (net.Conn, error) { return z.server.dial(nil) }

// Contents returns one line for each node.
func (z ZooKeeper) Contents() string { return z.server.contents() }

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
