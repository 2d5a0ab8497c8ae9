package lock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"grablab/internal/explore/sim"
	"grablab/internal/grab/lock"
	"grablab/internal/tap"
	"grablab/internal/tap/redishook"

	"github.com/alicebob/miniredis/v2"
	"github.com/go-zookeeper/zk"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	simulatedTTL = 10 * time.Second
	theKey       = "grab:{7}"
)

// simulation provides lock servers for a schedule. Its time passes only while all clients wait.
type simulation struct {
	*testing.T
	nodes     []*miniredis.Miniredis // the first one also serves locks that use a single Redis server
	zookeeper sim.ZooKeeper
	etcd      sim.Etcd
	tokens    atomic.Int64
}

// simulate runs schedule in a synctest bubble with new servers.
func simulate(t *testing.T, schedule func(*simulation)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &simulation{T: t, zookeeper: sim.NewZooKeeper(), etcd: sim.NewEtcd()}
		for range 3 {
			node := miniredis.NewMiniRedis()
			node.ClockTTL(true)
			t.Cleanup(node.Close)
			s.nodes = append(s.nodes, node)
		}
		schedule(s)
	})
}

// forget removes the data of nodes, like a restart without persistence.
func (s *simulation) forget(nodes ...int) {
	for _, n := range nodes {
		s.nodes[n].FlushAll()
	}
}

// queued returns the entries of the lock's queue in ZooKeeper and etcd.
func (s *simulation) queued() (entries []string) {
	for line := range strings.Lines(s.zookeeper.Contents() + s.etcd.Contents()) {
		entry, _, _ := strings.Cut(line, " = ")
		if dir, _ := path.Split(entry); dir == theKey+"/" || dir == lock.ZooKeeperRoot+"/"+url.PathEscape(theKey)+"/" {
			entries = append(entries, entry)
		}
	}
	return entries
}

// set stores value under theKey on a node, so that another client holds the lock there.
func (s *simulation) set(node *miniredis.Miniredis, value string) {
	s.Helper()
	if err := node.Set(theKey, value); err != nil {
		s.Fatal(err)
	}
}

// actor is a client in its own process. A test can intercept each of its commands.
type actor struct {
	lock.Locker
	s *simulation

	mu        sync.Mutex
	n         int          // commands so far
	pending   int          // commands that have not returned
	then      map[int]step // steps by command number
	every     step         // runs for each command that is not in then; may be nil
	dead      bool         // commands fail without being sent, and ZooKeeper cannot be dialed
	refused   bool         // commands fail without being sent, but the connections stay open
	unplugged bool         // ZooKeeper cannot be dialed
	muted     bool         // the connections to ZooKeeper drop all messages of the client
	conns     []net.Conn   // the connections to ZooKeeper
	lost      error        // the error that the client reports if no reply arrives
}

// actor returns a client whose scripts are loaded and whose connections are open.
func (s *simulation) actor(strategy string, change ...func(*lock.Env)) *actor {
	s.Helper()
	st, err := lock.Find(strategy)
	if err != nil {
		s.Fatal(err)
	}
	a := &actor{s: s, then: map[int]step{}, lost: errDead}
	env := lock.Env{
		TTL: simulatedTTL, Now: time.Now,
		Token: func() string { return fmt.Sprint("token", s.tokens.Add(1)) },
		Rand:  func() float64 { return 0.5 },
	}
	for i, node := range s.nodes {
		client := s.client(node)
		client.AddHook(redishook.Hook(a.around))
		env.Redlock = append(env.Redlock, client)
		if i == 0 {
			env.Redis = client
		}
	}
	if st.Needs&lock.ZooKeeper != 0 {
		a.lost = zk.ErrConnectionClosed
		env.ZooKeeper = &lock.Ensemble{Servers: []string{"127.0.0.1:2181"}, Around: a.aroundZooKeeper, Dial: a.dial, Buffer: 64 << 10}
	}
	if st.Needs&lock.Etcd != 0 {
		a.lost = status.Error(codes.Unavailable, "the connection is broken")
		if env.Etcd, err = s.etcd.Client(tap.Etcd(a.aroundEtcd, "", "etcd")...); err != nil {
			s.Fatal(err)
		}
		s.Cleanup(func() { _ = env.Etcd.Close() })
	}
	for _, f := range change {
		f(&env)
	}
	if a.Locker, err = st.New(env); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		a.cut(false)
		_ = a.Close()
	})
	lease, err := a.Acquire(s.Context(), "warm:{1}")
	if err == nil {
		err = lease.Release(s.Context())
	}
	if err != nil {
		s.Fatalf("create the lock %s: %v", strategy, err)
	}
	return a
}

