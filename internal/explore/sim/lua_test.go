package sim

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"grablab/internal/explore/schedule"
	"grablab/internal/explore/search"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"

	"github.com/alicebob/miniredis/v2/server"
)

// TestLuaHost checks that scripts have the same replies and leave the same data on luaHost as on miniredis.
func TestLuaHost(t *testing.T) {
	for _, tt := range []struct {
		name, body string
		args       []string // the number of keys, the keys, and the arguments
	}{
		{"integer", "return 7", []string{"0"}},
		{"fraction", "return 3.99", []string{"0"}},
		{"text", "return KEYS[1] .. ARGV[1]", []string{"1", "k", "v"}},
		{"true", "return true", []string{"0"}},
		{"false", "return false", []string{"0"}},
		{"nothing", "return", []string{"0"}},
		{"table", "return {1, 'two', {3}, nil, 5}", []string{"0"}},
		{"table of an error", "return {err = 'MINE it is'}", []string{"0"}},
		{"missing key", "return redis.call('GET', KEYS[1]) == false", []string{"1", "k"}},
		{"status", "return redis.call('SET', KEYS[1], ARGV[1], 'PX', 3000)", []string{"1", "k", "v"}},
		{"status by name", "return redis.call('SET', KEYS[1], ARGV[1])['ok']", []string{"1", "k", "v"}},
		{"count", "redis.call('HSET', KEYS[1], 'a', 1, 'b', 2) return redis.call('HGETALL', KEYS[1])", []string{"1", "k"}},
		{"number of arguments", "return #ARGV + tonumber(ARGV[2])", []string{"0", "1", "2"}},
		{"table library", "return table.concat(ARGV, '-')", []string{"0", "a", "b"}},
		{"pcall of an unknown command", "return redis.pcall('NOSUCH')['err'] ~= nil", []string{"0"}},
		{"pcall of a key of another type", "redis.call('LPUSH', KEYS[1], 'v') return redis.pcall('GET', KEYS[1])['err']", []string{"1", "k"}},
		{"pcall that fails as the result", "redis.call('LPUSH', KEYS[1], 'v') return redis.pcall('GET', KEYS[1])", []string{"1", "k"}},
		{"pcall that succeeds", "redis.pcall('SET', KEYS[1], ARGV[1]) return redis.pcall('GET', KEYS[1])", []string{"1", "k", "v"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { compareHosts(t, tt.body, tt.args) })
		})
	}
}

// TestLuaHostRunsTheLocks checks the same as TestLuaHost for every script of the locks. Each script runs
// first without data, and then on the data of its first run.
func TestLuaHostRunsTheLocks(t *testing.T) {
	paths, err := filepath.Glob("../../grab/lock/*.lua")
	if err != nil || len(paths) == 0 {
		t.Fatalf("%d scripts, %v", len(paths), err)
	}
	for _, path := range paths {
		body, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(filepath.Base(path), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				compareHosts(t, string(body), []string{"3", "{k}", "{k}:2", "{k}:3", "3000", "3000", "3000", "3000"})
			})
		})
	}
}

// compareHosts runs a script twice on luaHost and twice on miniredis. It checks that the replies and the
// data are the same.
func compareHosts(t *testing.T, body string, args []string) {
	t.Helper()
	var replies, data [2]string
	for i := range replies {
		n, err := newRedisServer("redis")
		if err != nil {
			t.Fatal(err)
		}
		defer n.redis.Close()
		n.reset()
		for range 2 {
			var b bytes.Buffer
			// If the last argument is true, as within a MULTI, miniredis runs the script.
			n.dispatch(server.NewPeer(bufio.NewWriter(&b)), append([]string{"EVAL", body}, args...), i == 1)
			replies[i] += b.String()
		}
		data[i] = string(n.contents())
	}
	// The two use different error texts.
	if strings.HasPrefix(replies[0], "-") && strings.HasPrefix(replies[1], "-") {
		return
	}
	if replies[0] != replies[1] || data[0] != data[1] {
		t.Errorf("got %q, leaving %q\nminiredis %q, leaving %q", replies[0], data[0], replies[1], data[1])
	}
}

// TestLuaHostRunsEveryLock checks that luaHost runs every script of the locks. Otherwise, miniredis would
// create a Lua state for each run, which takes half of the search time.
func TestLuaHostRunsEveryLock(t *testing.T) {
	scripts := 0
	for _, st := range lock.Strategies {
		if st.Needs&(lock.Redis|lock.RedisQuorum) == 0 {
			continue
		}
		c, err := New(func(f func()) { synctest.Test(t, func(*testing.T) { f() }) }, Setting{
			Strategy: st, Guard: st.Guard, OnLost: grab.Abort, TTL: 3 * time.Second, Wait: time.Second, Work: 100 * time.Millisecond, Nodes: 3,
			Actors: []schedule.Actor{{Name: "A", Instance: 1}, {Name: "B", Instance: 2}},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Execute(&Limits{}, search.Task{}); err != nil {
			t.Fatal(err)
		}
		for _, n := range c.nodes {
			for sha, body := range n.lockServer.(*redisServer).lua.bodies {
				if scripts++; body == nil {
					t.Errorf("%s: miniredis runs the script %s", st.Name, sha)
				}
			}
		}
	}
	if scripts == 0 {
		t.Error("no lock has sent a script")
	}
}
