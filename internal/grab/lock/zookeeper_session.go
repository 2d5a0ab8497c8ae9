package lock

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
)

// An Ensemble describes how to reach a group of ZooKeeper servers.
type Ensemble struct {
	Servers []string // addresses of the form host:port
	Around  Around   // wraps every call to ZooKeeper, with the path of the node
	// Dial opens a connection. If it is nil, [net.DialTimeout] is used.
	Dial func(network, addr string, timeout time.Duration) (net.Conn, error)
	// Buffer limits the size of requests and replies, in bytes. If it is 0, requests are limited to
	// zkBuffer, and replies are not limited.
	Buffer int
}

// zkBuffer is the ZooKeeper client's default limit for requests, in bytes.
const zkBuffer = 1536 << 10

// Ping returns nil if at least one of the servers works.
func (e *Ensemble) Ping(ctx context.Context) error {
	var errs []error
	for _, addr := range e.Servers {
		_, err := ZooKeeperStatus(ctx, addr)
		if err == nil {
			return nil
		}
		errs = append(errs, fmt.Errorf("lock: %w", err))
	}
	return errors.Join(errs...)
}

// ZooKeeperStatus returns the status of the server at addr. It returns an error if the server is not
// part of a quorum. In that case, its status has no line "Mode:".
func ZooKeeperStatus(ctx context.Context, addr string) (string, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", fmt.Errorf("ZooKeeper at %s: %w", addr, err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	_, err = io.WriteString(conn, "srvr")
	status, unread := io.ReadAll(conn)
	if err := errors.Join(err, unread); err != nil {
		return "", fmt.Errorf("ZooKeeper at %s: %w", addr, err)
	}
	if !strings.Contains(string(status), "\nMode: ") {
		err = fmt.Errorf("ZooKeeper at %s is not ready: %.80q", addr, status)
	}
	return string(status), err
}

// A ZooKeeperSession is a ZooKeeper session that the client keeps alive. If it expires anyway, the
// client starts a new session, but the old session's nodes are gone.
type ZooKeeperSession struct {
	Conn    *zk.Conn
	connect func(network, addr string, timeout time.Duration) (net.Conn, error)
	around  Around
	lease   atomic.Int64    // the timeout that the server granted
	silent  atomic.Bool     // makes the connection drop all writes
	ended   <-chan zk.Event // closed when the client has stopped
	calls   tasks
}

// Connect starts a session and waits until a server accepts it. If the session expires later, the
// session calls expired in the background. expired must not block.
func (e *Ensemble) Connect(ctx context.Context, timeout time.Duration, expired func()) (*ZooKeeperSession, error) {
	s := &ZooKeeperSession{around: e.Around, connect: e.Dial}
	if s.connect == nil {
		s.connect = net.DialTimeout
	}
	begun := make(chan struct{})
	begin := sync.OnceFunc(func() { close(begun) })
	watch := func(ev zk.Event) {
		switch {
		case ev.Type != zk.EventSession:
		case ev.State == zk.StateHasSession:
			begin()
		case ev.State == zk.StateExpired:
			expired()
		}
	}
	var err error
	s.Conn, s.ended, err = zk.Connect(e.Servers, min(timeout, math.MaxInt32*time.Millisecond),
		zk.WithDialer(s.dial), zk.WithEventCallback(watch), zk.WithLogger(noLog),
		zk.WithMaxBufferSize(e.Buffer), zk.WithMaxConnBufferSize(cmp.Or(e.Buffer, zkBuffer)))
	if err != nil {
		return nil, fmt.Errorf("lock: ZooKeeper: %w", err)
	}
	select {
	case <-begun:
		return s, nil
	case <-ctx.Done():
		s.Close(true)
		return nil, fmt.Errorf("%w: ZooKeeper at %s", ErrUnreachable, strings.Join(e.Servers, ","))
	}
}

// Close ends the session. If nodes is true, the session's nodes disappear immediately. Otherwise,
// they stay until the session times out, so that a lock whose holder still works does not end
// early.
func (s *ZooKeeperSession) Close(nodes bool) {
	s.silent.Store(!nodes)
	s.Conn.Close()
	for range s.ended {
	}
}

func (s *ZooKeeperSession) dial(network, addr string, timeout time.Duration) (net.Conn, error) {
	conn, err := s.connect(network, addr, timeout)
	if err != nil {
		return nil, err
	}
	return &zkWire{Conn: conn, session: s}, nil
}

