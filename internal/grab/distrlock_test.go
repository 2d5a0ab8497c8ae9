package grab_test

import (
	"context"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/order"
	"grablab/internal/testbed/stack/stacktest"
)

// distr sends a distrLock or distrUnlock request and returns the response body.
func (r rig) distr(t *testing.T, call, key, uuid string) string {
	t.Helper()
	w := r.call(t, request("POST", "/"+call+"/"+key+"/"+uuid, ""))
	if w.Code != 200 {
		t.Errorf("POST /%s: status %d %s", call, w.Code, w.Body)
	}
	return w.Body.String()
}

func TestDistrLock(t *testing.T) {
	r := newRig(t, settings{})
	for _, step := range []struct {
		call, uuid, want string
	}{
		{"distrUnlock", "a", `{"released":0}`}, // the lock is free
		{"distrLock", "a", `{"locked":true}`},
		{"distrLock", "b", `{"locked":false}`},
		{"distrLock", "a", `{"locked":false}`}, // the lock is not re-entrant
		{"distrUnlock", "b", `{"released":0}`}, // another client holds the lock
		{"distrUnlock", "a", `{"released":1}`},
		{"distrUnlock", "a", `{"released":0}`},
		{"distrLock", "b", `{"locked":true}`},
	} {
		if got := r.distr(t, step.call, "order-7", step.uuid); got != step.want {
			t.Errorf("%s by %s: %s, want %s", step.call, step.uuid, got, step.want)
		}
	}
	keys := r.redis.Keys()
	if len(keys) != 1 || !strings.HasSuffix(keys[0], "order-7") {
		t.Fatalf("keys %q, want only the lock", keys)
	}
	if ttl := r.redis.TTL(keys[0]); ttl <= 49*time.Second || ttl > 50*time.Second {
		t.Errorf("the lock expires in %v, want 50 s", ttl)
	}
	r.redis.FastForward(50 * time.Second)
	if got := r.distr(t, "distrLock", "order-7", "c"); got != `{"locked":true}` {
		t.Errorf("after 50 s: %s", got)
	}
	// A lock must not conflict with a strategy's lock, even if its key is the name of that lock.
	if got := r.distr(t, "distrLock", "grab:setnx:{1}", "c"); got != `{"locked":true}` {
		t.Errorf("another key: %s", got)
	}
	if w := r.call(t, request("POST", "/orders/1/grab", `{"driver_id":42}`)); w.Code != 200 {
		t.Errorf("a grab while a distrLock has the same key: %d %s", w.Code, w.Body)
	}
}

func TestDistrLockRefuses(t *testing.T) {
	long := strings.Repeat("x", 129)
	tests := []struct {
		name, path string
		status     int
	}{
		{"long key", "/distrLock/" + long + "/a", 400},
		{"long uuid", "/distrLock/k/" + long, 400},
		{"longest", "/distrLock/" + long[1:] + "/" + long[1:], 200},
		{"no uuid", "/distrLock/k/", 404},
		{"no key", "/distrUnlock//a", 400},
		{"too much", "/distrLock/k/a/b", 404},
	}
	r := newRig(t, settings{})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if w := r.call(t, request("POST", tt.path, "")); w.Code != tt.status {
				t.Errorf("status %d %s, want %d", w.Code, w.Body, tt.status)
			}
		})
	}
	if w := r.call(t, request("GET", "/distrLock/k/a", "")); w.Code != 405 {
		t.Errorf("GET: %d %s", w.Code, w.Body)
	}
}

func TestDistrLockWithoutRedis(t *testing.T) {
	calls := []string{"/distrLock/k/a", "/distrUnlock/k/a"}
	r := newRig(t, settings{})
	r.redis.Close()
	for _, path := range calls {
		if w := r.call(t, request("POST", path, "")); w.Code != 503 {
			t.Errorf("Redis is down: %s: %d %s", path, w.Code, w.Body)
		}
	}
	none, err := grab.New(grab.Config{Orders: new(order.Mem), Strategy: "none", Lock: lock.Env{Rand: mathrand.Float64}})
	if err != nil {
		t.Fatal(err)
	}
	r.Handler = newHandler(none, grab.HTTPConfig{})
	for _, path := range calls {
		if w := r.call(t, request("POST", path, "")); w.Code != 503 || !strings.Contains(w.Body.String(), "-redis") {
			t.Errorf("no Redis: %s: %d %s", path, w.Code, w.Body)
		}
	}
}

// TestDistrLockReloadsItsScripts checks that each script is loaded again, and called by its hash, if
// the Redis server has lost it. A server loses its scripts in a restart.
func TestDistrLockReloadsItsScripts(t *testing.T) {
	servers := stacktest.Local(t)
	client := realClient(t, servers.Redis)
	service, err := grab.New(grab.Config{Orders: new(order.Mem), Strategy: "none", Lock: lock.Env{Redis: client}})
	if err != nil {
		t.Fatal(err)
	}
	r := rig{Handler: newHandler(service, grab.HTTPConfig{})}
	ctx := t.Context()
	t.Cleanup(func() { client.Del(context.Background(), "distr:forgets") })
	for range 2 {
		for _, step := range [][2]string{{"distrLock", `{"locked":true}`}, {"distrUnlock", `{"released":1}`}} {
			if err := client.ScriptFlush(ctx).Err(); err != nil {
				t.Fatal(err)
			}
			if err := client.ConfigResetStat(ctx).Err(); err != nil {
				t.Fatal(err)
			}
			if got := r.distr(t, step[0], "forgets", "a"); got != step[1] {
				t.Errorf("%s after SCRIPT FLUSH: %s, want %s", step[0], got, step[1])
			}
			stats, err := client.Info(ctx, "commandstats").Result()
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(stats, "cmdstat_script|load:calls=1,") || strings.Contains(stats, "cmdstat_eval:") {
				t.Errorf("%s was not loaded and called by its hash:\n%s", step[0], stats)
			}
		}
	}
	keys, err := client.Keys(ctx, "*").Result()
	if err != nil || slices.Contains(keys, "result") {
		t.Errorf("the server should keep no key \"result\", but has %q (%v)", keys, err)
	}
}
