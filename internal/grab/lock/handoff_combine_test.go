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

// combinedClient returns a client that combines, with a hook above and one below. The
// one below holds back what comes by itself.
func combinedClient(t *testing.T) (client *redis.Client, above, below *passing) {
	client = redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr(), MaxRetries: -1, DisableIdentity: true})
	t.Cleanup(func() { client.Close() })
	above, below = &passing{held: make(chan struct{})}, &passing{held: make(chan struct{})}
	close(above.held)
	client.AddHook(above)
	Combine(client)
	client.AddHook(below)
	return client, above, below
}

// await returns when so many have come by themselves.
func (p *passing) await(n int32) {
	for p.single.Load() < n {
		runtime.Gosched()
	}
}

// Scripts that are called while others are under way go out together. The hooks
// of the caller see each by itself, and each has its own reply.
func TestCombine(t *testing.T) {
	client, above, below := combinedClient(t)
	echo := newHandoffScript(`if ARGV[1] == '7' then return redis.error_reply('NO') end return ARGV[1]`)
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
	above.await(callers)
	below.await(handoffDirect)
	if n := below.single.Load(); n != handoffDirect {
		t.Errorf("%d are under way by themselves, want %d", n, handoffDirect)
	}
	close(below.held)
	calls.Wait()
	if n := above.batched.Load(); n != 0 {
		t.Errorf("the hook above saw batches, of %d in all", n)
	}
	if n := below.single.Load(); n != handoffDirect {
		t.Errorf("%d of %d went out by themselves, want %d", n, callers, handoffDirect)
	}
}

// A caller whose context ends does not wait for the others, nor they for him.
func TestCombineCancelled(t *testing.T) {
	client, above, below := combinedClient(t)
	one := newHandoffScript(`return 1`)
	var calls sync.WaitGroup
	for range handoffDirect {
		calls.Go(func() { one.run(t.Context(), client, nil) })
	}
	below.await(handoffDirect)
	ctx, cancel := context.WithCancel(t.Context())
	calls.Go(func() {
		above.await(handoffDirect + 1)
		cancel()
	})
	if err := one.run(ctx, client, nil).Err(); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	close(below.held)
	calls.Wait()
	if n, err := one.run(t.Context(), client, nil).Int(); n != 1 || err != nil {
		t.Errorf("afterwards: %d, %v", n, err)
	}
}
