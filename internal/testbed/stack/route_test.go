package stack_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/stack/stacktest"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

// quiet is how long the tests wait before they conclude that no data arrives.
const quiet = 150 * time.Millisecond

func openRoute(t *testing.T, s *stack.Stack, server string) *stack.Route {
	t.Helper()
	r, err := s.Route("8004", server)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

func struck(t *testing.T) func(stack.Heal, error) stack.Heal {
	return func(heal stack.Heal, err error) stack.Heal {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return heal
	}
}

func healed(t *testing.T, heal stack.Heal) {
	t.Helper()
	for range 2 {
		if err := heal(); err != nil {
			t.Fatal(err)
		}
	}
}

// talk is a plain connection to a Redis server, on which tests see the exact bytes.
type talk struct {
	t *testing.T
	net.Conn
}

func dial(t *testing.T, addr string) talk {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return talk{t, conn}
}

func (c talk) say(command string) {
	c.t.Helper()
	if _, err := io.WriteString(c, encode(command)); err != nil {
		c.t.Fatal(err)
	}
}

// encode returns a command as a client sends it.
func encode(command string) string {
	words := strings.Fields(command)
	text := fmt.Sprintf("*%d\r\n", len(words))
	for _, word := range words {
		text += fmt.Sprintf("$%d\r\n%s\r\n", len(word), word)
	}
	return text
}

// hears fails the test unless the next bytes that arrive are the wanted ones.
func (c talk) hears(want string) {
	c.t.Helper()
	got := make([]byte, len(want))
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
		c.t.Fatalf("heard %q, %v, want %q", got, err, want)
	}
}

func (c talk) hearsNothing() {
	c.t.Helper()
	var one [1]byte
	_ = c.SetReadDeadline(time.Now().Add(quiet))
	if n, err := c.Read(one[:]); n > 0 || !isTimeout(err) {
		c.t.Fatalf("heard %q, %v", one[:n], err)
	}
}

