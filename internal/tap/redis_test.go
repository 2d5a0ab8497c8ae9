package tap_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"grablab/internal/tap"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

var errFault = errors.New("fault")

// spy is a tap that records every op. It can refuse an op, or lose its reply.
type spy struct {
	mu     sync.Mutex
	ops    []tap.Op
	errs   []error
	refuse func(tap.Op) bool // whether to return errFault instead of sending the op
	lose   func(tap.Op) bool // whether to return errFault instead of the reply
}

// tap implements tap.Tap.
func (s *spy) tap(ctx context.Context, op tap.Op, send func(context.Context) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ops = append(s.ops, op)
	if s.refuse != nil && s.refuse(op) {
		return errFault
	}
	err := send(ctx)
	s.errs = append(s.errs, err)
	if s.lose != nil && s.lose(op) {
		return errFault
	}
	return err
}

// newRedis returns a Redis server, a client whose calls the spy taps, and the number of commands that the
// client has sent.
func newRedis(t *testing.T, s *spy) (*miniredis.Miniredis, *redis.Client, *atomic.Uint64) {
	t.Helper()
	server := miniredis.RunT(t)
	var sent atomic.Uint64
	client := redis.NewClient(&redis.Options{
		Addr: server.Addr(), MaxRetries: -1, PoolSize: 1, PipelinePoolSize: -1,
		Dialer: tap.CountRedis(new(net.Dialer).DialContext, &sent),
	})
	client.AddHook(tap.Redis(s.tap, "8004", "redis"))
	t.Cleanup(func() { client.Close() })
	return server, client, &sent
}

func TestRedisNamesEveryCall(t *testing.T) {
	s := new(spy)
	_, client, _ := newRedis(t, s)
	scope := tap.Scope{Order: 7, Driver: 42}
	ctx, end := scope.Enter(t.Context(), tap.Acquire)

	client.SetNX(ctx, "k", "v", time.Minute)
	client.Eval(ctx, "return redis.call('GET', KEYS[1])", []string{"k", "l"}, "arg")
	client.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.Get(ctx, "a")
		p.Del(ctx, "b", "c")
		return nil
	})
	client.Ping(ctx)
	end()
	client.PExpire(ctx, "k", time.Minute)

	op := func(p tap.Phase) tap.Op {
		return tap.Op{Instance: "8004", Target: "redis", Order: 7, Driver: 42, Phase: p}
	}
	want := []tap.Op{op(tap.Acquire), op(tap.Acquire), op(tap.Acquire), op(tap.Acquire), op(tap.Renew)}
	if !slices.Equal(s.ops, want) {
		t.Errorf("calls\n%+v\nwant\n%+v", s.ops, want)
	}
}

func TestRedisRefusedIsNeverSent(t *testing.T) {
	s := &spy{refuse: func(tap.Op) bool { return true }}
	server, client, _ := newRedis(t, s)

	if err := client.Set(t.Context(), "k", "v", 0).Err(); !errors.Is(err, errFault) {
		t.Errorf("command: %v, want the refusal", err)
	}
	cmds, err := client.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
		p.Set(t.Context(), "k", "v", 0)
		p.Set(t.Context(), "l", "v", 0)
		return nil
	})
	if !errors.Is(err, errFault) {
		t.Errorf("transaction: %v, want the refusal", err)
	}
	for _, cmd := range cmds {
		if !errors.Is(cmd.Err(), errFault) {
			t.Errorf("%s: %v, want the refusal", cmd.Name(), cmd.Err())
		}
	}
	if keys := server.Keys(); len(keys) != 0 {
		t.Errorf("keys %v, although all commands were refused", keys)
	}
}

func TestRedisLostReplyHappenedAndFails(t *testing.T) {
	s := &spy{lose: func(tap.Op) bool { return true }}
	server, client, _ := newRedis(t, s)

	if ok, err := client.SetNX(t.Context(), "k", "v", 0).Result(); !errors.Is(err, errFault) {
		t.Errorf("SETNX: %v, %v, want the lost reply", ok, err)
	}
	pipe := client.Pipeline()
	set, get := pipe.Set(t.Context(), "l", "v", 0), pipe.Get(t.Context(), "missing")
	if _, err := pipe.Exec(t.Context()); !errors.Is(err, errFault) {
		t.Errorf("pipeline: %v, want the lost reply", err)
	}
	if !errors.Is(set.Err(), errFault) || !errors.Is(get.Err(), errFault) {
		t.Errorf("commands of the pipeline: %v, %v, want the lost reply", set.Err(), get.Err())
	}
	if keys := server.Keys(); !slices.Equal(keys, []string{"k", "l"}) {
		t.Errorf("keys %v, want both to have been written", keys)
	}
}

