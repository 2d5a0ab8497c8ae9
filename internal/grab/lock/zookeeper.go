package lock

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/order"

	"github.com/go-zookeeper/zk"
)

// zooKeeper is Curator's InterProcessMutex: every client that wants the lock makes
// an ephemeral sequential node, the first in the sequence has it, and each of
// the others watches the one before it, so that a release wakes one. An
// ephemeral node goes with its session, and the session with its process; the
// node's czxid grows with each, and is the fencing token.
//
// A's session expires while A is cut off or paused; B locks and writes; A, which has
// looked at its lease a moment before, writes as well (F29). As long as the process
// lives the session does, even if the work hangs (F15).
var zooKeeper = Strategy{
	Name:   "zookeeper",
	Title:  "ephemeral sequential nodes, watching the one before",
	Family: "consensus",
	Source: "ZooKeeper: recipes and solutions; Apache Curator: InterProcessMutex",
	Needs:  ZooKeeper,
	Guard:  order.Naive,
	Fences: true,
	Claims: catalog.ClaimsOf("consensus"),
	InSearch: []SearchClaim{{
		Faults: []catalog.Fault{catalog.Partition}, As: catalog.NoFault,
		Why: "its client gives up the session before the server does, unless the driver is also stopped after its last check; in a search that is `pause`",
	}},
	Excludes: catalog.Global,
	Waiter:   "watches the node before its own",
	Breaks:   []string{"F15", "F29", "F41"},
	Promises: Promises{InOrder: catalog.Global},
	New: func(env Env) (Locker, error) {
		if env.ZooKeeper == nil {
			return nil, errors.New("lock: this strategy needs a ZooKeeper")
		}
		if err := needTTL(env); err != nil {
			return nil, err
		}
		return newZKLocker(env)
	},
}

// ZooKeeperRoot is where all locks are. Below it each has a container, which the
// server removes some time after the last node in it has gone.
const ZooKeeperRoot = "/grablab"

// errExpired: the node is gone before the lock was ours.
var errExpired = errors.New("lock: the ZooKeeper session expired")

type zkLocker struct {
	env      Env
	session  *zkSession
	expiries atomic.Int64 // sessions that were lost
	renewers renewers
	sweeping sync.WaitGroup
	ctx      context.Context // ends with the locker
	cancel   context.CancelFunc
}

func newZKLocker(env Env) (*zkLocker, error) {
	l := &zkLocker{env: env}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	ctx, cancel := context.WithTimeout(l.ctx, serverTimeout)
	defer cancel()
	var err error
	if l.session, err = env.ZooKeeper.open(ctx, env.TTL, l.expired, env.Log); err != nil {
		l.cancel()
		return nil, err
	}
	return l, nil
}

// expired: every node is gone, and so is every lease.
func (l *zkLocker) expired() {
	l.expiries.Add(1)
	l.renewers.lose()
}

// Lease is the session's time-out, which the server bounds on both sides.
func (l *zkLocker) Lease() time.Duration { return l.session.Lease() }

func (l *zkLocker) Close() error {
	l.cancel()
	nodes := !l.renewers.any()
	l.renewers.close()
	l.session.close(nodes)
	l.sweeping.Wait()
	l.session.calls.Wait()
	return nil
}

func (l *zkLocker) Acquire(ctx context.Context, key string) (_ Lease, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	giveUp := time.Now().Add(l.env.wait(ctx))
	n := &zkNode{l: l, dir: ZooKeeperRoot + "/" + url.PathEscape(key), token: l.env.Token(), expiry: l.expiries.Load()}
	defer func() {
		if err != nil {
			n.abandon(ctx)
		}
	}()
	if err := n.create(ctx); err != nil {
		return nil, err
	}
	if err := n.await(ctx, giveUp); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err // it was granted to a client that has gone
	}
	return n, nil
}

// zkNode is one node in the queue of a lock. It is a lease once it is first.
type zkNode struct {
	*renewer
	l       *zkLocker
	dir     string
	token   string
	path    string               // "": not known to be made
	made    <-chan reply[string] // of the create that was not awaited to its end
	expiry  int64                // of which session, counted in those before
	czxid   int64
	deleted atomic.Bool
}

// prefix of the node's name, which no other node's has: a node whose create was
// not answered can be found by it (F30).
func (n *zkNode) prefix() string { return url.PathEscape(n.token) + "-" }

func (n *zkNode) create(ctx context.Context) error {
	for {
		n.made = n.l.session.create(ctx, n.dir+"/"+n.prefix(), zk.FlagEphemeralSequential)
		path, err := receive(ctx, n.l.session, n.made)
		if err == nil {
			n.path, n.made = path, nil
			return nil
		}
		if !errors.Is(err, zk.ErrNoNode) {
			return err
		}
		n.made = nil
		if err := n.makeDir(ctx); err != nil {
			return err
		}
	}
}

func (n *zkNode) makeDir(ctx context.Context) error {
	_, err := receive(ctx, n.l.session, n.l.session.create(ctx, n.dir, zk.FlagContainer))
	if errors.Is(err, zk.ErrNoNode) {
		_, err = receive(ctx, n.l.session, n.l.session.create(ctx, ZooKeeperRoot, zk.FlagPersistent))
	}
	return unless(err, zk.ErrNodeExists)
}

// await returns once the lock is ours. The node keeps its place while the session
// lives, so that a connection that breaks meanwhile costs time only.
func (n *zkNode) await(ctx context.Context, giveUp time.Time) error {
	for {
		held, err := n.advance(ctx, giveUp)
		broken := errors.Is(err, zk.ErrConnectionClosed) || errors.Is(err, zk.ErrNoServer)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case broken && time.Now().Before(giveUp):
			sleep(ctx, reconnectPause)
		case held || err != nil:
			return err
		}
	}
}