// hearsTheEnd fails the test unless the connection ends without further data.
func (c talk) hearsTheEnd() {
	c.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if rest, err := io.ReadAll(c); isTimeout(err) || len(rest) > 0 {
		c.t.Fatalf("the connection has not ended, or more data has arrived: %q, %v", rest, err)
	}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// routeFixture returns a route to a Redis server, a client that bypasses the route, and a key.
func routeFixture(t *testing.T) (*stack.Route, *redis.Client, string) {
	t.Helper()
	s := stacktest.Local(t)
	straight := redis.NewClient(&redis.Options{Addr: s.Redis})
	key := strings.ReplaceAll(t.Name(), "/", "-")
	t.Cleanup(func() {
		straight.Del(context.Background(), key)
		straight.Close()
	})
	return openRoute(t, s, "redis"), straight, key
}

func TestCut(t *testing.T) {
	for _, tt := range []struct {
		direction stack.Direction
		arrives   bool // whether requests reach the server
	}{{stack.BothWays, false}, {stack.ToServer, false}, {stack.ToClient, true}} {
		t.Run(fmt.Sprint(tt.direction), func(t *testing.T) {
			r, straight, key := routeFixture(t)
			old := dial(t, r.Addr)
			old.say("PING")
			old.hears("+PONG\r\n")

			heal := struck(t)(r.Cut(tt.direction))
			young := dial(t, r.Addr) // a cut affects new connections too
			for _, c := range []talk{old, young} {
				c.say("INCR " + key)
				c.hearsNothing()
			}
			want := "0"
			if tt.arrives {
				want = "2"
			}
			got, err := straight.Get(t.Context(), key).Result()
			if errors.Is(err, redis.Nil) {
				got, err = "0", nil
			}
			if got != want || err != nil {
				t.Errorf("%s requests arrived, want %s (%v)", got, want, err)
			}

			healed(t, heal)
			old.hearsTheEnd()
			young.hearsTheEnd()
			fresh := dial(t, r.Addr)
			fresh.say("GET " + key)
			fresh.hears(map[string]string{"0": "$-1\r\n", "2": "$1\r\n2\r\n"}[want])
		})
	}
}

func TestStill(t *testing.T) {
	r, straight, key := routeFixture(t)
	c, gone := dial(t, r.Addr), dial(t, r.Addr)
	c.say("PING")
	c.hears("+PONG\r\n")

	heal := struck(t)(r.Stall(stack.ToServer))
	c.say("APPEND " + key + " a")
	c.say("APPEND " + key + " b")
	gone.say("SET " + key + "-gone x")
	gone.Close() // the end of the connection must wait behind the command
	c.hearsNothing()
	if n := straight.Exists(t.Context(), key, key+"-gone").Val(); n != 0 {
		t.Fatal("a command has arrived during the stall")
	}
	healed(t, heal)
	c.hears(":1\r\n:2\r\n")
	c.say("GET " + key)
	c.hears("$2\r\nab\r\n")
	eventually(t, func() bool { return straight.Del(t.Context(), key+"-gone").Val() == 1 }, "the command before the end of the connection is lost")
}

// TestStillDelaysTheEnd checks that a stall also holds back the end of a connection, but only in the
// stalled direction.
func TestStillDelaysTheEnd(t *testing.T) {
	for _, direction := range []stack.Direction{stack.BothWays, stack.ToServer, stack.ToClient} {
		for _, by := range []stack.Direction{stack.ToServer, stack.ToClient} { // the direction in which the end has to pass
			t.Run(fmt.Sprintf("%v, end %v", direction, by), func(t *testing.T) {
				r, straight, key := routeFixture(t)
				c, other := dial(t, r.Addr), dial(t, r.Addr)
				c.say("CLIENT SETNAME " + key)
				c.hears("+OK\r\n")
				id := func() (id string) { // the server's ID of the connection, or "" if the connection has ended there
					for client := range strings.Lines(straight.ClientList(t.Context()).Val()) {
						if strings.Contains(client, " name="+key+" ") {
							id, _, _ = strings.Cut(strings.TrimPrefix(client, "id="), " ")
						}
					}
					return id
				}
				heal := struck(t)(r.Stall(direction))
				held := direction == stack.BothWays || direction == by
				if by == stack.ToServer {
					c.Close()
					if held {
						other.hearsNothing()
						if id() == "" {
							t.Error("the server has seen the end of the connection")
						}
						healed(t, heal)
					}
					eventually(t, func() bool { return id() == "" }, "the server does not see the end of the connection")
				} else {
					if n := straight.ClientKillByFilter(t.Context(), "ID", id()).Val(); n != 1 {
						t.Fatalf("%d connections were ended", n)
					}
					if held {
						c.hearsNothing()
						healed(t, heal)
					}
					c.hearsTheEnd()
				}
				if !held {
					healed(t, heal)
				}
			})
		}
	}
}

func TestDelay(t *testing.T) {
	const latency = 100 * time.Millisecond
	r, _, _ := routeFixture(t)
	c := dial(t, r.Addr)
	heal := struck(t)(r.Delay(latency, stack.ToClient))
	began := time.Now()
	c.say("PING")
	c.hears("+PONG\r\n")
	if took := time.Since(began); took < latency {
		t.Errorf("the reply came after %v", took)
	}
	healed(t, heal)
	c.say("PING")
	c.hears("+PONG\r\n")

	// Healing must release delayed data at once.
	heal = struck(t)(r.Delay(time.Hour, stack.ToClient))
	c.say("PING")
	c.hearsNothing()
	healed(t, heal)
	c.hears("+PONG\r\n")
}

// TestLoseReplies checks that the server executes a request, but the connection ends without a reply.
// The first reply on a connection and the error NOSCRIPT must still arrive.
func TestLoseReplies(t *testing.T) {
	r, straight, key := routeFixture(t)
	old := dial(t, r.Addr)
	old.say("PING")
	old.hears("+PONG\r\n")

	heal := struck(t)(r.LoseReplies())
	young := dial(t, r.Addr)
	young.say("PING")
	young.hears("+PONG\r\n")
	young.say("EVALSHA " + strings.Repeat("0", 40) + " 0") // not executed, so the client may get the reply
	young.hears("-NOSCRIPT No matching script. Please use EVAL.\r\n")
	for _, c := range []talk{old, young} {
		c.say("INCR " + key)
		c.hearsTheEnd()
	}
	if n := straight.Get(t.Context(), key).Val(); n != "2" {
		t.Errorf("the server has executed %q requests, want 2", n)
	}
	idle := dial(t, r.Addr)
	healed(t, heal)
	for _, c := range []talk{idle, dial(t, r.Addr)} {
		c.say("PING")
		c.hears("+PONG\r\n")
	}
}

// TestLoseCommits checks that the database executes a COMMIT, but the connection ends without a reply.
// Other statements must get their replies.
func TestLoseCommits(t *testing.T) {
	s := stacktest.Local(t)
	r := openRoute(t, s, "db")
	via, straight := database(t, s.Via(r).DSN), database(t, s.DSN)
	do := func(on interface {
		ExecContext(context.Context, string, ...any) (sql.Result, error)
	}, statement string) error {
		_, err := on.ExecContext(t.Context(), statement)
		return err
	}
	if err := do(straight, "CREATE TABLE commits (id INT)"); err != nil {
		t.Fatal(err)
	}
	defer do(straight, "DROP TABLE commits")
	commit := func(word string) error {
		conn, err := via.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		for _, statement := range []string{"START TRANSACTION", "INSERT INTO commits VALUES (1)"} {
			if err := do(conn, statement); err != nil {
				t.Fatal(err)
			}
		}
		return do(conn, word)
	}
	heal := struck(t)(r.LoseCommits())
	for _, word := range []string{"COMMIT", "commit"} {
		if err := commit(word); err == nil {
			t.Errorf("%s was answered", word)
		}
	}
	healed(t, heal)
	if err := commit("COMMIT"); err != nil {
		t.Errorf("COMMIT after healing: %v", err)
	}
	var rows int
	if err := straight.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM commits").Scan(&rows); rows != 3 || err != nil {
		t.Errorf("the database has executed %d of 3 commits, %v", rows, err)
	}
}

