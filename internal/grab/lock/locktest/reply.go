package locktest

import (
	"context"

	"github.com/redis/go-redis/v9"
)

type replyKey struct{}

// onReply returns a context under which f is called after every reply of a
// server, before the lock sees it. An error takes the reply's place: the server has
// done what was asked, and the lock cannot know.
func onReply(ctx context.Context, f func() error) context.Context {
	return context.WithValue(ctx, replyKey{}, f)
}

// Replied is to be called by a client when a reply has come for ctx. It may wait; an
// error takes the reply's place.
func Replied(ctx context.Context) error {
	if f, ok := ctx.Value(replyKey{}).(func() error); ok {
		return f()
	}
	return nil
}

// redisReplies is Replied for a Redis client.
var redisReplies = Hook(func(ctx context.Context, _ []redis.Cmder, send func(context.Context) error) error {
	err := send(ctx)
	if lost := Replied(ctx); lost != nil {
		return lost
	}
	return err
})

// Hook stands around every command, pipeline and transaction of a Redis client, and
// may send it never, later or twice. An error that is not send's takes the place of
// each reply.
type Hook func(ctx context.Context, cmds []redis.Cmder, send func(context.Context) error) error

// DialHook has no part in connections.
func (h Hook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook stands around single commands.
func (h Hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return h.around(ctx, []redis.Cmder{cmd}, func(ctx context.Context) error { return next(ctx, cmd) })
	}
}

// ProcessPipelineHook stands around pipelines and transactions.
func (h Hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return h.around(ctx, cmds, func(ctx context.Context) error { return next(ctx, cmds) })
	}
}

func (h Hook) around(ctx context.Context, cmds []redis.Cmder, send func(context.Context) error) error {
	var sent error
	err := h(ctx, cmds, func(ctx context.Context) error {
		sent = send(ctx)
		return sent
	})
	if err != nil && err != sent {
		for _, cmd := range cmds {
			cmd.SetErr(err)
		}
	}
	return err
}
