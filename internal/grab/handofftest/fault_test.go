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
	poll     = faultTTL / 3 // how often a waiter looks, with that TTL
	leeway   = time.Second  // for a machine that does much else
)

// A killed holder's lease passes on within its TTL and one poll interval, to
// the first in the queue.
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
		t.Error("the second waiter has it too")
	default:
	}
	must(0, lease.Release(t.Context()))
	must(0, soon(t, poll+leeway, second).Release(t.Context()))
	nothingLeftOn(t, client)
}

// A killed process with a hundred waiters delays no one.
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

// A process that is stopped, not dead, still listens as far as the server knows. It costs the others one
// TTL and one look, however many of it wait.
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
	t.Logf("it took %v", took)
	if took < faultTTL/2 || took > faultTTL+poll+leeway {
		t.Errorf("it took %v, want a TTL of %v and at most %v", took, faultTTL, poll)
	}
	must(0, stopped.cmd.Process.Kill())
}

// A waiter's process is stopped while it gets the lease. It continues after the lease has expired
// and another client has it. The wake-up that it then finds is too old (F12).
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
		t.Error("the holder lost it to the sleeper")
	default:
	}
	freed := hostClock()
	must(0, other.Release(t.Context()))
	h := sleeper.hear(t)[0]
	if h.Error != "" {
		t.Fatal(h.Error)
	}
	if h.Acquired < freed {
		t.Errorf("the sleeper took itself for the holder %v before the release", time.Duration(freed-h.Acquired))
	}
	nothingLeftOn(t, client)
}

// A process whose subscription is cut when its turn comes is passed over, and costs those behind
// nothing. It stands in the queue again as soon as it is back.
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
		time.Sleep(poll / 4) // b reads that it is queued: else its request was cut, and fails
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

// The wake-up itself is lost: it is on its way when the connection dies.
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
		forget := proxy.swallow("message") // the server believes that it was heard
		must(0, lease.Release(ctx))
		must(0, soon(t, poll+leeway, waiting).Release(ctx))
		forget()
	}
	nothingLeftOn(t, client)
}

// All connections of one of two processes are cut in the middle of everything.
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
					continue // refused or cut: the service would answer so
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
		t.Errorf("%d overlaps", n)
	}
	if had.Load() < 100 {
		t.Errorf("only %d leases", had.Load())
	}
	if took := time.Duration(longest.Load()); took > faultTTL+poll+leeway {
		t.Errorf("somebody waited for %v", took)
	}
	for end := time.Now().Add(faultTTL + leeway); client.Exists(t.Context(), key).Val() != 0 && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond) // an acquire whose undoing was cut too
	}
	nothingLeftOn(t, client)
}

// proxy stands between a client and its server.
type proxy struct {
	listener net.Listener
	server   string

	mu       sync.Mutex
	conns    map[net.Conn]struct{}
	refusing bool
	swallows string // replies that hold this are lost
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

// refuse cuts all connections and lets none through until restored.
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

// swallow loses what the server says, if it holds a text, until forgotten.
func (p *proxy) swallow(text string) (forget func()) {
	set := func(s string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.swallows = s
	}
	set(text)
	return func() { set("") }
}
