package tap

import (
	"context"
	"errors"
	"slices"

	"github.com/redis/go-redis/v9"
)

// Redis returns a hook that makes every command of a go-redis client through
// t. A pipeline, and a transaction, is one call. Subscriptions pass no hook, and
// what a client says to set up a connection does not go through t.
func Redis(t Tap, instance, target string) redis.Hook {
	return Commands(func(ctx context.Context, cmds []redis.Cmder, send func(context.Context) error) error {
		op := OpFrom(ctx, Op{Instance: instance, Target: target})
		for _, cmd := range cmds {
			op.Keys = append(op.Keys, keysOf(cmd)...)
		}
		return t.do(ctx, op, send)
	})
}

// Commands returns a hook that has do make every command of a go-redis client,
// by send, and every pipeline as the one round trip that it is. The error that
// do returns is what the caller is told of each of the commands. What a client
// says to set up a connection does not go through do.
func Commands(do func(ctx context.Context, cmds []redis.Cmder, send func(context.Context) error) error) redis.Hook {
	return redisHook{do}
}

type redisHook struct {
	do func(context.Context, []redis.Cmder, func(context.Context) error) error
}

// DialHook leaves dialling as it is: it is no call of a grab.
func (h redisHook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook is for one command. go-redis stores the returned error in it.
func (h redisHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if setsUp(cmd) {
			return next(ctx, cmd)
		}
		return h.do(ctx, []redis.Cmder{cmd}, func(ctx context.Context) error { return next(ctx, cmd) })
	}
}

// ProcessPipelineHook is for a pipeline.
func (h redisHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if !slices.ContainsFunc(cmds, func(cmd redis.Cmder) bool { return !setsUp(cmd) }) {
			return next(ctx, cmds)
		}
		var sent error
		err := h.do(ctx, cmds, func(ctx context.Context) error {
			sent = next(ctx, cmds)
			return sent
		})
		// If the pipeline was refused, or its reply is lost, so is each command.
		if err != nil && !errors.Is(err, sent) {
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
		}
		return err
	}
}

// setsUp says whether go-redis sends cmd by itself, to ready a connection for its
// next user.
func setsUp(cmd redis.Cmder) bool {
	switch cmd.Name() {
	case "hello", "auth", "select", "client", "readonly", "unwatch":
		return true
	}
	return false
}

// keysOf returns the keys of a command that a lock uses. Of any other, the first
// argument is taken for its key.
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
