package sim

import (
	"context"
	"encoding"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/tap"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// newClient creates a Redis client without retries and background work, so that it sends the same
// commands in every run.
func newClient(inst *instance, n *redisServer) (*redis.Client, error) {
	client := redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:6379", // a literal address needs no DNS lookup
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			if n.down.Load() {
				return nil, errDown
			}
			return dial(n, inst), nil
		},
		Protocol:                 2,
		PoolSize:                 poolSize,
		ConnMaxIdleTime:          -1,
		ConnMaxLifetime:          -1,
		MaxRetries:               -1,
		DialerRetries:            1,
		ContextTimeoutEnabled:    true,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	client.AddHook(gateOf(inst, n))
	return client, warm(client)
}

const (
	poolSize = 64
	warmed   = 8
)

// warm fills the pool with a few connections, so that the first command does not have to dial.
func warm(client *redis.Client) error {
	var conns [warmed]*redis.Conn
	var errs []error
	for i := range conns {
		conns[i] = client.Conn()
		errs = append(errs, conns[i].Ping(context.Background()).Err())
	}
	for _, c := range conns {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// gateOf returns a hook that blocks each Redis command until the simulation lets it continue.
func gateOf(inst *instance, n *redisServer) redis.Hook {
	return tap.Commands(func(ctx context.Context, cmds []redis.Cmder, send func(context.Context) error) error {
		w := inst.world
		if w == nil || n.refuses(cmds[0]) {
			return send(ctx)
		}
		return w.gate.through(ctx, inst, n.call(cmds), send)
	})
}

// refuses reports whether the command is an EVALSHA whose script the server does not know. If so,
// the client immediately sends the full script.
func (n *redisServer) refuses(cmd redis.Cmder) bool {
	if cmd.Name() != "evalsha" {
		return false
	}
	sha, _ := cmd.Args()[1].(string)
	n.mu.Lock()
	defer n.mu.Unlock()
	_, known := n.lua.bodies[sha]
	return !known
}

func (n *redisServer) call(cmds []redis.Cmder) *call {
	text := func() string { return catalog.Join(cmds, "; ", textOf) }
	return &call{target: n.name, node: n.node, sent: catalog.Map(cmds, sentBy), text: text}
}

// sentBy returns the arguments of a command as the client writes them to the network.
func sentBy(cmd redis.Cmder) []any {
	args := slices.Clone(cmd.Args())
	for i, arg := range args {
		switch arg := arg.(type) {
		case time.Time, time.Duration: // the client itself formats these types
		case []byte:
			args[i] = string(arg)
		case fmt.Stringer:
			args[i] = arg.String()
		case encoding.BinaryMarshaler:
			if text, err := arg.MarshalBinary(); err == nil {
				args[i] = string(text)
			}
		}
	}
	return args
}

// textOf formats a command and its reply for people. It replaces a script with the first digits of
// its SHA-1.
func textOf(cmd redis.Cmder) string {
	words := slices.Clone(cmd.Args())
	words[0] = strings.ToUpper(fmt.Sprint(words[0]))
	if name := words[0]; name == "EVAL" || name == "EVALSHA" {
		sha := fmt.Sprint(words[1])
		if name == "EVAL" {
			sha = redis.NewScript(sha).Hash()
		}
		words = append([]any{"script " + sha[:6]}, words[3:]...)
	}
	return strings.TrimSuffix(fmt.Sprintln(words...), "\n") + " → " + replyOf(cmd)
}

// replyOf formats a reply as redis-cli does.
func replyOf(cmd redis.Cmder) string {
	if err := cmd.Err(); err != nil {
		if errors.Is(err, redis.Nil) {
			return "(nil)"
		}
		return err.Error()
	}
	switch cmd := cmd.(type) {
	case *redis.Cmd: // String would omit a reply that has not arrived yet
		return fmt.Sprint(cmd.Val())
	case *redis.BoolCmd:
		if strings.EqualFold(cmd.Name(), "set") {
			return map[bool]string{true: "OK", false: "(nil)"}[cmd.Val()]
		}
		return map[bool]string{true: "1", false: "0"}[cmd.Val()]
	}
	text := cmd.String()
	return text[strings.LastIndex(text, ": ")+2:]
}
