package lock_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"grablab/internal/grab/lock"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
)

// leaderless is a Watcher whose first watches go to a member that has lost its leader. All later
// watches work.
type leaderless struct {
	clientv3.Watcher
	watches int // the number of watches that still go to that member
}

// Watch simulates a watch on a member without a leader. Such a watch delivers no events. The member
// cancels it only if the client requires a leader.
func (l *leaderless) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	if l.watches == 0 {
		return l.Watcher.Watch(ctx, key, opts...)
	}
	l.watches--
	responses := make(chan clientv3.WatchResponse, 2)
	responses <- clientv3.WatchResponse{Created: true}
	md, _ := metadata.FromOutgoingContext(ctx)
	if len(md.Get(rpctypes.MetadataRequireLeaderKey)) > 0 {
		responses <- clientv3.WatchResponse{Canceled: true}
		close(responses)
	} else {
		context.AfterFunc(ctx, func() { close(responses) })
	}
	return responses
}

// TestWatchWithoutLeader sends a waiter's watches to a member that has lost its leader, while all
// other requests reach the leader. The waiter must not rely on such a silent watch, so it must get
// the lock soon after the release. It must also not flood the leader with requests.
func TestWatchWithoutLeader(t *testing.T) {
	const always = 1 << 30
	for _, watches := range []int{0, 1, 3, always} {
		t.Run(fmt.Sprint(watches), func(t *testing.T) {
			simulate(t, func(s *simulation) {
				a := s.actor("etcd")
				b := s.actor("etcd", func(e *lock.Env) {
					e.Wait, e.Etcd.Watcher = 9*time.Second, &leaderless{e.Etcd.Watcher, watches}
				})
				lease := a.lock()
				type result struct {
					lease lock.Lease
					err   error
				}
				got := make(chan result, 1)
				go func() {
					lease, err := b.Acquire(s.Context(), theKey)
					got <- result{lease, err}
				}()
				sent := b.sent(func() { time.Sleep(2 * time.Second) })
				if sent > 100 {
					s.Errorf("the waiter sent %d requests in 2s", sent)
				}
				began := time.Now()
				s.release(lease)
				r := <-got
				if took := time.Since(began); r.err != nil || took > time.Second {
					s.Fatalf("the acquire ended %v after the release, with error %v; want the lock within 1s", took, r.err)
				}
				s.release(r.lease)
				synctest.Wait()
			})
		})
	}
}
