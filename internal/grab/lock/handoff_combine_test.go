package lock

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// passing is a hook that counts what passes by, and holds back what comes by
// itself until held is closed.
type passing struct {
	single, batched atomic.Int32
	held            chan struct{}
}

func (p *passing) DialHook(next redis.DialHook) redis.DialHook { return next }

func (p *passing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if _, ok := cmd.(*redis.Cmd); ok { // what sets up a connection is another
			p.single.Add(1)
			<-p.held
		}
		return next(ctx, cmd)
	}
}

func (p *passing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		p.batched.Add(int32(len(cmds)))
		return next(ctx, cmds)
	}
}

// combining is a client that combines, with a hook above and one below.
type combining struct {
	*redis.Client
	above, below *passing
	combiner     *combiner
}

// newCombining has what comes by itself held back below until below.held is closed.
func newCombining(t *testing.T) combining {
	client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr(), MaxRetries: -1, DisableIdentity: true})
	t.Cleanup(func() { client.Close() })
	c := combining{client, &passing{held: make(chan struct{})}, &passing{held: make(chan struct{})}, new(combiner)}
	close(c.above.held)
	for _, hook := range []redis.Hook{c.above, c.combiner, c.below} {
		client.AddHook(hook)
	}
	return c
}

// await returns when as many as may are under way, and so many others wait.
func (c combining) await(waiting int) {
	for {
		c.combiner.mu.Lock()
		n := len(c.combiner.waiting)
		c.combiner.mu.Unlock()
		if n == waiting && c.below.single.Load() == handoffDirect {
			return
		}
		runtime.Gosched()
	}
}

// Scripts that are called while others are under way go out together. The hooks
// of the caller see each by itself, and each has its own reply.
func TestCombine(t *testing.T) {
	client := newCombining(t)
	echo := newHandoffScript(`if ARGV[1] == '7' then return redis.error_reply('NO') end return ARGV[1]`)
	if err := client.ScriptLoad(t.Context(), echo.text.(string)).Err(); err != nil {
		t.Fatal(err) // else some would be sent anew, whole
	}
	const callers = 20
	var calls sync.WaitGroup
	for i := range callers {
		calls.Go(func() {
			got, err := echo.run(t.Context(), client, nil, i).Result()
			if i == 7 && !redis.HasErrorPrefix(err, "NO") || i != 7 && (err != nil || got != fmt.Sprint(i)) {
				t.Errorf("call %d got %v, %v", i, got, err)
			}
		})
	}
	client.await(callers - handoffDirect)
	close(client.below.held)
	calls.Wait()
	if n := client.above.batched.Load(); n != 0 {
		t.Errorf("the hook above saw batches, of %d in all", n)
	}
	if n := client.below.single.Load(); n != handoffDirect {
		t.Errorf("%d of %d went out by themselves, want %d", n, callers, handoffDirect)
	}
}

// A caller whose context ends does not wait for the others, nor they for him.
func TestCombineCancelled(t *testing.T) {
	client := newCombining(t)
	one := newHandoffScript(`return 1`)
	var calls sync.WaitGroup
	for range handoffDirect {
		calls.Go(func() { one.run(t.Context(), client, nil) })
	}
	client.await(0)
	ctx, cancel := context.WithCancel(t.Context())
	calls.Go(func() {
		client.await(1)
		cancel()
	})
	if err := one.run(ctx, client, nil).Err(); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	close(client.below.held)
	calls.Wait()
	if n, err := one.run(t.Context(), client, nil).Int(); n != 1 || err != nil {
		t.Errorf("afterwards: %d, %v", n, err)
	}
}
