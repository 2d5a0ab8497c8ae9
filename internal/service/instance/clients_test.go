package instance

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestKindOfClient checks that several addresses are the nodes of a Cluster, and that a Cluster client looks
// for promoted replicas every second.
func TestKindOfClient(t *testing.T) {
	for nodes := range 4 {
		for _, master := range []string{"", "main"} {
			opts := &redis.UniversalOptions{Addrs: slices.Repeat([]string{"127.0.0.1:1"}, nodes), MasterName: master}
			client := newRedis(opts)
			defer client.Close()
			cluster, ok := client.(*redis.ClusterClient)
			if want := nodes > 1 && master == ""; ok != want {
				t.Errorf("%d addresses, master %q: a client of type %T", nodes, master, client)
			}
			if ok && cluster.Options().ClusterStateReloadInterval != time.Second {
				t.Errorf("%d addresses: the client looks for replicas every %v", nodes, cluster.Options().ClusterStateReloadInterval)
			}
		}
	}
}

// TestCommandsAreSentOnce checks that a client does not repeat a command whose connection breaks
// before the reply. A second SET NX would find the client's own key.
func TestCommandsAreSentOnce(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	var received, written atomic.Uint64
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				command := make([]byte, 1024)
				for {
					n, err := conn.Read(command)
					if err != nil {
						return
					}
					if bytes.Contains(command[:n], []byte("token")) {
						received.Add(1)
						return
					}
					for range bytes.Count(command[:n], []byte("*")) { // the handshake of a connection
						_, _ = conn.Write([]byte("-ERR unknown command\r\n"))
					}
				}
			}()
		}
	}()
	addr := listener.Addr().String()
	c, err := newClients(Config{Redis: []string{addr}, Redlock: []string{addr}, MinIdle: 1}, &written)
	if err != nil {
		t.Fatal(err)
	}
	for _, client := range []redis.UniversalClient{c.redis, c.redlock[0]} {
		received.Store(0)
		if ok, err := client.SetNX(t.Context(), "key", "token", time.Second).Result(); err == nil {
			t.Errorf("without a reply, SetNX returned %v and no error", ok)
		}
		if n := received.Load(); n != 1 {
			t.Errorf("the server received the command %d times", n)
		}
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// TestClientsOfEachServer configures one kind of server at a time. There must be clients and pings only
// for these servers.
func TestClientsOfEachServer(t *testing.T) {
	const nowhere = "127.0.0.1:1"
	for _, tt := range []struct {
		cfg     Config
		pings   []string
		clients [4]bool // whether there are clients for Redis, Redlock, ZooKeeper and etcd
	}{
		{Config{}, nil, [4]bool{}},
		{Config{Redis: []string{nowhere}}, []string{"redis"}, [4]bool{true}},
		{Config{Redis: []string{nowhere, nowhere}}, []string{"redis"}, [4]bool{true}},
		{Config{Sentinel: []string{nowhere}, SentinelMaster: "m"}, []string{"redis"}, [4]bool{true}},
		{Config{Redlock: []string{nowhere, "m@" + nowhere}}, []string{"redlock-1", "redlock-2"}, [4]bool{1: true}},
		{Config{ZooKeeper: []string{nowhere}}, []string{"zookeeper"}, [4]bool{2: true}},
		{Config{Etcd: []string{nowhere}}, []string{"etcd"}, [4]bool{3: true}},
	} {
		c, err := newClients(tt.cfg, new(atomic.Uint64))
		if err != nil {
			t.Fatalf("newClients(%+v): %v", tt.cfg, err)
		}
		if got := slices.Sorted(maps.Keys(c.pings)); !slices.Equal(got, tt.pings) {
			t.Errorf("%v are pinged, want %v", got, tt.pings)
		}
		if got := [4]bool{c.redis != nil, c.redlock != nil, c.zooKeeper != nil, c.etcd != nil}; got != tt.clients {
			t.Errorf("%v: clients %v, want %v", tt.pings, got, tt.clients)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		for name, ping := range c.pings {
			if ping(ctx) == nil {
				t.Errorf("%s answers, although there is no server", name)
			}
		}
		cancel()
		if err := c.Close(); err != nil {
			t.Errorf("Close of the clients %v: %v", tt.pings, err)
		}
		if c.redis != nil && c.redis.Ping(t.Context()).Err() != redis.ErrClosed {
			t.Errorf("%v: the client is still open", tt.pings)
		}
	}
}

// TestEnvHasTheSettings checks that a lock gets the settings of its instance.
func TestEnvHasTheSettings(t *testing.T) {
	env := newEnv(Config{Instance: "a", TTL: 3 * time.Second, Wait: 7 * time.Millisecond, PerDriver: 5}, &clients{}, nil, time.Now, nil)
	if env.Node != "a" || env.TTL != 3*time.Second || env.Wait != 7*time.Millisecond || env.PerDriver != 5 {
		t.Errorf("node %q, TTL %v, wait %v, %d per driver", env.Node, env.TTL, env.Wait, env.PerDriver)
	}
}

// TestEnvOpensTheDatabase creates an environment with a database, without one, and with an invalid address. Only
// the first one has a store, and closing the environment must close it.
func TestEnvOpensTheDatabase(t *testing.T) {
	for db, has := range map[string]bool{"sqlite:" + t.TempDir() + "/t.db": true, "": false} {
		env, closeEnv, err := NewEnv(t.Context(), Config{DB: db, MaxConns: 2}, new(Sent), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatalf("NewEnv(%q): %v", db, err)
		}
		if (env.Orders != nil) != has {
			t.Fatalf("%q: a store of type %T", db, env.Orders)
		}
		create := func() error {
			_, err := env.Orders.Create(t.Context(), 1, 1)
			return err
		}
		if has {
			if err := create(); err != nil {
				t.Errorf("%q: create: %v", db, err)
			}
		}
		if err := closeEnv(); err != nil {
			t.Errorf("%q: closeEnv: %v", db, err)
		}
		if has && create() == nil {
			t.Errorf("%q: the store is still open", db)
		}
	}
	if _, _, err := NewEnv(t.Context(), Config{DB: "nonsense"}, new(Sent), slog.New(slog.DiscardHandler)); !errors.Is(err, ErrUsage) {
		t.Errorf("an invalid address: %v", err)
	}
}
