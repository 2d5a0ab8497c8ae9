package stack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/testbed/proc"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
)

// Topology is a Redis Cluster of three masters with replicas, or a master with a replica and three
// Sentinels. Faults hit the first master. A Topology is not safe for concurrent use.
type Topology struct {
	Kind catalog.Topology

	s         *Stack
	exe       string
	name      string    // the name of the first master in the Sentinels
	nodes     []*member // all masters, followed by their replicas in the same order
	sentinels []*member
	lagged    time.Time // when Lag stopped the replication; zero if it did not
}

type member struct {
	name, addr string
	bus, id    string // only for a Cluster node: its port for other nodes, and its ID in the Cluster
	info       serverInfo
}

const (
	topologyMaster  = "redis"
	nodeDown        = 500 * time.Millisecond // during a failover, Cluster nodes consider a node dead after this silence
	clusterPatience = 15 * time.Second       // after a failover, they wait longer, because a busy server may be silent for a while
	clusterMasters  = 3
	clusterSlots    = 16384
	sentinelsOfOne  = 3
)

// These are the Sentinel's timeouts. The short ones apply only during a planned failover, because a
// busy server may be silent for longer without being down.
const (
	patient    = time.Hour // the value of both timeouts outside a failover
	masterDown = time.Second
	failover   = 2 * time.Second
)

// downAfter returns the Sentinel's timeout for a silent master whose replication stopped at lagged. A
// Sentinel promotes a replica only if it was disconnected for at most ten such timeouts, before the
// Sentinel noticed the silence.
func downAfter(lagged time.Time) time.Duration {
	if lagged.IsZero() {
		return masterDown
	}
	return max(masterDown, time.Since(lagged)/7)
}

// startTopology starts a Redis Cluster, or a Redis master with a replica and Sentinels, and stores
// the addresses in s.
func (s *Stack) startTopology(ctx context.Context, exe string, kind catalog.Topology) error {
	t := &Topology{Kind: kind, s: s, exe: exe, name: topologyMaster}
	masters, sentinels := clusterMasters, 0
	if kind == catalog.RedisSentinel {
		masters, sentinels = 1, sentinelsOfOne
	}
	for i := range 2 * masters {
		t.nodes = append(t.nodes, &member{name: fmt.Sprintf("redis-%d", i+1)})
	}
	for i := range sentinels {
		t.sentinels = append(t.sentinels, &member{name: fmt.Sprintf("sentinel-%d", i+1)})
	}
	if err := t.start(ctx); err != nil {
		return fmt.Errorf("stack: Redis %s: %w", kind, err)
	}
	s.Topology = t
	if kind == catalog.RedisSentinel {
		s.Sentinel, s.SentinelMaster = addrsOf(t.sentinels), topologyMaster
	} else {
		s.Redis = strings.Join(addrsOf(t.nodes[:masters]), ",")
	}
	return nil
}

func addrsOf(members []*member) []string {
	return catalog.Map(members, func(m *member) string { return m.addr })
}

// start starts all servers of the topology, and then forms the cluster or starts the Sentinels.
func (t *Topology) start(ctx context.Context) error {
	if err := t.startEach(ctx, t.nodes, t.node); err != nil {
		return err
	}
	if t.Kind == catalog.RedisCluster {
		return t.formCluster(ctx)
	}
	return t.watchMaster(ctx, t.nodes[0].addr)
}

// watchMaster makes the second server a replica of the first one, and then starts the Sentinels. They
// reach the master at addr.
func (t *Topology) watchMaster(ctx context.Context, addr string) error {
	host, port, _ := net.SplitHostPort(t.nodes[0].addr)
	if err := t.on(t.nodes[1], func(c *redis.Client) error { return c.ReplicaOf(ctx, host, port).Err() }); err != nil {
		return err
	}
	if err := await(ctx, nil, func() error { return inStep(ctx, t.nodes[0].addr, t.nodes[1].addr) }); err != nil {
		return err
	}
	return t.startEach(ctx, t.sentinels, func(m *member) server { return t.sentinel(m, addr) })
}