// advance takes the lock if no node is before ours, or waits until the one before
// may have gone.
func (n *zkNode) advance(ctx context.Context, giveUp time.Time) (held bool, err error) {
	ahead, err := n.ahead(ctx)
	if err != nil {
		return false, err
	}
	if ahead == "" {
		return true, n.take(ctx)
	}
	if !time.Now().Before(giveUp) {
		return false, ErrBusy
	}
	gone, err := n.l.session.watch(ctx, ahead)
	if errors.Is(err, zk.ErrNoNode) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	waiting, cancel := context.WithDeadline(ctx, giveUp)
	defer cancel()
	select {
	case <-gone:
	case <-waiting.Done():
	}
	return false, nil
}

// ahead is the node before ours; "": none is.
func (n *zkNode) ahead(ctx context.Context) (string, error) {
	names, err := n.l.session.children(ctx, n.dir)
	if err != nil {
		return "", err
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(sequence(a), sequence(b)) })
	switch i := slices.Index(names, strings.TrimPrefix(n.path, n.dir+"/")); i {
	case -1:
		return "", errExpired
	case 0:
		return "", nil
	default:
		return n.dir + "/" + names[i-1], nil
	}
}

// sequence is the number that the server has put behind a node's name.
func sequence(name string) string { return name[strings.LastIndexByte(name, '-')+1:] }

// take makes sure that the node is still there, and keeps looking.
func (n *zkNode) take(ctx context.Context) error {
	stat, end, err := n.look(ctx)
	if errors.Is(err, ErrLost) {
		return errExpired
	}
	if err != nil {
		return err
	}
	n.czxid = stat.Czxid
	n.renewer = n.l.renewers.start(ctx, end, n.l.Lease(), func(ctx context.Context) (time.Time, error) {
		_, end, err := n.look(ctx)
		return end, err
	})
	if n.l.expiries.Load() != n.expiry { // perhaps before there was a renewer
		return errExpired
	}
	n.l.sweeping.Go(n.yield)
	return nil
}

// yield gives the node up once its lease is lost. A server that comes back may
// let the session go on, and then no other client would ever get the lock.
func (n *zkNode) yield() {
	<-n.renewer.ctx.Done()
	if n.isLost() {
		n.sweep(n.l.ctx)
	}
}

// look finds the node, or ErrLost. It is a sign of life too: the session has a
// whole time-out again, counted from before the look was sent. The client's own
// signs keep the session alive, but it does not tell when one was answered.
//
// In an ensemble a follower that is cut off from its leader answers for a while
// from what it knows. Only a fence stops what is written then.
func (n *zkNode) look(ctx context.Context) (*zk.Stat, time.Time, error) {
	end := time.Now().Add(n.l.Lease())
	stat, err := n.l.session.stat(ctx, n.path)
	if err == nil && stat == nil {
		err = ErrLost
	}
	return stat, end, err
}

// abandon takes the node out of the queue. Its client has gone or has an error, and
// the session lives on: a node that is forgotten would keep all those behind it
// waiting (F30). So it is tried until it is done, in the background
// from cleanupTimeout on.
func (n *zkNode) abandon(ctx context.Context) {
	if n.renewer != nil {
		n.renewer.stop()
	}
	expired, swept := cleanupContext(ctx)
	n.l.sweeping.Go(func() {
		defer swept()
		n.sweep(context.WithoutCancel(ctx))
	})
	<-expired.Done()
}

// sweep deletes the node once its create has ended, however long that takes.
// The first try is part of ctx's grab, those after it are the locker's own.
func (n *zkNode) sweep(ctx context.Context) {
	if n.made != nil {
		select {
		case r := <-n.made:
			n.path = r.value
		case <-n.l.ctx.Done():
			return
		}
	}
	for err := n.remove(ctx); err != nil && n.l.ctx.Err() == nil; err = n.remove(n.l.ctx) {
		sleep(n.l.ctx, reconnectPause)
	}
}

// remove deletes the node, whatever it is called. nil: it is not there any more.
func (n *zkNode) remove(ctx context.Context) error {
	if n.path != "" {
		return unless(n.l.session.delete(ctx, n.path), zk.ErrNoNode)
	}
	names, err := n.l.session.children(ctx, n.dir)
	if err != nil {
		return unless(err, zk.ErrNoNode)
	}
	for _, name := range names {
		if strings.HasPrefix(name, n.prefix()) {
			n.path = n.dir + "/" + name
			return n.remove(ctx)
		}
	}
	// The server removes only those containers in which there once was something.
	return unless(n.l.session.delete(ctx, n.dir), zk.ErrNotEmpty, zk.ErrNoNode)
}

// unless is err, unless that is one of the expected ones.
func unless(err error, expected ...error) error {
	if slices.ContainsFunc(expected, func(e error) bool { return errors.Is(err, e) }) {
		return nil
	}
	return err
}

func (n *zkNode) Token() string { return n.token }
func (n *zkNode) Fence() uint64 { return uint64(n.czxid) }

func (n *zkNode) Release(ctx context.Context) error {
	if n.deleted.Swap(true) {
		return ErrLost
	}
	n.renewer.stop()
	err := n.l.session.delete(ctx, n.path)
	if errors.Is(err, zk.ErrNoNode) {
		return ErrLost
	}
	if err == nil {
		return nil
	}
	n.abandon(ctx)
	select {
	case <-n.Lost(): // whatever the server would have said of it
		return ErrLost
	default:
		return err
	}
}
