package lock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"grablab/internal/grab/lock"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// A wire counts the commands that a client sends over all its connections, and disturbs one command.
type wire struct {
	mu      sync.Mutex
	n       int
	at      int // the number of the command to disturb
	disturb func(*wireConn, []byte) error
	struck  bool
}

// strike disturbs the nth command from now.
func (w *wire) strike(n int, disturb func(*wireConn, []byte) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at, w.disturb, w.struck = w.n+n, disturb, false
}

// stop ends the disturbance, and reports whether a command was disturbed.
func (w *wire) stop() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.disturb = nil
	return w.struck
}

// next counts a command, and returns the function that disturbs it. It returns nil if the command
// is not disturbed.
func (w *wire) next() func(*wireConn, []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.n++; w.n != w.at || w.disturb == nil {
		return nil
	}
	w.struck = true
	return w.disturb
}

// A wireConn is one of the connections of a wire's client.
type wireConn struct {
	net.Conn
	*wire
	reply []byte // a reply that does not come from the server
}

func (c *wireConn) Write(b []byte) (int, error) {
	name := strings.ToLower(strings.SplitN(string(b), "\r\n", 4)[2])
	switch name {
	case "hello", "client", "unwatch", "command":
		return c.Conn.Write(b) // the client sends these commands by itself
	}
	if disturb := c.next(); disturb != nil {
		return len(b), disturb(c, b)
	}
	return c.Conn.Write(b)
}

func (c *wireConn) Read(b []byte) (int, error) {
	if len(c.reply) == 0 {
		return c.Conn.Read(b)
	}
	n := copy(b, c.reply)
	c.reply = c.reply[n:]
	return n, nil
}

const nodeAddr = "127.0.0.1:6379"

// client returns a Redis client of node. All its commands go through the wire.
func (w *wire) client(s *simulation, node *miniredis.Miniredis, cluster bool) redis.UniversalClient {
	dial := func(context.Context, string, string) (net.Conn, error) {
		conn, err := node.Dial()
		return &wireConn{Conn: conn, wire: w}, err
	}
	var client redis.UniversalClient
	if cluster {
		client = redis.NewClusterClient(&redis.ClusterOptions{
			ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
				return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: nodeAddr}}}}, nil
			},
			Addrs: []string{nodeAddr}, Dialer: dial, Protocol: 2, DisableIdentity: true, DisableRoutingPolicies: true,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		})
	} else {
		client = redis.NewClient(&redis.Options{
			Addr: nodeAddr, Dialer: dial, Protocol: 2, DisableIdentity: true, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		})
	}
	s.Cleanup(func() { _ = client.Close() })
	return client
}

// A disturbance describes what goes wrong at one command.
type disturbance struct {
	name     string
	do       func(*trial) func(*wireConn, []byte) error
	frees    bool   // the lock becomes free
	taken    bool   // another client has the lock afterwards
	followed bool   // a Cluster client repeats the command by itself
	repeats  bool   // the server executes the command anyway
	err      string // the error that a client may report if it does not repeat the command
}

var disturbances = []disturbance{
	{name: "the lock becomes free", frees: true, do: func(tr *trial) func(*wireConn, []byte) error {
		return func(c *wireConn, b []byte) error {
			tr.forget(0)
			_, err := c.Conn.Write(b)
			return err
		}
	}},
	{name: "another client takes the lock", taken: true, do: func(tr *trial) func(*wireConn, []byte) error {
		return func(c *wireConn, b []byte) error {
			tr.forget(0)
			tr.leases = append(tr.leases, tr.c.lock())
			_, err := c.Conn.Write(b)
			return err
		}
	}},
	{name: "error", err: "ERR told to fail", do: answers("-ERR told to fail")},
	{name: "loading", followed: true, err: "LOADING", do: answers("-LOADING the data")},
	{name: "redirect", followed: true, err: "MOVED", do: answers("-MOVED 1 " + nodeAddr)},
	{name: "lost reply", followed: true, repeats: true, err: "EOF", do: func(*trial) func(*wireConn, []byte) error {
		return func(c *wireConn, b []byte) error {
			_, err := c.Conn.Write(b)
			_, _ = c.Conn.Read(make([]byte, 4096)) // the server has executed the command
			_ = c.Close()
			return errors.Join(err, io.EOF)
		}
	}},
}

// answers returns a disturbance that answers each command of a request with reply. The server does
// not receive the request.
func answers(reply string) func(*trial) func(*wireConn, []byte) error {
	return func(*trial) func(*wireConn, []byte) error {
		return func(c *wireConn, b []byte) error {
			for range bytes.Count(b, []byte("\r\n*")) + 1 {
				c.reply = append(c.reply, reply+"\r\n"...)
			}
			return nil
		}
	}
}

