package stack

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"grablab/internal/testbed/proc"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// etcdServer describes how to start an etcd server with a single member. Its election timeout is
// short enough for leases of 1 s.
func etcdServer(exe, dir string) server {
	name := filepath.Base(dir)
	return server{
		name: "etcd",
		exe:  exe,
		args: func(addr string) ([]string, error) {
			peer, err := proc.FreeAddr()
			return []string{
				"--name", name, "--data-dir", filepath.Join(dir, "etcd"),
				"--listen-client-urls", "http://" + addr, "--advertise-client-urls", "http://" + addr,
				"--listen-peer-urls", "http://" + peer, "--initial-advertise-peer-urls", "http://" + peer,
				"--initial-cluster", name + "=http://" + peer,
				"--heartbeat-interval", "100", "--election-timeout", "500",
				"--logger", "zap", "--log-level", "warn",
			}, err
		},
		ask: askEtcd,
	}
}

const etcdAnswer = time.Second

// askEtcd returns an etcd server's version. It also reads a key, because that succeeds only if the
// server has a leader.
func askEtcd(ctx context.Context, addr string) (info serverInfo, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("etcd at %s: %w", addr, err)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, etcdAnswer)
	defer cancel()
	if err := listens(ctx, strings.TrimPrefix(addr, "http://")); err != nil {
		return info, err
	}

	client, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, Logger: zap.NewNop()})
	if err != nil {
		return info, err
	}
	defer client.Close()
	status, err := client.Status(ctx, addr)
	if err != nil {
		return info, err
	}
	if _, err := client.Get(ctx, "grablab"); err != nil {
		return info, err
	}
	info.version = "etcd " + status.Version
	return info, nil
}
