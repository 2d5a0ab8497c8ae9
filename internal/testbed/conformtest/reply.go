package conformtest

import (
	"cmp"
	"context"

	"grablab/internal/tap/redishook"

	"github.com/redis/go-redis/v9"
)

type replyKey struct{}

// onReply returns a context that makes Replied call f after every reply, before the lock sees the
// reply. If f returns an error, the lock gets this error instead.
func onReply(ctx context.Context, f func() error) context.Context {
	return context.WithValue(ctx, replyKey{}, f)
}

// Replied must be called by a client after each reply. It may block. If it returns an error, the
// client must return this error instead of the reply.
func Replied(ctx context.Context) error {
	if f, ok := ctx.Value(replyKey{}).(func() error); ok {
		return f()
	}
	return nil
}

// aroundRedis calls Redis and then Replied, which may replace the reply with an error.
func aroundRedis(ctx context.Context, _ string, call func() error) error {
	err := call()
	return cmp.Or(Replied(ctx), err)
}

// redisReplies makes a go-redis client call Replied after every command.
var redisReplies = redishook.Hook(func(ctx context.Context, _ []redis.Cmder, send func(context.Context) error) error {
	return aroundRedis(ctx, "", func() error { return send(ctx) })
})
