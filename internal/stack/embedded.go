package stack

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime/debug"
	"strings"

	"github.com/alicebob/miniredis/v2"
)

// startEmbedded serves miniredis from this process and names a file for SQLite.
func startEmbedded(ctx context.Context, s *Stack, cfg Config) error {
	var addrs, versions []string
	for _, name := range redisNames(cfg) {
		addr, err := s.serveMini()
		if err != nil {
			return fmt.Errorf("stack: %s: %w", name, err)
		}
		addrs, versions = append(addrs, addr), append(versions, miniVersion()+" (embedded)")
	}
	s.useRedis(cfg, addrs, versions)

	s.DSN = "sqlite:" + filepath.Join(s.Dir, "grablab.sqlite")
	version, err := databaseVersion(ctx, s.DSN)
	s.DatabaseVersion = version + " (embedded)"
	return err
}

// serveMini starts one node. Its keys expire by the clock, as a real server's
// do; left to itself, miniredis lets no time pass.
func (s *Stack) serveMini() (addr string, err error) {
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	if err := m.StartAddr("127.0.0.1:0"); err != nil {
		return "", err
	}
	s.atClose(m.Close)
	return m.Addr(), nil
}

// miniVersion asks the binary, for miniredis does not tell. Test binaries do
// not know either.
func miniVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == "github.com/alicebob/miniredis/v2" {
				return "miniredis " + strings.TrimPrefix(m.Version, "v")
			}
		}
	}
	return "miniredis"
}
