package wire_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"grablab/internal/testbed/wire"

	"github.com/redis/go-redis/v9"
)

func sentinelsOf(t *testing.T, master string) (*wire.Sentinels, *said) {
	t.Helper()
	var said said
	s, err := wire.ListenSentinels(master, said.say)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s, &said
}

// TestFailoverClient checks that a client that asks Sentinels for its Redis server reaches the proxy, even
// after HangUp. The same must be true for a client that wants to read from replicas.
func TestFailoverClient(t *testing.T) {
	for _, protocol := range []int{2, 3} {
		for _, replicaOnly := range []bool{false, true} {
			t.Run(fmt.Sprint("RESP", protocol, " replica ", replicaOnly), func(t *testing.T) {
				p, _ := redisProxy(t)
				var rec recorder
				p.Use(rec.tap)
				s, said := sentinelsOf(t, p.Addr())
				c := redis.NewFailoverClient(&redis.FailoverOptions{
					SentinelAddrs: []string{s.Addr()}, MasterName: wire.SentinelMaster, Protocol: protocol,
					SentinelUsername: "user", SentinelPassword: "secret", ReplicaOnly: replicaOnly,
				})
				defer c.Close()
				ctx := t.Context()
				for range 2 {
					if err := c.Echo(ctx, "x").Err(); err != nil {
						t.Fatal(err)
					}
					p.HangUp()
				}
				seen := slices.DeleteFunc(rec.seen(), func(s string) bool { return s == "HELLO" || strings.HasPrefix(s, "CLIENT") })
				if !slices.Equal(seen, []string{"ECHO", "ECHO"}) || len(said.all()) > 0 {
					t.Errorf("%q passed the proxy; said %q", seen, said.all())
				}
			})
		}
	}
}

// TestSentinels checks the replies of all Sentinels. Each one must report the other two, but no replica,
// and must refuse commands about other masters and commands that would change something.
func TestSentinels(t *testing.T) {
	const master = "127.0.0.1:6379"
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprint("RESP", protocol), func(t *testing.T) {
			s, said := sentinelsOf(t, master)
			ctx := t.Context()
			sentinelAt := func(addr string) *redis.SentinelClient {
				c := redis.NewSentinelClient(&redis.Options{Addr: addr, Protocol: protocol, ClientName: "shop", MaxRetries: -1})
				t.Cleanup(func() { c.Close() })
				return c
			}
			c := sentinelAt(s.Addr())
			others, err := c.Sentinels(ctx, wire.SentinelMaster).Result()
			if err != nil || len(others) != 2 {
				t.Fatal(others, err)
			}
			ids := map[string]bool{}
			for _, addr := range []string{s.Addr(), "127.0.0.1:" + others[0]["port"], "127.0.0.1:" + others[1]["port"]} {
				c := sentinelAt(addr)
				at, err := c.GetMasterAddrByName(ctx, wire.SentinelMaster).Result()
				if err != nil || strings.Join(at, ":") != master {
					t.Errorf("%s names %q, %v", addr, at, err)
				}
				others, err := c.Sentinels(ctx, wire.SentinelMaster).Result()
				if err != nil || len(others) != 2 {
					t.Error(others, err)
				}
				for _, o := range others {
					ids[o["runid"]+" at "+o["port"]] = true
					if o["name"] != o["runid"] || len(o["runid"]) != 40 || o["ip"] != "127.0.0.1" || o["flags"] != "sentinel" {
						t.Errorf("another Sentinel is %q", o)
					}
				}
			}
			if len(ids) != 3 {
				t.Errorf("the Sentinels know each other as %v", ids)
			}
			state, err := c.Master(ctx, wire.SentinelMaster).Result()
			if err != nil || state["flags"] != "master" || state["ip"]+":"+state["port"] != master || state["num-other-sentinels"] != "2" {
				t.Error(state, err)
			}
			if masters, err := c.Masters(ctx).Result(); err != nil || len(masters) != 1 {
				t.Error(masters, err)
			}
			if replicas, err := c.Replicas(ctx, wire.SentinelMaster).Result(); err != nil || len(replicas) != 0 {
				t.Error(replicas, err)
			}
			if err := c.CkQuorum(ctx, wire.SentinelMaster).Err(); err != nil {
				t.Error(err)
			}
			plain := redisAt(t, s.Addr(), protocol)
			if role, err := plain.Do(ctx, "ROLE").Slice(); err != nil || fmt.Sprint(role) != "[sentinel ["+wire.SentinelMaster+"]]" {
				t.Error(role, err)
			}
			if info, err := plain.Info(ctx).Result(); err != nil || !strings.Contains(info, "redis_mode:sentinel\r\n") || !strings.Contains(info, "address="+master) {
				t.Error(info, err)
			}
			if err := plain.Command(ctx).Err(); err != nil {
				t.Error(err)
			}
			if len(said.all()) > 0 {
				t.Errorf("said %q", said.all())
			}

			for _, refused := range []func() error{
				func() error { return c.GetMasterAddrByName(ctx, "orders").Err() },
				func() error { return c.Master(ctx, "orders").Err() },
				func() error { return c.Failover(ctx, wire.SentinelMaster).Err() },
				func() error { return plain.Set(ctx, "a", "b", 0).Err() },
				func() error { return plain.ClientList(ctx).Err() },
			} {
				if err := refused(); err == nil {
					t.Error("a command was not refused")
				}
			}
			if lines := said.all(); len(lines) != 1 || !strings.Contains(lines[0], `"orders", but the only master is mymaster`) {
				t.Errorf("said %q", lines)
			}
		})
	}
}

