package peers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/order"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// etcdMutex is the Mutex from etcd's own concurrency package. The client with the oldest key under
// the lock's prefix holds the lock. A session keeps that key alive.
//
// If two acquisitions shared a session, both would succeed. Therefore, each acquisition has its own
// session, as in the package's examples.
//
// The lock can fail if A's session ends just after A has checked it. B then locks and writes, and A
// writes too. If the work hangs, the session lasts for as long as the process lives.
var etcdMutex = lock.Strategy{
	Name:         "etcd-mutex",
	Title:        "etcd's concurrency.Mutex with a new session for each acquire",
	Family:       "consensus",
	Source:       "https://pkg.go.dev/go.etcd.io/etcd/client/v3/concurrency",
	Module:       "go.etcd.io/etcd/client/v3",
	Needs:        lock.Etcd,
	Guard:        order.Naive,
	Fences:       true, // the fencing token is the revision in Mutex.Header
	Claims:       catalog.ClaimsOf("consensus"),
	Excludes:     catalog.Global,
	Waiter:       "watches the key just before its own",
	Breaks:       []string{"F15", "F28", "F29", "F41"},
	Lease:        "the session's WithTTL, in whole seconds (60 s by default). The client keeps the lease alive",
	Unexplorable: "its client renews leases in goroutines that outlive a schedule, so a search cannot control them",
	New:          newEtcdMutex,
}

func newEtcdMutex(env lock.Env) (lock.Locker, error) {
	l := &etcdLocker{env: env, seconds: int((env.TTL + time.Second - 1) / time.Second)}
	ctx, cancel := context.WithTimeout(context.Background(), serverTimeout)
	defer cancel()
	session, err := l.session(ctx, ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: etcd at %s: %w", lock.ErrUnreachable, strings.Join(env.Etcd.Endpoints(), ","), err)
	}
	granted, err := env.Etcd.TimeToLive(ctx, session.Lease())
	if err == nil {
		l.lease = time.Duration(granted.GrantedTTL) * time.Second
	}
	return l, errors.Join(err, session.Close())
}

// serverTimeout limits how long New waits for a server.
const serverTimeout = 5 * time.Second

type etcdLocker struct {
	env     lock.Env
	seconds int
	lease   time.Duration // the TTL that the server granted
}

func (*etcdLocker) Close() error           { return nil }
func (l *etcdLocker) Lease() time.Duration { return l.lease }

// session starts an etcd session that outlives ctx. It returns an error if the context waiting ends
// first.
func (l *etcdLocker) session(ctx, waiting context.Context) (*concurrency.Session, error) {
	living, end := context.WithCancel(context.WithoutCancel(ctx))
	begun := context.AfterFunc(waiting, end)
	session, err := concurrency.NewSession(l.env.Etcd, concurrency.WithTTL(l.seconds), concurrency.WithContext(living))
	if begun() && err == nil {
		return session, nil
	}
	end()
	return nil, errors.Join(err, waiting.Err())
}

func (l *etcdLocker) Acquire(ctx context.Context, key string) (lock.Lease, error) {
	wait := lock.WaitIn(ctx, l.env.Wait)
	waiting, cancel := limited(ctx, wait)
	defer cancel()
	session, err := l.session(ctx, waiting)
	if err != nil {
		return nil, notAcquired(ctx, waiting, false, err)
	}
	m := concurrency.NewMutex(session, key)
	if wait > 0 {
		err = m.Lock(waiting)
	} else {
		err = m.TryLock(ctx)
	}
	if err != nil {
		return nil, notAcquired(ctx, waiting, errors.Is(err, concurrency.ErrLocked), errors.Join(err, session.Close()))
	}
	return &lease{token: m.Key(), fence: uint64(m.Header().Revision), lost: session.Done(), release: func(ctx context.Context) error {
		lost := lock.IsClosed(session.Done())
		err := errors.Join(m.Unlock(ctx), session.Close())
		return lostIf(lost || errors.Is(err, concurrency.ErrLockReleased) || errors.Is(err, rpctypes.ErrLeaseNotFound), err)
	}}, nil
}
