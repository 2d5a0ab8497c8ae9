// Package backendtest tests the database, ZooKeeper and etcd locks on real servers.
package backendtest

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/order"
	"grablab/internal/tap"
	"grablab/internal/testbed/conformtest"
	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/stack/stacktest"

	"github.com/go-sql-driver/mysql"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

func TestMain(m *testing.M) {
	stack.BeHelper()
	conformtest.BeChild(open, find)
	stacktest.Main(m)
}

const needs = lock.SQL | lock.SQLLocks | lock.ZooKeeper | lock.Etcd

// servers contains the server addresses for a test. Encoded as JSON, it is an Opener's spec.
type servers struct {
	DSN       string   `json:",omitempty"`
	ZooKeeper []string `json:",omitempty"`
	Etcd      []string `json:",omitempty"`
}

func (s servers) spec() string {
	text, _ := json.Marshal(s)
	return string(text)
}

// serversOf returns all servers of a stack, with their tables created.
func serversOf(tb testing.TB, st *stack.Stack) servers {
	tb.Helper()
	db := connect(tb, st.DSN)
	if err := db.Migrate(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	return servers{st.DSN, st.ZooKeeper, st.Etcd}
}

func connect(tb testing.TB, dsn string) *order.SQL {
	tb.Helper()
	db, err := order.Connect(tb.Context(), dsn, order.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = db.Close() })
	return db
}

// open connects one process. disconnect breaks all its database connections, as if the process had
// died, because closing a pool would wait for the connections in use.
func open(spec string) (env lock.Env, disconnect func(), err error) {
	var at servers
	if err := json.Unmarshal([]byte(spec), &at); err != nil {
		return env, nil, err
	}
	env = conformtest.EnvOf(nil)
	var undo []func()
	disconnect = func() {
		for _, f := range undo {
			f()
		}
	}
	if at.DSN != "" {
		cfg, err := mysql.ParseDSN(at.DSN)
		if err != nil {
			return env, nil, err
		}
		line, err := newLine(cfg.Addr)
		if err != nil {
			return env, nil, err
		}
		cfg.Addr = line.addr()
		db, err := order.Connect(context.Background(), cfg.FormatDSN(), order.Options{Wrap: func(c driver.Connector) driver.Connector {
			return tap.Connector(c, replies, "", "db", new(atomic.Uint64))
		}})
		undo = append(undo, line.cut)
		if err != nil {
			disconnect()
			return env, nil, err
		}
		env.Orders = db
		undo = append(undo, func() { _ = db.Close() })
	}
	if at.ZooKeeper != nil {
		env.ZooKeeper = &lock.Ensemble{Servers: at.ZooKeeper, Around: tap.Around(replies, "", "zookeeper")}
	}
	if at.Etcd != nil {
		client, err := clientv3.New(clientv3.Config{
			Endpoints: at.Etcd, Logger: zap.NewNop(), DialOptions: tap.Etcd(replies, "", "etcd"),
		})
		if err != nil {
			disconnect()
			return env, nil, err
		}
		env.Etcd = client
		undo = append(undo, func() { _ = client.Close() })
	}
	return env, disconnect, nil
}

// replies lets the suite intervene between a server's reply and the lock. It implements tap.Tap.
func replies(ctx context.Context, _ tap.Op, send func(context.Context) error) error {
	err := send(ctx)
	if lost := conformtest.Replied(ctx); lost != nil {
		return lost
	}
	return err
}

// A line is a connection to a server that a test can cut.
type line struct {
	net.Listener
	to string

	mu    sync.Mutex
	conns []net.Conn // nil after a cut
	ends  sync.WaitGroup
}

func newLine(to string) (*line, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	n := &line{Listener: l, to: to, conns: []net.Conn{}}
	n.ends.Go(n.serve)
	return n, nil
}

func (n *line) addr() string { return n.Addr().String() }

func (n *line) serve() {
	for {
		near, err := n.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", n.to)
		if err != nil {
			near.Close()
			continue
		}
		if !n.add(near, far) {
			return
		}
		n.ends.Go(func() { _, _ = io.Copy(far, near); far.Close() })
		n.ends.Go(func() { _, _ = io.Copy(near, far); near.Close() })
	}
}

func (n *line) add(conns ...net.Conn) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.conns == nil {
		for _, c := range conns {
			c.Close()
		}
		return false
	}
	n.conns = append(n.conns, conns...)
	return true
}

func (n *line) cut() {
	n.Close()
	n.mu.Lock()
	conns := n.conns
	n.conns = nil
	n.mu.Unlock()
	for _, c := range conns {
		c.Close()
	}
	n.ends.Wait()
}

// find is like lock.Find, but translates keys into orders for locks that need orders.
func find(name string) (lock.Strategy, error) {
	st, err := lock.Find(name)
	if err == nil && name == "mysql-forupdate" {
		st.New = onOrders(st.New)
	}
	return st, err
}

// suiteOrders is the number of orders to which the suite's keys are mapped.
const suiteOrders = 100_000

// orderOf returns the order for a key in the suite.
func orderOf(key string) int64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, key)
	return 1 + int64(h.Sum64()%suiteOrders)
}

func onOrders(create func(lock.Env) (lock.Locker, error)) func(lock.Env) (lock.Locker, error) {
	return func(env lock.Env) (lock.Locker, error) {
		l, err := create(env)
		return byOrder{l}, err
	}
}

type byOrder struct{ lock.Locker }

func (b byOrder) Acquire(ctx context.Context, key string) (lock.Lease, error) {
	return b.Locker.Acquire(ctx, fmt.Sprintf("locktest:{%d}", orderOf(key)))
}

// noticing limits how long a server may take to notice that a client is gone.
const noticing = 10 * time.Second

// soon calls look until nothing is left, but stops after noticing.
func soon(look func() ([]string, error)) ([]string, error) {
	for end := time.Now().Add(noticing); ; time.Sleep(10 * time.Millisecond) {
		left, err := look()
		if err == nil && len(left) == 0 || time.Now().After(end) {
			return left, err
		}
	}
}

var errNoHolder = errors.New("the lock has no holder")

// must fails the test if err is not nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
