package fault_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/testbed/fault"
	"grablab/internal/testbed/stack"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
)

// TestFailedStepIsHealed makes the injection of each fault fail at each of the fault's connections in
// turn. The error must name the server, and all other connections must work again afterwards.
func TestFailedStepIsHealed(t *testing.T) {
	under, err := stack.Start(t.Context(), stack.Config{Kind: stack.Embedded, Needs: lock.RedisQuorum})
	if err != nil {
		t.Fatal(err)
	}
	defer under.Close()
	s, err := lock.Find("redlock")
	if err != nil {
		t.Fatal(err)
	}
	target := fault.Target{
		Stack: under, Strategy: s, Affected: &instance{name: "instance 1"}, Contender: &instance{name: "instance 2"},
		Keys: func() []string { return []string{"k"} },
	}
	failed := map[catalog.Fault]int{}
	for _, f := range fault.Faults {
		if f.Hits&lock.RedisQuorum == 0 || f.Refused(stack.Embedded, catalog.SingleRedis) != "" {
			continue
		}
		prepare := func() ([]fault.Strike, stack.Routes) {
			prepared, err := f.Prepare(t.Context(), target)
			if err != nil {
				t.Fatal(err)
			}
			return prepared.Strikes, routesOf(prepared)
		}
		strikes, routes := prepare()
		routes.Close()
		for i := range strikes {
			for n := range routes {
				strikes, routes := prepare()
				if failsAt(t, f.Name, strikes[i], routes, n) {
					failed[f.Name]++
				}
				routes.Close()
			}
		}
	}
	// The number of failures is the number of routes, times the number of strikes.
	want := map[catalog.Fault]int{
		catalog.RedisDown: 4, catalog.RedisDownMost: 6, catalog.Amnesia: 2, catalog.Partition: 15, catalog.Latency: 5,
	}
	if fmt.Sprint(failed) != fmt.Sprint(want) {
		t.Errorf("number of failures: %v, want %v", failed, want)
	}
}

func routesOf(p fault.Prepared) (routes stack.Routes) {
	for _, d := range slices.Concat(p.Affected, p.Contender) {
		if r, ok := d.(*stack.Route); ok {
			routes = append(routes, r)
		}
	}
	return routes
}

// failsAt makes a strike fail at the nth route. It returns false if the strike does not use the route.
func failsAt(t *testing.T, name catalog.Fault, strike fault.Strike, routes stack.Routes, n int) bool {
	t.Helper()
	routes[n].Close()
	var failed error
	var heals stack.Heals
	for _, step := range []fault.Step{strike.Before, strike.Do} {
		if step == nil || failed != nil {
			continue
		}
		var heal stack.Heal
		if heal, failed = step(t.Context(), time.Second); heal != nil {
			heals = append(heals, heal)
		}
	}
	if err := heals.All(); err != nil {
		t.Errorf("%s, route %d: heal: %v", name, n+1, err)
	}
	if failed == nil {
		return false
	}
	if !strings.Contains(failed.Error(), "to "+routes[n].Server+": it is closed") {
		t.Errorf("%s, route %d to %s: %v", name, n+1, routes[n].Server, failed)
	}
	for i, r := range routes {
		if i == n {
			continue
		}
		if !reaches(t, r.Addr, func(c *redis.Client) error { return c.Ping(t.Context()).Err() }) {
			t.Errorf("%s failed at route %d, and route %d to %s still has the fault", name, n+1, i+1, r.Server)
		}
	}
	return true
}

// configured is a Redis server with a memory limit and an eviction policy.
type configured struct {
	*miniredis.Miniredis
	name   string
	config map[string]string
}

// These are the settings of the servers before the fault.
const (
	usualPolicy = "volatile-ttl"
	usualLimit  = "123456789"
)

var errConfig = errors.New("ERR told to fail")