func (s *simulation) client(node *miniredis.Miniredis) *redis.Client {
	client := redis.NewClient(&redis.Options{
		Dialer:                   func(context.Context, string, string) (net.Conn, error) { return node.Dial() },
		Addr:                     "127.0.0.1:6379",
		Protocol:                 2,
		MaxRetries:               -1,
		DialerRetries:            1,
		ContextTimeoutEnabled:    true,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	s.Cleanup(func() { _ = client.Close() })
	return client
}

// lock acquires the lock. It ends the test if that fails.
func (a *actor) lock(change ...func(context.Context) context.Context) lock.Lease {
	a.s.Helper()
	ctx := a.s.Context()
	for _, f := range change {
		ctx = f(ctx)
	}
	lease, err := a.Acquire(ctx, theKey)
	if err != nil {
		a.s.Fatalf("acquire: %v", err)
	}
	return lease
}

// locks acquires the lock in the background. It sends the lease to the returned channel and then
// closes the channel. If the acquire fails, it only closes the channel.
func (a *actor) locks() <-chan lock.Lease {
	got := make(chan lock.Lease, 1)
	go func() {
		defer close(got) // lock ends this goroutine if it fails
		got <- a.lock()
	}()
	return got
}

// tries acquires the lock without waiting, and reports whether the lock was granted.
func (a *actor) tries() bool {
	a.s.Helper()
	_, err := a.Acquire(lock.TryOnce(a.s.Context()), theKey)
	if err != nil && !errors.Is(err, lock.ErrBusy) {
		a.s.Fatalf("try: %v", err)
	}
	return err == nil
}

// release releases the lease. It accepts that the lease was lost.
func (s *simulation) release(lease lock.Lease) {
	s.Helper()
	if lease == nil {
		s.Fatal("there is no lease to release")
	}
	if err := lease.Release(s.Context()); err != nil && !errors.Is(err, lock.ErrLost) {
		s.Fatalf("release: %v", err)
	}
}

// A step runs in place of sending a command. It can call send to send the command.
type step func(ctx context.Context, send func(context.Context) error) error

// at runs do in place of sending the nth command from now.
func (a *actor) at(n int, do step) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.then[a.n+n] = do
}

// before runs f before the nth command from now is sent.
func (a *actor) before(n int, f func()) {
	a.at(n, func(ctx context.Context, send func(context.Context) error) error {
		f()
		return send(ctx)
	})
}

// after runs f after the nth command from now. If f returns an error, that error replaces the reply.
func (a *actor) after(n int, f func() error) {
	a.at(n, func(ctx context.Context, send func(context.Context) error) error {
		err := send(ctx)
		if lost := f(); lost != nil {
			return lost
		}
		return err
	})
}

// forgetSteps removes the steps of all later commands.
func (a *actor) forgetSteps() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.then)
}

// sent returns the number of commands that the actor sends while f runs.
func (a *actor) sent(f func()) int {
	was := a.count()
	f()
	return a.count() - was
}

// count returns the number of commands so far.
func (a *actor) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.n
}

var errDead = errors.New("the process is dead")

// diesBefore kills the actor's process before its nth command from now.
func (a *actor) diesBefore(n int) {
	a.at(n, func(context.Context, func(context.Context) error) error {
		a.cut(true)
		return a.lost
	})
}

// cut makes all commands of the actor fail if off is true, and ends this if off is false. In both
// cases, it closes the actor's connections to ZooKeeper.
func (a *actor) cut(off bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.dead = off
	a.closeLocked()
}

// closeLocked closes the actor's connections to ZooKeeper. The caller must hold a.mu.
func (a *actor) closeLocked() {
	for _, c := range a.conns {
		_ = c.Close()
	}
	a.conns = nil
}

// refuse makes all commands of the actor fail if on is true, and ends this if on is false. The
// connections stay open, so the ZooKeeper session stays alive.
func (a *actor) refuse(on bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refused = on
}

// unplug closes the actor's connections to ZooKeeper and makes new ones fail. If off is false, new
// connections succeed again. Unlike with cut, the ZooKeeper client itself reports the errors.
func (a *actor) unplug(off bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.unplugged = off
	a.closeLocked()
}

// dial connects to ZooKeeper.
func (a *actor) dial(string, string, time.Duration) (net.Conn, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.dead || a.unplugged {
		return nil, a.lost
	}
	conn, err := a.s.zookeeper.Dial()
	a.conns = append(a.conns, conn)
	return mutableConn{conn, a}, err
}

// mute drops all messages of the actor to ZooKeeper if on is true, and ends this if on is false. The
// connections stay open.
func (a *actor) mute(on bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.muted = on
}

// mutableConn drops all writes while its actor is muted.
type mutableConn struct {
	net.Conn
	a *actor
}

func (c mutableConn) Write(p []byte) (int, error) {
	c.a.mu.Lock()
	muted := c.a.muted
	c.a.mu.Unlock()
	if muted {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// around intercepts the commands of the strategy, but not the commands with which the Redis client
// sets up a connection.
func (a *actor) around(ctx context.Context, cmds []redis.Cmder, send func(context.Context) error) error {
	switch cmds[0].Name() {
	case "hello", "client", "auth", "select", "unwatch":
		return send(ctx)
	}
	return a.call(ctx, send)
}

func (a *actor) aroundZooKeeper(ctx context.Context, _ string, call func() error) error {
	return a.call(ctx, func(context.Context) error { return call() })
}

func (a *actor) aroundEtcd(ctx context.Context, _ tap.Op, send func(context.Context) error) error {
	return a.call(ctx, send)
}

func (a *actor) call(ctx context.Context, send func(context.Context) error) error {
	a.mu.Lock()
	a.n++
	a.pending++
	do, dead := a.then[a.n], a.dead || a.refused
	if do == nil {
		do = a.every
	}
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		a.pending--
		a.mu.Unlock()
	}()
	switch {
	case dead:
		return a.lost
	case do != nil:
		return do(ctx, send)
	default:
		return send(ctx)
	}
}
