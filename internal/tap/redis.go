package tap

import (
	"context"
	"slices"

	"grablab/internal/tap/redishook"

	"github.com/redis/go-redis/v9"
)

// Redis returns a hook that sends a go-redis client's commands through t. A pipeline or a
// transaction counts as one call. Subscriptions and connection set-up commands bypass t. Instances use it.
func Redis(t Tap, instance, target string) redis.Hook {
	return Commands(func(ctx context.Context, _ []redis.Cmder, send func(context.Context) error) error {
		return t.do(ctx, OpFrom(ctx, Op{Instance: instance, Target: target}), send)
	})
}

// Commands returns a hook that calls around for every command, except for commands that only set up
// a connection. The explorer uses it to stop each command until the schedule lets it continue.
func Commands(around redishook.Hook) redis.Hook {
	return redishook.Hook(func(ctx context.Context, cmds []redis.Cmder, send func(context.Context) error) error {
		if !slices.ContainsFunc(cmds, func(cmd redis.Cmder) bool { return !setsUp(cmd) }) {
			return send(ctx)
		}
		return around(ctx, cmds, send)
	})
}

// setsUp reports whether a command only sets up a connection, or prepares it for its next use
// (UNWATCH). go-redis sends these commands by itself.
func setsUp(cmd redis.Cmder) bool {
	return slices.Contains([]string{"hello", "auth", "select", "client", "readonly", "unwatch"}, cmd.Name())
}
