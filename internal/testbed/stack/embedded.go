package stack

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"grablab/internal/grab/lock"
	"grablab/internal/service/version"

	"github.com/alicebob/miniredis/v2"
)

// notEmbedded lists what the embedded stack does not support, as phrases for an error message.
var notEmbedded = []struct {
	backend lock.Backend
	name    string
}{
	{lock.SQLLocks, "row locks or named locks, because SQLite locks its whole file"},
	{lock.ZooKeeper, "ZooKeeper"},
	{lock.Etcd, "etcd"},
	{lock.RedisTracking, "CLIENT TRACKING in its Redis (miniredis)"},
}

// startEmbedded starts miniredis in this process, and uses SQLite as the database.
func startEmbedded(ctx context.Context, s *Stack, cfg Config) error {
	for _, b := range notEmbedded {
		if cfg.Needs&b.backend != 0 {
			return fmt.Errorf("%w: the embedded stack has no %s: use -stack local", ErrRefused, b.name)
		}
	}
	for _, p := range s.redisPlaces(cfg.Needs) {
		var err error
		if *p.addr, err = s.serveMini(p.server, "127.0.0.1:0"); err != nil {
			return err
		}
		s.RedisVersion = fmt.Sprintf("miniredis %s (embedded)", strings.TrimPrefix(version.Of("github.com/alicebob/miniredis/v2"), "v"))
	}
	s.DSN = "sqlite:" + filepath.Join(s.Dir, "grablab.sqlite")
	info, err := askDatabase(ctx, s.DSN)
	s.DatabaseVersion = info.version + " (embedded)"
	return err
}

// serveMini starts an empty miniredis server whose keys expire as real time passes.
func (s *Stack) serveMini(name, at string) (addr string, err error) {
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	if err := m.StartAddr(at); err != nil {
		return "", fmt.Errorf("stack: %s: %w", name, err)
	}
	addr = m.Addr()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.minis[name] = m
	return addr, nil
}

// mini returns the miniredis server with this name, or nil if there is none.
func (s *Stack) mini(server string) *miniredis.Miniredis {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.minis[server]
}
