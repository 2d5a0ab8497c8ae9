package lock_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/testbed/conformtest"

	"github.com/redis/go-redis/v9"
)

// deafConn drops the next reply and closes the connection once lose is set.
type deafConn struct {
	net.Conn
	lose *atomic.Bool
}

func (c deafConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && c.lose.CompareAndSwap(true, false) {
		_ = c.Conn.Close()
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

// TestClusterClientRepeats checks an acquire whose SET NX is retried by the Cluster client after a
// lost reply. If the key contains the client's own token, the client has the lock. Otherwise, the
// lock is busy.
func TestClusterClientRepeats(t *testing.T) {
	var lose atomic.Bool
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: redisCluster(t),
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			return deafConn{conn, &lose}, err
		},
	})
	t.Cleanup(func() { _ = client.Close() })
	s, err := lock.Find("setnx")
	if err != nil {
		t.Fatal(err)
	}
	env := conformtest.EnvOf(client)
	env.TTL = time.Minute
	locker, err := s.New(env)
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	try := func() (lock.Lease, error) { // a connection to the key's own node is open
		_ = client.Get(t.Context(), "repeated").Err()
		lose.Store(true)
		return locker.Acquire(t.Context(), "repeated")
	}
	lease, err := try()
	if err != nil || lose.Load() {
		t.Fatalf("no other client has the lock, but got %v; the reply was lost: %v", err, !lose.Load())
	}
	if _, err := try(); !errors.Is(err, lock.ErrBusy) {
		t.Errorf("the lock is held: %v", err)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
}
