package conformtest

import (
	"context"

	"grablab/internal/tap/redishook"

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
var redisReplies = redishook.Hook(func(ctx context.Context, _ []redis.Cmder, send func(context.Context) error) error {
	err := send(ctx)
	if lost := Replied(ctx); lost != nil {
		return lost
	}
	return err
})
