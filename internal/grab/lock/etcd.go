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

// etcd is the recipe of etcd's own package concurrency: every client that wants the
// lock puts a key under its prefix, the one with the lowest create revision has
// it, and each of the others watches the one before. The key is bound to a lease;
// its create revision grows with each acquisition, and is the fencing token.
//
// Every acquisition has a lease to itself. With one session for several, the
// key is the same for two goroutines, and both hold (F28); and a put that
// arrives after its clean-up would be kept alive by the others (F14): here it finds
// its lease revoked. A lease is kept alive by our renewer and not by a Session, which
// counts from when an answer came and looks once a second.
//
// A's lease runs out while A is cut off or paused; B locks and writes; A, which has
// looked at its lease a moment before, writes as well (F29,
// internal/explore/testdata/F29.txt). A lease is renewed for as long as the process
// lives, even if the work hangs (F15).
var etcd = Strategy{
	Name:     "etcd",
	Title:    "lowest create revision, on a lease",
	Family:   "consensus",
	Source:   "etcd: client/v3/concurrency",
	Needs:    Etcd,
	Guard:    order.Naive,
	Fences:   true,
	Claims:   catalog.ClaimsOf("consensus"),
	Excludes: catalog.Global,
	Waiter:   "watches the key before its own",
	Breaks:   []string{"F15", "F29", "F41"},
	Promises: Promises{InOrder: catalog.PerProcess}, // whose clients queue there first
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

// DialEtcd opens a client as this lock wants it, which is not connected yet. It
// looks again within a second for a server that was gone.
func DialEtcd(endpoints []string, opts ...grpc.DialOption) (*clientv3.Client, error) {
	again := grpcbackoff.DefaultConfig
	again.BaseDelay, again.MaxDelay = 50*time.Millisecond, time.Second
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            endpoints,
		DialKeepAliveTime:    10 * time.Second,
		DialKeepAliveTimeout: serverTimeout,
		DialOptions:          append(opts, grpc.WithConnectParams(grpc.ConnectParams{Backoff: again, MinConnectTimeout: serverTimeout})),
		Logger:               zap.NewNop(), // every error is returned
	})
	if err != nil {
		return nil, fmt.Errorf("lock: etcd: %w", err)
	}
	return client, nil
}

type etcdLocker struct {
	env      Env
	leases   pb.LeaseClient
	lease    time.Duration // granted
	queue    keyedMutex
	renewers renewers
}

// newEtcdLocker asks for a lease, to see how long one is: etcd counts in whole
// seconds, and grants none that is shorter than an election.
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

// Lease is what the server grants, which is Env.TTL or longer.
func (l *etcdLocker) Lease() time.Duration { return l.lease }

func (l *etcdLocker) Close() error {
	l.renewers.close()
	return nil
}

func (l *etcdLocker) Acquire(ctx context.Context, key string) (_ Lease, err error) {
	wait := l.env.wait(ctx)
	giveUp := time.Now().Add(wait)
	// Of the clients of this process, one at a time has a lease and a key.
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

// etcdLease is one key in the queue of a lock. It is held once it is first.
type etcdLease struct {
	*renewer
	l           *etcdLocker
	id          clientv3.LeaseID
	token       string
	prefix, key string
	revision    int64 // in which the key was created
	released    atomic.Bool
}

// grant begins a lease, which is renewed from now on. One whose reply is lost runs
// out by itself, and no key is bound to it.
func (l *etcdLocker) grant(ctx context.Context) (*etcdLease, error) {
	end := time.Now().Add(l.lease)
	granted, err := inTime(ctx, l, func(ctx context.Context) (*clientv3.LeaseGrantResponse, error) {
		return l.env.Etcd.Grant(ctx, l.seconds())
	})
	if err != nil {
		return nil, err
	}
	lease := &etcdLease{l: l, id: granted.ID, token: l.env.Token()}
	lease.renewer = l.renewers.start(ctx, end, l.lease, lease.renew)
	return lease, nil
}

// renew makes one keep-alive. The client's own would be tried for ever while
// there is no server, without a pause.
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

// enqueue puts the key, and looks what was there before it. Whatever becomes of
// the call, the key is gone with the lease.
func (e *etcdLease) enqueue(ctx context.Context, key string) (ahead string, err error) {
	e.prefix = key + "/"
	e.key = fmt.Sprintf("%s%x", e.prefix, e.id)
	put := clientv3.OpPut(e.key, e.token, clientv3.WithLease(e.id))
	look := clientv3.OpGet(e.prefix, e.lastTwo()...)
	done, err := inTime(ctx, e.l, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return e.l.env.Etcd.Txn(ctx).Then(put, look).Commit()
	})
	if err != nil {
		return "", err
	}
	e.revision = done.Header.Revision
	return e.ahead(done.Responses[1].GetResponseRange().Kvs)
}

// inTime makes a call for as long as its answer can be of use.
func inTime[T any](ctx context.Context, l *etcdLocker, call func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, l.lease, errLate)
	defer cancel()
	value, err := call(ctx)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return value, err
}

// lastTwo finds the newest key of the queue, or ours once it is known, and the
// one before.
func (e *etcdLease) lastTwo() []clientv3.OpOption {
	return append(clientv3.WithLastCreate(), clientv3.WithMaxCreateRev(e.revision), clientv3.WithLimit(2), clientv3.WithKeysOnly())
}

var errRanOut = errors.New("lock: the etcd lease ran out while waiting")

// ahead is the key before ours, of what lastTwo has found; "": none is.
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

// await returns once no key is before ours.
func (e *etcdLease) await(ctx context.Context, ahead string, giveUp time.Time) (err error) {
	waiting, cancel := context.WithDeadline(clientv3.WithRequireLeader(ctx), giveUp)
	defer cancel()
	for ahead != "" && err == nil {
		ahead, err = e.awaitEnd(ctx, waiting, ahead, giveUp)
	}
	return err
}

// awaitEnd watches the key ahead of ours, and returns what is ahead once that is
// another one or the watch has ended. The key is looked at again each time that it
// is worth it: the watch stands (it may have gone before), the key is gone, or the
// wait is over. (A watch from a revision on would need no second look, but one that
// is no longer the newest is served by etcd ten times a second only.)
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
			if !stands { // there may be no server just now
				sleep(waiting, reconnectPause)
			}
		case <-e.Lost():
			return "", errRanOut
		}
		got, err := inTime(ctx, e.l, func(ctx context.Context) (*clientv3.GetResponse, error) {
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
