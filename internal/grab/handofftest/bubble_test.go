package handoff_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"grablab/handoff"
	"grablab/internal/tap/redishook"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	key = "order:{1}"
	ttl = 30 * time.Second
)

// bubble contains a Redis server in a synctest bubble, where time is simulated.
type bubble struct {
	*testing.T
	node  *miniredis.Miniredis
	count int
}

// inBubble runs test in a new bubble.
func inBubble(t *testing.T, test func(*bubble)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bubble{T: t, node: miniredis.NewMiniRedis()}
		b.node.ClockTTL(true)
		defer b.node.Close()
		test(b)
	})
}

// process is the Locker of one process. It counts the process's requests, and a test can intercept them.
type process struct {
	*handoff.Locker
	*bubble
	client *redis.Client
	id     string
	down   atomic.Bool  // requests and connections fail
	deaf   atomic.Bool  // no connection can be opened
	trips  atomic.Int64 // the number of requests

	subscriptions atomic.Int64 // the number of connections that were used to subscribe
	silenced      atomic.Int64 // how many of these connections, oldest first, are dead but stay open

	mu       sync.Mutex
	next     []func(send func() error) error // run in place of sending the next requests
	commands []string                        // the commands so far; that of a script includes its hash
}

var errDown = errors.New("down")

func (b *bubble) process(change ...func(*handoff.Options)) *process {
	b.Helper()
	b.count++
	p := &process{bubble: b, id: fmt.Sprint("p", b.count)}
	p.client = redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:1", Protocol: 2, MaxRetries: -1, DialerRetries: 1, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			if p.down.Load() || p.deaf.Load() {
				return nil, errDown
			}
			conn, err := b.node.Dial()
			return &subscription{Conn: conn, of: p}, err
		},
	})
	p.client.AddHook(redishook.Hook(p.around))
	opt := handoff.Options{TTL: ttl, ID: p.id}
	for _, f := range change {
		f(&opt)
	}
	var err error
	if p.Locker, err = handoff.New(p.client, opt); err != nil {
		b.Fatal(err)
	}
	p.release(p.acquire(b.Context(), "warm:{up}")) // loads the scripts
	b.Cleanup(p.end)
	return p
}

// silence makes the process's current subscription lose all data in both directions. The connection
// stays open, like in a network that drops all packets.
func (p *process) silence() { p.silenced.Store(p.subscriptions.Load()) }

// A subscription is a connection that a process may use to subscribe.
type subscription struct {
	net.Conn
	of  *process
	nth atomic.Int64 // its number among the process's subscriptions; 0 if it is used for other requests
}

func (s *subscription) dead() bool {
	nth := s.nth.Load()
	return nth > 0 && nth <= s.of.silenced.Load()
}

func (s *subscription) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("subscribe")) && s.nth.Load() == 0 {
		s.nth.Store(s.of.subscriptions.Add(1))
	}
	if s.dead() {
		return len(b), nil
	}
	return s.Conn.Write(b)
}

func (s *subscription) Read(b []byte) (int, error) {
	for {
		if n, err := s.Conn.Read(b); err != nil || !s.dead() {
			return n, err
		}
	}
}

// end ends the process like a crash, without releasing any lease.
func (p *process) end() {
	_ = p.Close()
	_ = p.client.Close()
}

func (p *process) around(ctx context.Context, cmds []redis.Cmder, send func(context.Context) error) error {
	if name := cmds[0].Name(); name == "hello" || name == "client" {
		return send(ctx)
	}
	if p.down.Load() {
		return errDown
	}
	p.trips.Add(1)
	p.mu.Lock()
	for _, cmd := range cmds {
		name := cmd.Name()
		if args := cmd.Args(); strings.HasPrefix(name, "eval") {
			name += fmt.Sprintf(" %.40s", args[1])
		}
		p.commands = append(p.commands, name)
	}
	var do func(func() error) error
	if len(p.next) > 0 {
		do, p.next = p.next[0], p.next[1:]
	}
	p.mu.Unlock()
	if do == nil {
		return send(ctx)
	}
	return do(func() error { return send(ctx) })
}

// meet makes the process run the given functions in place of sending its next requests.
func (p *process) meet(next ...func(send func() error) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = next
}

var (
	twice      = func(send func() error) error { _ = send(); return send() }  // like a client that retries after a lost reply
	unanswered = func(send func() error) error { _ = send(); return errDown } // the reply is lost
)

// sent returns the number of requests that the process sends while f runs.
func (p *process) sent(f func()) int {
	before := p.trips.Load()
	f()
	return int(p.trips.Load() - before)
}

// commandsOf returns the commands that the process sends while f runs.
func (p *process) commandsOf(f func()) []string {
	p.mu.Lock()
	before := len(p.commands)
	p.mu.Unlock()
	f()
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.commands[before:])
}

func (p *process) acquire(ctx context.Context, key string) *handoff.Lease {
	p.Helper()
	lease, err := p.Acquire(ctx, key)
	if err != nil {
		p.Fatal(err)
	}
	return lease
}

func (p *process) take() *handoff.Lease { p.Helper(); return p.acquire(p.Context(), key) }

func (b *bubble) release(lease *handoff.Lease) {
	b.Helper()
	if err := lease.Release(b.Context()); err != nil {
		b.Fatal(err)
	}
}

// wait starts an acquire in the background, and returns once it is waiting. The channel receives the
// lease. It is closed without a lease if the acquire fails.
func (p *process) wait() <-chan *handoff.Lease {
	p.Helper()
	got := make(chan *handoff.Lease, 1)
	go func() {
		if lease, err := p.Acquire(p.Context(), key); err == nil {
			got <- lease
		}
		close(got)
	}()
	synctest.Wait()
	return got
}

// served returns the lease of a waiter. It ends the test if the waiter has not got the lease already.
func (b *bubble) served(got <-chan *handoff.Lease) *handoff.Lease {
	b.Helper()
	synctest.Wait()
	select {
	case lease := <-got:
		if lease != nil {
			return lease
		}
		b.Fatal("the acquire failed")
	default:
		b.Fatal("the waiter has not got the lease")
	}
	return nil
}

// unserved checks that none of the waiters has got the lease yet.
func (b *bubble) unserved(all ...<-chan *handoff.Lease) {
	b.Helper()
	synctest.Wait()
	for i, got := range all {
		if len(got) > 0 {
			b.Fatalf("waiter %d has already got the lease", i)
		}
	}
}

// nothingLeft checks that only counters remain on the server, and that they all expire.
func (b *bubble) nothingLeft() {
	b.Helper()
	synctest.Wait()
	for _, key := range b.node.Keys() {
		if !strings.HasSuffix(key, ":fence") || b.node.TTL(key) <= 0 {
			b.Errorf("the server still has the key %s, which expires in %v", key, b.node.TTL(key))
		}
	}
}

func (b *bubble) queued() int {
	members, _ := b.node.ZMembers(key + ":queue")
	return len(members)
}

func isLost(lease *handoff.Lease) bool {
	select {
	case <-lease.Lost():
		return true
	default:
		return false
	}
}
