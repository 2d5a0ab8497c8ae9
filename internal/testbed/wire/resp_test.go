package wire_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/testbed/stack/stacktest"
	"grablab/internal/testbed/wire"

	"github.com/redis/go-redis/v9"
)

func redisProxy(tb testing.TB) (*wire.Proxy, *said) {
	tb.Helper()
	return proxyTo(tb, "redis", stacktest.With(tb, lock.Redis).Redis, wire.RESP)
}

func redisAt(tb testing.TB, addr string, protocol int) *redis.Client {
	tb.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr, Protocol: protocol, DisableIdentity: true, MaxRetries: -1, PoolSize: 8, ReadTimeout: 20 * time.Second})
	tb.Cleanup(func() { c.Close() })
	return c
}

// TestRESP checks that a client gets the same results through the proxy, and that each request becomes
// an event.
func TestRESP(t *testing.T) {
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprint("RESP", protocol), func(t *testing.T) {
			p, said := redisProxy(t)
			var rec recorder
			p.Use(rec.tap)
			c := redisAt(t, p.Addr(), protocol)
			ctx := t.Context()
			key := fmt.Sprint("grab:", protocol)
			defer c.Del(context.Background(), key)
			if ok, err := c.SetNX(ctx, key, "token", time.Minute).Result(); !ok || err != nil {
				t.Fatal(ok, err)
			}
			if ok, err := c.SetNX(ctx, key, "other", time.Minute).Result(); ok || err != nil {
				t.Fatal(ok, err)
			}
			script := redis.NewScript(`if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) end return 0 --` + t.Name())
			if n, err := script.Run(ctx, c, []string{key}, "token").Int(); n != 1 || err != nil {
				t.Fatal(n, err)
			}
			cmds, err := c.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
				pipe.Incr(ctx, key)
				pipe.HSet(ctx, key+":h", "a", 1, "b", 2)
				pipe.HGetAll(ctx, key+":h")
				pipe.Del(ctx, key+":h")
				return nil
			})
			if err != nil || len(cmds[2].(*redis.MapStringStringCmd).Val()) != 2 {
				t.Fatal(cmds, err)
			}
			seen := rec.seen()
			seen = slices.DeleteFunc(seen, func(s string) bool { return s == "HELLO" || strings.HasPrefix(s, "CLIENT") }) // ignore the commands with which a client begins a connection
			want := []string{
				"SET " + key + " EX NX", "SET " + key + " EX NX", "EVALSHA " + script.Hash()[:7] + " " + key, "EVAL " + script.Hash()[:7] + " " + key,
				"MULTI", "INCR " + key, "HSET " + key + ":h", "HGETALL " + key + ":h", "DEL " + key + ":h", "EXEC",
			}
			if !slices.Equal(seen, want) {
				t.Errorf("events:\n%q\nwant:\n%q", seen, want)
			}
			if len(said.all()) > 0 {
				t.Errorf("said %q", said.all())
			}
		})
	}
}

