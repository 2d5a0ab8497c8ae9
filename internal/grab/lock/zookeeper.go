package lock

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/order"

	"github.com/go-zookeeper/zk"
)

// zooKeeper follows Curator's InterProcessMutex. Each client creates an ephemeral sequential node,
// and the client with the first node holds the lock. Every other client watches the node before its
// own. A node disappears when its session or its process ends. Its czxid serves as the fencing
// token.
//
// The lock can fail if A's session expires just after A has checked it. B then locks and writes,
// and A writes too. If the work hangs, the session lasts as long as the process lives.
var zooKeeper = Strategy{
	Name:   "zookeeper",
	Title:  "ephemeral sequential nodes; each waiter watches the node before its own",
	Family: "consensus",
	Source: "ZooKeeper: recipes and solutions; Apache Curator: InterProcessMutex",
	Needs:  ZooKeeper,
	Guard:  order.Naive,
	Fences: true,
	Claims: catalog.ClaimsOf("consensus"),
	InSearch: []SearchClaim{{
		Faults: []catalog.Fault{catalog.Partition}, As: catalog.NoFault,
		Why: "the client of `zookeeper` gives up its session before the server does. A failure is therefore possible only if the driver is also paused after its last check. A search tests this under the fault `pause`",
	}, {
		Faults: []catalog.Fault{catalog.NodeClock}, As: catalog.Pause,
		Why: "in a search, a ZooKeeper session may end early, as if an administrator had ended it, and its holder notices that only when its client connects again. In `run`, the fault strikes only Redis",
	}},
	Excludes: catalog.Global,
	Waiter:   "watches the node before its own",
	Breaks:   []string{"F15", "F29", "F41"},
	Promises: Promises{InOrder: catalog.Global},
	New:      newZKLocker,
}

// zooKeeperFenced is the ZooKeeper lock with a fencing token that the database checks. The token is
// the node's czxid, the number of the transaction that created it. Each read of an order stores the
// token in the order's row.
//
// If A's session expires just after A has checked it, B locks and reads with a higher token. The
// database then refuses A's write. If the work hangs, the session stays alive.
//
// The tokens decrease only if the ZooKeeper servers lose all their data. The database then refuses
// the lower tokens, so no order is granted twice.
var zooKeeperFenced = variant(zooKeeper, Strategy{
	Name:     "zookeeper-fenced",
	Title:    "zookeeper with the czxid as fencing token, stored before the read",
	Source:   "ZooKeeper: recipes and solutions; Kleppmann 2016",
	Guard:    order.Fenced,
	Claims:   catalog.ClaimsOf("consensus").Fenced(),
	InSearch: []SearchClaim{}, // drops the claim of zookeeper, because fencing tokens keep the orders safe
	Breaks:   []string{"F15"},
})

// ZooKeeperRoot is the parent node of all locks. Each lock is a container node, which the server
// removes some time after its last child is gone.
const ZooKeeperRoot = "/grablab"

// errExpired means that the ZooKeeper session expired before the client got the lock.
var errExpired = errors.New("lock: the ZooKeeper session expired")

type zkLocker struct {
	env      Env
	session  *ZooKeeperSession
	expiries atomic.Int64 // the number of expired sessions
	renewers renewers
	sweeping tasks
	ctx      context.Context // ends when the locker is closed
	cancel   context.CancelFunc
}

func newZKLocker(env Env) (Locker, error) {
	l := &zkLocker{env: env}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	ctx, cancel := context.WithTimeout(l.ctx, serverTimeout)
	defer cancel()
	var err error
	if l.session, err = env.ZooKeeper.Connect(ctx, env.TTL, l.expired); err != nil {
		l.cancel()
		return nil, err
	}
	return l, nil
}

// expired records that the session has expired, and marks all its leases as lost.
func (l *zkLocker) expired() {
	l.expiries.Add(1)
	l.renewers.lose()
}

// Lease returns the session timeout that the server has granted.
func (l *zkLocker) Lease() time.Duration { return l.session.Lease() }

func (l *zkLocker) Close() error {
	l.cancel()
	nodes := !l.renewers.any()
	l.renewers.close()
	l.session.Close(nodes)
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
		return nil, err // the client has disconnected
	}
	return n, nil
}

// A zkNode is this client's node in a lock's queue. The client whose node is first holds the lock.
type zkNode struct {
	*renewer
	l       *zkLocker
	dir     string
	token   string
	path    string               // empty until the node is known to exist
	made    <-chan reply[string] // the reply to a pending request to create the node
	making  <-chan reply[string] // the reply to the last request to create the directory; may be nil
	expiry  int64                // zkLocker.expiries when the acquire began
	czxid   int64
	deleted atomic.Bool
}

