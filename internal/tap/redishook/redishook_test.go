package redishook_test

import (
	"context"
	"errors"
	"io"
	"net"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"grablab/internal/tap/redishook"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// commands contains commands of every kind that locks send. If nothing fails, no reply is a zero value.
var commands = map[string]func(ctx context.Context, c *redis.Client) []redis.Cmder{
	"SET NX": func(ctx context.Context, c *redis.Client) []redis.Cmder {
		return one(c.SetNX(ctx, "new", "v", time.Minute))
	},
	"SET": func(ctx context.Context, c *redis.Client) []redis.Cmder {
		return one(c.Set(ctx, "new", "v", time.Minute))
	},
	"SET GET": func(ctx context.Context, c *redis.Client) []redis.Cmder {
		return one(c.SetArgs(ctx, "text", "v", redis.SetArgs{Get: true}))
	},
	"GET":    func(ctx context.Context, c *redis.Client) []redis.Cmder { return one(c.Get(ctx, "text")) },
	"DEL":    func(ctx context.Context, c *redis.Client) []redis.Cmder { return one(c.Del(ctx, "text")) },
	"EXISTS": func(ctx context.Context, c *redis.Client) []redis.Cmder { return one(c.Exists(ctx, "text")) },
	"INCR":   func(ctx context.Context, c *redis.Client) []redis.Cmder { return one(c.Incr(ctx, "number")) },
	"EXPIRE": func(ctx context.Context, c *redis.Client) []redis.Cmder {
		return one(c.Expire(ctx, "text", time.Minute))
	},
	"PEXPIRE": func(ctx context.Context, c *redis.Client) []redis.Cmder {
		return one(c.PExpire(ctx, "text", time.Minute))
	},
	"PTTL":    func(ctx context.Context, c *redis.Client) []redis.Cmder { return one(c.PTTL(ctx, "text")) },
	"HSET":    func(ctx context.Context, c *redis.Client) []redis.Cmder { return one(c.HSet(ctx, "hash", "g", "v")) },
	"HGETALL": func(ctx context.Context, c *redis.Client) []redis.Cmder { return one(c.HGetAll(ctx, "hash")) },
	"LRANGE":  func(ctx context.Context, c *redis.Client) []redis.Cmder { return one(c.LRange(ctx, "list", 0, -1)) },
	"ZRANGE": func(ctx context.Context, c *redis.Client) []redis.Cmder {
		return one(c.ZRangeWithScores(ctx, "sorted", 0, -1))
	},
	"SCAN":    func(ctx context.Context, c *redis.Client) []redis.Cmder { return one(c.Scan(ctx, 0, "", 10)) },
	"TIME":    func(ctx context.Context, c *redis.Client) []redis.Cmder { return one(c.Time(ctx)) },
	"PUBLISH": func(ctx context.Context, c *redis.Client) []redis.Cmder { return one(c.Publish(ctx, "channel", "v")) },
	"EVAL": func(ctx context.Context, c *redis.Client) []redis.Cmder {
		return one(c.Eval(ctx, "return {1, 'a'}", nil))
	},
	"EVAL number":  func(ctx context.Context, c *redis.Client) []redis.Cmder { return one(c.Eval(ctx, "return 1", nil)) },
	"any":          func(ctx context.Context, c *redis.Client) []redis.Cmder { return one(c.Do(ctx, "GET", "text")) },
	"pipeline":     func(ctx context.Context, c *redis.Client) []redis.Cmder { return both(ctx, c.Pipeline()) },
	"MULTI … EXEC": func(ctx context.Context, c *redis.Client) []redis.Cmder { return both(ctx, c.TxPipeline()) },
}

func one(cmd redis.Cmder) []redis.Cmder { return []redis.Cmder{cmd} }

func both(ctx context.Context, p redis.Pipeliner) []redis.Cmder {
	cmds := []redis.Cmder{p.SetNX(ctx, "new", "v", time.Minute), p.Incr(ctx, "number")}
	_, _ = p.Exec(ctx) // each command also has the error
	return cmds
}

// failing is a connection that works until now becomes true, and then fails.
type failing struct {
	net.Conn
	now      *atomic.Bool
	lose     bool // whether written data is lost too
	pass     int  // how many bytes of the reply arrive
	cut      bool // whether the reply was read
	silent   bool // whether the connection stays open, but no reply arrives
	deadline time.Time
}

func (c *failing) Write(b []byte) (int, error) {
	if c.now.Load() && c.lose {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *failing) SetReadDeadline(t time.Time) error {
	c.deadline = t
	return c.Conn.SetReadDeadline(t)
}

func (c *failing) SetDeadline(t time.Time) error {
	c.deadline = t
	return c.Conn.SetDeadline(t)
}

func (c *failing) Read(b []byte) (int, error) {
	switch {
	case !c.now.Load():
		return c.Conn.Read(b)
	case c.silent:
		time.Sleep(time.Until(c.deadline))
		return 0, context.DeadlineExceeded
	case c.lose || c.cut:
		return 0, io.EOF
	}
	c.cut = true
	n, err := c.Conn.Read(b) // the server has executed the command
	if c.pass == 0 || err != nil {
		return 0, errors.Join(err, io.EOF)
	}
	return min(n, c.pass), nil
}

// sockets lists the ways in which a connection can fail.
var sockets = map[string]func(*failing){
	"lost before":       func(c *failing) { c.lose = true },
	"lost after":        func(*failing) {},
	"cut in the middle": func(c *failing) { c.pass = 1 },
	timedOut:            func(c *failing) { c.silent = true },
}

const timedOut = "time-out"

var errHook = errors.New("of the hook")

// hooks lists the ways in which a hook can make a command fail.
var hooks = map[string]redishook.Hook{
	"refused": func(context.Context, []redis.Cmder, func(context.Context) error) error { return errHook },
	"reply lost": func(ctx context.Context, _ []redis.Cmder, send func(context.Context) error) error {
		_ = send(ctx)
		return errHook
	},
	"the second lost": func(ctx context.Context, _ []redis.Cmder, send func(context.Context) error) error {
		_, _ = send(ctx), send(ctx)
		return errHook
	},
}

// serve starts a Redis server with data for every command.
func serve(t *testing.T) *miniredis.Miniredis {
	t.Helper()
	s := miniredis.RunT(t)
	s.HSet("hash", "f", "v")
	subscriber := s.NewSubscriber()
	subscriber.Subscribe("channel")
	t.Cleanup(subscriber.Close)
	go func() {
		for range subscriber.Messages() { // the server would wait for a subscriber that does not read
		}
	}()
	_, list := s.Push("list", "v")
	_, sorted := s.ZAdd("sorted", 1, "v")
	if err := errors.Join(list, sorted, s.Set("text", "v"), s.Set("number", "1")); err != nil {
		t.Fatal(err)
	}
	return s
}

func client(t *testing.T, opt redis.Options) *redis.Client {
	t.Helper()
	opt.MaxRetries, opt.DialerRetries, opt.Protocol, opt.DisableIdentity = -1, 1, 2, true
	c := redis.NewClient(&opt)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// results returns the values and errors that the callers of the commands get.
func results(cmds []redis.Cmder) (values []any, errs []error) {
	for _, cmd := range cmds {
		values = append(values, reflect.ValueOf(cmd).MethodByName("Val").Call(nil)[0].Interface())
		errs = append(errs, cmd.Err())
	}
	return values, errs
}

// TestFailedCommandsHaveNoValue checks that a caller cannot distinguish a command that fails in a hook
// from one whose connection fails. Both must have an error that is not a reply, and the same value, which
// must differ from the value of a successful command.
func TestFailedCommandsHaveNoValue(t *testing.T) {
	for name, send := range commands {
		t.Run(name, func(t *testing.T) {
			well, errs := results(send(t.Context(), client(t, redis.Options{Addr: serve(t).Addr()})))
			want := map[string][]any{}
			for _, err := range errs {
				if err != nil {
					t.Fatalf("without a fault: %v", err)
				}
			}
			for way, set := range sockets {
				var now atomic.Bool
				timeout := 5 * time.Second
				if way == timedOut {
					timeout = 50 * time.Millisecond
				}
				c := client(t, redis.Options{Addr: serve(t).Addr(), PoolSize: 1, ReadTimeout: timeout,
					Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
						conn, err := new(net.Dialer).DialContext(ctx, network, addr)
						failing := &failing{Conn: conn, now: &now}
						set(failing)
						return failing, err
					}})
				if err := c.WithTimeout(time.Minute).Ping(t.Context()).Err(); err != nil { // opens the connection, with enough time on a busy machine
					t.Fatal(err)
				}
				now.Store(true)
				want[way], errs = results(send(t.Context(), c))
				for i, err := range errs {
					if err == nil || errors.Is(err, redis.Nil) {
						t.Errorf("%s: %v with %v", way, err, want[way][i])
					}
					if reflect.DeepEqual(want[way][i], well[i]) {
						t.Errorf("%s: the value %v of a successful command", way, well[i])
					}
				}
			}
			for way, hook := range hooks {
				c := client(t, redis.Options{Addr: serve(t).Addr()})
				c.AddHook(hook)
				got, errs := results(send(t.Context(), c))
				for i, err := range errs {
					if !errors.Is(err, errHook) {
						t.Errorf("%s: %v, want the hook's error", way, err)
					}
					for socket, values := range want {
						if !reflect.DeepEqual(got[i], values[i]) {
							t.Errorf("%s by a hook has the value %v, and %s over a socket %v", way, got[i], socket, values[i])
						}
					}
				}
			}
		})
	}
}