// TestRedisPipelineKeepsReplies checks that a failing command in a pipeline does not change the replies
// to the others.
func TestRedisPipelineKeepsReplies(t *testing.T) {
	_, client, _ := newRedis(t, new(spy))
	pipe := client.Pipeline()
	missing, set := pipe.Get(t.Context(), "missing"), pipe.Set(t.Context(), "k", "v", 0)
	if _, err := pipe.Exec(t.Context()); !errors.Is(err, redis.Nil) {
		t.Errorf("pipeline: %v, want nil reply", err)
	}
	if !errors.Is(missing.Err(), redis.Nil) || set.Err() != nil {
		t.Errorf("GET %v, SET %v; want a nil reply and none", missing.Err(), set.Err())
	}
}

func TestCountRedisCountsAllThatIsSent(t *testing.T) {
	_, client, sent := newRedis(t, new(spy))
	ctx := t.Context()
	if err := client.Ping(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	if sent.Load() < 2 {
		t.Errorf("a PING on a new connection counts %d, want the handshake too", sent.Load())
	}
	count := func(what string, want uint64, do func()) {
		t.Helper()
		before := sent.Load()
		do()
		if got := sent.Load() - before; got != want {
			t.Errorf("%s counts %d commands, want %d", what, got, want)
		}
	}
	count("SET", 1, func() { client.Set(ctx, "k", strings.Repeat("x\r\n*1\r\n", 20_000), 0) })
	count("EVAL", 1, func() { client.Eval(ctx, "return 1", []string{"k"}) })
	count("a pipeline of 3", 3, func() {
		client.Pipelined(ctx, func(p redis.Pipeliner) error {
			p.Ping(ctx)
			p.Get(ctx, "")
			p.Del(ctx, "k")
			return nil
		})
	})
	count("a transaction of 1", 3, func() {
		client.TxPipelined(ctx, func(p redis.Pipeliner) error { p.Ping(ctx); return nil })
	})

	sub := client.Subscribe(ctx, "a")
	defer sub.Close()
	if _, err := sub.Receive(ctx); err != nil {
		t.Fatal(err)
	}
	count("SUBSCRIBE", 1, func() { sub.Subscribe(ctx, "b") })
	count("UNSUBSCRIBE", 1, func() { sub.Unsubscribe(ctx, "a") })
}

func TestCountRedisKeepsTheFileDescriptor(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := tap.CountRedis(new(net.Dialer).DialContext, new(atomic.Uint64))(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// go-redis uses this interface to notice that the server has closed the connection.
	if _, ok := c.(syscall.Conn); !ok {
		t.Error("a counted TCP connection hides its file descriptor")
	}
}

// FuzzRESPCount checks that the count does not depend on how a stream is cut into pieces. For a valid
// stream, it must be the number of commands.
func FuzzRESPCount(f *testing.F) {
	f.Add([]byte("*1\r\n$4\r\nPING\r\n"), uint8(3), uint8(2))
	f.Add([]byte("PING\r\n*2\r\n$3\r\nGET\r\n$0\r\n\r\n"), uint8(1), uint8(0))
	f.Add([]byte("*x\r\n$-1\n*\n\n$99999999999999999999\r\n"), uint8(7), uint8(9))
	f.Fuzz(func(t *testing.T, data []byte, cut, commands uint8) {
		whole := tap.CountRESP(data)
		var pieces [][]byte
		for rest := data; len(rest) > 0; {
			n := min(int(cut)%8+1, len(rest))
			pieces = append(pieces, rest[:n])
			rest = rest[n:]
		}
		if got := tap.CountRESP(pieces...); got != whole {
			t.Errorf("%q in pieces of %d counts %d, whole %d", data, cut%8+1, got, whole)
		}

		var stream bytes.Buffer
		for range commands {
			tap.WriteCommand(&stream, data, nil, data)
		}
		if got := tap.CountRESP(stream.Bytes()); got != uint64(commands) {
			t.Errorf("%d commands with argument %q count %d", commands, data, got)
		}
	})
}

func BenchmarkCountRESP(b *testing.B) {
	var stream bytes.Buffer
	tap.WriteCommand(&stream, []byte("SET"), []byte("grab:setnx:{12345}"), []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZ"), []byte("NX"), []byte("PX"), []byte("30000"))
	for b.Loop() {
		tap.CountRESP(stream.Bytes())
	}
}