func database(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// TestRedirect checks that a redirect closes all connections and leads new ones to another server, and
// that a second redirect leads back.
func TestRedirect(t *testing.T) {
	r, straight, key := routeFixture(t)
	if err := straight.Set(t.Context(), key, "here", 0).Err(); err != nil {
		t.Fatal(err)
	}
	ends := dial(t, r.Addr)
	ends.say("GET " + key)
	ends.hears("$4\r\nhere\r\n")
	r.Redirect(stacktest.Local(t).Redlock[3])
	ends.hearsTheEnd()
	ends = dial(t, r.Addr)
	ends.say("GET " + key)
	ends.hears("$-1\r\n")
	r.Redirect(stacktest.Local(t).Redis)
	ends.hearsTheEnd()
	back := dial(t, r.Addr)
	back.say("GET " + key)
	back.hears("$4\r\nhere\r\n")
}

func TestRefuse(t *testing.T) {
	r, _, _ := routeFixture(t)
	c := dial(t, r.Addr)
	c.say("PING")
	c.hears("+PONG\r\n")
	heal := struck(t)(r.Refuse())
	c.hearsTheEnd()
	if conn, err := net.Dial("tcp", r.Addr); err == nil {
		conn.Close()
		t.Error("the connection was not refused")
	}
	healed(t, heal)
	c = dial(t, r.Addr)
	c.say("PING")
	c.hears("+PONG\r\n")
}

// TestARouteBearsOneFault checks that a route with a fault refuses another one, and that a closed route
// refuses any fault. Healing a closed route must have no effect.
func TestARouteBearsOneFault(t *testing.T) {
	r, straight, key := routeFixture(t)
	heal := struck(t)(r.Stall(stack.BothWays))
	if _, err := r.Refuse(); err == nil || !strings.Contains(err.Error(), "from 8004 to redis: another fault is still active on this route: heal that fault first") {
		t.Errorf("a second fault: %v", err)
	}
	c := dial(t, r.Addr)
	c.say("SET " + key + " late")
	c.hearsNothing()
	r.Close()
	c.hearsTheEnd()
	healed(t, heal)
	if straight.Exists(t.Context(), key).Val() != 0 {
		t.Error("the stalled command has reached the server after Close")
	}
	if _, err := r.Cut(stack.BothWays); err == nil || !strings.Contains(err.Error(), "it is closed") {
		t.Errorf("a closed route: %v", err)
	}
	if _, err := net.Dial("tcp", r.Addr); err == nil {
		t.Error("it still listens")
	}
}

// TestFaultOfAGroupIsAllOrNothing makes one of three routes refuse a fault, because this route already
// has another one. The fault must then be healed on the other routes.
func TestFaultOfAGroupIsAllOrNothing(t *testing.T) {
	s := stacktest.Local(t)
	for busy := range 3 {
		group := stack.Routes{openRoute(t, s, "redis"), openRoute(t, s, "redis"), openRoute(t, s, "redis")}
		other := struck(t)(group[busy].Stall(stack.BothWays))
		if heal, err := group.Each((*stack.Route).Refuse); err == nil || heal != nil {
			t.Fatalf("route %d: %v, although it has a fault already", busy, err)
		}
		healed(t, other)
		for _, r := range group {
			c := dial(t, r.Addr)
			c.say("PING")
			c.hears("+PONG\r\n")
		}
		healed(t, struck(t)(group.Each((*stack.Route).Refuse)))
	}
}

// TestRoutesToEveryServer checks that clients can reach each server through a route. With the addresses
// of the routes, they must have no other way to reach it.
func TestRoutesToEveryServer(t *testing.T) {
	for _, needs := range []lock.Backend{everything, coordinators} {
		s := stacktest.With(t, needs)
		var detours []stack.Detour
		var routes []*stack.Route
		for _, server := range s.Servers() {
			r := openRoute(t, s, server)
			detours, routes = append(detours, r), append(routes, r)
		}
		via := s.Via(detours...)
		check := func() error { return reach(t.Context(), via, needs) }
		if err := check(); err != nil {
			t.Fatal(err)
		}
		for _, r := range routes {
			heal := struck(t)(r.Refuse())
			if check() == nil {
				t.Errorf("%s is reachable although its route refuses connections", r.Server)
			}
			healed(t, heal)
		}
		if err := check(); err != nil {
			t.Error(err)
		}
	}
}

// reach returns nil if every server at the addresses responds.
func reach(ctx context.Context, at stack.Addresses, needs lock.Backend) error {
	s, err := stack.Start(ctx, stack.Config{
		Kind: stack.External, Needs: needs &^ lock.SQL, Addresses: at,
	})
	if err != nil {
		return err
	}
	return s.Close()
}

func TestRouteRefusals(t *testing.T) {
	local := stacktest.Local(t)
	external := start(t, stack.Config{Kind: stack.External, Needs: lock.Redis, Addresses: stack.Addresses{Redis: local.Redis}})
	embedded := start(t, stack.Config{Kind: stack.Embedded, Needs: lock.Redis})
	for _, tt := range []struct {
		s            *stack.Stack
		server, want string
	}{
		{external, "redis", "are never injected into servers of the external stack"},
		{embedded, "db", `the embedded stack has no server "db"`},
		{embedded, "etcd", `the embedded stack has no server "etcd"`},
		{local, "redlock-6", `the local stack has no server "redlock-6"`},
	} {
		_, err := tt.s.Route("8004", tt.server)
		if !errors.Is(err, stack.ErrRefused) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s of %s: %v, want a refusal that says %q", tt.server, tt.s.Kind, err, tt.want)
		}
	}
}

