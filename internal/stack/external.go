package stack

import (
	"context"
	"fmt"
	"time"

	"grablab/internal/grab/lock"

	"golang.org/x/sync/errgroup"
)

// pingTimeout is what an external server may take to answer.
const pingTimeout = 5 * time.Second

// startExternal makes sure that everything needed was named, and answers.
func startExternal(ctx context.Context, s *Stack, cfg Config) error {
	addrs, err := externalRedis(cfg)
	if err != nil {
		return err
	}
	if s.DSN = cfg.DB; s.DSN == "" && cfg.Needs&lock.SQL != 0 {
		return fmt.Errorf("%w: a chosen strategy locks in the database: name it with -db", ErrRefused)
	}

	ctx, cancel := context.WithTimeoutCause(ctx, pingTimeout, fmt.Errorf("nothing within %v", pingTimeout))
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	infos := make([]redisInfo, len(addrs))
	for i, addr := range addrs {
		g.Go(func() (err error) {
			infos[i], err = askRedis(ctx, addr)
			return err
		})
	}
	if s.DSN != "" {
		g.Go(func() (err error) {
			s.DatabaseVersion, err = databaseVersion(ctx, s.DSN)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}

	versions := make([]string, len(infos))
	for i, info := range infos {
		versions[i] = info.version
	}
	s.useRedis(cfg, addrs, versions)
	return distinct(s.Redlock, infos[len(infos)-len(s.Redlock):])
}

// externalRedis lists the addresses in the order of redisNames.
func externalRedis(cfg Config) ([]string, error) {
	var addrs []string
	if cfg.Needs&lock.Redis != 0 {
		if cfg.Redis == "" {
			return nil, fmt.Errorf("%w: a chosen strategy needs a Redis: name it with -redis", ErrRefused)
		}
		addrs = append(addrs, cfg.Redis)
	}
	if cfg.Needs&lock.RedisQuorum != 0 {
		if len(cfg.Redlock) < 3 {
			return nil, fmt.Errorf("%w: redlock needs 3 independent Redis nodes or more: name them with -redlock", ErrRefused)
		}
		addrs = append(addrs, cfg.Redlock...)
	}
	return addrs, nil
}

// distinct refuses Redlock nodes that are one server under two addresses: a
// quorum of those is none.
func distinct(addrs []string, nodes []redisInfo) error {
	for i, a := range nodes {
		for j, b := range nodes[:i] {
			if a.runID != "" && a.runID == b.runID {
				return fmt.Errorf("%w: the Redlock nodes %s and %s are one server", ErrRefused, addrs[j], addrs[i])
			}
		}
	}
	return nil
}
