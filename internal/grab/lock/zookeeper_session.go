package lock

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
)

// Ensemble is a ZooKeeper as a lock reaches it.
type Ensemble struct {
	Servers []string // host:port
	// Around stands around every call; nil: nothing does.
	Around func(ctx context.Context, path string, call func() error) error
	// Dial opens a connection; nil: [net.DialTimeout] does.
	Dial func(network, addr string, timeout time.Duration) (net.Conn, error)
	// Buffer is how many bytes a request, and a reply, may have; 0: as many as the
	// client has room for, 1.5 MiB, and any number.
	Buffer int
}

// Ping returns nil if one of the servers serves.
func (e *Ensemble) Ping(ctx context.Context) error {
	var errs []error
	for _, addr := range e.Servers {
		err := serves(ctx, addr)
		if err == nil {
			return nil
		}
		errs = append(errs, fmt.Errorf("lock: ZooKeeper at %s: %w", addr, err))
	}
	return errors.Join(errs...)
}

// serves asks a server how it is. One without a quorum has no mode.
func serves(ctx context.Context, addr string) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if _, err := io.WriteString(conn, "srvr"); err != nil {
		return err
	}
	answer, err := io.ReadAll(conn)
	if err == nil && !strings.Contains(string(answer), "\nMode: ") {
		err = errors.New("it does not serve")
	}
	return err
}

// zkSession is a session with an ensemble. Its client keeps it alive for as
// long as this process runs and reaches a server; if it expires nonetheless,
// the client begins another, in which nothing is left of what was held.
type zkSession struct {
	conn    *zk.Conn
	connect func(network, addr string, timeout time.Duration) (net.Conn, error)
	around  func(context.Context, string, func() error) error
	lease   atomic.Int64    // for how long it lives without a sign of life, as the server has granted it
	silent  atomic.Bool     // nothing more is sent
	ended   <-chan zk.Event // closes after the client's last goroutine
	calls   sync.WaitGroup
}

// open returns once there is a session. expired is called before the next one
// begins, and must not wait.
func (e *Ensemble) open(ctx context.Context, timeout time.Duration, expired func(), log *slog.Logger) (*zkSession, error) {
	s := &zkSession{around: e.Around, connect: e.Dial}
	if s.connect == nil {
		s.connect = net.DialTimeout
	}
	if s.around == nil {
		s.around = func(_ context.Context, _ string, call func() error) error { return call() }
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
	options := list(zk.WithDialer(s.dial), zk.WithEventCallback(watch), zk.WithLogger(zkLog{log}), zk.WithLogInfo(false))
	if e.Buffer > 0 {
		options = append(options, zk.WithMaxConnBufferSize(e.Buffer), zk.WithMaxBufferSize(e.Buffer))
	}
	s.conn, s.ended, err = zk.Connect(e.Servers, min(timeout, math.MaxInt32*time.Millisecond), options...)
	if err != nil {
		return nil, fmt.Errorf("lock: ZooKeeper: %w", err)
	}
	select {
	case <-begun:
		return s, nil
	case <-ctx.Done():
		s.close(true)
		return nil, fmt.Errorf("%w: ZooKeeper at %s", ErrUnreachable, strings.Join(e.Servers, ","))
	}
}

// Connect opens a session for a client that takes its own locks, and returns once there
// is one. expired is called when it is over, before the next one begins, and must not
// wait. lease is for how long the session lives without a sign of life; close ends it.
func (e *Ensemble) Connect(ctx context.Context, timeout time.Duration, expired func(), log *slog.Logger) (conn *zk.Conn, lease func() time.Duration, close func(), err error) {
	s, err := e.open(ctx, timeout, expired, log)
	if err != nil {
		return nil, nil, nil, err
	}
	return s.conn, s.Lease, func() { s.close(true) }, nil
}

// list has elements of a type that cannot be named here.
func list[T any](elements ...T) []T { return elements }

// close ends the session, or only stops talking, so that the server ends it by
// its time-out: a session takes its nodes along, and they may be held.
func (s *zkSession) close(nodes bool) {
	s.silent.Store(!nodes)
	s.conn.Close()
	for range s.ended {
	}
}

func (s *zkSession) dial(network, addr string, timeout time.Duration) (net.Conn, error) {
	conn, err := s.connect(network, addr, timeout)
	if err != nil {
		return nil, err
	}
	return &zkWire{Conn: conn, session: s}, nil
}

// zkWire reads along: the client keeps to itself which time-out the server has
// granted, which stands in the first reply of every connection.
type zkWire struct {
	net.Conn
	session *zkSession
	head    [12]byte // length, protocol version, time-out in ms
	read    int
}

func (c *zkWire) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.read < len(c.head) {
		c.read += copy(c.head[c.read:], p[:n])
		granted := time.Duration(binary.BigEndian.Uint32(c.head[8:])) * time.Millisecond
		if c.read == len(c.head) && granted > 0 { // 0: the session has expired
			c.session.lease.Store(int64(granted))
		}
	}
	return n, err
}

