package stack_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"

	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/stack/stacktest"

	"github.com/redis/go-redis/v9"
)

// TestMemory checks that a Redis server keeps its data if it rejects writes, and loses it if it evicts
// keys. Connections, scripts and the configuration must survive both.
func TestMemory(t *testing.T) {
	s := stacktest.Local(t)
	ctx := t.Context()
	c := redis.NewClient(&redis.Options{Addr: s.Redlock[4], PoolSize: 1, MaxRetries: -1})
	defer c.Close()
	defer c.Del(context.Background(), "memory")
	set := func() error { return c.Set(ctx, "memory", "token", 0).Err() }
	id, script := c.ClientID(ctx).Val(), c.ScriptLoad(ctx, "return 1").Val()
	config := c.ConfigGet(ctx, "maxmemory*").Val()
	if err := set(); err != nil || id == 0 || script == "" || len(config) < 2 {
		t.Fatalf("%v, connection %d, script %q, %v", err, id, script, config)
	}

	heal := struck(t)(s.Fill(ctx, "redlock-5"))
	if err := set(); !redis.HasErrorPrefix(err, "OOM") {
		t.Errorf("a write without memory: %v", err)
	}
	if n := c.Exists(ctx, "memory").Val(); n != 1 {
		t.Error("the key from before is missing")
	}
	healed(t, heal)
	if err := set(); err != nil {
		t.Errorf("a write after healing: %v", err)
	}

	if err := s.Evict(ctx, "redlock-5"); err != nil {
		t.Fatal(err)
	}
	if n := c.DBSize(ctx).Val(); n != 0 {
		t.Errorf("%d keys are left", n)
	}
	if err := set(); err != nil {
		t.Errorf("a write after the eviction: %v", err)
	}
	if now := c.ConfigGet(ctx, "maxmemory*").Val(); !maps.Equal(now, config) {
		t.Errorf("the configuration is %v, and was %v", now, config)
	}
	if known := c.ScriptExists(ctx, script).Val(); len(known) != 1 || !known[0] || c.ClientID(ctx).Val() != id {
		t.Errorf("the server knows the script: %v; the connection ID is %d and was %d", known, c.ClientID(ctx).Val(), id)
	}
}

func TestMemoryRefusals(t *testing.T) {
	local := stacktest.Local(t)
	_, fill := local.Fill(t.Context(), "redlock-9")
	for _, err := range []error{fill, local.Evict(t.Context(), "redlock-9")} {
		if !errors.Is(err, stack.ErrRefused) || !strings.Contains(err.Error(), "no server") {
			t.Errorf("%v, want a refusal that says %q", err, "no server")
		}
	}
}

// TestLockTable checks that a locked table can be read, but cannot be written until it is unlocked.
func TestLockTable(t *testing.T) {
	s := stacktest.Local(t)
	ctx := t.Context()
	db := database(t, s.DSN)
	if _, err := db.ExecContext(ctx, "CREATE TABLE `order` (id INT)"); err != nil {
		t.Fatal(err)
	}
	defer db.ExecContext(ctx, "DROP TABLE `order`")
	rows := func() (n int) {
		if err := db.QueryRowContext(ctx, "SELECT COUNT(*) FROM `order`").Scan(&n); err != nil {
			t.Error(err)
		}
		return n
	}
	heal := struck(t)(s.LockTable(ctx, "order"))
	wrote := make(chan error, 1)
	go func() {
		_, err := db.ExecContext(ctx, "INSERT INTO `order` VALUES (1)")
		wrote <- err
	}()
	waits := func() (n int) {
		_ = db.QueryRowContext(ctx, "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'INSERT INTO `order`%' AND state LIKE 'Waiting for table%lock'").Scan(&n)
		return n
	}
	eventually(t, func() bool { return waits() == 1 }, "no write waits")
	if n := rows(); n != 0 {
		t.Errorf("%d rows", n)
	}
	healed(t, heal)
	if err := <-wrote; err != nil {
		t.Error(err)
	}
	if n := rows(); n != 1 {
		t.Errorf("%d rows of 1", n)
	}
	embedded := start(t, stack.Config{Kind: stack.Embedded})
	if _, err := embedded.LockTable(ctx, "order"); !errors.Is(err, stack.ErrRefused) {
		t.Errorf("the embedded stack's database: %v", err)
	}
}
