package lock

import (
	"errors"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// TestReentrant checks that one owner can have several entries. The lock is free only after the
// last entry is gone, and no other owner gets it before that.
func TestReentrant(t *testing.T) {
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Protocol: 2})
	defer client.Close()
	by := func(owner, token string) entry { return entry{client, time.Hour, oneKey("k"), owner, token} }
	enters := func(e entry) bool {
		t.Helper()
		left, _, err := e.enter(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return left == 0
	}
	outer, inner := by("me", "outer"), by("me", "inner")
	if !enters(outer) || !enters(inner) {
		t.Fatal("an owner cannot enter a second time")
	}
	if left, _, err := by("you", "once").enter(t.Context()); err != nil || left < time.Hour || left > time.Hour+time.Second {
		t.Errorf("the other owner's lease has %v left, want an hour: %v", left, err)
	}
	if _, err := by("you", "once").renew(t.Context()); !errors.Is(err, ErrLost) {
		t.Errorf("a stranger renews the lease: %v, want ErrLost", err)
	}
	if err := outer.leave(t.Context()); err != nil {
		t.Error(err)
	}
	for _, other := range []string{"", "you"} {
		if enters(by(other, other+" once")) {
			t.Errorf("one entry is left, but %q got the lock", other)
		}
	}
	if err := outer.leave(t.Context()); !errors.Is(err, ErrLost) {
		t.Errorf("leaving twice: %v", err)
	}
	if err := inner.leave(t.Context()); err != nil {
		t.Error(err)
	}
	if keys := server.Keys(); len(keys) != 0 {
		t.Errorf("keys are left: %v", keys)
	}
}

// TestHeldLockIsNotFree checks that a client never takes another client's lock, whatever remaining
// time Redis reports. In the last moment of a lease, Redis reports 0 ms, and for a key without an
// expiry, it reports -1.
func TestHeldLockIsNotFree(t *testing.T) {
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Protocol: 2})
	defer client.Close()
	for name, keys := range map[string][]string{"without a counter": oneKey("k"), "with a counter": fenceKeys("k")} {
		for _, left := range []time.Duration{0, time.Microsecond, time.Millisecond - 1, time.Millisecond, time.Second, time.Hour} {
			server.FlushAll()
			server.HSet("k", "owner", "you", "your token", "")
			server.SetTTL("k", left) // 0 removes the expiry
			mine := entry{client, time.Hour, keys, "me", "my token"}
			wait, fence, err := mine.enter(t.Context())
			if err != nil || wait <= 0 || fence != 0 || wait < left {
				t.Errorf("%s, %v left: told to wait %v, token %d, %v", name, left, wait, fence, err)
			}
			if owner := server.HGet("k", "owner"); owner != "you" {
				t.Errorf("%s, %v left: the lock belongs to %q", name, left, owner)
			}
		}
	}
}
