package lock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/order"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	grpcbackoff "google.golang.org/grpc/backoff"
)

// etcd follows the recipe of etcd's own concurrency package. Every client that wants the lock puts
// a key under the lock's prefix. The key with the lowest create revision holds the lock. Each of
// the other clients watches the key just before its own. The key is bound to a lease. Its
// create revision grows with each acquisition and serves as the fencing token.
//
// Every acquisition has its own lease. If several acquisitions shared one session, two goroutines
// would use the same key and both would hold the lock (F28). A put that arrived after its clean-up
// would also be kept alive by the other acquisitions (F14). If each acquisition has its own lease,
// a late put fails because that lease is revoked.
//
// Our renewer keeps the lease alive instead of concurrency.Session. That session counts the TTL
// from the arrival of the reply, and checks it only once a second.
//
// F29 breaks the lock (internal/explore/testdata/F29.txt). A's lease expires while A is cut off or
// paused. Then B locks and writes. A checked its lease just before it expired, so A writes too. A
// lease is renewed as long as its process lives, even if the work hangs (F15).
var etcd = Strategy{
	Name:     "etcd",
	Title:    "the key with the lowest create revision has the lock; a lease keeps the key",
	Family:   "consensus",
	Source:   "etcd: client/v3/concurrency",
	Needs:    Etcd,
	Guard:    order.Naive,
	Fences:   true,
	Claims:   catalog.ClaimsOf("consensus"),
	Excludes: catalog.Global,
	Waiter:   "watches the key just before its own",
	Breaks:   []string{"F15", "F29", "F41"},
	Promises: Promises{InOrder: catalog.PerProcess}, // the clients of one process queue inside the process first
	New: func(env Env) (Locker, error) {
		if env.Etcd == nil {
			return nil, errors.New("lock: this strategy needs an etcd")
		}
		if err := needTTL(env); err != nil {
			return nil, err
		}
		return newEtcdLocker(env)
	},
}

// DialEtcd returns an etcd client that connects later. If the client loses its server, it tries to
// reconnect at least once a second.
func DialEtcd(endpoints []string, opts ...grpc.DialOption) (*clientv3.Client, error) {
	again := grpcbackoff.DefaultConfig
	again.BaseDelay, again.MaxDelay = 50*time.Millisecond, time.Second
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            endpoints,
		DialKeepAliveTime:    10 * time.Second,
		DialKeepAliveTimeout: serverTimeout,
		DialOptions:          append(opts, grpc.WithConnectParams(grpc.ConnectParams{Backoff: again, MinConnectTimeout: serverTimeout})),
		Logger:               zap.NewNop(), // no log is needed, because every error is returned
	})
	if err != nil {
		return nil, fmt.Errorf("lock: etcd: %w", err)
	}
	return client, nil
}

type etcdLocker struct {
	env      Env
	leases   pb.LeaseClient
	lease    time.Duration // the TTL that the server grants
	queue    keyedMutex
	renewers renewers
}

// newEtcdLocker finds out which TTL the server grants, because etcd rounds it to seconds and has a
// minimum. To find out, newEtcdLocker creates a lease and revokes it.
func newEtcdLocker(env Env) (*etcdLocker, error) {
	l := &etcdLocker{env: env, leases: clientv3.RetryLeaseClient(env.Etcd)}
	ctx, cancel := context.WithTimeout(context.Background(), serverTimeout)
	defer cancel()
	granted, err := env.Etcd.Grant(ctx, l.seconds())
	if err != nil {
		return nil, fmt.Errorf("%w: etcd at %s: %w", ErrUnreachable, strings.Join(env.Etcd.Endpoints(), ","), err)
	}
	l.lease = time.Duration(granted.TTL) * time.Second
	_, err = env.Etcd.Revoke(ctx, granted.ID)
	return l, err
}

func (l *etcdLocker) seconds() int64 { return int64((l.env.TTL + time.Second - 1) / time.Second) }

// Lease returns the TTL that the server grants. It is never shorter than Env.TTL.
func (l *etcdLocker) Lease() time.Duration { return l.lease }

func (l *etcdLocker) Close() error {
	l.renewers.close()
	return nil
}

func (l *etcdLocker) Acquire(ctx context.Context, key string) (_ Lease, err error) {
	wait := l.env.wait(ctx)
	giveUp := time.Now().Add(wait)
	// Only one client of this process may be in the server's queue at a time.
	unlock, err := l.queue.lock(ctx, key, wait)
	if err != nil {
		return nil, err
	}
	defer unlock()

	lease, err := l.grant(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			cleanUp(ctx, lease.Release)
		}
	}()
	ahead, err := lease.enqueue(ctx, key)
	if err != nil {
		return nil, err
	}
	if err := lease.await(ctx, ahead, giveUp); err != nil {
		return nil, err
	}
	select {
	case <-lease.Lost():
		return nil, errLate
	default:
		return lease, nil
	}
}

// An etcdLease is our key in the queue of a lock. The client whose key is first holds the lock.
type etcdLease struct {
	*renewer
	l           *etcdLocker
	id          clientv3.LeaseID
	token       string
	prefix, key string
	revision    int64 // the revision in which the key was created
	released    atomic.Bool
}

