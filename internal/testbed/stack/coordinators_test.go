package stack_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/stack/stacktest"

	"github.com/go-zookeeper/zk"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"
)

const coordinators = lock.ZooKeeper | lock.Etcd

// writeBoth writes the value to ZooKeeper and etcd.
func writeBoth(ctx context.Context, s *stack.Stack, value string) error {
	conn, events, err := zk.Connect(s.ZooKeeper, 5*time.Second, zk.WithLogger(silent{}))
	if err != nil {
		return err
	}
	defer conn.Close()
	for {
		select {
		case ev := <-events:
			if ev.State != zk.StateHasSession {
				continue
			}
		case <-ctx.Done():
			return ctx.Err()
		}
		break
	}
	if _, err := conn.Create("/"+value, nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
		return fmt.Errorf("ZooKeeper: %w", err)
	}
	client, err := etcdClient(s)
	if err != nil {
		return err
	}
	defer client.Close()
	_, err = client.Put(ctx, value, value)
	return err
}

func readBoth(ctx context.Context, s *stack.Stack, value string) error {
	conn, _, err := zk.Connect(s.ZooKeeper, 5*time.Second, zk.WithLogger(silent{}))
	if err != nil {
		return err
	}
	defer conn.Close()
	if ok, _, err := conn.Exists("/" + value); !ok || err != nil {
		return fmt.Errorf("ZooKeeper: %v, %v", ok, err)
	}
	client, err := etcdClient(s)
	if err != nil {
		return err
	}
	defer client.Close()
	got, err := client.Get(ctx, value)
	if err == nil && got.Count != 1 {
		err = errors.New("etcd has lost the key")
	}
	return err
}

func etcdClient(s *stack.Stack) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: s.Etcd, Logger: zap.NewNop()})
}

type silent struct{}

func (silent) Printf(string, ...any) {}

// TestCoordinators checks that a stack starts ZooKeeper and etcd if they are needed. They must keep
// their data after a kill, and end with the stack.
func TestCoordinators(t *testing.T) {
	ignore := goleak.IgnoreCurrent()
	s := start(t, stack.Config{Kind: stack.Local, Needs: coordinators})
	if !strings.HasPrefix(s.ZooKeeperVersion, "ZooKeeper 3.") || !strings.HasPrefix(s.EtcdVersion, "etcd 3.") {
		t.Errorf("versions %q and %q", s.ZooKeeperVersion, s.EtcdVersion)
	}
	if s.Redis != "" || s.RedisVersion != "" {
		t.Errorf("a Redis server that is not needed: %s", s.Redis)
	}
	if err := writeBoth(t.Context(), s, "before"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"zookeeper", "etcd"} {
		_ = s.Process(name).Stop(0)
		if err := s.Revive(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if err := readBoth(t.Context(), s, "before"); err != nil {
		t.Error(err)
	}
	if err := s.Revive(t.Context(), "redis"); !errors.Is(err, stack.ErrRefused) {
		t.Errorf("revive a server that the stack does not have: %v", err)
	}

	pids, addrs := s.Pids(), slices.Concat(s.ZooKeeper, s.Etcd)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	checkGone(t, s, pids, addrs)
	goleak.VerifyNone(t, ignore)
}

func TestExternalCoordinators(t *testing.T) {
	local := stacktest.With(t, coordinators)
	cfg := stack.Config{Kind: stack.External, Needs: coordinators, Addresses: stack.Addresses{ZooKeeper: local.ZooKeeper, Etcd: local.Etcd}}
	s := start(t, cfg)
	if s.ZooKeeperVersion != local.ZooKeeperVersion || s.EtcdVersion != local.EtcdVersion {
		t.Errorf("%s and %s, want %s and %s", s.ZooKeeperVersion, s.EtcdVersion, local.ZooKeeperVersion, local.EtcdVersion)
	}
	closed := closedAddr(t)
	failsToStart(t, cfg, []badConfig{
		{"no ZooKeeper named", func(c *stack.Config) { c.ZooKeeper = nil }, stack.ErrRefused, "-zk"},
		{"no etcd named", func(c *stack.Config) { c.Etcd = nil }, stack.ErrRefused, "-etcd"},
		{"no ZooKeeper", func(c *stack.Config) { c.ZooKeeper = []string{closed} }, stack.ErrUnreachable, closed},
		{"no etcd", func(c *stack.Config) { c.Etcd = []string{closed} }, stack.ErrUnreachable, closed},
		{"another server", func(c *stack.Config) { c.ZooKeeper = c.Etcd }, stack.ErrUnreachable, "ZooKeeper at"},
	})
}

func TestMissingCoordinators(t *testing.T) {
	stack.OnlyPATH(t, t.TempDir())
	_, err := stack.Start(t.Context(), stack.Config{Kind: stack.Local, Needs: coordinators})
	if !errors.Is(err, stack.ErrMissing) {
		t.Fatal(err)
	}
	for _, want := range []string{"java with ZooKeeper", "etcd", "apt-get install", "etcd-server", "brew install"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not name %s", err, want)
		}
	}
}
