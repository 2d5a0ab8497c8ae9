package lock

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// Remembered is how many places and crowds a handoff locker knows.
func Remembered(l Locker) (places, crowds int) {
	h := l.(*oldHandoffLocker)
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.places), len(h.crowds)
}

func TestHandoffKeysShareASlot(t *testing.T) {
	for key, queue := range map[string]string{
		"grab:handoff:{42}": "grab:handoff:{42}:queue",
		"plain":             "{plain}:queue",
		"{}empty":           "{{}empty}:queue",
		"open{":             "{open{}:queue",
	} {
		if keys := handoffKeys(key); keys[0] != key || keys[2] != queue {
			t.Errorf("keys of %s: %v", key, keys)
		}
	}
}

func TestParseWakeup(t *testing.T) {
	for payload, want := range map[string]wakeup{
		"handoff:a:30000/7 1795235358898372 grab:handoff:{1}": {"handoff:a:30000/7", 1795235358898372, "grab:handoff:{1}"},
		"handoff:a:30000/7 1.795e+15 a key with blanks":       {"handoff:a:30000/7", 1795000000000000, "a key with blanks"},
	} {
		if got, ok := parseWakeup(payload); !ok || got != want {
			t.Errorf("%q: %v, %v", payload, got, ok)
		}
	}
	for _, payload := range []string{"", "name", "name 5", "name five key"} {
		if got, ok := parseWakeup(payload); ok {
			t.Errorf("%q: %v", payload, got)
		}
	}
}

// A lease that was pushed is believed only if it is surely young (F12).
func TestHandoffBelievesOnlyAYoungWakeup(t *testing.T) {
	const ttl = 30 * time.Second
	for _, c := range []struct {
		name   string
		fence  int64 // in the wake-up
		passed time.Duration
		want   bool
	}{
		{"at once", 7, 0, true},
		{"a fence drawn for it", 12, time.Second, true},
		{"half of the lease may have gone", 7, ttl/2 + 1, false},
		{"the lease may be over", 7, ttl, false},
		{"granted before it was queued again", 6, 0, false},
		{"no lease, but worth asking", 0, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &oldHandoffLocker{env: Env{TTL: ttl}, check: time.Second, nudged: make(chan struct{}, 1), crowds: map[string]*crowd{}}
				p := &place{oldHandoffLocker: l, state: asking}
				sent := time.Now()
				p.queue(sent, 7)
				time.Sleep(c.passed)
				if got := p.accept(wakeup{fence: c.fence}); got != c.want {
					t.Fatalf("accepted: %v", got)
				}
				if c.want && !p.end.Before(sent.Add(ttl)) {
					t.Errorf("it ends %v after the request was sent", p.end.Sub(sent))
				}
			})
		})
	}
}

// A check that finds the place still in the queue, under the number that it
// was told, proves that a later grant is no older than the check. No other does.
func TestHandoffCheckProvesAge(t *testing.T) {
	for _, c := range []struct {
		name  string
		reply []any
		since time.Duration // after the request that queued it
		asks  bool
	}{
		{"queued", []any{"other", "7"}, time.Second, false},
		{"queued again under an old number", []any{"other", "3"}, 0, false},
		{"not in the queue", []any{"other", nil}, 0, true},
		{"holds it: the wake-up was lost", []any{"handoff:a:1/1", nil}, 0, true},
		{"free, and not in the queue", []any{nil, nil}, 0, true},
		{"no reply", nil, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := &oldHandoffLocker{env: Env{TTL: time.Minute}, check: time.Second, nudged: make(chan struct{}, 1), places: map[uint64]*place{}, crowds: map[string]*crowd{}}
			p := &place{oldHandoffLocker: l, number: 1, name: "handoff:a:1/1", line: &line{channel: "handoff:a:1"}, wake: make(chan wakeup, 1)}
			l.places[1] = p
			joined := time.Now()
			p.queue(joined, 7)
			sent := joined.Add(time.Second)
			l.checked(&errand{places: []*place{p}, reply: &redis.Cmd{}}, sent, sent, c.reply)
			if got := p.since.Sub(joined); got != c.since {
				t.Errorf("a grant is no older than %v after it joined; want %v", got, c.since)
			}
			if asks := len(p.wake) == 1; asks != c.asks {
				t.Errorf("asks again: %v", asks)
			}
		})
	}
}

// A number in the queue is a fence only if it is above the last one, as a number: as text 9
// is above 10, and where both have many digits Lua writes one with an exponent.
func TestHandoffPassDrawsAboveTheLast(t *testing.T) {
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Protocol: 2})
	defer client.Close()
	for _, c := range []struct{ waiting, last int64 }{{9, 10}, {1_700_000_000_000_001, 1_700_000_000_000_009}} {
		server.FlushAll()
		keys := handoffKeys("k")
		for _, args := range [][]any{
			{"set", keys[0], "queue"},
			{"set", keys[1], "c:1000/1"},
			{"zadd", keys[2], c.waiting, "c:1000/2"},
			{"set", keys[3], c.last},
		} {
			if err := client.Do(t.Context(), args...).Err(); err != nil {
				t.Fatal(err)
			}
		}
		reply, err := handoffNext.run(t.Context(), client, keys, "c:1000/1", c.last).Text()
		if w, ok := parseWakeup(reply); err != nil || !ok || w.name != "c:1000/2" || w.fence <= c.last {
			t.Errorf("%q, %v; want a fence above %d", reply, err, c.last)
		}
	}
}
