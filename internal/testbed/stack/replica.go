package stack

import (
	"context"
	"errors"
	"fmt"

	"grablab/internal/catalog"
)

// Replica is a replica of a Redis server, together with a Sentinel that promotes the replica if the
// master dies. It is not safe for concurrent use.
type Replica struct {
	Server   string // the server that the replica follows; the Sentinel knows the master by this name too
	Addr     string // address of the replica
	Sentinel string // address of the Sentinel

	group  *Topology // the master with its replica and the Sentinel
	watch  *Route    // route to the master for the Sentinel, and for clients that ask the Sentinel
	killed bool
}

// Replicate adds a replica and a Sentinel to a local stack's Redis server, and waits until both are
// ready. While the Replica is open, only Failover may kill the server.
func (s *Stack) Replicate(ctx context.Context, server string) (*Replica, error) {
	addr, err := s.address(server)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("the replica was not in sync after %v", startTimeout))
	defer cancel()
	rep := &Replica{Server: server, group: &Topology{
		Kind: catalog.RedisSentinel, s: s, exe: s.startedServer(server).exe, name: server,
		nodes: []*member{{name: server, addr: addr}, {name: server + "-replica"}}, sentinels: []*member{{name: server + "-sentinel"}},
	}}
	if err := rep.begin(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("stack: replica of %s: %w", server, err), rep.Close(context.WithoutCancel(ctx)))
	}
	return rep, nil
}

func (rep *Replica) begin(ctx context.Context) (err error) {
	t, sentinel := rep.group, rep.group.sentinels[0]
	if rep.watch, err = t.s.Route(sentinel.name, rep.Server); err != nil {
		return err
	}
	if err := t.startEach(ctx, t.nodes[1:], t.node); err != nil {
		return err
	}
	err = t.watchMaster(ctx, rep.watch.Addr)
	rep.Addr, rep.Sentinel = t.replica().addr, sentinel.addr
	return err
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
func (rep *Replica) Lag(ctx context.Context) error { return rep.group.Lag(ctx) }

// Failover kills the master and waits until the Sentinel has promoted the replica.
func (rep *Replica) Failover(ctx context.Context) error {
	return rep.group.takeAway(ctx, func() error {
		rep.killed = true
		return rep.group.s.Kill(rep.Server)
	})
}

// Split simulates a network partition between the master and the two other servers, so that the
// Sentinel promotes the replica. The old master still serves clients that know its address.
func (rep *Replica) Split(ctx context.Context) error {
	return rep.group.takeAway(ctx, func() error { rep.watch.Close(); return nil })
}

// Close ends the Sentinel and the replica. If the master was killed, it also starts a new, empty
// one.
func (rep *Replica) Close(ctx context.Context) error {
	for _, m := range []*member{rep.group.sentinels[0], rep.group.replica()} {
		if p := rep.group.s.Process(m.name); p != nil {
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
	return rep.group.s.Revive(ctx, rep.Server)
}
