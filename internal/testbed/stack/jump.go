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

// Jump makes the keys of a Redis server expire earlier by d, as if its clock had been set forward.
// The server's reply to TIME does not change.
func (s *Stack) Jump(ctx context.Context, server string, d time.Duration) error {
	addr, err := s.address(server)
	if err != nil {
		return err
	}
	if !isRedis(server) {
		return fmt.Errorf("%w: the clock of %s cannot be moved: choose a Redis server", ErrRefused, server)
	}
	client := newRedis(addr)
	defer client.Close()
	if err := redis.NewScript(jumpLua).Eval(ctx, client, nil, d.Milliseconds()).Err(); err != nil {
		return fmt.Errorf("stack: cannot move the clock of %s: %w", server, err)
	}
	return nil
}
