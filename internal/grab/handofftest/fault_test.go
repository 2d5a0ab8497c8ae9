package handoff_test

import (
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"grablab/handoff"
	"grablab/internal/testbed/conformtest"
)

const (
	faultTTL = 1500 * time.Millisecond
	poll     = faultTTL / 3 // the interval at which a waiter checks the queue if the TTL is faultTTL
	leeway   = time.Second  // for a busy machine
)

// TestKilledHolder checks that the first process in the queue gets the lease of a killed holder within
// a TTL and one poll interval.
func TestKilledHolder(t *testing.T) {
	addr := conformtest.RedisServer(t)
	client := clientOf(t, addr)
	holder := startChild(t, childSetup{Addr: addr, TTL: faultTTL})
	holder.tell(t, childOrder{Do: "hold", Key: key})
	if h := holder.hear(t); h[0].Error != "" {
		t.Fatal(h[0].Error)
	}
	a, b := open(t, addr, faultTTL), open(t, addr, faultTTL)
	first := acquireAsync(t.Context(), a, key)
	untilQueued(t, client, key, 1)
	second := acquireAsync(t.Context(), b, key)
	untilQueued(t, client, key, 2)

	holder.kill(t)
	lease := soon(t, faultTTL+poll+leeway, first)
	select {
	case <-second:
		t.Error("the second waiter has the lock too")
	default:
	}
	must(0, lease.Release(t.Context()))
	must(0, soon(t, poll+leeway, second).Release(t.Context()))
	nothingLeftOn(t, client)
}

// TestKilledWaiters checks that a killed process with a hundred waiters does not delay another process.
func TestKilledWaiters(t *testing.T) {
	addr := conformtest.RedisServer(t)
	client := clientOf(t, addr)
	a, b := open(t, addr, time.Minute), open(t, addr, time.Minute)
	lease := must(a.Acquire(t.Context(), key))
	waiting := startChild(t, childSetup{Addr: addr, TTL: time.Minute})
	waiting.tell(t, childOrder{Do: "wait", Key: key, Workers: 100})
	untilQueued(t, client, key, 1)
	last := acquireAsync(t.Context(), b, key)
	untilQueued(t, client, key, 2)

	waiting.kill(t)
	_ = waiting.cmd.Wait()
	must(0, lease.Release(t.Context()))
	must(0, soon(t, time.Second+leeway, last).Release(t.Context()))
	nothingLeftOn(t, client)
}