// startEach starts servers in parallel. A restarted server keeps its address. A Cluster node
// chooses a new bus port on each try.
func (t *Topology) startEach(ctx context.Context, members []*member, describe func(*member) server) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, m := range members {
		g.Go(func() (err error) {
			m.addr, m.info, err = t.s.serve(ctx, describe(m), m.addr)
			return err
		})
	}
	return g.Wait()
}

func (t *Topology) node(m *member) server {
	srv := redisServer(t.exe, t.s.Dir, m.name)
	plain := srv.args
	srv.args = func(addr string) ([]string, error) {
		args, err := plain(addr)
		_ = os.Remove(filepath.Join(t.s.Dir, m.name+".rdb")) // a master that became a replica has left this file
		if err != nil || t.Kind != catalog.RedisCluster {
			return args, err
		}
		bus, err := proc.FreeAddr()
		m.bus = portOf(bus)
		return append(args, "--cluster-enabled", "yes", "--cluster-port", m.bus, "--cluster-config-file", m.name+"-"+m.bus+".conf",
			"--cluster-replica-validity-factor", "0", "--cluster-allow-replica-migration", "no"), err
	}
	return srv
}

// sentinel describes how to start a Sentinel that reaches the first master at the given address. A
// failover needs the agreement of most Sentinels. The Sentinel is ready once it knows the replica and
// the other Sentinels.
func (t *Topology) sentinel(m *member, master string) server {
	host, port, _ := net.SplitHostPort(master)
	return server{
		name: m.name,
		exe:  t.exe,
		args: func(addr string) ([]string, error) {
			conf := filepath.Join(t.s.Dir, m.name+".conf")
			return []string{conf, "--sentinel"}, os.WriteFile(conf, fmt.Appendf(nil, `bind 127.0.0.1
port %[1]s
dir %[2]s
sentinel monitor %[3]s %[4]s %[5]s %[6]d
sentinel down-after-milliseconds %[3]s %[7]d
sentinel failover-timeout %[3]s %[7]d
`, portOf(addr), strconv.Quote(t.s.Dir), t.name, host, port, len(t.sentinels)/2+1, patient.Milliseconds()), 0o600)
		},
		ask: func(ctx context.Context, addr string) (serverInfo, error) {
			info, err := askRedis(ctx, addr)
			if err == nil {
				err = t.isKnown(ctx, addr)
			}
			return info, err
		},
	}
}

// isKnown returns nil if a Sentinel knows the other Sentinels, and enough about the replica to
// promote it.
func (t *Topology) isKnown(ctx context.Context, sentinel string) error {
	client := newSentinel(sentinel)
	defer client.Close()
	others, err := client.Sentinels(ctx, t.name).Result()
	if err == nil && len(others) != len(t.sentinels)-1 {
		err = fmt.Errorf("the Sentinel knows only %d of the other Sentinels", len(others))
	}
	if err != nil {
		return err
	}
	replicas, err := client.Replicas(ctx, t.name).Result()
	if err != nil {
		return err
	}
	for _, r := range replicas {
		if r["port"] == portOf(t.replica().addr) && r["flags"] == "slave" && r["master-link-status"] == "ok" {
			return nil
		}
	}
	return fmt.Errorf("the Sentinel does not know the replica at %s", t.replica().addr)
}

var errNotInStep = errors.New("the replica is not in sync with its master")

// inStep returns nil if both the replica and the master report that they are connected. The
// Sentinel finds a replica only if the master reports it.
func inStep(ctx context.Context, master, addr string) error {
	theirs, err := replication(ctx, master)
	if err != nil {
		return err
	}
	ours, err := replication(ctx, addr)
	if err != nil {
		return err
	}
	if ours["master_link_status"] != "up" || !strings.Contains(theirs["slave0"], "port="+portOf(addr)+",state=online") {
		return errNotInStep
	}
	return nil
}

// on calls f with a client for one server, and adds the server name to errors.
func (t *Topology) on(m *member, f func(*redis.Client) error) error {
	client := newRedis(m.addr)
	defer client.Close()
	if err := f(client); err != nil {
		return fmt.Errorf("%s: %w", m.name, err)
	}
	return nil
}

