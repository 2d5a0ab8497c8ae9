package handoff

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"
)

// direct is how many requests of a process are under way one by one. Up to here
// sharing one would cost more than it saves.
const direct = 4

// Combine has the requests of all lockers on client share round trips, where a process
// makes more than a few at the same time: while those are under way, the others wait, and
// go out together with the next reply. It doubles the rate over many keys. Call it once, after
// all other hooks were added: they see each request by itself. No other command is touched.
func Combine(client redis.UniversalClient) {
	if single, ok := client.(*redis.Client); ok { // those of a Cluster have several servers
		single.AddHook(new(combiner))
	}
}

// mayCombine marks the context of a command that may go out with others.
type mayCombine struct{}

// combiner is the hook. A command that is not marked passes.
type combiner struct {
	pipeline redis.ProcessPipelineHook // past all other hooks

	mu      sync.Mutex
	busy    int
	waiting []*combined
}

// combined is a request that goes out with others.
type combined struct {
	cmd  *redis.Cmd // a copy: its caller may have gone
	done chan struct{}
}

func (c *combiner) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *combiner) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	if c.pipeline == nil {
		c.pipeline = next
	}
	return next
}

func (c *combiner) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		script, ok := cmd.(*redis.Cmd)
		if !ok || ctx.Value(mayCombine{}) == nil {
			return next(ctx, cmd)
		}
		s := c.enqueue(ctx, script)
		if s == nil {
			defer c.complete()
			return next(ctx, cmd)
		}
		select {
		case <-s.done:
		case <-ctx.Done():
			script.SetErr(ctx.Err())
			return ctx.Err()
		}
		script.SetVal(s.cmd.Val())
		script.SetErr(s.cmd.Err())
		return script.Err()
	}
}

// enqueue has a request wait for the next round trip. It is nil if it need not.
func (c *combiner) enqueue(ctx context.Context, script *redis.Cmd) *combined {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy < direct {
		c.busy++
		return nil
	}
	s := &combined{redis.NewCmd(ctx, script.Args()...), make(chan struct{})}
	c.waiting = append(c.waiting, s)
	return s
}

// complete ends a round trip, and begins another with all that wait.
func (c *combiner) complete() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) == 0 {
		c.busy--
		return
	}
	together := c.waiting
	c.waiting = nil
	go c.send(together)
}

// send belongs to no one caller: each is bound by the client's time-outs.
func (c *combiner) send(together []*combined) {
	defer c.complete()
	cmds := make([]redis.Cmder, len(together))
	for i, s := range together {
		cmds[i] = s.cmd
	}
	_ = c.pipeline(context.Background(), cmds) // each has its own error
	for _, s := range together {
		close(s.done)
	}
}