// TestStoppedWaiters stops a process with many waiters, but does not kill it. The server still passes
// the lock to this process, because its connection is open. This must delay the other processes by at
// most one TTL and one poll interval.
func TestStoppedWaiters(t *testing.T) {
	addr := conformtest.RedisServer(t)
	client := clientOf(t, addr)
	a, b := open(t, addr, faultTTL), open(t, addr, faultTTL)
	lease := must(a.Acquire(t.Context(), key))
	stopped := startChild(t, childSetup{Addr: addr, TTL: faultTTL})
	stopped.tell(t, childOrder{Do: "wait", Key: key, Workers: 10})
	untilQueued(t, client, key, 1)
	var others sync.WaitGroup
	begin := func(l *handoff.Locker) {
		others.Go(func() {
			lease, err := l.Acquire(t.Context(), key)
			if err == nil {
				err = lease.Release(t.Context())
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	begin(b)
	untilQueued(t, client, key, 2)
	stopped.stop(t)
	for range 3 {
		begin(a)
		begin(b)
	}
	began := time.Now()
	must(0, lease.Release(t.Context()))
	others.Wait()
	took := time.Since(began)
	t.Logf("the others waited for %v", took)
	if took < faultTTL/2 || took > faultTTL+poll+leeway {
		t.Errorf("the others waited for %v, want a TTL of %v and at most %v more", took, faultTTL, poll)
	}
	must(0, stopped.cmd.Process.Kill())
}

// TestLateWakeup stops a waiter's process while it gets the lease. The process continues after the lease
// has expired and another client has the lock. It must ignore the wake-up, which is too old (F12).
func TestLateWakeup(t *testing.T) {
	addr := conformtest.RedisServer(t)
	client := clientOf(t, addr)
	a, b := open(t, addr, faultTTL), open(t, addr, faultTTL)
	lease := must(a.Acquire(t.Context(), key))
	sleeper := startChild(t, childSetup{Addr: addr, TTL: faultTTL})
	sleeper.tell(t, childOrder{Do: "wave", Key: key, Workers: 1})
	untilQueued(t, client, key, 1)
	sleeper.stop(t)

	must(0, lease.Release(t.Context()))
	other := soon(t, faultTTL+poll+leeway, acquireAsync(t.Context(), b, key))
	must(0, sleeper.cmd.Process.Signal(syscall.SIGCONT))
	time.Sleep(2 * poll)
	select {
	case <-other.Lost():
		t.Error("the holder lost the lock to the stopped process")
	default:
	}
	freed := hostClock()
	must(0, other.Release(t.Context()))
	h := sleeper.hear(t)[0]
	if h.Error != "" {
		t.Fatal(h.Error)
	}
	if h.Acquired < freed {
		t.Errorf("the stopped process used the lock %v before the holder released it", time.Duration(freed-h.Acquired))
	}
	nothingLeftOn(t, client)
}

// TestCutSubscription cuts a process's subscription just before its turn. The release must skip this
// process and immediately serve the next one. The process must join the queue again once it has
// reconnected.
func TestCutSubscription(t *testing.T) {
	addr := conformtest.RedisServer(t)
	proxy := startProxy(t, addr)
	ctx, client := t.Context(), clientOf(t, addr)
	a, b, c := open(t, addr, faultTTL), open(t, proxy.addr(), faultTTL), open(t, addr, faultTTL)
	for round := range 5 {
		lease := must(a.Acquire(ctx, key))
		cut := acquireAsync(ctx, b, key)
		untilQueued(t, client, key, 1)
		after := acquireAsync(ctx, c, key)
		untilQueued(t, client, key, 2)
		time.Sleep(poll / 4) // until b has received the reply to its request, which would otherwise fail
		listening := len(client.PubSubChannels(ctx, "handoff:*").Val())
		restore := proxy.refuse()
		for len(client.PubSubChannels(ctx, "handoff:*").Val()) == listening {
			time.Sleep(time.Millisecond) // until the server has noticed
		}
		must(0, lease.Release(ctx))
		other := soon(t, poll/2, after)
		restore()
		untilQueued(t, client, key, 1)
		must(0, other.Release(ctx))
		must(0, soon(t, poll+leeway, cut).Release(ctx))
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
	nothingLeftOn(t, client)
}

// TestLostWakeup checks that a waiter whose wake-up message is lost gets the lock within one poll
// interval.
func TestLostWakeup(t *testing.T) {
	addr := conformtest.RedisServer(t)
	proxy := startProxy(t, addr)
	ctx := t.Context()
	client := clientOf(t, addr)
	a, b := open(t, addr, faultTTL), open(t, proxy.addr(), faultTTL)
	for range 5 {
		lease := must(a.Acquire(ctx, key))
		waiting := acquireAsync(ctx, b, key)
		untilQueued(t, client, key, 1)
		forget := proxy.swallow("message") // the server does not notice that the message is lost
		must(0, lease.Release(ctx))
		must(0, soon(t, poll+leeway, waiting).Release(ctx))
		forget()
	}
	nothingLeftOn(t, client)
}

// TestCutConnections repeatedly cuts all connections of one of two processes. There must never be two
// holders, no caller may wait for too long, and no lock may remain.
func TestCutConnections(t *testing.T) {
	addr := conformtest.RedisServer(t)
	proxy := startProxy(t, addr)
	client := clientOf(t, addr)
	lockers := []*handoff.Locker{open(t, addr, faultTTL), open(t, proxy.addr(), faultTTL)}
	var inside, overlaps, had, longest atomic.Int64
	var all sync.WaitGroup
	stop := time.Now().Add(3 * time.Second)
	for w := range 12 {
		all.Go(func() {
			for time.Now().Before(stop) {
				began := time.Now()
				lease, err := lockers[w%2].Acquire(t.Context(), key)
				if err != nil {
					continue // the connection was refused or cut
				}
				if took := int64(time.Since(began)); took > longest.Load() {
					longest.Store(took)
				}
				if inside.Add(1) != 1 {
					overlaps.Add(1)
				}
				had.Add(1)
				time.Sleep(time.Millisecond)
				inside.Add(-1)
				_ = lease.Release(t.Context())
			}
		})
	}
	for time.Now().Before(stop) {
		time.Sleep(100 * time.Millisecond)
		proxy.cut()
	}
	all.Wait()
	t.Logf("%d leases, the longest wait was %v", had.Load(), time.Duration(longest.Load()))
	if n := overlaps.Load(); n > 0 {
		t.Errorf("two processes held the lock at once %d times", n)
	}
	if had.Load() < 100 {
		t.Errorf("only %d leases", had.Load())
	}
	if took := time.Duration(longest.Load()); took > faultTTL+poll+leeway {
		t.Errorf("a caller waited for %v, want at most %v", took, faultTTL+poll+leeway)
	}
	for end := time.Now().Add(faultTTL + leeway); client.Exists(t.Context(), key).Val() != 0 && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond) // the cleanup of an acquire may have been cut too
	}
	nothingLeftOn(t, client)
}

// proxy forwards connections between clients and a server. It can cut them and drop replies.
type proxy struct {
	listener net.Listener
	server   string

	mu       sync.Mutex
	conns    map[net.Conn]struct{}
	refusing bool
	swallows string // replies that contain this text are dropped; empty means none
}

func startProxy(tb testing.TB, server string) *proxy {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p := &proxy{listener: l, server: server, conns: map[net.Conn]struct{}{}}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { p.serve(c) })
		}
	})
	tb.Cleanup(func() {
		_ = l.Close()
		p.refuse()
		running.Wait()
	})
	return p
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

func (p *proxy) serve(c net.Conn) {
	defer c.Close()
	s, err := net.Dial("tcp", p.server)
	if err != nil {
		return
	}
	defer s.Close()
	p.mu.Lock()
	if p.refusing {
		p.mu.Unlock()
		return
	}
	p.conns[c] = struct{}{}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.conns, c)
		p.mu.Unlock()
	}()
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(s, c)
		_ = s.Close()
	})
	buf := make([]byte, 64<<10)
	for {
		n, err := s.Read(buf)
		if err != nil {
			break
		}
		p.mu.Lock()
		lost := p.swallows != "" && strings.Contains(string(buf[:n]), p.swallows)
		p.mu.Unlock()
		if !lost {
			_, _ = c.Write(buf[:n])
		}
	}
	_ = c.Close()
	both.Wait()
}

// cut closes all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

// refuse closes all connections and refuses new ones until restore is called.
func (p *proxy) refuse() (restore func()) {
	p.mu.Lock()
	p.refusing = true
	p.mu.Unlock()
	p.cut()
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.refusing = false
	}
}

// swallow drops all replies that contain text until forget is called.
func (p *proxy) swallow(text string) (forget func()) {
	set := func(s string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.swallows = s
	}
	set(text)
	return func() { set("") }
}