// Write tells of an error by the end of the connection only: the client would answer the
// request twice, once for its Write and once for the connection, and hang for ever at the
// second answer to a caller that has left.
func (c *zkWire) Write(p []byte) (int, error) {
	if !c.session.silent.Load() {
		if _, err := c.Conn.Write(p); err == nil {
			return len(p), nil
		}
	}
	return len(p), c.Close()
}

// zkLog hands on what the client would print. It is told again, by errors.
type zkLog struct{ *slog.Logger }

func (l zkLog) Printf(format string, args ...any) {
	if l.Logger != nil {
		l.Debug("zookeeper: " + fmt.Sprintf(format, args...))
	}
}

// Lease is for how long the session lives without a sign of life.
func (s *zkSession) Lease() time.Duration { return time.Duration(s.lease.Load()) }

// errLate: the session, and with it the lock, may be gone by now (F12).
var errLate = errors.New("lock: no answer for as long as a lease lives")

// reply is what became of a call.
type reply[T any] struct {
	value T
	err   error
}

// send makes a call. The client knows no contexts, and lets calls wait for as
// long as there is no connection; so each has a goroutine of its own.
func send[T any](ctx context.Context, s *zkSession, path string, call func() (T, error)) <-chan reply[T] {
	replies := make(chan reply[T], 1)
	s.calls.Go(func() {
		var r reply[T]
		r.err = s.around(ctx, path, func() (err error) {
			r.value, err = call()
			return err
		})
		if r.err != nil { // a reply that is lost brings no value
			r.value = *new(T)
		}
		replies <- r
		close(replies)
	})
	return replies
}

// receive waits for the reply for as long as it can be of use.
func receive[T any](ctx context.Context, s *zkSession, replies <-chan reply[T]) (none T, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.Lease(), errLate)
	defer cancel()
	select {
	case r := <-replies:
		return r.value, r.err
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
}

func ask[T any](ctx context.Context, s *zkSession, path string, call func() (T, error)) (T, error) {
	return receive(ctx, s, send(ctx, s, path, call))
}

// The calls that a lock makes.

func (s *zkSession) create(ctx context.Context, path string, flags int32) <-chan reply[string] {
	return send(ctx, s, path, func() (string, error) {
		if flags == zk.FlagContainer {
			return s.conn.CreateContainer(path, nil, flags, zk.WorldACL(zk.PermAll))
		}
		return s.conn.Create(path, nil, flags, zk.WorldACL(zk.PermAll))
	})
}

func (s *zkSession) delete(ctx context.Context, path string) error {
	_, err := ask(ctx, s, path, func() (struct{}, error) { return struct{}{}, s.conn.Delete(path, -1) })
	return err
}

func (s *zkSession) children(ctx context.Context, path string) ([]string, error) {
	return ask(ctx, s, path, func() ([]string, error) {
		names, _, err := s.conn.Children(path)
		return names, err
	})
}

// stat is nil if there is no such node.
func (s *zkSession) stat(ctx context.Context, path string) (*zk.Stat, error) {
	return ask(ctx, s, path, func() (*zk.Stat, error) {
		ok, stat, err := s.conn.Exists(path)
		if !ok {
			stat = nil
		}
		return stat, err
	})
}

// watch returns a channel on which something comes when the node may have gone.
// zk.ErrNoNode: it has, and nothing is watched.
func (s *zkSession) watch(ctx context.Context, path string) (<-chan zk.Event, error) {
	return ask(ctx, s, path, func() (<-chan zk.Event, error) {
		_, _, gone, err := s.conn.GetW(path)
		return gone, err
	})
}
