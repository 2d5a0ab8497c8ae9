package stack

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed jump.lua
var jumpLua string

// Jump has the clock of a Redis, by its name, go forward by d, or back if d is
// negative: every expiry moves, at once. What the node answers to TIME does not.
func (s *Stack) Jump(ctx context.Context, server string, d time.Duration) error {
	addr, err := s.address(server)
	if err != nil {
		return err
	}
	if !isRedis(server) {
		return fmt.Errorf("%w: a lease of %s does not end by a clock that can be moved", ErrRefused, server)
	}
	client := newRedis(addr)
	defer client.Close()
	if err := redis.NewScript(jumpLua).Eval(ctx, client, nil, d.Milliseconds()).Err(); err != nil {
		return fmt.Errorf("stack: %s: the clock does not jump: %w", server, err)
	}
	return nil
}
