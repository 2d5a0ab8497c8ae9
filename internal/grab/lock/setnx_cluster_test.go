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

// deafConn loses the next reply, with the connection, once lose is set.
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

// The client of a Cluster sends SET NX again when its reply was lost. Who finds the key that it has set itself
// has the lock, and who finds another's has not.
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
		t.Fatalf("nobody else has it: %v; the reply was lost: %v", err, !lose.Load())
	}
	if _, err := try(); !errors.Is(err, lock.ErrBusy) {
		t.Errorf("it is held: %v", err)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
}
