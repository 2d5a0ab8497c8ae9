package handoff_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"grablab/handoff"
	"grablab/internal/tap/redishook"
	"grablab/internal/testbed/conformtest"

	"github.com/redis/go-redis/v9"
)

// TestStress measures the figures of the stress table in handoff/README.md. GRABLAB_STRESS enables the
// test and sets how long it holds one lease, for example 15m. In that time, the lease is renewed as many
// times as in an hour with the default TTL.
func TestStress(t *testing.T) {
	hold, err := time.ParseDuration(os.Getenv("GRABLAB_STRESS"))
	if err != nil {
		t.Skip("to run this test, set GRABLAB_STRESS=15m")
	}
	t.Run("hold", func(t *testing.T) { t.Parallel(); stressHold(t, hold) })
	t.Run("load", func(t *testing.T) {
		t.Parallel()
		t.Run("keys", func(t *testing.T) { stressKeys(t, 0, false) })
		t.Run("keys combined", func(t *testing.T) { stressKeys(t, 0, true) })
		t.Run("keys combined at 50 ms", func(t *testing.T) { stressKeys(t, 50*time.Millisecond, true) })
		t.Run("waiters", stressWaiters)
		t.Run("processes", stressProcesses)
		for _, roundTrip := range []time.Duration{5 * time.Millisecond, 50 * time.Millisecond} {
			t.Run(roundTrip.String(), func(t *testing.T) { stressRoundTrip(t, roundTrip) })
		}
	})
}

// counted returns a Locker whose client has the options from the README, and a counter of its requests.
func counted(t *testing.T, addr string, ttl time.Duration, combine bool) (*handoff.Locker, *atomic.Int64) {
	requests := new(atomic.Int64)
	client := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = client.Close() })
	client.AddHook(redishook.Hook(func(ctx context.Context, cmds []redis.Cmder, send func(context.Context) error) error {
		if name := cmds[0].Name(); name != "hello" && name != "client" {
			requests.Add(1)
		}
		return send(ctx)
	}))
	if combine {
		handoff.Combine(client)
	}
	l := must(handoff.New(client, handoff.Options{TTL: ttl}))
	t.Cleanup(func() { _ = l.Close() })
	return l, requests
}

// usage is the memory and the number of goroutines that this process uses.
type usage struct{ bytes, goroutines float64 }

func used() usage {
	runtime.GC()
	runtime.GC() // frees objects whose finalizers have run
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{float64(m.HeapAlloc + m.StackInuse), float64(runtime.NumGoroutine())}
}

// per returns the additional usage since before, divided by the number n of new leases or waiters.
func (u usage) per(before usage, n int) string {
	return fmt.Sprintf("%.0f bytes and %.2f goroutines", (u.bytes-before.bytes)/float64(n), (u.goroutines-before.goroutines)/float64(n))
}

// onServer returns a number from the server's INFO, or 0 if the field is missing.
func onServer(t *testing.T, client redis.UniversalClient, section, field string) float64 {
	match := regexp.MustCompile(field + `[:=](\d+)`).FindStringSubmatch(must(client.Info(t.Context(), section).Result()))
	if match == nil {
		return 0
	}
	return must(strconv.ParseFloat(match[1], 64))
}

