package fault_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/order"
	"grablab/internal/testbed/fault"
	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/stack/stacktest"

	"github.com/redis/go-redis/v9"
)

// prepare prepares a fault for a strategy on real servers.
func prepare(t *testing.T, name catalog.Fault, strategy string) (under *stack.Stack, prepared fault.Prepared) {
	t.Helper()
	s, err := lock.Find(strategy)
	if err != nil {
		t.Fatal(err)
	}
	f, err := fault.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	under = stacktest.Local(t)
	prepared, err = f.Prepare(t.Context(), fault.Target{
		Stack: under, Strategy: s, Affected: &instance{name: "instance 1"}, Contender: &instance{name: "instance 2"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if prepared.Close == nil {
			return
		}
		if err := prepared.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return under, prepared
}

// redisAt returns a Redis client that never retries.
func redisAt(t *testing.T, addr string) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr, Protocol: 2, DisableIdentity: true, MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { c.Close() })
	return c
}

func ordersAt(t *testing.T, dsn string) *order.SQL {
	t.Helper()
	orders, err := order.Connect(t.Context(), dsn, order.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { orders.Close() })
	return orders
}

// TestReplyLost checks that Redis executes a command of the affected instance although the client
// gets an error. In the database, only a COMMIT loses its reply.
func TestReplyLost(t *testing.T) {
	under, prepared := prepare(t, catalog.ReplyLost, "setnx")
	via := under.Via(prepared.Affected...)
	if other := under.Via(prepared.Contender...); other.Redis != under.Redis || other.DSN != under.DSN {
		t.Errorf("the contender's addresses have changed: %+v", other)
	}
	ctx := t.Context()
	c, straight := redisAt(t, via.Redis), redisAt(t, under.Redis)
	defer straight.Del(context.Background(), "reply-lost")
	conn, err := ordersAt(t, via.DSN).DB().Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := c.Ping(ctx).Err(); err != nil {
		t.Fatal(err)
	}

	heal := perform(t, ctx, prepared)
	began := time.Now()
	if err := c.Incr(ctx, "reply-lost").Err(); err == nil || time.Since(began) > time.Second {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
	if n := straight.Get(ctx, "reply-lost").Val(); n != "1" {
		t.Errorf("the server has executed INCR %q times, want 1", n)
	}
	if _, err := conn.ExecContext(ctx, "START TRANSACTION"); err != nil {
		t.Errorf("START TRANSACTION: %v", err)
	}
	if _, err := conn.ExecContext(ctx, "COMMIT"); err == nil {
		t.Error("a COMMIT was answered")
	}
	heal()
	if n, err := c.Incr(ctx, "reply-lost").Result(); n != 2 || err != nil {
		t.Errorf("INCR after healing: %d, %v", n, err)
	}
}

// TestRedisFull checks that the affected nodes evict their keys and reject new ones, and that the
// other nodes do neither. After healing, all nodes must accept keys.
func TestRedisFull(t *testing.T) {
	for _, tt := range []struct {
		strategy string
		struck   []string
	}{{"setnx", []string{"redis"}}, {"redlock", []string{"redlock-1", "redlock-5"}}} {
		under, prepared := prepare(t, catalog.RedisFull, tt.strategy)
		ctx := t.Context()
		nodes := map[string]*redis.Client{}
		for name, addr := range nodesOf(under.Addresses) {
			nodes[name] = redisAt(t, addr)
			if err := nodes[name].Set(ctx, "full", "before", time.Minute).Err(); err != nil {
				t.Fatal(err)
			}
		}
		heal := perform(t, ctx, prepared)
		for name, c := range nodes {
			struck := slices.Contains(tt.struck, name)
			if lost := c.Exists(ctx, "full").Val() == 0; lost != struck {
				t.Errorf("%s: %s has evicted: %v", tt.strategy, name, lost)
			}
			if err := c.Set(ctx, "full", "x", time.Minute).Err(); redis.HasErrorPrefix(err, "OOM") != struck {
				t.Errorf("%s: set a key on %s: %v; want an OOM error: %v", tt.strategy, name, err, struck)
			}
		}
		heal()
		for name, c := range nodes {
			if err := c.Set(ctx, "full", "after", time.Minute).Err(); err != nil {
				t.Errorf("%s: %s after healing: %v", tt.strategy, name, err)
			}
			c.Del(ctx, "full")
		}
	}
}

// TestFailoverSplit checks that the two instances use different masters during the fault. The
// contender's master must lack the affected instance's last write. After healing, the affected
// instance must use the contender's master too.
func TestFailoverSplit(t *testing.T) {
	under, prepared := prepare(t, catalog.FailoverSplit, "setnx")
	ctx := t.Context()
	affected, contender := under.Via(prepared.Affected...), under.Via(prepared.Contender...)
	one := redisAt(t, affected.Redis)
	two := redis.NewFailoverClient(&redis.FailoverOptions{SentinelAddrs: contender.Sentinel, MasterName: contender.SentinelMaster, MaxRetries: 3})
	defer two.Close()
	defer redisAt(t, under.Redis).Del(context.Background(), "split")

	strike := prepared.Strikes[0]
	release, err := strike.Before(ctx, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if ok, err := one.SetNX(ctx, "split", "one", time.Minute).Result(); !ok || err != nil {
		t.Fatal(ok, err)
	}
	heal, err := strike.Do(ctx, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := two.SetNX(ctx, "split", "two", time.Minute).Result(); !ok || err != nil {
		t.Errorf("the promoted master does not grant the key that the old one had: %v, %v", ok, err)
	}
	if got, err := one.Get(ctx, "split").Result(); got != "one" || err != nil {
		t.Errorf("the old master has %q, %v", got, err)
	}
	if err := heal(); err != nil {
		t.Fatal(err)
	}
	one = redisAt(t, affected.Redis)
	if got, err := one.Get(ctx, "split").Result(); got != "two" || err != nil {
		t.Errorf("after healing, the affected instance reads %q, %v", got, err)
	}
}

// TestFailoverSplitOfANode checks that the affected instance reaches only three of five Redlock nodes
// during the fault, and all five after healing.
func TestFailoverSplitOfANode(t *testing.T) {
	under, prepared := prepare(t, catalog.FailoverSplit, "redlock")
	at := nodesOf(under.Via(prepared.Affected...))
	ping := func(c *redis.Client) error { return c.Ping(t.Context()).Err() }
	heal := perform(t, t.Context(), prepared)
	for node, addr := range at {
		if ok, want := reaches(t, addr, ping), node < "redlock-4"; ok != want {
			t.Errorf("during the fault, %s is reachable: %v", node, ok)
		}
	}
	heal()
	for node, addr := range at {
		if !reaches(t, addr, ping) {
			t.Errorf("after healing, %s is not reachable", node)
		}
	}
}

// TestSlowDB checks that the fault delays a claim until it is healed, but does not delay reads.
func TestSlowDB(t *testing.T) {
	under, prepared := prepare(t, catalog.SlowDB, "mysql-cas")
	ctx := t.Context()
	orders := ordersAt(t, under.DSN)
	if err := orders.Migrate(ctx); err != nil {
		t.Fatal(err)
	}
	id, err := orders.Create(ctx, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	heal := perform(t, ctx, prepared)
	claimed := make(chan error, 1)
	go func() {
		claimed <- orders.Claim(ctx, order.Claim{Order: id, Driver: 1, Token: "t", Instance: "1", Strategy: "mysql-cas"}, order.Guarded)
	}()
	select {
	case err := <-claimed:
		t.Fatalf("the claim did not wait: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	if o, err := orders.Read(ctx, id, 0); o.Status != order.Open || err != nil {
		t.Errorf("the order during the fault: %+v, %v", o, err)
	}
	if rows, err := orders.Ledger(ctx, id, 1); len(rows) != 0 || err != nil {
		t.Errorf("the ledger during the fault: %+v, %v", rows, err)
	}
	heal()
	if err := <-claimed; err != nil {
		t.Error(err)
	}
}
