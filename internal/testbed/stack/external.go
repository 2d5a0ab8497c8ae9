package stack

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"grablab/internal/grab/lock"

	"golang.org/x/sync/errgroup"
)

// pingTimeout limits how long startExternal waits for all servers to respond.
const pingTimeout = 5 * time.Second

// startExternal checks that the user has given an address for every server, and that all of them
// respond.
func startExternal(ctx context.Context, s *Stack, cfg Config) error {
	if flags := cfg.Lacks(cfg.Needs); flags != "" {
		return fmt.Errorf("%w: a chosen strategy needs a server, but its address was not given: add %s", ErrRefused, flags)
	}
	s.Addresses = cfg.Only(cfg.Needs | lock.SQL) // a run also stores its ledger in the database; bench needs none

	ctx, cancel := context.WithTimeoutCause(ctx, pingTimeout, fmt.Errorf("no answer within %v", pingTimeout))
	defer cancel()
	g, asking := errgroup.WithContext(ctx)
	askAll := func(addrs []string, ask func(context.Context, string) (serverInfo, error)) []serverInfo {
		infos := make([]serverInfo, len(addrs))
		for i, addr := range addrs {
			g.Go(func() (err error) {
				infos[i], err = ask(asking, addr)
				return err
			})
		}
		return infos
	}
	var databases []string
	if s.DSN != "" {
		databases = []string{s.DSN}
	}
	redis, database := askAll(s.redisNodes(), askRedis), askAll(databases, askDatabase)
	zooKeeper, etcd := askAll(s.ZooKeeper, askZooKeeper), askAll(s.Etcd, askEtcd)
	err := g.Wait()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	s.RedisVersion, s.DatabaseVersion = versions(redis), versions(database)
	s.ZooKeeperVersion, s.EtcdVersion = versions(zooKeeper), versions(etcd)
	first := len(redis) - len(s.Redlock)
	if s.Redis, err = clustered(ctx, s.Redis, redis[:first]); err != nil {
		return err
	}
	return independent(s.Redlock, redis[first:])
}

// clustered returns a Redis server's address. If the server belongs to a Cluster, it returns the
// addresses of all masters instead.
func clustered(ctx context.Context, named string, nodes []serverInfo) (string, error) {
	addrs := strings.Split(named, ",")
	for i, node := range nodes {
		if len(nodes) > 1 && named != "" && !node.cluster {
			return "", fmt.Errorf("%w: -redis has several addresses, but the Redis at %s is not in a Cluster: list only nodes of one Cluster", ErrRefused, addrs[i])
		}
	}
	if len(nodes) != 1 || !nodes[0].cluster {
		return named, nil
	}
	client := newRedis(named)
	defer client.Close()
	//lint:ignore SA1019 CLUSTER SLOTS is deprecated, but its replacement CLUSTER SHARDS needs Redis 7.0
	slots, err := client.ClusterSlots(ctx).Result()
	if err != nil {
		return "", fmt.Errorf("%w: cannot read the topology of the Cluster at %s: %w", ErrUnreachable, named, err)
	}
	if len(slots) == 0 {
		return "", fmt.Errorf("%w: the Cluster of the Redis at %s has no slots: set it up with redis-cli --cluster create", ErrRefused, named)
	}
	var masters []string
	for _, part := range slots {
		masters = append(masters, part.Nodes[0].Addr)
	}
	slices.Sort(masters)
	return strings.Join(slices.Compact(masters), ","), nil
}

// redisNodes returns the addresses of all Redis servers and Redlock nodes. A Sentinel has the form
// NAME@ADDR.
func (a Addresses) redisNodes() (nodes []string) {
	if a.Redis != "" {
		nodes = strings.Split(a.Redis, ",")
	}
	for _, sentinel := range a.Sentinel {
		nodes = append(nodes, watchedName(a.SentinelMaster, sentinel))
	}
	return append(nodes, a.Redlock...)
}

// externals describes how to check and remove the addresses of each kind of server, and lists the
// flags that set them.
var externals = []struct {
	backend lock.Backend
	named   func(Addresses) bool
	remove  func(*Addresses)
	flags   string
}{
	{lock.Redis, func(a Addresses) bool { return a.Redis != "" || len(a.Sentinel) > 0 }, func(a *Addresses) { a.Redis, a.Sentinel, a.SentinelMaster = "", nil, "" }, "-redis ADDR or -sentinel ADDR"},
	{lock.RedisQuorum, func(a Addresses) bool { return len(a.Redlock) >= 3 }, func(a *Addresses) { a.Redlock = nil }, "-redlock with the addresses of at least 3 independent servers"},
	{lock.SQL | lock.SQLLocks, func(a Addresses) bool { return a.DSN != "" }, func(a *Addresses) { a.DSN = "" }, "-db DSN"},
	{lock.ZooKeeper, func(a Addresses) bool { return len(a.ZooKeeper) > 0 }, func(a *Addresses) { a.ZooKeeper = nil }, "-zk ADDR"},
	{lock.Etcd, func(a Addresses) bool { return len(a.Etcd) > 0 }, func(a *Addresses) { a.Etcd = nil }, "-etcd ADDR"},
}

// Lacks returns the flags for the first server whose address is missing, or "" if no address is
// missing.
func (a Addresses) Lacks(needs lock.Backend) string {
	for _, server := range externals {
		if needs&server.backend != 0 && !server.named(a) {
			return server.flags
		}
	}
	return ""
}

// Only returns the addresses of the servers in needs, without those of other servers.
func (a Addresses) Only(needs lock.Backend) Addresses {
	for _, server := range externals {
		if needs&server.backend == 0 {
			server.remove(&a)
		}
	}
	return a
}

// independent returns an error if two Redlock nodes are the same server, or if any node belongs to
// a Cluster.
func independent(addrs []string, nodes []serverInfo) error {
	for i, a := range nodes {
		if a.cluster {
			return fmt.Errorf("%w: %s is a node of a Cluster, which keeps each key on one node, but redlock needs independent servers: start them without cluster-enabled", ErrRefused, addrs[i])
		}
		for j, b := range nodes[:i] {
			if a.id != "" && a.id == b.id {
				return fmt.Errorf("%w: the Redlock nodes %s and %s are the same server: name independent servers", ErrRefused, addrs[j], addrs[i])
			}
		}
	}
	return nil
}
