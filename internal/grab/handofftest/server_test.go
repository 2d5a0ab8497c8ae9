package handoff_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"grablab/handoff"

	"github.com/redis/go-redis/v9"
)

// clientOf returns a client of a server, or of a Cluster if there are several addresses.
func clientOf(tb testing.TB, addr string) redis.UniversalClient {
	tb.Helper()
	client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: strings.Split(addr, ","), MaxRetries: -1})
	tb.Cleanup(func() { _ = client.Close() })
	return client
}

// open returns the Locker of one process, with its own client.
func open(tb testing.TB, addr string, ttl time.Duration) *handoff.Locker {
	tb.Helper()
	l, err := handoff.New(clientOf(tb, addr), handoff.Options{TTL: ttl})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = l.Close() })
	return l
}

// must returns v. It panics if err is not nil, so use it only for errors that a test does not expect.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// outcome is the result of an acquire.
type outcome struct {
	lease *handoff.Lease
	err   error
}

// acquireAsync starts an acquire in the background.
func acquireAsync(ctx context.Context, l *handoff.Locker, key string) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		lease, err := l.Acquire(ctx, key)
		done <- outcome{lease, err}
	}()
	return done
}

// soon returns the lease of a background acquire. It ends the test if the acquire fails or takes too
// long.
func soon(t *testing.T, within time.Duration, done <-chan outcome) *handoff.Lease {
	t.Helper()
	select {
	case o := <-done:
		if o.err != nil {
			t.Fatal(o.err)
		}
		return o.lease
	case <-time.After(within):
		t.Fatalf("no lease after %v", within)
		return nil
	}
}

// untilQueued waits until n processes are in the queue of key.
func untilQueued(t *testing.T, client redis.UniversalClient, key string, n int64) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); client.ZCard(t.Context(), key+":queue").Val() != n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("there were never %d processes in the queue", n)
		}
	}
}

// nothingLeftOn checks that only counters remain on the server, and that they all expire.
func nothingLeftOn(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	for _, key := range must(client.Keys(t.Context(), "*").Result()) {
		ttl, err := client.TTL(t.Context(), key).Result() // a replica in a Cluster refuses this command
		if !strings.HasSuffix(key, ":fence") || err == nil && ttl <= 0 {
			t.Errorf("left behind: %s, for %v", key, ttl)
		}
	}
}

func init() { redis.SetLogger(silent{}) } // hides the errors of connections that tests cut

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}
