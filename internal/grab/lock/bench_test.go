package lock_test

import (
	"context"
	_ "embed"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/measure/stat"
	"grablab/internal/testbed/conformtest"

	"github.com/redis/go-redis/v9"
)

// The benchmarks start their own redis-server. In each round, they run the alternatives in random
// order, and they print the median over all rounds with its 95 % interval.
//
//	go test ./internal/grab/lock -run '^$' -bench . -benchtime 1x

// BenchmarkSetnx compares an uncontended acquire and release with the same two raw commands on the
// same client. It fails if the lock costs more than 1.05 times as much.
func BenchmarkSetnx(b *testing.B) {
	const rounds, ops, bound = 41, 1000, 1.05
	client := conformtest.NewClient(conformtest.RedisServer(b))
	defer client.Close()
	env := conformtest.EnvOf(client)
	env.TTL = 30 * time.Second
	locker, token := start(b, "setnx", env), env.Token()
	ways := []func(ctx context.Context, key string) error{
		func(ctx context.Context, key string) error { return rawLock(ctx, client, key, token, env.TTL) },
		func(ctx context.Context, key string) error { return lockOnce(ctx, locker, key) },
	}
	if err := lockOnce(b.Context(), locker, "bench:{}"); err != nil { // loads the script
		b.Fatal(err)
	}
	for b.Loop() {
		took := make([][]float64, len(ways))
		for round := range rounds + 1 { // the first round is a warm-up
			for _, w := range rand.Perm(len(ways)) {
				began := time.Now()
				for i := range ops {
					if err := ways[w](b.Context(), fmt.Sprintf("bench:{%d}", i)); err != nil {
						b.Fatal(err)
					}
				}
				if round > 0 {
					took[w] = append(took[w], float64(time.Since(began).Microseconds())/ops)
				}
			}
		}
		ratio := stat.Ratio(took[1], took[0])
		b.Logf("raw %.3f µs, setnx %.3f µs, setnx/raw %.3f over %d rounds of %d", stat.Median(took[0]), stat.Median(took[1]), ratio, rounds, ops)
		b.ReportMetric(ratio.Median, "setnx/raw")
		if ratio.Low > bound {
			b.Errorf("setnx costs %.3f times the raw commands, want at most %v", ratio, bound)
		}
	}
}

//go:embed setnx_release.lua
var releaseLua string

var releaseRaw = redis.NewScript(releaseLua).Hash()

func rawLock(ctx context.Context, client *redis.Client, key, token string, ttl time.Duration) error {
	if err := client.SetNX(ctx, key, token, ttl).Err(); err != nil {
		return err
	}
	return client.EvalSha(ctx, releaseRaw, []string{key}, token).Err()
}

func lockOnce(ctx context.Context, locker lock.Locker, key string) error {
	lease, err := locker.Acquire(ctx, key)
	if err != nil {
		return err
	}
	return lease.Release(ctx)
}

// BenchmarkWatchdogWake measures the time from a release until a waiter has the lock. It takes two round
// trips: the release notifies the waiter, and the waiter then acquires the lock. The benchmark fails if the
// program itself, which has to wake three goroutines, adds more than 200 µs. A bound in round trips only
// would be too strict where the network is fast.
func BenchmarkWatchdogWake(b *testing.B) {
	const rounds, handoffs, needed, own = 41, 100, 2, 200
	addr := conformtest.RedisServer(b)
	pinger := conformtest.NewClient(addr)
	defer pinger.Close()
	var lockers [2]lock.Locker
	for i := range lockers {
		client := conformtest.NewClient(addr)
		defer client.Close()
		env := conformtest.EnvOf(client)
		env.TTL, env.Wait = 30*time.Second, 30*time.Second
		lockers[i] = start(b, "watchdog", env)
	}
	for b.Loop() {
		var trips, wakes []float64
		for round := range rounds + 1 {
			var trip, wake []float64
			for i := range handoffs {
				trip = append(trip, roundTrip(b, pinger))
				wake = append(wake, handOff(b, lockers[0], lockers[1], fmt.Sprintf("bench:{%d}", i)))
			}
			if round > 0 {
				trips = append(trips, stat.Median(trip).Median)
				wakes = append(wakes, stat.Median(wake).Median)
			}
		}
		added := make([]float64, len(wakes))
		for i := range wakes {
			added[i] = wakes[i] - needed*trips[i]
		}
		delay := stat.Median(added)
		b.Logf("round trip %.3f µs, release to acquired %.3f µs, without %d round trips %.3f µs, over %d rounds of %d", stat.Median(trips), stat.Median(wakes), needed, delay, rounds, handoffs)
		b.ReportMetric(stat.Ratio(wakes, trips).Median, "trips/wake")
		if delay.Low > own {
			b.Errorf("a waiter has the lock %.3f µs later than %d round trips after the release, want at most %d µs", delay, needed, own)
		}
	}
}

// rest pauses until all goroutines are idle and the waiter is asleep. Both a PING and a hand-off
// then have to wake a goroutine, so their times are comparable.
func rest() { time.Sleep(2 * time.Millisecond) }

// roundTrip returns the time of one PING, in µs.
func roundTrip(b *testing.B, client *redis.Client) float64 {
	rest()
	began := time.Now()
	if err := client.Ping(b.Context()).Err(); err != nil {
		b.Fatal(err)
	}
	return micros(time.Since(began))
}

// handOff returns how long, in µs, a waiting acquire takes to return after the release.
func handOff(b *testing.B, from, to lock.Locker, key string) float64 {
	ctx := b.Context()
	held, err := from.Acquire(ctx, key)
	if err != nil {
		b.Fatal(err)
	}
	got := make(chan time.Time, 1)
	go func() {
		lease, err := to.Acquire(ctx, key)
		got <- time.Now()
		if err == nil {
			err = lease.Release(ctx)
		}
		if err != nil {
			b.Error(err)
		}
		close(got)
	}()
	rest()
	began := time.Now()
	if err := held.Release(ctx); err != nil {
		b.Fatal(err)
	}
	acquired := <-got
	<-got
	return micros(acquired.Sub(began))
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }

func start(tb testing.TB, strategy string, env lock.Env) lock.Locker {
	tb.Helper()
	st, err := lock.Find(strategy)
	if err != nil {
		tb.Fatal(err)
	}
	locker, err := st.New(env)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = locker.Close() })
	return locker
}
