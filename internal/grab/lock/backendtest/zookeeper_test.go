package backendtest

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"grablab/internal/tap"

	"github.com/go-zookeeper/zk"
)

// TestZooKeeperNodeAheadGoesBeforeItIsWatched deletes the node ahead after a waiter has read the
// queue, but before it watches that node. The waiter must read the queue again, because another
// client may be first.
func TestZooKeeperNodeAheadGoesBeforeItIsWatched(t *testing.T) {
	const key = "gone-before-watch"
	b := newBed(t, "zookeeper")
	a := acquire(t, b.locker(t, 10*time.Second, 0, nil), key)
	second, hangUp := trying(t, b.locker(t, 10*time.Second, 20*time.Second, nil), key)
	b.queued(t, key, 2)
	nodes, err := b.left(t.Context(), key)
	must(t, err)
	node := dir(key) + "/" + slices.MaxFunc(nodes, bySequence)

	g := newGate(func(tap.Op) bool { return true })
	watches := func(ctx context.Context, path string, call func() error) error {
		if path != node { // the third client's first call about the second client's node is the watch
			return call()
		}
		return g.tap(ctx, tap.Op{}, func(context.Context) error { return call() })
	}
	third, cancel := trying(t, b.zooKeeper(t, 10*time.Second, 20*time.Second, watches), key)
	defer cancel()
	<-g.reached
	hangUp()
	if lease := <-second; lease != nil {
		t.Fatal("a client that hung up has the lock")
	}
	b.queued(t, key, 2)
	close(g.opened)
	select {
	case lease := <-third:
		t.Fatalf("the third client returned while the first one held the lock: %v", lease)
	case <-time.After(300 * time.Millisecond):
	}
	must(t, a.Release(t.Context()))
	lease := <-third
	if lease == nil {
		t.Fatal("the third client did not get the lock")
	}
	must(t, lease.Release(t.Context()))
	b.mustBeFree(t, key)
}

func bySequence(a, b string) int {
	number := func(name string) string { return name[strings.LastIndexByte(name, '-')+1:] }
	return strings.Compare(number(a), number(b))
}

// TestZooKeeperDeletesTheNodeOfALostLease blocks a holder's renewal until the lease is lost, although
// the session stays alive. The holder's node must be deleted, so that the next client gets the lock.
func TestZooKeeperDeletesTheNodeOfALostLease(t *testing.T) {
	const key = "lost-lease"
	b := newBed(t, "zookeeper")
	g := newGate(func(op tap.Op) bool { return op.Phase == tap.Renew })
	scope := tap.Scope{Order: 1, Driver: 1}
	ctx, acquired := scope.Enter(t.Context(), tap.Acquire)
	a, err := b.locker(t, time.Second, 0, g.tap).Acquire(ctx, key)
	must(t, err)
	acquired()
	<-g.reached
	defer close(g.opened)
	<-a.Lost()

	next, cancel := trying(t, b.locker(t, time.Second, 20*time.Second, nil), key)
	defer cancel()
	lease := <-next
	if lease == nil {
		t.Fatal("the node of the lost lease still blocks the lock")
	}
	must(t, lease.Release(t.Context()))
}

// TestZooKeeperDeletesTheNodeOfAFailedCreate makes a create request succeed on the server, but fail in
// the client after its caller has disconnected. The client does not know the node's name, but must
// find and delete the node.
func TestZooKeeperDeletesTheNodeOfAFailedCreate(t *testing.T) {
	const key = "failed-create"
	b := newBed(t, "zookeeper")
	must(t, acquire(t, b.locker(t, 10*time.Second, 0, nil), key).Release(t.Context())) // creates the parent
	var once sync.Once
	created, answer := make(chan struct{}), make(chan struct{})
	lossy := func(_ context.Context, path string, call func() error) error {
		err := call()
		if strings.HasPrefix(path, dir(key)+"/") {
			once.Do(func() {
				close(created)
				<-answer
				err = zk.ErrConnectionClosed
			})
		}
		return err
	}
	got, hangUp := trying(t, b.zooKeeper(t, 10*time.Second, 0, lossy), key)
	<-created
	hangUp()
	if <-got != nil {
		t.Fatal("a client that hung up has the lock")
	}
	close(answer)
	b.mustBeFree(t, key)
}