// TestFailedConfigIsHealed makes each CONFIG command of the fault redis-full fail in turn. The error
// must name the server. Afterwards, all servers must have their old settings again, except for a
// setting that the failed command should have restored.
func TestFailedConfigIsHealed(t *testing.T) {
	f, err := fault.Find(catalog.RedisFull)
	if err != nil {
		t.Fatal(err)
	}
	s, err := lock.Find("redlock")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var count, failAt int
	var struck string         // the server whose command has failed
	var restoring bool        // whether that command should have restored a setting
	var servers []*configured // redlock-1 to redlock-5
	under := &stack.Stack{Kind: stack.Local}
	for i := range 5 {
		c := &configured{miniredis.RunT(t), fmt.Sprint("redlock-", i+1), map[string]string{"maxmemory-policy": usualPolicy, "maxmemory": usualLimit}}
		servers = append(servers, c)
		under.Redlock = append(under.Redlock, c.Addr())
		err := c.Server().Register("CONFIG", func(peer *server.Peer, _ string, args []string) {
			mu.Lock()
			defer mu.Unlock()
			if count++; count == failAt {
				struck = c.name
				restoring = len(args) == 3 && (args[2] == usualPolicy || args[2] == usualLimit)
				peer.WriteError(errConfig.Error())
				return
			}
			if strings.EqualFold(args[0], "SET") {
				c.config[args[1]] = args[2]
				peer.WriteOK()
				return
			}
			peer.WriteLen(2 * len(c.config))
			for k, v := range c.config {
				peer.WriteBulk(k)
				peer.WriteBulk(v)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	prepared, err := f.Prepare(t.Context(), fault.Target{Stack: under, Strategy: s})
	if err != nil {
		t.Fatal(err)
	}
	for i, strike := range prepared.Strikes {
		for failAt = 1; ; failAt++ {
			count, struck, restoring = 0, "", false
			heal, err := strike.Do(t.Context(), time.Second)
			if heal != nil {
				err = errors.Join(err, heal())
			}
			if struck == "" {
				if err != nil || failAt < 6 {
					t.Errorf("strike %d has %d commands: %v", i, failAt-1, err)
				}
				break
			}
			if err == nil || !strings.Contains(err.Error(), struck) || !strings.Contains(err.Error(), errConfig.Error()) {
				t.Errorf("strike %d failed at command %d to %s: %v", i, failAt, struck, err)
			}
			for _, c := range servers {
				if (c.config["maxmemory"] != usualLimit || c.config["maxmemory-policy"] != usualPolicy) && !(restoring && c.name == struck) {
					t.Errorf("strike %d failed at command %d to %s, and %s keeps %v", i, failAt, struck, c.name, c.config)
				}
				c.config["maxmemory"], c.config["maxmemory-policy"] = usualLimit, usualPolicy
			}
		}
	}
}

// TestFaultsHitMinorityOrMajority checks how many of 3 to 9 Redlock nodes each fault affects. A fault
// on a minority must leave exactly a quorum, and a fault on a majority must affect exactly a quorum.
func TestFaultsHitMinorityOrMajority(t *testing.T) {
	s, err := lock.Find("redlock")
	if err != nil {
		t.Fatal(err)
	}
	for nodes := 3; nodes <= 9; nodes++ {
		under := &stack.Stack{Kind: stack.Local}
		for i := range nodes {
			under.Redlock = append(under.Redlock, fmt.Sprint("127.0.0.1:", i+1)) // no one connects to it
		}
		quorum := nodes/2 + 1
		for name, leaves := range map[catalog.Fault]int{
			catalog.RedisDown: quorum, catalog.RedisDownMost: nodes - quorum, catalog.Amnesia: quorum, catalog.Partition: 0,
		} {
			f, err := fault.Find(name)
			if err != nil {
				t.Fatal(err)
			}
			prepared, err := f.Prepare(t.Context(), fault.Target{
				Stack: under, Strategy: s, Affected: &instance{name: "instance 1"}, Contender: &instance{name: "instance 2"},
			})
			if err != nil {
				t.Fatal(err)
			}
			hit := map[string]bool{}
			for _, d := range prepared.Affected {
				hit[d.(*stack.Route).Server] = true
			}
			if len(hit) != len(prepared.Affected) || nodes-len(hit) != leaves {
				t.Errorf("%s hits %v of %d nodes, want it to leave %d", name, hit, nodes, leaves)
			}
			if first := hit["redlock-1"]; first == (name == catalog.Amnesia) { // redlock-miswired counts the first node twice
				t.Errorf("%s with %d nodes hits the first node: %v", name, nodes, first)
			}
			if err := prepared.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
}