// TestSentinelChannels checks that a Sentinel confirms subscriptions, although it never publishes a
// message.
func TestSentinelChannels(t *testing.T) {
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprint("RESP", protocol), func(t *testing.T) {
			s, _ := sentinelsOf(t, "127.0.0.1:6379")
			ctx := t.Context()
			c := redis.NewSentinelClient(&redis.Options{Addr: s.Addr(), Protocol: protocol})
			defer c.Close()
			listener := c.Subscribe(ctx, "+switch-master", "+sdown")
			defer listener.Close()
			if err := listener.PSubscribe(ctx, "*"); err != nil {
				t.Fatal(err)
			}
			if err := listener.Ping(ctx, "still"); err != nil {
				t.Fatal(err)
			}
			if err := listener.Unsubscribe(ctx); err != nil {
				t.Fatal(err)
			}
			var heard []string
			for len(heard) < 6 {
				got, err := listener.ReceiveTimeout(ctx, 10*time.Second)
				if err != nil {
					t.Fatalf("after %q: %v", heard, err)
				}
				heard = append(heard, fmt.Sprint(got))
			}
			slices.Sort(heard[4:]) // the last two can arrive in any order
			for i, s := range heard[4:] {
				heard[4+i] = s[:strings.Index(s, ":")]
			}
			want := []string{"subscribe: +switch-master", "subscribe: +sdown", "psubscribe: *", "Pong<still>", "unsubscribe", "unsubscribe"}
			if !slices.Equal(heard, want) {
				t.Errorf("the client received %q, want %q", heard, want)
			}
		})
	}
}

// TestSentinelProtocol changes the protocol of a connection with HELLO several times. An unsupported
// version must lead to an error and change nothing.
func TestSentinelProtocol(t *testing.T) {
	s, _ := sentinelsOf(t, "127.0.0.1:6379")
	conn, r := dial(t, s.Addr())
	for i, tt := range []struct{ version, want string }{
		{"", "*12"}, {"3", "%6"}, {"", "%6"}, {"2", "*12"}, {"", "*12"}, {"3", "%6"}, {"4", "-NOPROTO unsupported protocol version"}, {"", "%6"}, {"2", "*12"},
	} {
		command := "*1\r\n$5\r\nHELLO\r\n"
		if tt.version != "" {
			command = "*2\r\n$5\r\nHELLO\r\n$1\r\n" + tt.version + "\r\n"
		}
		fmt.Fprint(conn, command)
		if got := line(t, r); got != tt.want {
			t.Fatalf("request %d, HELLO %s: %q, want %q", i, tt.version, got, tt.want)
		}
		if tt.want[0] == '-' {
			continue
		}
		version := map[byte]string{'*': ":2", '%': ":3"}[tt.want[0]]
		for _, want := range []string{"server", "redis", "version", "7.0.0", "mode", "sentinel", "proto", version, "id", ":1", "modules", "*0"} {
			got := line(t, r)
			if strings.HasPrefix(got, "$") { // the length of a string
				got = line(t, r)
			}
			if got != want {
				t.Errorf("request %d, HELLO %s: the reply contains %q, want %q", i, tt.version, got, want)
			}
		}
	}
}