// onEach calls f with a client for each server, and stops at the first error.
func (t *Topology) onEach(members []*member, f func(i int, c *redis.Client) error) error {
	for i, m := range members {
		if err := t.on(m, func(c *redis.Client) error { return f(i, c) }); err != nil {
			return err
		}
	}
	return nil
}

// formCluster joins the nodes into a Cluster, divides the slots among the masters, and adds the
// replicas.
func (t *Topology) formCluster(ctx context.Context) error {
	err := t.onEach(t.nodes, func(i int, c *redis.Client) (err error) {
		if t.nodes[i].id, err = c.ClusterMyID(ctx).Result(); err != nil {
			return err
		}
		if err := c.Do(ctx, "cluster", "set-config-epoch", i+1).Err(); err != nil {
			return err
		}
		if i < clusterMasters {
			err = c.ClusterAddSlotsRange(ctx, i*clusterSlots/clusterMasters, (i+1)*clusterSlots/clusterMasters-1).Err()
		}
		return err
	})
	if err != nil {
		return err
	}
	err = t.onEach(t.nodes, func(i int, c *redis.Client) error {
		for _, other := range t.nodes[:i] {
			host, port, _ := net.SplitHostPort(other.addr)
			if err := c.Do(ctx, "cluster", "meet", host, port, other.bus).Err(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := t.awaitCluster(ctx, t.nodes, func(nodes string) bool { return strings.Count(nodes, " connected") == len(t.nodes) }); err != nil {
		return err
	}
	err = t.onEach(t.nodes[clusterMasters:], func(i int, c *redis.Client) error { return c.ClusterReplicate(ctx, t.nodes[i].id).Err() })
	if err != nil {
		return err
	}
	return t.awaitCluster(ctx, t.nodes, func(nodes string) bool {
		for i, m := range t.nodes[clusterMasters:] {
			if inStep(ctx, t.nodes[i].addr, m.addr) != nil {
				return false
			}
		}
		return strings.Count(nodes, "slave ") == clusterMasters
	})
}

// awaitCluster waits until the Cluster works, and until accept returns true for every node's reply
// to CLUSTER NODES.
func (t *Topology) awaitCluster(ctx context.Context, nodes []*member, accept func(string) bool) error {
	return await(ctx, nil, func() error {
		return t.onEach(nodes, func(_ int, c *redis.Client) error {
			info, err := c.ClusterInfo(ctx).Result()
			if err != nil {
				return err
			}
			known, err := c.ClusterNodes(ctx).Result()
			if err == nil && (!strings.Contains(info, "cluster_state:ok") || !accept(known)) {
				err = errors.New("the Cluster is not ready")
			}
			return err
		})
	})
}

// Aim moves the keys' slots to the first master, which is the one that faults hit. With Sentinels,
// there is only one master, so Aim does nothing.
func (t *Topology) Aim(ctx context.Context, keys []string) error {
	if t.Kind != catalog.RedisCluster {
		return nil
	}
	return t.moveSlots(ctx, keys, t.nodes[0])
}

// MoveSlots moves the keys' slots to the second master.
func (t *Topology) MoveSlots(ctx context.Context, keys []string) error {
	return t.moveSlots(ctx, keys, t.nodes[1])
}

// moveSlots moves the slots that contain keys to the server to. It returns after every server knows
// the new owner.
func (t *Topology) moveSlots(ctx context.Context, keys []string, to *member) error {
	slots := map[int]bool{}
	err := t.on(to, func(c *redis.Client) error {
		for _, key := range keys {
			slot, err := c.ClusterKeySlot(ctx, key).Result()
			if err != nil {
				return err
			}
			slots[int(slot)] = true
		}
		return nil
	})
	for slot := range slots {
		if err == nil {
			err = t.moveSlot(ctx, slot, to)
		}
	}
	if err != nil {
		return fmt.Errorf("stack: cannot move slots to %s: %w", to.name, err)
	}
	return await(ctx, nil, func() error {
		return t.onEach(t.nodes, func(_ int, c *redis.Client) error {
			for slot := range slots {
				if owner, err := ownerOf(ctx, c, slot); err != nil || owner != to.addr {
					return errors.Join(err, fmt.Errorf("slot %d is still at %s", slot, owner))
				}
			}
			return nil
		})
	})
}

// moveSlot moves a Cluster slot to another master, like redis-cli --cluster reshard.
func (t *Topology) moveSlot(ctx context.Context, slot int, to *member) error {
	masters := t.nodes[:clusterMasters]
	var owner string
	err := t.on(to, func(c *redis.Client) (err error) {
		owner, err = ownerOf(ctx, c, slot)
		return err
	})
	if err != nil || owner == to.addr {
		return err
	}
	at := slices.Index(addrsOf(masters), owner)
	if at < 0 {
		return fmt.Errorf("slot %d is at %q, which is no longer a master", slot, owner)
	}
	from := masters[at]
	host, port, _ := net.SplitHostPort(to.addr)
	err = t.on(to, func(c *redis.Client) error { return c.Do(ctx, "cluster", "setslot", slot, "importing", from.id).Err() })
	if err != nil {
		return err
	}
	err = t.on(from, func(c *redis.Client) error {
		if err := c.Do(ctx, "cluster", "setslot", slot, "migrating", to.id).Err(); err != nil {
			return err
		}
		for {
			keys, err := c.ClusterGetKeysInSlot(ctx, slot, 100).Result()
			if err != nil || len(keys) == 0 {
				return err
			}
			args := []any{"migrate", host, port, "", 0, startTimeout.Milliseconds(), "keys"}
			for _, key := range keys {
				args = append(args, key)
			}
			if err := c.Do(ctx, args...).Err(); err != nil {
				return err
			}
		}
	})
	if err != nil {
		return err
	}
	inform := append([]*member{to, from}, masters...) // tell the new owner first
	return t.onEach(inform, func(_ int, c *redis.Client) error {
		return c.Do(ctx, "cluster", "setslot", slot, "node", to.id).Err()
	})
}

// ownerOf asks a Cluster node which master owns a slot, and returns that master's address.
func ownerOf(ctx context.Context, c *redis.Client, slot int) (string, error) {
	//lint:ignore SA1019 Redis has CLUSTER SHARDS from 7.0 on
	ranges, err := c.ClusterSlots(ctx).Result()
	for _, r := range ranges {
		if r.Start <= slot && slot <= r.End {
			return r.Nodes[0].Addr, nil
		}
	}
	return "", err
}

// replica returns the replica of the first master.
func (t *Topology) replica() *member { return t.nodes[len(t.nodes)/2] }

// Lag permanently stops replication from the first master, by giving the replica a wrong password.
func (t *Topology) Lag(ctx context.Context) error {
	t.lagged = time.Now()
	return t.on(t.replica(), func(c *redis.Client) error {
		if err := c.ConfigSet(ctx, "masterauth", "wrong").Err(); err != nil {
			return err
		}
		return c.Do(ctx, "client", "kill", "type", "master").Err()
	})
}

// Kill kills the first master and waits until its replica has been promoted.
func (t *Topology) Kill(ctx context.Context) error {
	return t.takeAway(ctx, func() error { return t.master().Stop(0) })
}

// Freeze pauses the first master, but leaves its connections open, and waits until its replica has
// been promoted. The returned Heal resumes the old master.
func (t *Topology) Freeze(ctx context.Context) (Heal, error) {
	master := t.master()
	err := t.takeAway(ctx, func() error { return master.Signal(syscall.SIGSTOP) })
	return func() error { return master.Signal(syscall.SIGCONT) }, err
}

func (t *Topology) master() *Process { return t.s.Process(t.nodes[0].name) }

// takeAway shortens the failover timeouts, takes the first master away with strike, and waits until its
// replica has been promoted. Then it makes the timeouts long again.
func (t *Topology) takeAway(ctx context.Context, strike func() error) error {
	if err := t.behave(ctx, t.nodes, downAfter(t.lagged), failover, nodeDown); err != nil {
		return err
	}
	if err := strike(); err != nil {
		return err
	}
	if err := t.awaitPromotion(ctx); err != nil {
		return err
	}
	return t.behave(ctx, t.nodes[1:], patient, patient, clusterPatience)
}

// behave sets the failover timeouts. Sentinels consider a master dead if it is silent for down, and
// Cluster nodes if it is silent for node. step limits each failover step of the Sentinels.
func (t *Topology) behave(ctx context.Context, nodes []*member, down, step, node time.Duration) error {
	for _, m := range t.sentinels {
		client := newSentinel(m.addr)
		err := errors.Join(
			client.Set(ctx, t.name, "down-after-milliseconds", strconv.FormatInt(down.Milliseconds(), 10)).Err(),
			client.Set(ctx, t.name, "failover-timeout", strconv.FormatInt(step.Milliseconds(), 10)).Err(),
			client.Close(),
		)
		if err != nil {
			return err
		}
	}
	if t.Kind != catalog.RedisCluster {
		return nil
	}
	return t.onEach(nodes, func(_ int, c *redis.Client) error {
		return c.ConfigSet(ctx, "cluster-node-timeout", strconv.FormatInt(node.Milliseconds(), 10)).Err()
	})
}

// awaitPromotion waits until all other servers accept the replica as master.
func (t *Topology) awaitPromotion(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("stack: failover of %s: no replica was promoted within %v", t.name, startTimeout))
	defer cancel()
	promoted := t.replica().addr
	if t.Kind == catalog.RedisCluster {
		return t.awaitCluster(ctx, t.nodes[1:], func(nodes string) bool {
			return slices.ContainsFunc(strings.Split(nodes, "\n"), func(line string) bool {
				return strings.Contains(line, " "+promoted+"@") && strings.Contains(line, "master")
			})
		})
	}
	return await(ctx, nil, func() error {
		for _, m := range t.sentinels {
			if err := t.isPromoted(ctx, m.addr); err != nil {
				return err
			}
		}
		return nil
	})
}

// isPromoted returns nil if both the Sentinel and the replica report that the replica is the master.
func (t *Topology) isPromoted(ctx context.Context, sentinel string) error {
	addr := t.replica().addr
	named, err := masterOf(ctx, sentinel, t.name)
	if err != nil {
		return err
	}
	if named != addr {
		return fmt.Errorf("the Sentinel names %s", named)
	}
	info, err := replication(ctx, addr)
	if err == nil && info["role"] != "master" {
		err = fmt.Errorf("the replica is %s", info["role"])
	}
	return err
}

// SwitchOver asks a Sentinel to promote the replica once it has received all writes. The old master
// keeps running.
func (t *Topology) SwitchOver(ctx context.Context) error {
	err := t.on(t.nodes[0], func(c *redis.Client) error {
		if err := c.Set(ctx, "grablab:in-step", "1", time.Minute).Err(); err != nil {
			return err
		}
		n, err := c.Wait(ctx, 1, startTimeout/4).Result()
		if err == nil && n == 0 {
			err = errNotInStep
		}
		return err
	})
	if err != nil {
		return err
	}
	client := newSentinel(t.sentinels[0].addr)
	defer client.Close()
	if err := client.Failover(ctx, t.name).Err(); err != nil {
		return err
	}
	return t.awaitPromotion(ctx)
}

// Rebuild replaces all servers with new, empty ones at the same addresses.
func (t *Topology) Rebuild(ctx context.Context) error {
	t.lagged = time.Time{}
	for _, m := range slices.Concat(t.sentinels, t.nodes) {
		_ = t.s.Process(m.name).Stop(0)
	}
	if err := t.start(ctx); err != nil {
		return fmt.Errorf("stack: Redis %s: %w", t.Kind, err)
	}
	return nil
}

// version returns a text such as "Redis 7.0.15 (cluster)".
func (t *Topology) version() string { return fmt.Sprintf("%s (%s)", t.nodes[0].info.version, t.Kind) }
