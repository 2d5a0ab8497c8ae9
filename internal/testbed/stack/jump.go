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

// Jump makes a Redis server behave as if its clock had been set ahead by d. To do this, it changes
// the expiry of every key. The reply to TIME stays correct.
func (s *Stack) Jump(ctx context.Context, server string, d time.Duration) error {
	addr, err := s.address(server)
	if err != nil {
		return err
	}
	if !isRedis(server) {
		return fmt.Errorf("%w: %s has no clock that can be moved: choose a Redis", ErrRefused, server)
	}
	client := newRedis(addr)
	defer client.Close()
	if err := redis.NewScript(jumpLua).Eval(ctx, client, nil, d.Milliseconds()).Err(); err != nil {
		return fmt.Errorf("stack: move the clock of %s: %w", server, err)
	}
	return nil
}
