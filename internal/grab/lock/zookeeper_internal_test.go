package lock

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
)

// TestZooKeeperLeaseCountsFromTheRequest checks that a lease ends one session timeout after the
// request was sent, even if the reply is late.
func TestZooKeeperLeaseCountsFromTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lease, delay = 10 * time.Second, 8 * time.Second
		s := &ZooKeeperSession{around: func(context.Context, string, func() error) error {
			time.Sleep(delay)
			return zk.ErrNoServer
		}}
		s.lease.Store(int64(lease))
		sent := time.Now()
		n := &zkNode{l: &zkLocker{session: s}, path: "/grablab/1/a-0"}
		if _, end, _ := n.look(t.Context()); !end.Equal(sent.Add(lease)) {
			t.Errorf("the lease ends %v after the request, want %v", end.Sub(sent), lease)
		}
	})
}

// TestZooKeeperExpiredSessionEndsAllLeases checks that a session expiry is reported to every holder
// immediately, and not only at its next renewal.
func TestZooKeeperExpiredSessionEndsAllLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lease = time.Minute
		l := &zkLocker{}
		var held []*renewer
		for range 2 {
			held = append(held, l.renewers.start(t.Context(), time.Now().Add(lease), lease, func(ctx context.Context) (time.Time, error) {
				<-ctx.Done()
				return time.Time{}, ctx.Err()
			}))
		}
		l.expired()
		for i, r := range held {
			if !IsClosed(r.Lost()) {
				t.Errorf("lease %d is not lost", i)
			}
		}
		l.renewers.close()
	})
}

// TestSessionClosesUnderRequests checks that a session closes even if its connection breaks while
// requests still arrive. The ZooKeeper client answers such a late request up to three times, but
// has room for only two answers once the caller has stopped waiting. In this test, about half of the
// callers have stopped by then, so both cases occur.
func TestSessionClosesUnderRequests(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			asked := make(chan struct{})
			client, server := net.Pipe()
			e := Ensemble{
				Servers: []string{"127.0.0.1:2181"}, // an IP address, which needs no DNS lookup
				Dial: func(string, string, time.Duration) (net.Conn, error) {
					return &endingConn{Conn: client, until: asked}, nil
				},
			}
			go acceptSession(t, server)
			s, err := e.Connect(t.Context(), time.Second, func() {})
			if err != nil {
				t.Fatal(err)
			}
			closed := make(chan struct{})
			go func() {
				s.Close(true)
				close(closed)
			}()
			synctest.Wait() // the client is writing the session's end
			for range 8 {
				go s.Conn.Get("/an-order")
			}
			synctest.Wait()
			close(asked)
			select {
			case <-closed:
			case <-time.After(time.Minute):
				t.Fatal("the session does not close")
			}
		})
	}
}

// endingConn sends the first message, drops the second when until is closed, and fails every later
// write.
type endingConn struct {
	net.Conn
	until  <-chan struct{}
	writes int
}

func (c *endingConn) Write(p []byte) (int, error) {
	switch c.writes++; c.writes {
	case 1:
		return c.Conn.Write(p)
	case 2:
		<-c.until
		return len(p), nil
	default:
		return 0, net.ErrClosed
	}
}

// acceptSession accepts a session, but answers no later request.
func acceptSession(t *testing.T, conn net.Conn) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(conn, head); err != nil {
		t.Error(err)
		return
	}
	if _, err := io.CopyN(io.Discard, conn, int64(binary.BigEndian.Uint32(head))); err != nil {
		t.Error(err)
		return
	}
	const timeout, session, password = 1000, 7, 16
	answer := binary.BigEndian.AppendUint32(nil, 4+4+8+4+password)
	answer = binary.BigEndian.AppendUint32(answer, 0) // protocol version
	answer = binary.BigEndian.AppendUint32(answer, timeout)
	answer = binary.BigEndian.AppendUint64(answer, session)
	answer = binary.BigEndian.AppendUint32(answer, password)
	if _, err := conn.Write(append(answer, make([]byte, password)...)); err != nil {
		t.Error(err)
	}
}
