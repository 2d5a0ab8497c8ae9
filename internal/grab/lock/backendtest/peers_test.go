package backendtest

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/testbed/conformtest"
	"grablab/internal/testbed/stack/stacktest"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

// mended is the message for a library that no longer shows a problem described in
// docs/libraries.md.
const mended = "this no longer happens: remove it from docs/libraries.md and from the entry"

// TestZKLockLeavesItsNode checks that go-zookeeper's Lock still leaves its node behind after a lost
// reply (F30). No client then gets the lock until that session ends.
func TestZKLockLeavesItsNode(t *testing.T) {
	servers := serversOf(t, stacktest.With(t, needs)).ZooKeeper
	var cut atomic.Bool
	first := zkLockOf(t, servers, &cut)
	second := zkLockOf(t, servers, new(atomic.Bool))
	cut.Store(true)
	if _, err := first.Acquire(t.Context(), "ghost"); err == nil || errors.Is(err, lock.ErrBusy) || cut.Load() {
		t.Fatalf("the reply was lost: %v; the acquire: %v", !cut.Load(), err)
	}
	if _, err := second.Acquire(t.Context(), "ghost"); !errors.Is(err, lock.ErrBusy) {
		t.Errorf("acquire before the first session ends: %v, want %v: %s", err, lock.ErrBusy, mended)
	}
	must(t, first.Close())
	lease, err := second.Acquire(t.Context(), "ghost")
	must(t, err)
	must(t, lease.Release(t.Context()))
}

func zkLockOf(t *testing.T, servers []string, cut *atomic.Bool) lock.Locker {
	t.Helper()
	st, err := lock.Find("zk-lock")
	must(t, err)
	env := conformtest.EnvOf(nil)
	env.TTL, env.Wait = 10*time.Second, 3*time.Second
	env.ZooKeeper = &lock.Ensemble{Servers: servers, Dial: func(network, addr string, timeout time.Duration) (net.Conn, error) {
		conn, err := net.DialTimeout(network, addr, timeout)
		return cutConn{conn, cut}, err
	}}
	l, err := st.New(env)
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// cutConn closes the connection once, if cut is set, after sending a request for a node's children.
// The request arrives, but its reply is lost.
type cutConn struct {
	net.Conn
	cut *atomic.Bool
}

func (c cutConn) Write(b []byte) (int, error) {
	const getChildren = 12
	n, err := c.Conn.Write(b)
	if len(b) >= 12 && binary.BigEndian.Uint32(b[8:]) == getChildren && c.cut.CompareAndSwap(true, false) {
		_ = c.Conn.Close()
	}
	return n, err
}

// TestEtcdMutexLeavesItsKey checks that etcd's Mutex still leaves its key behind if its context is
// cancelled during the first request of Lock. The documentation of Lock promises a cleanup, but the
// key stays until the session ends.
func TestEtcdMutexLeavesItsKey(t *testing.T) {
	endpoints := serversOf(t, stacktest.With(t, needs)).Etcd
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	hangUp := func(ctx context.Context, method string, request, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		err := invoke(ctx, method, request, reply, cc, opts...)
		if _, ok := request.(*pb.TxnRequest); ok && err == nil {
			cancel()
			err = ctx.Err()
		}
		return err
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop(), DialOptions: []grpc.DialOption{grpc.WithUnaryInterceptor(hangUp)}})
	must(t, err)
	t.Cleanup(func() { _ = client.Close() })
	first, err := concurrency.NewSession(client, concurrency.WithTTL(10))
	must(t, err)
	if err := concurrency.NewMutex(first, "ghost").Lock(ctx); err == nil {
		t.Fatal("Lock succeeded although its context was cancelled")
	}
	second, err := concurrency.NewSession(dialEtcd(t, endpoints).Client, concurrency.WithTTL(10))
	must(t, err)
	m := concurrency.NewMutex(second, "ghost")
	if err := m.TryLock(t.Context()); !errors.Is(err, concurrency.ErrLocked) {
		t.Errorf("TryLock before the first session ends: %v, want %v: %s", err, concurrency.ErrLocked, mended)
	}
	must(t, first.Close())
	must(t, m.Lock(t.Context()))
	must(t, second.Close())
}
