package tap

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Redis returns a hook that makes every command of a go-redis client through
// t. A pipeline, and a transaction, is one call. Subscriptions do not pass any
// hook, and what a client says to set up a connection passes untapped.
func Redis(t Tap, instance, target string) redis.Hook {
	return Commands(func(ctx context.Context, cmds []redis.Cmder, send func(context.Context) error) error {
		return Do(ctx, t, opOf(ctx, Op{Instance: instance, Target: target}, cmds), send)
	})
}

// Commands returns a hook that leaves every command of a go-redis client to do,
// and every pipeline as the one round trip that it is. do makes it by send, and
// the error that it returns is what the caller is told of all of it. What a
// client says to set up a connection passes by.
func Commands(do func(ctx context.Context, cmds []redis.Cmder, send func(context.Context) error) error) redis.Hook {
	return redisHook{do}
}

type redisHook struct {
	do func(context.Context, []redis.Cmder, func(context.Context) error) error
}

// DialHook lets dialling pass: it is no call, and fails like one by itself.
func (h redisHook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook is of one command. go-redis stores the returned error in it.
func (h redisHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if setsUp(cmd) {
			return next(ctx, cmd)
		}
		return h.do(ctx, []redis.Cmder{cmd}, func(ctx context.Context) error { return next(ctx, cmd) })
	}
}

// ProcessPipelineHook is of a pipeline.
func (h redisHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if allSetUp(cmds) {
			return next(ctx, cmds)
		}
		var sent error
		err := h.do(ctx, cmds, func(ctx context.Context) error {
			sent = next(ctx, cmds)
			return sent
		})
		// A refusal, or a lost reply, is the fate of every command of it.
		if err != nil && !errors.Is(err, sent) {
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
		}
		return err
	}
}

func opOf(ctx context.Context, op Op, cmds []redis.Cmder) Op {
	for _, cmd := range cmds {
		op.Keys = append(op.Keys, keysOf(cmd.Args())...)
	}
	return OpFrom(ctx, op)
}

// setsUp says whether go-redis sends cmd of itself, to ready a connection for its
// next user.
func setsUp(cmd redis.Cmder) bool {
	switch cmd.Name() {
	case "hello", "auth", "select", "client", "readonly", "unwatch":
		return true
	}
	return false
}

func allSetUp(cmds []redis.Cmder) bool {
	for _, cmd := range cmds {
		if !setsUp(cmd) {
			return false
		}
	}
	return true
}

// keysOf returns the keys of a command. It knows where those commands have
// them that a lock uses; the key of any other is taken to come first.
func keysOf(args []any) []string {
	if len(args) < 2 {
		return nil
	}
	switch strings.ToLower(text(args[0])) {
	case "eval", "evalsha", "eval_ro", "evalsha_ro", "fcall", "fcall_ro":
		if len(args) < 3 {
			return nil
		}
		n, err := strconv.Atoi(text(args[2]))
		if err != nil || n < 0 {
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
		keys[i] = text(a)
	}
	return keys
}

// text is an argument as it goes over the wire, of the types that keys and
// their number come in.
func text(arg any) string {
	switch v := arg.(type) {
	case string:
		return v
	case []byte:
		return string(v)
	case int:
		return strconv.Itoa(v)
	case int64:
		return strconv.FormatInt(v, 10)
	default:
		return ""
	}
}

// Dialer opens connections for a client.
type Dialer = func(ctx context.Context, network, addr string) (net.Conn, error)