// TestPipeline checks that a long pipeline passes completely, with a tap and without one, and that each
// command gets its own reply.
func TestPipeline(t *testing.T) {
	const n = 10_000
	for _, tapped := range []bool{false, true} {
		t.Run(fmt.Sprint("tapped ", tapped), func(t *testing.T) {
			p, said := redisProxy(t)
			var rec recorder
			if tapped {
				p.Use(rec.tap)
			}
			c := redisAt(t, p.Addr(), 3)
			cmds, err := c.Pipelined(t.Context(), func(pipe redis.Pipeliner) error {
				for i := range n {
					pipe.Echo(t.Context(), i)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			for i, cmd := range cmds {
				if got := cmd.(*redis.StringCmd).Val(); got != fmt.Sprint(i) {
					t.Fatalf("reply %d: %q", i, got)
				}
			}
			if echoes := len(slices.DeleteFunc(rec.seen(), func(s string) bool { return s != "ECHO" })); tapped && echoes != n {
				t.Errorf("%d events", echoes)
			}
			if len(said.all()) > 0 {
				t.Errorf("said %q", said.all())
			}
		})
	}
}

// TestHold checks that a held command takes effect at the right time. If it is held before the proxy
// sends it, it must have no effect yet. If its reply is held, it must have taken effect. A subscriber
// on another connection must get messages meanwhile.
func TestHold(t *testing.T) {
	for _, protocol := range []int{2, 3} {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("RESP%d after=%v", protocol, after), func(t *testing.T) {
				p, _ := redisProxy(t)
				var rec recorder
				p.Use(rec.tap)
				ctx := t.Context()
				c, straight := redisAt(t, p.Addr(), protocol), redisAt(t, stacktest.With(t, lock.Redis).Redis, 2)
				defer straight.Del(context.Background(), "held")
				sub := c.Subscribe(ctx, "channel", "other")
				defer sub.Close()
				for range 2 {
					if _, err := sub.Receive(ctx); err != nil {
						t.Fatal(err)
					}
				}
				g := rec.hold("INCR held", newGate(after))
				done := make(chan struct{})
				go func() {
					defer close(done)
					if n, err := c.Incr(ctx, "held").Result(); n != 1 || err != nil {
						t.Errorf("INCR returned %d, %v", n, err)
					}
				}()
				await(t, "held", g.held)
				if err := straight.Publish(ctx, "channel", "news").Err(); err != nil {
					t.Fatal(err)
				}
				if m, err := sub.ReceiveMessage(ctx); err != nil || m.Payload != "news" {
					t.Errorf("the subscriber received %v, %v", m, err)
				}
				if err := sub.Ping(ctx); err != nil {
					t.Error(err)
				}
				if m, err := sub.Receive(ctx); err != nil {
					t.Errorf("the subscriber received %v, %v", m, err)
				}
				want := ""
				if after {
					want = "1"
				}
				if got := straight.Get(ctx, "held").Val(); got != want {
					t.Errorf("held: %q, want %q", got, want)
				}
				select {
				case <-done:
					t.Error("the client got a reply while the command was held")
				default:
				}
				close(g.let)
				await(t, "answer", done)
			})
		}
	}
}

// TestPush checks that the proxy does not count push messages of RESP3 as replies, although they arrive
// on the same connection.
func TestPush(t *testing.T) {
	p, said := redisProxy(t)
	var rec recorder
	p.Use(rec.tap)
	straight := redisAt(t, stacktest.With(t, lock.Redis).Redis, 2)
	conn, r := dial(t, p.Addr())
	ask := func(command string, replies ...string) {
		t.Helper()
		fmt.Fprintf(conn, "%s\r\n", command) // an inline command
		for _, want := range replies {
			if got := line(t, r); got != want {
				t.Errorf("reply to %s: %q, want %q", command, got, want)
			}
		}
	}
	fmt.Fprint(conn, "HELLO 3\r\n")
	for line(t, r) != "*0" { // the empty list of modules ends the reply
	}
	ask("CLIENT TRACKING ON BCAST PREFIX pushed:", "+OK")
	if err := straight.Set(t.Context(), "pushed:1", 1, time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{">2", "$10", "invalidate", "*1", "$8", "pushed:1"} {
		if got := line(t, r); got != want {
			t.Errorf("pushed: %q, want %q", got, want)
		}
	}
	g := rec.hold("GET none", newGate(true))
	close(g.let)
	ask("GET none", "_")
	await(t, "reply", g.held)
	ask("SUBSCRIBE a b", ">3", "$9", "subscribe", "$1", "a", ":1", ">3", "$9", "subscribe", "$1", "b", ":2")
	ask("UNSUBSCRIBE", ">3", "$11", "unsubscribe")
	for line(t, r) != ":0" {
	}
	ask("ECHO last", "$4", "last")
	want := []string{"HELLO", "CLIENT TRACKING", "GET none", "SUBSCRIBE a", "UNSUBSCRIBE", "ECHO"}
	if seen := rec.seen(); !slices.Equal(seen, want) || len(said.all()) > 0 {
		t.Errorf("events %q, want %q; said %q", seen, want, said.all())
	}
}

// TestConfirmations checks that the proxy matches replies to requests after each kind of subscription,
// although the server confirms every channel separately. The same must be true after a reply that looks
// like a published message of RESP2.
func TestConfirmations(t *testing.T) {
	for _, kind := range []string{"", "P", "S"} {
		for _, leave := range []string{"", " {c}1 {c}2"} {
			t.Run(kind+"UNSUBSCRIBE"+leave, func(t *testing.T) {
				p, said := redisProxy(t)
				var rec recorder
				p.Use(rec.tap)
				conn, r := dial(t, p.Addr())
				ask := func(command, last string) {
					t.Helper()
					g := rec.hold(strings.Join(strings.Fields(command)[:min(2, len(strings.Fields(command)))], " "), newGate(true))
					close(g.let)
					fmt.Fprintf(conn, "%s\r\n", command)
					for line(t, r) != last {
					}
					await(t, "reply to "+command, g.held)
				}
				fmt.Fprint(conn, "HELLO 3\r\n")
				for line(t, r) != "*0" { // the empty list of modules ends the reply
				}
				ask(kind+"SUBSCRIBE {c}1 {c}2", ":2")
				ask("GET first", "_")
				ask("LPUSH mail message", ":1")
				ask("LRANGE mail 0 -1", "message")
				ask("DEL mail", ":1")
				ask(kind+"UNSUBSCRIBE"+leave, ":0")
				ask("GET second", "_")
				if errs := rec.failed(); len(errs) > 0 || len(said.all()) > 0 {
					t.Errorf("errors %q; said %q", errs, said.all())
				}
			})
		}
	}
}

func dial(t *testing.T, addr string) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	return conn, bufio.NewReader(conn)
}

func line(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	text, err := r.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(text)
}

// TestLargeValue checks that a value of 16 MB passes in both directions, even if its reply is held.
func TestLargeValue(t *testing.T) {
	p, said := redisProxy(t)
	var rec recorder
	p.Use(rec.tap)
	c := redisAt(t, p.Addr(), 3)
	large := bytes.Repeat([]byte("0123456789abcde\n"), 1<<20)
	defer c.Del(context.Background(), "large")
	if err := c.Set(t.Context(), "large", large, time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	g := rec.hold("GET large", newGate(true))
	go func() { <-g.held; close(g.let) }()
	if got, err := c.Get(t.Context(), "large").Bytes(); err != nil || !bytes.Equal(got, large) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if n, err := c.StrLen(t.Context(), "large").Result(); n != int64(len(large)) || err != nil {
		t.Errorf("STRLEN returned %d, %v", n, err)
	}
	if len(said.all()) > 0 {
		t.Errorf("said %q", said.all())
	}
}

// TestErrorsOfATap checks what happens to a request and its client if the tap does not send the request, or
// returns an error after the reply.
func TestErrorsOfATap(t *testing.T) {
	lost := errors.New("lost")
	for _, tt := range []struct {
		name string
		gate gate
		done bool // whether the server executes the request
		ends bool // whether the client's connection ends without a reply
	}{
		{"refused", gate{as: lost, unsent: true}, false, true},
		{"reply lost", gate{as: lost}, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, _ := redisProxy(t)
			var rec recorder
			p.Use(rec.tap)
			straight := redisAt(t, stacktest.With(t, lock.Redis).Redis, 2)
			defer straight.Del(context.Background(), "fate")
			conn, r := dial(t, p.Addr())
			fmt.Fprint(conn, "PING\r\n")
			if got := line(t, r); got != "+PONG" {
				t.Fatal(got)
			}
			g := tt.gate
			g.held, g.let = make(chan struct{}), make(chan struct{})
			close(g.let)
			rec.hold("INCR fate", &g)
			fmt.Fprint(conn, "INCR fate\r\n")
			_ = conn.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
			_, err := r.ReadString('\n')
			var timeout net.Error
			if waits := errors.As(err, &timeout) && timeout.Timeout(); err == nil || waits == tt.ends {
				t.Errorf("the client got %v", err)
			}
			if done := straight.Exists(t.Context(), "fate").Val() == 1; done != tt.done {
				t.Errorf("executed: %v", done)
			}
		})
	}
}

// clients returns how many connections a server has.
func clients(t *testing.T, c *redis.Client) int {
	t.Helper()
	list, err := c.ClientList(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(list, "\n")
}

// TestClientGone checks that the proxy does not send a held request after its client has disconnected,
// because a killed process cannot send requests either.
func TestClientGone(t *testing.T) {
	p, _ := redisProxy(t)
	var rec recorder
	p.Use(rec.tap)
	straight := redisAt(t, stacktest.With(t, lock.Redis).Redis, 2)
	defer straight.Del(context.Background(), "gone")
	g := rec.hold("INCR gone", newGate(false))
	conn, _ := dial(t, p.Addr())
	fmt.Fprint(conn, "INCR gone\r\n")
	await(t, "held", g.held)
	conn.Close()
	for clients(t, straight) > 1 { // wait until the server has noticed the end of the connection
		time.Sleep(time.Millisecond)
	}
	close(g.let)
	for len(rec.failed()) == 0 {
		time.Sleep(time.Millisecond)
	}
	if straight.Exists(t.Context(), "gone").Val() != 0 {
		t.Error("the request was sent")
	}
}

// TestNotUnderstood checks that data still passes after a command that the proxy cannot handle. The
// proxy must tell the user about it, and must not report further events.
func TestNotUnderstood(t *testing.T) {
	p, said := redisProxy(t)
	var rec recorder
	p.Use(rec.tap)
	conn, r := dial(t, p.Addr())
	fmt.Fprint(conn, "PING\r\nCLIENT REPLY SKIP\r\nPING\r\nECHO heard\r\n")
	for _, want := range []string{"+PONG", "$5", "heard"} {
		if got := line(t, r); got != want {
			t.Errorf("the server replied %q, want %q", got, want)
		}
	}
	if lines := said.all(); len(lines) != 1 || !strings.Contains(lines[0], "cannot match replies to requests after the command CLIENT REPLY") {
		t.Errorf("said %q", lines)
	}
	if seen := rec.seen(); !slices.Equal(seen, []string{"PING"}) {
		t.Errorf("events %q", seen)
	}
}