// A zkWire is a network connection that reads the session timeout from the server's first reply,
// because the ZooKeeper client does not report it.
type zkWire struct {
	net.Conn
	session *ZooKeeperSession
	head    [12]byte // contains the length, the protocol version and the timeout in ms
	read    int
}

func (c *zkWire) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.read < len(c.head) {
		c.read += copy(c.head[c.read:], p[:n])
		granted := time.Duration(binary.BigEndian.Uint32(c.head[8:])) * time.Millisecond
		if c.read == len(c.head) && granted > 0 { // 0 means that the session has expired
			c.session.lease.Store(int64(granted))
		}
	}
	return n, err
}

// Write closes the connection if it fails, but returns no error. If it returned an error, the
// ZooKeeper client would complete the request twice and could block forever.
func (c *zkWire) Write(p []byte) (int, error) {
	if !c.session.silent.Load() {
		if _, err := c.Conn.Write(p); err == nil {
			return len(p), nil
		}
	}
	return len(p), c.Close()
}

// noLog discards the ZooKeeper client's log, because callers get the same information as errors.
var noLog = log.New(io.Discard, "", 0)

// Lease returns how long the session lasts without a message from the client.
func (s *ZooKeeperSession) Lease() time.Duration { return time.Duration(s.lease.Load()) }

// errLate means that the reply took longer than a lease lasts, so the lock may already be lost.
var errLate = errors.New("lock: the server did not answer for a whole lease")

type reply[T any] struct {
	value T
	err   error
}

// send runs a call in the background, because the ZooKeeper client cannot cancel calls. It returns
// a channel for the reply.
func send[T any](ctx context.Context, s *ZooKeeperSession, path string, call func() (T, error)) <-chan reply[T] {
	replies := make(chan reply[T], 1)
	s.calls.Go(func() {
		var r reply[T]
		r.err = s.around.Run(ctx, path, func() (err error) {
			r.value, err = call()
			return err
		})
		if r.err != nil { // if the error was injected after the call, the caller must not see the value
			r.value = *new(T)
		}
		replies <- r
		close(replies)
	})
	return replies
}

// receive waits for the reply, but no longer than a lease lasts, because a later reply is useless.
func receive[T any](ctx context.Context, s *ZooKeeperSession, replies <-chan reply[T]) (none T, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.Lease(), errLate)
	defer cancel()
	select {
	case r := <-replies:
		return r.value, r.err
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
}

func ask[T any](ctx context.Context, s *ZooKeeperSession, path string, call func() (T, error)) (T, error) {
	return receive(ctx, s, send(ctx, s, path, call))
}

func (s *ZooKeeperSession) create(ctx context.Context, path string, flags int32) <-chan reply[string] {
	return send(ctx, s, path, func() (string, error) {
		if flags == zk.FlagContainer {
			return s.Conn.CreateContainer(path, nil, flags, zk.WorldACL(zk.PermAll))
		}
		return s.Conn.Create(path, nil, flags, zk.WorldACL(zk.PermAll))
	})
}

func (s *ZooKeeperSession) delete(ctx context.Context, path string) error {
	_, err := ask(ctx, s, path, func() (struct{}, error) { return struct{}{}, s.Conn.Delete(path, -1) })
	return err
}

func (s *ZooKeeperSession) children(ctx context.Context, path string) ([]string, error) {
	return ask(ctx, s, path, func() ([]string, error) {
		names, _, err := s.Conn.Children(path)
		return names, err
	})
}

// stat returns the status of a node, or nil if the node does not exist.
func (s *ZooKeeperSession) stat(ctx context.Context, path string) (*zk.Stat, error) {
	return ask(ctx, s, path, func() (*zk.Stat, error) {
		ok, stat, err := s.Conn.Exists(path)
		if !ok {
			stat = nil
		}
		return stat, err
	})
}

// watch returns a channel that receives an event once the node has changed or is deleted. It
// returns zk.ErrNoNode if the node does not exist.
func (s *ZooKeeperSession) watch(ctx context.Context, path string) (<-chan zk.Event, error) {
	return ask(ctx, s, path, func() (<-chan zk.Event, error) {
		_, _, gone, err := s.Conn.GetW(path)
		return gone, err
	})
}