// A trial disturbs one command of process A. Processes B and C are not disturbed.
type trial struct {
	*simulation
	a, b, c *actor
	wire    *wire
	cluster bool // whether A has a Cluster client
	twice   bool // whether a repeated request of A finds A's own lock
	disturbance
	leases []lock.Lease // to be released at the end
}

// mostDisturbed limits the number of commands in one acquire or release.
const mostDisturbed = 12

// TestEveryReplyAtEveryCommand disturbs each command of an acquire and of a release in turn, with a
// plain client and with a Cluster client. The result must be one that the disturbance explains. For
// example, no caller must see redis.Nil, because a nil reply is not a failure.
func TestEveryReplyAtEveryCommand(t *testing.T) {
	for _, st := range lock.Strategies {
		if st.Needs != lock.Redis {
			continue
		}
		for _, cluster := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, cluster %v", st.Name, cluster), func(t *testing.T) {
				simulate(t, func(s *simulation) {
					w := new(wire)
					a := s.actor(st.Name, func(e *lock.Env) { e.Redis = w.client(s, s.nodes[0], cluster) })
					b, c := s.actor(st.Name), s.actor(st.Name)
					for _, d := range disturbances {
						for _, run := range []func(*trial, int) bool{(*trial).acquiresFree, (*trial).acquiresHeld, (*trial).releases} {
							for n := 1; n <= mostDisturbed; n++ {
								tr := &trial{simulation: s, a: a, b: b, c: c, wire: w, cluster: cluster, twice: st.RefusesItself, disturbance: d}
								more := run(tr, n)
								tr.end()
								if !more {
									break
								}
							}
						}
					}
				})
			})
		}
	}
}

// acquiresFree disturbs the nth command of an acquire while the lock is free. It returns false if
// the acquire has fewer commands.
func (tr *trial) acquiresFree(n int) bool {
	err, struck := tr.acquires(n)
	busy := errors.Is(err, lock.ErrBusy) && (tr.taken || tr.frees || tr.repeats && tr.twice)
	if err != nil && !busy && !tr.explains(err) {
		tr.Errorf("%s at command %d of an acquire: %v", tr.name, n, err)
	}
	return struck
}

// acquiresHeld disturbs the nth command of an acquire while another client has the lock.
func (tr *trial) acquiresHeld(n int) bool {
	tr.leases = append(tr.leases, tr.b.lock())
	err, struck := tr.acquires(n)
	if !errors.Is(err, lock.ErrBusy) && !tr.explains(err) && (err != nil || !tr.frees) {
		tr.Errorf("%s at command %d of an acquire while another client has the lock: %v", tr.name, n, err)
	}
	return struck
}

func (tr *trial) acquires(n int) (err error, struck bool) {
	tr.wire.strike(n, tr.do(tr))
	lease, err := tr.a.Acquire(lock.TryOnce(tr.Context()), theKey)
	if err == nil {
		tr.leases = append(tr.leases, lease)
	}
	return err, tr.wire.stop()
}

// releases disturbs the nth command of a release. If the release reports success, it must have freed the
// lock, and a second release must return ErrLost.
func (tr *trial) releases(n int) bool {
	lease := tr.a.lock()
	tr.leases = append(tr.leases, lease)
	tr.wire.strike(n, tr.do(tr))
	err := lease.Release(tr.Context())
	struck := tr.wire.stop()
	tr.cluster = false // a Cluster client does not repeat the commands of a transaction
	lost := errors.Is(err, lock.ErrLost) && (tr.taken || tr.frees || tr.repeats)
	if err != nil && !lost && !tr.explains(err) {
		tr.Errorf("%s at command %d of a release: %v", tr.name, n, err)
	}
	if struck && tr.frees && !errors.Is(err, lock.ErrLost) {
		tr.Errorf("%s at command %d of a release: %v, want ErrLost", tr.name, n, err)
	}
	if err == nil && !tr.taken {
		if err := lease.Release(tr.Context()); !errors.Is(err, lock.ErrLost) {
			tr.Errorf("%s at command %d of a release: a second release: %v, want ErrLost", tr.name, n, err)
		}
		next, err := tr.c.Acquire(lock.TryOnce(tr.Context()), theKey)
		if err != nil {
			tr.Errorf("%s at command %d of a release: it reports success, but the lock is not free: %v", tr.name, n, err)
		} else {
			tr.leases = append(tr.leases, next)
		}
	}
	return struck
}

// explains reports whether the disturbance is the reason for err.
func (tr *trial) explains(err error) bool {
	return err != nil && tr.err != "" && strings.Contains(err.Error(), tr.err) && !(tr.cluster && tr.followed)
}

// end releases all leases and removes all data, so that the next trial starts with a free lock.
func (tr *trial) end() {
	for _, l := range tr.leases {
		_ = l.Release(tr.Context()) // it may be lost
	}
	time.Sleep(3 * simulatedTTL)
	tr.forget(0)
}
