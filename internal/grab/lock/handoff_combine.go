package lock

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"
)

// handoffDirect is how many scripts of a process are under way one by one. Up
// to here sharing a request would cost more than it saves: it was measured with
// 1, 2, 3, 4 and 8, of 1 to 64 workers.
const handoffDirect = 4

// Combine has handoff's scripts share requests, where a process calls more than
// a few at the same time: while handoffDirect are under way, the others wait, and
// go out together with the next reply. Most of what a script costs is the reading
// and writing of its own packets, on both sides. It is for a client of one node,
// and comes after all other hooks: they see each script by itself.
func Combine(client redis.UniversalClient) {
	if single, ok := client.(*redis.Client); ok {
		single.AddHook(new(combiner))
	}
}

// mayCombine marks the context of a command that may go out with others.
type mayCombine struct{}

// combiner is the hook. A command that is not marked passes.
type combiner struct {
	pipeline redis.ProcessPipelineHook // past all hooks

	mu      sync.Mutex
	busy    int
	waiting []*combined
}

// combined is a script that goes out with others.
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
		s := c.queue(ctx, script)
		if s == nil {
			defer c.leave()
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

// queue has a script wait for the next request. It is nil if it need not.
func (c *combiner) queue(ctx context.Context, script *redis.Cmd) *combined {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy < handoffDirect {
		c.busy++
		return nil
	}
	s := &combined{redis.NewCmd(ctx, script.Args()...), make(chan struct{})}
	c.waiting = append(c.waiting, s)
	return s
}

// leave ends a request, and begins another with all that wait.
func (c *combiner) leave() {
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
	defer c.leave()
	cmds := make([]redis.Cmder, len(together))
	for i, s := range together {
		cmds[i] = s.cmd
	}
	_ = c.pipeline(context.Background(), cmds) // each has its own error
	for _, s := range together {
		close(s.done)
	}
}
