package stack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Replica is a replica of a Redis server, together with a Sentinel that promotes the replica if the
// master dies. It is not safe for concurrent use.
type Replica struct {
	Server   string // the server that the replica follows; the Sentinel knows the master by this name too
	Addr     string // address of the replica
	Sentinel string // address of the Sentinel

	s      *Stack
	master string // address of the master
	watch  *Route // route to the master for the Sentinel, and for clients that ask the Sentinel
	killed bool
	lagged time.Time // when Lag stopped the replication; zero if it did not
}

// These are the Sentinel's timeouts. The short ones apply only during a planned failover, because a
// busy server may be silent for longer without being down.
const (
	patient    = time.Hour // both timeouts, except during a failover
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

// Replicate adds a replica and a Sentinel to a Redis server, and waits until both are ready. While
// the Replica is open, only Failover may kill the server.
func (s *Stack) Replicate(ctx context.Context, server string) (*Replica, error) {
	addr, err := s.address(server)
	switch {
	case err != nil:
		return nil, err
	case s.Kind == Embedded:
		return nil, fmt.Errorf("%w: the embedded stack's Redis does not replicate: use -stack local", ErrRefused)
	case !isRedis(server):
		return nil, fmt.Errorf("%w: %s cannot have a replica: choose a Redis server", ErrRefused, server)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("the replica was not in sync after %v", startTimeout))
	defer cancel()
	rep := &Replica{Server: server, s: s, master: addr}
	if err := rep.begin(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("stack: replica of %s: %w", server, err), rep.Close(context.WithoutCancel(ctx)))
	}
	return rep, nil
}

func (rep *Replica) begin(ctx context.Context) (err error) {
	if rep.watch, err = rep.s.Route(rep.sentinelName(), rep.Server); err != nil {
		return err
	}
	exe := rep.s.startedServer(rep.Server).exe
	if rep.Addr, _, err = rep.s.serve(ctx, rep.replica(exe), ""); err != nil {
		return err
	}
	sentinel := sentinelServer(exe, rep.s.Dir, rep.sentinelName(), rep.Server, rep.watch.Addr, 1, func(ctx context.Context, client *redis.SentinelClient) error {
		return knowsReplica(ctx, client, rep.Server, rep.Addr)
	})
	rep.Sentinel, _, err = rep.s.serve(ctx, sentinel, "")
	return err
}

func (rep *Replica) replicaName() string  { return rep.Server + "-replica" }
func (rep *Replica) sentinelName() string { return rep.Server + "-sentinel" }

