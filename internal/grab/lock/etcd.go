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

// etcd follows the recipe in etcd's own concurrency package. Each client puts a key under the lock's
// prefix, and the client with the oldest key holds the lock. Every other client watches the key just
// before its own. A key disappears when its etcd lease ends. Its create revision serves as the fencing
// token.
//
// Every acquisition has its own lease. With a shared session, two goroutines would use the same key and
// both would hold the lock (failure mode F28). A delayed put could also leave behind a key that the
// shared session keeps alive (F14).
//
// The renewals do not use concurrency.Session. A Session counts the TTL from the reply's arrival, and
// checks only once a second whether the TTL has passed.
//
// The lock can fail if A's lease expires just after A has checked it. B then locks and writes, and A
// writes too (F29). If the work hangs, the lease is renewed for as long as the process lives (F15).
var etcd = Strategy{
	Name:   "etcd",
	Title:  "the key with the lowest create revision holds the lock; a lease keeps it alive",
	Family: "consensus",
	Source: "etcd: client/v3/concurrency",
	Needs:  Etcd,
	Guard:  order.Naive,
	Fences: true, // the lock has a token, but this guard does not check it
	Claims: catalog.ClaimsOf("consensus"),
	InSearch: []SearchClaim{{
		Faults: []catalog.Fault{catalog.NodeClock}, As: catalog.Pause,
		Why: "in a search, an etcd lease may end early, as after `etcdctl lease revoke`, and its holder notices that only at its next renewal. In `run`, the fault strikes only Redis",
	}},
	Excludes: catalog.Global,
	Waiter:   "watches the key just before its own",
	Breaks:   []string{"F15", "F29", "F41"},
	Promises: Promises{InOrder: catalog.PerProcess}, // within one process, clients wait in a local queue first
	New:      newEtcdLocker,
}

// etcdFenced is the etcd lock with a fencing token that the database checks. The token is the
// create revision of the client's key. Each read of an order stores the token in the order's row.
//
// If A's lease expires just after A has checked it, B locks and reads with a higher token. The
// database then refuses A's write. If the work hangs, the lease is still renewed forever.
//
// The tokens decrease only if the etcd cluster loses all its data. The database then refuses the
// lower tokens, so no order is granted twice.
var etcdFenced = variant(etcd, Strategy{
	Name:   "etcd-fenced",
	Title:  "etcd with the create revision as fencing token, stored before the read",
	Source: "etcd: client/v3/concurrency; Kleppmann 2016",
	Guard:  order.Fenced,
	Claims: catalog.ClaimsOf("consensus").Fenced(),
	Breaks: []string{"F15"},
})

// DialEtcd returns an etcd client that connects in the background. If the connection fails, the
// client retries within a second.
func DialEtcd(endpoints []string, opts ...grpc.DialOption) (*clientv3.Client, error) {
	again := grpcbackoff.DefaultConfig
	again.BaseDelay, again.MaxDelay = 50*time.Millisecond, time.Second
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            endpoints,
		DialKeepAliveTime:    10 * time.Second,
		DialKeepAliveTimeout: serverTimeout,
		DialOptions:          append(opts, grpc.WithConnectParams(grpc.ConnectParams{Backoff: again, MinConnectTimeout: serverTimeout})),
		Logger:               zap.NewNop(), // callers get every error, so a log is not needed
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

// newEtcdLocker creates an etcd lease and immediately revokes it, only to learn which TTL the
// server grants. etcd rounds TTLs to seconds and has a minimum.
func newEtcdLocker(env Env) (Locker, error) {
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
	// Let only one client of this process at a time use the queue on the server. The others wait in
	// l.queue.
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
	if IsClosed(lease.Lost()) {
		return nil, errLate
	}
	return lease, nil
}

// An etcdLease is this client's key in the lock's queue. The client whose key is first holds the
// lock.
type etcdLease struct {
	*renewer
	l           *etcdLocker
	id          clientv3.LeaseID
	token       string
	prefix, key string
	revision    int64 // the etcd revision that created the key
	released    atomic.Bool
}

// grant creates an etcd lease and starts to renew it. If the reply is lost, the unused lease
// expires by itself.
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

// renew sends one keep-alive request. It does not use the client's KeepAlive method, because that
// method retries without a pause if no server is reachable.
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

// enqueue writes the client's key and returns the key directly ahead of it in the queue, or "" if
// there is none. If enqueue fails, the key disappears when its lease ends.
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

// withinLease runs call with a timeout of one lease, because a later reply would be useless.
func withinLease[T any](ctx context.Context, l *etcdLocker, call func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, l.lease, errLate)
	defer cancel()
	value, err := call(ctx)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return value, err
}

// lastTwo returns options that select the client's key and the key ahead of it. Until the client
// knows its key's revision, they select the two newest keys.
func (e *etcdLease) lastTwo() []clientv3.OpOption {
	return append(clientv3.WithLastCreate(), clientv3.WithMaxCreateRev(e.revision), clientv3.WithLimit(2), clientv3.WithKeysOnly())
}

var errRanOut = errors.New("lock: the etcd lease expired while the driver waited for the lock")

// ahead returns the key directly ahead of the client's key, or "" if the client is first. It
// searches found, the keys that lastTwo selected.
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

// await waits until the client's key is first in the queue. At giveUp, it returns ErrBusy.
func (e *etcdLease) await(ctx context.Context, ahead string, giveUp time.Time) (err error) {
	waiting, cancel := context.WithDeadline(clientv3.WithRequireLeader(ctx), giveUp)
	defer cancel()
	for ahead != "" && err == nil {
		ahead, err = e.awaitEnd(ctx, waiting, ahead, giveUp)
	}
	return err
}

// awaitEnd waits until the given key is no longer directly ahead of the client's key, and returns
// the key that is now ahead. At giveUp, it returns ErrBusy. The watch uses the context waiting,
// which ends at giveUp, and the requests use ctx.
//
// When the watch starts, awaitEnd reads the queue again, because the key may already be gone. A
// watch from an earlier revision would avoid this read, but etcd serves such watches only ten times
// a second.
func (e *etcdLease) awaitEnd(ctx, waiting context.Context, key string, giveUp time.Time) (ahead string, err error) {
	waiting, cancel := context.WithCancel(waiting)
	defer cancel()
	events := e.l.env.Etcd.Watch(waiting, key, clientv3.WithCreatedNotify(), clientv3.WithFilterPut())
	for open := true; open; {
		if !time.Now().Before(giveUp) {
			return "", ErrBusy
		}
		select {
		case _, open = <-events:
			if !open { // the watch has ended, for example because no server is reachable
				Sleep(waiting, reconnectPause)
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