// grant creates a lease and starts to renew it. If the reply is lost, the server has a lease
// without keys, which expires by itself.
func (l *etcdLocker) grant(ctx context.Context) (*etcdLease, error) {
	end := time.Now().Add(l.lease)
	granted, err := withinLease(ctx, l, func(ctx context.Context) (*clientv3.LeaseGrantResponse, error) {
		return l.env.Etcd.Grant(ctx, l.seconds())
	})
	if err != nil {
		return nil, err
	}
	lease := &etcdLease{l: l, id: granted.ID, token: l.env.Token()}
	lease.renewer = l.renewers.start(ctx, end, l.lease, lease.renew)
	return lease, nil
}

// renew sends one keep-alive request. The client's KeepAlive method would retry without pausing
// while no server is reachable.
func (e *etcdLease) renew(ctx context.Context) (time.Time, error) {
	end := time.Now().Add(e.l.lease)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := e.l.leases.LeaseKeepAlive(ctx)
	if err != nil {
		return end, err
	}
	if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(e.id)}); err != nil {
		return end, err
	}
	kept, err := stream.Recv()
	if err == nil && kept.TTL <= 0 {
		err = ErrLost
	}
	return end, err
}

// enqueue writes our key and returns the key directly ahead of ours. If enqueue fails, our key
// disappears with its lease.
func (e *etcdLease) enqueue(ctx context.Context, key string) (ahead string, err error) {
	e.prefix = key + "/"
	e.key = fmt.Sprintf("%s%x", e.prefix, e.id)
	put := clientv3.OpPut(e.key, e.token, clientv3.WithLease(e.id))
	look := clientv3.OpGet(e.prefix, e.lastTwo()...)
	done, err := withinLease(ctx, e.l, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return e.l.env.Etcd.Txn(ctx).Then(put, look).Commit()
	})
	if err != nil {
		return "", err
	}
	e.revision = done.Header.Revision
	return e.ahead(done.Responses[1].GetResponseRange().Kvs)
}

// withinLease limits a call to the duration of a lease, because a later reply would be useless.
func withinLease[T any](ctx context.Context, l *etcdLocker, call func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, l.lease, errLate)
	defer cancel()
	value, err := call(ctx)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return value, err
}

// lastTwo returns options that select our key and the key ahead of it. If the revision of our key
// is not known yet, the options select the two newest keys.
func (e *etcdLease) lastTwo() []clientv3.OpOption {
	return append(clientv3.WithLastCreate(), clientv3.WithMaxCreateRev(e.revision), clientv3.WithLimit(2), clientv3.WithKeysOnly())
}

var errRanOut = errors.New("lock: the etcd lease ran out while waiting")

// ahead returns the key ahead of ours, or "" if our key is the first. found contains the keys that
// lastTwo selected.
func (e *etcdLease) ahead(found []*mvccpb.KeyValue) (string, error) {
	switch {
	case len(found) == 0 || found[0].CreateRevision != e.revision:
		return "", errRanOut
	case len(found) == 1:
		return "", nil
	default:
		return string(found[1].Key), nil
	}
}

// await waits until no key is ahead of ours.
func (e *etcdLease) await(ctx context.Context, ahead string, giveUp time.Time) (err error) {
	waiting, cancel := context.WithDeadline(clientv3.WithRequireLeader(ctx), giveUp)
	defer cancel()
	for ahead != "" && err == nil {
		ahead, err = e.awaitEnd(ctx, waiting, ahead, giveUp)
	}
	return err
}

// awaitEnd watches the key ahead of ours. When that key has changed or the watch has ended,
// awaitEnd returns the key that is now ahead of ours.
//
// It reads the queue again on three occasions. The first is when the watch is established, because
// the key may have disappeared before. The second is when the key is deleted, and the third is when
// the waiting time is over.
//
// A watch from a given revision would need no second read. However, etcd serves a watch on an older
// revision only ten times a second.
func (e *etcdLease) awaitEnd(ctx, waiting context.Context, key string, giveUp time.Time) (ahead string, err error) {
	waiting, cancel := context.WithCancel(waiting)
	defer cancel()
	events := e.l.env.Etcd.Watch(waiting, key, clientv3.WithCreatedNotify(), clientv3.WithFilterPut())
	for stands := true; stands; {
		if !time.Now().Before(giveUp) {
			return "", ErrBusy
		}
		select {
		case _, stands = <-events:
			if !stands { // the watch has ended, perhaps because no server is reachable
				sleep(waiting, reconnectPause)
			}
		case <-e.Lost():
			return "", errRanOut
		}
		got, err := withinLease(ctx, e.l, func(ctx context.Context) (*clientv3.GetResponse, error) {
			return e.l.env.Etcd.Get(ctx, e.prefix, e.lastTwo()...)
		})
		if err != nil {
			return "", err
		}
		if ahead, err = e.ahead(got.Kvs); err != nil || ahead != key {
			return ahead, err
		}
	}
	return ahead, nil
}

func (e *etcdLease) Token() string { return e.token }
func (e *etcdLease) Fence() uint64 { return uint64(e.revision) }

func (e *etcdLease) Release(ctx context.Context) error {
	if e.released.Swap(true) {
		return ErrLost
	}
	e.stop()
	_, err := e.l.env.Etcd.Revoke(ctx, e.id)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return ErrLost
	}
	return err
}