// prefix returns the unique start of the node's name. If the create request's reply is lost, the
// client uses it to find its node.
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
	n.making = n.l.session.create(ctx, n.dir, zk.FlagContainer)
	_, err := receive(ctx, n.l.session, n.making)
	if errors.Is(err, zk.ErrNoNode) {
		_, err = receive(ctx, n.l.session, n.l.session.create(ctx, ZooKeeperRoot, zk.FlagPersistent))
	}
	return ignoreErrors(err, zk.ErrNodeExists)
}

// await waits until the client holds the lock. If the connection breaks, await retries until
// giveUp, because the node exists for as long as the session. It does not retry once the locker is
// closed.
func (n *zkNode) await(ctx context.Context, giveUp time.Time) error {
	for {
		held, err := n.advance(ctx, giveUp)
		broken := errors.Is(err, zk.ErrConnectionClosed) || errors.Is(err, zk.ErrNoServer)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case broken && time.Now().Before(giveUp) && n.l.ctx.Err() == nil:
			Sleep(ctx, reconnectPause)
		case held || err != nil:
			return err
		}
	}
}

// advance takes the lock if the client's node is first. Otherwise, it waits until giveUp, or until
// the node directly ahead may be gone.
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

// ahead returns the path of the node directly ahead of the client's node, or "" if the client is
// first.
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

// sequence returns the number at the end of a node's name.
func sequence(name string) string { return name[strings.LastIndexByte(name, '-')+1:] }

// take checks that the node still exists, and starts to renew the lease.
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
	if n.l.expiries.Load() != n.expiry { // the session expired before the renewer started
		return errExpired
	}
	n.l.sweeping.Go(n.yield)
	return nil
}

// yield waits until the renewals have ended. If the lease was lost, it then deletes the node,
// because a node whose session survives would block all other clients.
func (n *zkNode) yield() {
	<-n.renewer.ctx.Done()
	if n.isLost() {
		n.sweep(n.l.ctx)
	}
}

// look checks that the node exists, and returns ErrLost if it does not. The request also renews the
// session. The session then lasts at least until the returned end, one timeout after the request was
// sent.
//
// A server that is cut off from its leader may serve stale data for a while. Therefore, look may find a
// node that is already gone. In that case, only a fencing token can stop a late write.
func (n *zkNode) look(ctx context.Context) (*zk.Stat, time.Time, error) {
	end := time.Now().Add(n.l.Lease())
	stat, err := n.l.session.stat(ctx, n.path)
	if err == nil && stat == nil {
		err = ErrLost
	}
	return stat, end, err
}

// abandon deletes the node after an error or a disconnect, because all clients behind it would
// otherwise wait for it. If the deletion takes too long, it continues in the background.
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

// sweep deletes the node as soon as the requests to create it and its directory have finished. The
// first attempt uses ctx. If that fails, sweep retries until the Locker is closed.
func (n *zkNode) sweep(ctx context.Context) {
	if n.made != nil {
		select {
		case r := <-n.made:
			n.path = r.value
		case <-n.l.ctx.Done():
			return
		}
	}
	if n.making != nil {
		select {
		case <-n.making: // closed if the reply has been received already
		case <-n.l.ctx.Done():
			return
		}
	}
	for err := n.remove(ctx); err != nil && n.l.ctx.Err() == nil; err = n.remove(n.l.ctx) {
		Sleep(n.l.ctx, reconnectPause)
	}
}

// remove deletes the node. If the node's name is unknown, it looks for the node first. It returns
// nil if the node does not exist.
func (n *zkNode) remove(ctx context.Context) error {
	if n.path != "" {
		return ignoreErrors(n.l.session.delete(ctx, n.path), zk.ErrNoNode)
	}
	names, err := n.l.session.children(ctx, n.dir)
	if err != nil {
		return ignoreErrors(err, zk.ErrNoNode)
	}
	for _, name := range names {
		if strings.HasPrefix(name, n.prefix()) {
			n.path = n.dir + "/" + name
			return n.remove(ctx)
		}
	}
	// Delete an unused container, because the server removes only those containers that have had a
	// child.
	return ignoreErrors(n.l.session.delete(ctx, n.dir), zk.ErrNotEmpty, zk.ErrNoNode)
}

// ignoreErrors returns nil if err is one of the expected errors, and err otherwise.
func ignoreErrors(err error, expected ...error) error {
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
	if IsClosed(n.Lost()) { // report the loss, because it matters more than the delete error
		return ErrLost
	}
	return err
}
