package locktest

import (
	"context"
	"net"

	"github.com/redis/go-redis/v9"
)

type replyKey struct{}

// onReply returns a context under which f is called after every reply of a
// server, before the lock sees it. An error takes the reply's place: what was
// asked has been done, and nobody will know.
func onReply(ctx context.Context, f func() error) context.Context {
	return context.WithValue(ctx, replyKey{}, f)
}

// Replied is called by a client when a reply has come for ctx. It may wait; an
// error takes the reply's place.
func Replied(ctx context.Context) error {
	if f, ok := ctx.Value(replyKey{}).(func() error); ok {
		return f()
	}
	return nil
}

// redisReplies is Replied for a Redis client.
type redisReplies struct{}

func (redisReplies) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (redisReplies) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if lost := Replied(ctx); lost != nil {
			cmd.SetErr(lost)
			return lost
		}
		return err
	}
}

func (redisReplies) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if lost := Replied(ctx); lost != nil {
			for _, cmd := range cmds {
				cmd.SetErr(lost)
			}
			return lost
		}
		return err
	}
}