// replica describes how to start the replica. The replica is ready once it has copied the master's
// data.
func (rep *Replica) replica(exe string) server {
	srv := redisServer(exe, rep.s.Dir, rep.replicaName(), "--replicaof", "127.0.0.1", portOf(rep.master))
	srv.ask = func(ctx context.Context, addr string) (serverInfo, error) {
		info, err := askRedis(ctx, addr)
		if err == nil {
			err = inStep(ctx, rep.master, addr)
		}
		return info, err
	}
	return srv
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

// sentinelServer describes how to start a Sentinel that watches a master. A failover needs the
// agreement of quorum Sentinels. The Sentinel is ready once known returns nil.
func sentinelServer(exe, dir, name, master, addr string, quorum int, known func(context.Context, *redis.SentinelClient) error) server {
	host, port, _ := net.SplitHostPort(addr)
	return server{
		name: name,
		exe:  exe,
		args: func(addr string) ([]string, error) {
			conf := filepath.Join(dir, name+".conf")
			return []string{conf, "--sentinel"}, os.WriteFile(conf, fmt.Appendf(nil, `bind 127.0.0.1
port %[1]s
dir %[2]s
sentinel monitor %[3]s %[4]s %[5]s %[6]d
sentinel down-after-milliseconds %[3]s %[7]d
sentinel failover-timeout %[3]s %[7]d
`, portOf(addr), strconv.Quote(dir), master, host, port, quorum, patient.Milliseconds()), 0o600)
		},
		ask: func(ctx context.Context, addr string) (serverInfo, error) {
			info, err := askRedis(ctx, addr)
			if err == nil {
				client := newSentinel(addr)
				defer client.Close()
				err = known(ctx, client)
			}
			return info, err
		},
	}
}

// behave sets a Sentinel's timeouts for a silent master and for each failover step.
func behave(ctx context.Context, sentinel, master string, downAfter, failover time.Duration) error {
	client := newSentinel(sentinel)
	defer client.Close()
	return errors.Join(
		client.Set(ctx, master, "down-after-milliseconds", strconv.FormatInt(downAfter.Milliseconds(), 10)).Err(),
		client.Set(ctx, master, "failover-timeout", strconv.FormatInt(failover.Milliseconds(), 10)).Err(),
	)
}

// knowsReplica returns nil if the Sentinel knows enough about a replica to promote it.
func knowsReplica(ctx context.Context, client *redis.SentinelClient, master, replica string) error {
	replicas, err := client.Replicas(ctx, master).Result()
	if err != nil {
		return err
	}
	for _, r := range replicas {
		if r["port"] == portOf(replica) && r["flags"] == "slave" && r["master-link-status"] == "ok" {
			return nil
		}
	}
	return fmt.Errorf("the Sentinel does not know the replica at %s", replica)
}

func (rep *Replica) detour(a *Addresses) {
	switch place := a.place(rep.Server); {
	case place == nil:
	case rep.Server == "redis":
		a.Redis, a.Sentinel, a.SentinelMaster = "", []string{rep.Sentinel}, rep.Server
	default:
		*place = watchedName(rep.Server, rep.Sentinel)
	}
}

// Lag stops the replication permanently.
func (rep *Replica) Lag(ctx context.Context) error {
	client := newRedis(rep.Addr)
	defer client.Close()
	rep.lagged = time.Now()
	return lag(ctx, client)
}

// lag stops the replication by giving the replica a wrong password.
func lag(ctx context.Context, replica *redis.Client) error {
	if err := replica.ConfigSet(ctx, "masterauth", "wrong").Err(); err != nil {
		return err
	}
	return replica.Do(ctx, "client", "kill", "type", "master").Err()
}

// Failover kills the master and waits until the Sentinel has promoted the replica.
func (rep *Replica) Failover(ctx context.Context) error {
	return rep.promote(ctx, func() error {
		rep.killed = true
		return rep.s.Kill(rep.Server)
	})
}

// Split simulates a network partition between the master and the two other servers, so that the
// Sentinel promotes the replica. The old master still serves clients that know its address.
func (rep *Replica) Split(ctx context.Context) error {
	return rep.promote(ctx, func() error { rep.watch.Close(); return nil })
}

// promote calls masterGoes, which removes the master, and waits until the Sentinel has promoted the
// replica.
func (rep *Replica) promote(ctx context.Context, masterGoes func() error) error {
	if err := behave(ctx, rep.Sentinel, rep.Server, downAfter(rep.lagged), failover); err != nil {
		return err
	}
	if err := masterGoes(); err != nil {
		return err
	}
	if err := await(ctx, nil, func() error { return isPromoted(ctx, rep.Sentinel, rep.Server, rep.Addr) }); err != nil {
		return fmt.Errorf("stack: failover of %s: %w", rep.Server, err)
	}
	return behave(ctx, rep.Sentinel, rep.Server, patient, patient)
}

// isPromoted returns nil if both the Sentinel and the Redis server at addr report that this server
// is the master.
func isPromoted(ctx context.Context, sentinel, master, addr string) error {
	named, err := masterOf(ctx, sentinel, master)
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

// Close ends the Sentinel and the replica. If the master was killed, it also starts a new, empty
// one.
func (rep *Replica) Close(ctx context.Context) error {
	for _, name := range []string{rep.sentinelName(), rep.replicaName()} {
		if p := rep.s.Process(name); p != nil {
			_ = p.Stop(0)
		}
	}
	if rep.watch != nil {
		rep.watch.Close()
	}
	if !rep.killed {
		return nil
	}
	rep.killed = false
	return rep.s.Revive(ctx, rep.Server)
}

// replication returns the fields of the reply to INFO replication.
func replication(ctx context.Context, addr string) (map[string]string, error) {
	client := newRedis(addr)
	defer client.Close()
	text, err := client.Info(ctx, "replication").Result()
	if err != nil {
		return nil, fmt.Errorf("no Redis at %s: %w", addr, err)
	}
	return infoFields(text), nil
}
