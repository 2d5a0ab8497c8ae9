package tap

import (
	"context"
	"slices"

	"grablab/internal/tap/redishook"

	"github.com/redis/go-redis/v9"
)

// Redis returns a hook that sends a go-redis client's commands through t. A pipeline or a
// transaction counts as one call. Subscriptions and connection set-up commands bypass t.
func Redis(t Tap, instance, target string) redis.Hook {
	return Commands(func(ctx context.Context, cmds []redis.Cmder, send func(context.Context) error) error {
		op := OpFrom(ctx, Op{Instance: instance, Target: target})
		for _, cmd := range cmds {
			op.Keys = append(op.Keys, keysOf(cmd)...)
		}
		return t.do(ctx, op, send)
	})
}

// Commands returns a hook that calls around for every command, except for commands that only set up
// a connection.
func Commands(around redishook.Hook) redis.Hook {
	return redishook.Hook(func(ctx context.Context, cmds []redis.Cmder, send func(context.Context) error) error {
		if !slices.ContainsFunc(cmds, func(cmd redis.Cmder) bool { return !setsUp(cmd) }) {
			return send(ctx)
		}
		return around(ctx, cmds, send)
	})
}

// setsUp reports whether a command only sets up a connection. go-redis sends these commands by
// itself.
func setsUp(cmd redis.Cmder) bool {
	return slices.Contains([]string{"hello", "auth", "select", "client", "readonly", "unwatch"}, cmd.Name())
}

// keysOf returns the keys that a command uses. For an unknown command, it falls back to the first
// argument.
func keysOf(cmd redis.Cmder) []string {
	args := cmd.Args()
	if len(args) < 2 {
		return nil
	}
	switch cmd.Name() {
	case "eval", "evalsha", "eval_ro", "evalsha_ro", "fcall", "fcall_ro":
		n, ok := args[min(2, len(args)-1)].(int)
		if !ok || n < 0 {
			return nil
		}
		return texts(args[3:min(3+n, len(args))])
	case "del", "unlink", "exists", "touch", "watch", "mget":
		return texts(args[1:])
	case "publish", "script", "function", "ping", "echo", "info", "wait", "config", "debug",
		"flushall", "flushdb", "cluster", "command", "sentinel", "memory", "object":
		return nil
	default:
		return texts(args[1:2])
	}
}

func texts(args []any) []string {
	keys := make([]string, len(args))
	for i, a := range args {
		keys[i], _ = a.(string)
	}
	return keys
}
