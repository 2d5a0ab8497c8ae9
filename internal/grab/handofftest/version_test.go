package handoff_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"grablab/handoff"
	"grablab/internal/testbed/conformtest"

	"github.com/redis/go-redis/v9"
)

// frozenClient is a process that uses the first released scripts of protocol version 1. Do not change
// these files in testdata/protocol1, because they represent programs that are already deployed.
type frozenClient struct {
	client  redis.UniversalClient
	channel string
	turns   int
	grants  <-chan *redis.Message
}

func newFrozenClient(t *testing.T, client redis.UniversalClient, id string) *frozenClient {
	c := &frozenClient{client: client, channel: "handoff:" + id + ":30000"}
	pubsub := client.Subscribe(t.Context(), c.channel)
	t.Cleanup(func() { _ = pubsub.Close() })
	must(pubsub.Receive(t.Context())) // the subscription is ready
	c.grants = pubsub.Channel()
	return c
}

func (c *frozenClient) run(ctx context.Context, files []string, args ...any) (int64, error) {
	text := "local block, first, queueTTL, counterTTL, counts = 32, 1000000, 60000, 90000000, true\n"
	for _, file := range files {
		part, err := os.ReadFile(filepath.Join("testdata", "protocol1", file+".lua"))
		if err != nil {
			return 0, err
		}
		text += string(part) + "\n"
	}
	return redis.NewScript(text).Run(ctx, c.client, []string{key, key + ":queue", key + ":fence"}, args...).Int64()
}

// acquire waits for the lock. It returns the name of the turn and its first token.
func (c *frozenClient) acquire(ctx context.Context) (name string, fence uint64, err error) {
	c.turns++
	name = c.channel + "/" + strconv.Itoa(c.turns)
	n, err := c.run(ctx, []string{"acquire", "functions", "queue"}, name, 30000, "join", "")
	for err == nil && n == 0 {
		select {
		case m := <-c.grants:
			if fields := strings.Fields(m.Payload); fields[0] == name {
				n, err = strconv.ParseInt(fields[1], 10, 64)
			}
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if err == nil && max(n, -n) < 1_000_000 {
		err = fmt.Errorf("the reply to an acquire is %d", n)
	}
	return name, uint64(max(n, -n) - 31), err
}

func (c *frozenClient) release(ctx context.Context, name string) error {
	if n, err := c.run(ctx, []string{"functions", "release"}, name, ""); err != nil || n > 1 {
		return fmt.Errorf("the reply to a release is %d, %v", n, err)
	}
	return nil
}

// TestMixedVersions checks that processes with the current scripts and processes with the first scripts
// can share a key. There must be one holder at a time, and growing tokens.
func TestMixedVersions(t *testing.T) {
	const rounds = 100
	addr := conformtest.RedisServer(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var (
		processes sync.WaitGroup
		holders   atomic.Int32
		fences    []uint64 // guarded by the lock under test
	)
	hold := func(fence uint64) {
		if holders.Add(1) != 1 {
			t.Error("two holders at once")
		}
		fences = append(fences, fence)
		holders.Add(-1)
	}
	for range 2 {
		locks := open(t, addr, 30*time.Second)
		for range 2 {
			processes.Go(func() {
				for range rounds {
					lease, err := locks.Acquire(ctx, key)
					if err != nil {
						t.Error(err)
						return
					}
					hold(lease.Fence())
					if err := lease.Release(ctx); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	for _, id := range []string{"old1", "old2"} {
		c := newFrozenClient(t, clientOf(t, addr), id)
		processes.Go(func() {
			for range rounds {
				name, fence, err := c.acquire(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				hold(fence)
				if err := c.release(ctx, name); err != nil {
					t.Error(err)
				}
			}
		})
	}
	processes.Wait()
	if len(fences) != 6*rounds || !slices.IsSorted(fences) || len(slices.Compact(fences)) != 6*rounds {
		t.Errorf("%d acquisitions; want %d with tokens that grow", len(fences), 6*rounds)
	}
	nothingLeftOn(t, clientOf(t, addr))
}

// TestAlienKey checks that an acquire returns ErrProtocol if another protocol version or another program
// uses the key, even if that starts only during the wait. The key must not change.
func TestAlienKey(t *testing.T) {
	for name, value := range map[string]string{
		"a newer version": "handoff2:process:30000/1",
		"another library": "8b1a9953",
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				p, q := b.process(), b.process()
				b.node.Set(key, value)
				for range 2 {
					_, errTry := p.TryAcquire(b.Context(), key)
					_, err := p.Acquire(b.Context(), key)
					if !errors.Is(errTry, handoff.ErrProtocol) || !errors.Is(err, handoff.ErrProtocol) {
						b.Errorf("TryAcquire: %v; Acquire: %v; want ErrProtocol", errTry, err)
					}
				}
				if got, _ := b.node.Get(key); got != value || b.queued() != 0 {
					b.Errorf("the key contains %q, with %d turns in its queue", got, b.queued())
				}
				b.node.Del(key)
				lease := p.take()
				waiting := make(chan error, 1)
				go func() {
					_, err := q.Acquire(b.Context(), key)
					waiting <- err
				}()
				synctest.Wait()
				b.node.Set(key, value)
				time.Sleep(ttl)
				synctest.Wait()
				select {
				case err := <-waiting:
					if !errors.Is(err, handoff.ErrProtocol) {
						b.Errorf("a waiter got %v; want ErrProtocol", err)
					}
				default:
					b.Error("the waiter has not noticed that another program uses the key")
				}
				if err := lease.Release(b.Context()); !errors.Is(err, handoff.ErrLost) {
					b.Errorf("the release returned %v; want ErrLost", err)
				}
				if got, _ := b.node.Get(key); got != value || b.queued() != 0 {
					b.Errorf("the key contains %q, with %d turns in its queue", got, b.queued())
				}
				b.node.Del(key)
				b.release(q.take())
				b.nothingLeft()
			})
		})
	}
}