// TestRoutesEndWithTheStack closes a stack whose routes have open connections, pending data and active
// faults. The routes must leave no goroutine and no open port behind.
func TestRoutesEndWithTheStack(t *testing.T) {
	ignore := goleak.IgnoreCurrent()
	for _, strike := range []func(*stack.Route) (stack.Heal, error){
		func(*stack.Route) (stack.Heal, error) { return nil, nil },
		func(r *stack.Route) (stack.Heal, error) { return r.Cut(stack.BothWays) },
		func(r *stack.Route) (stack.Heal, error) { return r.Cut(stack.ToClient) },
		func(r *stack.Route) (stack.Heal, error) { return r.Stall(stack.BothWays) },
		func(r *stack.Route) (stack.Heal, error) { return r.Stall(stack.ToClient) },
		func(r *stack.Route) (stack.Heal, error) { return r.Delay(time.Hour, stack.BothWays) },
		(*stack.Route).LoseReplies,
		func(r *stack.Route) (stack.Heal, error) { r.Redirect(r.Addr); return nil, nil },
		func(r *stack.Route) (stack.Heal, error) { return r.Refuse() },
	} {
		s := start(t, stack.Config{Kind: stack.Embedded, Needs: lock.Redis})
		r, err := s.Route("8004", "redis")
		if err != nil {
			t.Fatal(err)
		}
		talks := []talk{dial(t, r.Addr), dial(t, r.Addr), dial(t, r.Addr)}
		for _, c := range talks {
			c.say("PING")
			c.hears("+PONG\r\n")
		}
		if _, err := strike(r); err != nil {
			t.Fatal(err)
		}
		_, _ = talks[0].Write([]byte(encode("PING")))
		_, _ = talks[1].Write([]byte(encode("PING")))
		talks[1].Close()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		_ = talks[0].SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := io.Copy(io.Discard, talks[0]); isTimeout(err) {
			t.Error("a connection is still open")
		}
		if conn, err := net.Dial("tcp", r.Addr); err == nil {
			conn.Close()
			t.Error("it still listens")
		}
		for _, c := range talks {
			c.Close()
		}
	}
	goleak.VerifyNone(t, ignore)
}
