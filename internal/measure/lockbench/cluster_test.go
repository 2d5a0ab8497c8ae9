package lockbench

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/testbed/conformtest"
	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/stack/stacktest"
)

// onACluster names locks that represent all locks in one Redis. They use one key, two keys, WATCH or
// Pub/Sub, and include our own locks and those of libraries.
var onACluster = []string{"setnx", "setnx-watch", "setnx-fenced", "watchdog", "handoff", "redsync-5ms", "redislock-5ms", "rueidislock"}

// startCluster starts a Redis Cluster and returns the addresses of its masters.
func startCluster(t *testing.T) []string {
	t.Helper()
	st, err := stack.Start(t.Context(), stack.Config{Kind: stack.Local, Needs: lock.Redis, Topology: catalog.RedisCluster})
	stacktest.Check(t, err)
	t.Cleanup(func() { _ = st.Close() })
	return strings.Split(st.Redis, ",")
}

// TestRunOnACluster checks that a Cluster can be measured whether the configuration names all of
// its nodes or only one of them. With many keys, every node stores some of the keys.
func TestRunOnACluster(t *testing.T) {
	nodes := startCluster(t)
	names := []string{strings.Join(nodes, ","), nodes[1], nodes[0]}
	if os.Getenv("GRABLAB_PROVE") != "1" {
		names = names[:2]
	}
	for _, named := range names {
		cfg := small(t, onACluster...)
		if named != nodes[1] { // measure all of onACluster only once, to save time
			cfg = small(t, "setnx", "rueidislock-1")
		}
		cfg.Rounds, cfg.Cases, cfg.Slice = 1, Cases[:2], 20*time.Millisecond
		cfg.Stack = stack.Config{Kind: stack.External, Addresses: stack.Addresses{Redis: named}}
		r, err := Run(t.Context(), cfg, func(*Result) error { return nil })
		stacktest.Check(t, err)
		for _, l := range r.LeftOut {
			t.Errorf("%s: left out: %s: %s", named, l.Strategy, l.Reason)
		}
		measured := map[string]bool{}
		for _, row := range r.Rows {
			measured[row.Strategy] = true
			if row.Strategy != Floor && *row.Violations > 0 {
				t.Errorf("%s %s: %d overlaps", row.Strategy, row.Case, *row.Violations)
			}
		}
		for _, s := range append(cfg.Subjects, floor) {
			if !measured[s.Name] {
				t.Errorf("%s: %s was not measured", named, s.Name)
			}
		}
	}
}

// TestClusterRefused checks that Cluster nodes cannot serve as Redlock nodes, and that every
// address of a Cluster must belong to it. The error must give the reason.
func TestClusterRefused(t *testing.T) {
	nodes, alone := startCluster(t), conformtest.RedisServer(t)
	for _, tt := range []struct {
		name    string
		needs   lock.Backend
		servers stack.Addresses
		says    string
	}{
		{"Redlock nodes", lock.RedisQuorum, stack.Addresses{Redlock: []string{nodes[0], nodes[1], alone}}, "keeps each key on one node"},
		{"a Redis that is in none", lock.Redis, stack.Addresses{Redis: nodes[0] + "," + alone}, alone + " is not in a Cluster"},
	} {
		st, err := stack.Start(t.Context(), stack.Config{Kind: stack.External, Needs: tt.needs, Addresses: tt.servers})
		if err == nil {
			_ = st.Close()
		}
		if !errors.Is(err, stack.ErrRefused) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: got error %v, want ErrRefused with %q", tt.name, err, tt.says)
		}
	}
}