// together runs n calls at the same time and returns how long they took. It fails the test if a call
// returns an error.
func together(t *testing.T, n int, call func(i int) error) time.Duration {
	t.Helper()
	var failed atomic.Int64
	var calls sync.WaitGroup
	began := time.Now()
	for i := range n {
		calls.Go(func() {
			if err := call(i); err != nil && failed.Add(1) <= 3 {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	if n := failed.Load(); n > 0 {
		t.Errorf("%d calls failed", n)
	}
	return time.Since(began)
}

// stressKeys locks 10,000 keys at the same time, holds them for longer than their TTL, and releases them
// at the same time.
func stressKeys(t *testing.T, roundTrip time.Duration, combine bool) {
	const n, ttl = 10_000, 30 * time.Second
	addr := conformtest.RedisServer(t)
	client := clientOf(t, addr)
	if roundTrip > 0 {
		addr = startDistance(t, addr, roundTrip)
	}
	l, requests := counted(t, addr, ttl, combine)
	leases := make([]*handoff.Lease, n)
	acquire := func(i int) (err error) {
		leases[i], err = l.Acquire(t.Context(), fmt.Sprint("order:", i))
		return err
	}
	if err := acquire(0); err != nil {
		t.Fatal(err)
	}
	must(0, leases[0].Release(t.Context()))
	before, memory, sent := used(), onServer(t, client, "memory", "used_memory"), requests.Load()
	took := together(t, n, acquire)
	after := used()
	t.Logf("%d keys at once: %v; a lease uses %s, and %.0f bytes of the server; %.2f requests for an acquire", n, took.Round(time.Millisecond),
		after.per(before, n), (onServer(t, client, "memory", "used_memory")-memory)/n, float64(requests.Load()-sent)/n)
	if t.Failed() {
		return
	}
	sent = requests.Load()
	time.Sleep(ttl + 2*time.Second)
	lost := 0
	for _, lease := range leases {
		if isLost(lease) {
			lost++
		}
	}
	t.Logf("in a TTL: %.2f requests for a lease, %d lost", float64(requests.Load()-sent)/n, lost)
	if lost > 0 {
		t.Errorf("%d leases were lost", lost)
	}
	free := func() usage {
		took := together(t, n, func(i int) error { return leases[i].Release(t.Context()) })
		clear(leases)
		rest := used()
		t.Logf("freed in %v; left in the process: %.0f bytes and %.0f goroutines", took.Round(time.Millisecond), rest.bytes-before.bytes, rest.goroutines-before.goroutines)
		return rest
	}
	first := free()
	together(t, n, acquire)
	// Allow for goroutines of connections and for noise in the memory statistics.
	if second := free(); second.goroutines > before.goroutines+50 || second.bytes > first.bytes+100*n {
		t.Errorf("the process keeps %.0f goroutines, and after the second time %.0f bytes more", second.goroutines-before.goroutines, second.bytes-first.bytes)
	}
	nothingLeftOn(t, client)
}

// stressWaiters measures 1,000 callers of one process that wait for the same key.
func stressWaiters(t *testing.T) {
	const n = 1000
	addr := conformtest.RedisServer(t)
	l, requests := counted(t, addr, 30*time.Second, false)
	other, _ := counted(t, addr, 30*time.Second, false)
	lease := must(other.Acquire(t.Context(), key))
	before := used()
	var began, served atomic.Int64
	fences := make([]uint64, n)
	done := make(chan time.Duration)
	go func() {
		done <- together(t, n, func(int) error {
			began.Add(1)
			lease, err := l.Acquire(t.Context(), key)
			if err != nil {
				return err
			}
			fences[served.Add(1)-1] = lease.Fence()
			return lease.Release(t.Context())
		})
	}()
	for began.Load() < n {
		time.Sleep(time.Millisecond)
	}
	untilQueued(t, clientOf(t, addr), key, 1)
	time.Sleep(time.Second)
	waiting, sent := used(), requests.Load()
	time.Sleep(3 * time.Second)
	looks := float64(requests.Load()-sent) / 3
	sent = requests.Load()
	start := time.Now()
	must(0, lease.Release(t.Context()))
	<-done
	took := time.Since(start)
	t.Logf("%d waiters of one process: each uses %s; together %.1f requests a second; served in %v with %.3f requests for each",
		n, waiting.per(before, n), looks, took.Round(time.Millisecond), float64(requests.Load()-sent)/n)
	if !slices.IsSorted(fences) {
		t.Error("the tokens do not grow")
	}
	if rest := used(); rest.goroutines > before.goroutines+20 {
		t.Errorf("%.0f goroutines are left", rest.goroutines-before.goroutines)
	}
}

// stressProcesses makes 64 processes take turns with one key.
func stressProcesses(t *testing.T) {
	const processes, workers, rounds = 64, 4, 100
	addr := conformtest.RedisServer(t)
	client := clientOf(t, addr)
	children := make([]*child, processes)
	for i := range children {
		children[i] = startChild(t, childSetup{Addr: addr, TTL: 5 * time.Second})
		children[i].tell(t, childOrder{Do: "wave", Key: fmt.Sprint("warm:", i), Workers: 1})
	}
	for _, c := range children {
		c.hear(t)
	}
	must(0, client.ConfigResetStat(t.Context()).Err())
	for _, c := range children {
		c.tell(t, childOrder{Do: "wave", Key: key, Workers: workers, Rounds: rounds})
	}
	type hold struct {
		childHold
		process int
	}
	var holds []hold
	for i, c := range children {
		for _, h := range c.hear(t) {
			holds = append(holds, hold{h, i})
		}
	}
	slices.SortFunc(holds, func(a, b hold) int { return cmp.Compare(a.Acquired, b.Acquired) })
	var began []int64 // when each turn began
	waited := 0
	for i, h := range holds {
		if i == 0 || h.process != holds[i-1].process {
			began = append(began, h.Acquired)
		}
		after, _ := slices.BinarySearch(began, h.Asked)
		waited = max(waited, len(began)-1-after)
		if h.Error != "" {
			t.Error(h.Error)
		} else if i > 0 && (h.Acquired < holds[i-1].Freed || h.Fence <= holds[i-1].Fence) {
			t.Errorf("hold %d overlaps with the previous one, or its token is not higher", i)
		}
	}
	if waited > 2*processes { // a fair queue needs one turn of each other process; allow twice as many
		t.Errorf("a caller waited for %d turns of other processes", waited)
	}
	scripts := onServer(t, client, "commandstats", "cmdstat_evalsha:calls") + onServer(t, client, "commandstats", "cmdstat_eval:calls")
	t.Logf("%d processes with %d callers each: %d acquisitions in %d turns and %v; %.2f scripts for each acquisition; no caller waited for more than %d turns of other processes",
		processes, workers, len(holds), len(began), time.Duration(holds[len(holds)-1].Freed-holds[0].Acquired).Round(time.Millisecond), scripts/float64(len(holds)), waited)
}

// stressHold holds one lease and renews it 360 times.
func stressHold(t *testing.T, hold time.Duration) {
	ttl := (hold / 120).Truncate(time.Millisecond)
	l, requests := counted(t, conformtest.RedisServer(t), ttl, false)
	lease := must(l.Acquire(t.Context(), key))
	before, sent := used(), requests.Load()
	select {
	case <-lease.Context().Done():
		t.Errorf("the lease ended: %v", context.Cause(lease.Context()))
	case <-time.After(hold):
	}
	after := used()
	must(0, lease.Release(t.Context()))
	t.Logf("held for %v with a TTL of %v: %d renewals, %.0f more goroutines", hold, ttl, requests.Load()-sent-1, after.goroutines-before.goroutines)
}

// stressRoundTrip measures the acquisitions per second if a round trip to Redis takes the given time.
func stressRoundTrip(t *testing.T, roundTrip time.Duration) {
	addr := startDistance(t, conformtest.RedisServer(t), roundTrip)
	client := clientOf(t, addr)
	var pings []time.Duration
	for range 10 {
		began := time.Now()
		must(0, client.Ping(t.Context()).Err())
		pings = append(pings, time.Since(began))
	}
	slices.Sort(pings)
	ping := pings[len(pings)/2]
	for _, tt := range []struct {
		name               string
		processes, callers int
		ownKeys, combine   bool
	}{
		{"one caller", 1, 1, false, false},
		{"16 callers of a process", 1, 16, false, false},
		{"4 processes with 4 callers", 4, 4, false, false},
		{"16 keys", 1, 16, true, false},
		{"16 keys, combined", 1, 16, true, true},
		{"64 keys", 1, 64, true, false},
		{"64 keys, combined", 1, 64, true, true},
		{"1000 keys, combined", 1, 1000, true, true},
	} {
		const long = 5 * time.Second
		var had atomic.Int64
		var all sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		for p := range tt.processes {
			l, _ := counted(t, addr, 30*time.Second, tt.combine)
			for c := range tt.callers {
				name := fmt.Sprintf("order:%s", tt.name)
				if tt.ownKeys {
					name = fmt.Sprint(name, p, c)
				}
				all.Go(func() {
					for ctx.Err() == nil {
						lease, err := l.Acquire(ctx, name)
						if err == nil {
							had.Add(1)
							err = lease.Release(t.Context())
						}
						if err != nil && ctx.Err() == nil {
							t.Error(err)
							return
						}
					}
				})
			}
		}
		start := time.Now()
		time.Sleep(long)
		n := float64(had.Load())
		per := time.Since(start).Seconds()
		cancel()
		all.Wait()
		t.Logf("%v (PING %v), %s: %.0f acquisitions a second, %.2f for each round trip", roundTrip, ping.Round(100*time.Microsecond), tt.name, n/per, n/per*ping.Seconds())
	}
}

// startDistance starts a proxy to a server. It delays all data by half of the round trip in each
// direction, without limiting the throughput.
func startDistance(t *testing.T, server string, roundTrip time.Duration) (addr string) {
	l := must(net.Listen("tcp", "127.0.0.1:0"))
	t.Cleanup(func() { _ = l.Close() })
	type piece struct {
		data []byte
		due  time.Time
	}
	carry := func(to, from net.Conn) {
		pieces := make(chan piece, 1<<12)
		go func() {
			for p := range pieces {
				time.Sleep(time.Until(p.due))
				_, _ = to.Write(p.data)
			}
			_ = to.Close()
		}()
		for {
			data := make([]byte, 16<<10)
			n, err := io.ReadAtLeast(from, data, 1)
			if err != nil {
				close(pieces)
				return
			}
			pieces <- piece{data[:n], time.Now().Add(roundTrip / 2)}
		}
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s, err := net.Dial("tcp", server)
			if err != nil {
				_ = c.Close()
				continue
			}
			go carry(s, c)
			go carry(c, s)
		}
	}()
	return l.Addr().String()
}
