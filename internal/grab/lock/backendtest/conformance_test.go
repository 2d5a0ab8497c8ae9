package backendtest

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"slices"
	"testing"
	"time"

	"grablab/internal/grab/lock"
	_ "grablab/internal/grab/lock/peers" // fills lock.Peers
	"grablab/internal/order"
	"grablab/internal/testbed/conformtest"
	"grablab/internal/testbed/stack/stacktest"

	"github.com/go-zookeeper/zk"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// sameLocks lists strategies that differ from their siblings only in the guard, so that the lock
// tests would only repeat themselves.
var sameLocks = []string{"zookeeper-fenced", "etcd-fenced"}

// ofUnits lists strategies that reserve units instead of locking an order. No lock test applies to
// them, so package grab tests them instead.
var ofUnits = []string{"redis-stock", "redis-stock-returned"}

// TestConformance runs the conformance tests for strategies that need more than Redis. It includes
// sameLocks only if GRABLAB_PROVE is 1.
func TestConformance(t *testing.T) {
	st := stacktest.With(t, needs)
	at := serversOf(t, st)
	db := connect(t, at.DSN)
	_, err := db.Create(t.Context(), suiteOrders, 1) // creates all orders up to this one
	must(t, err)
	ensemble := dialZooKeeper(t, at.ZooKeeper)
	cluster := dialEtcd(t, at.Etcd)

	inZooKeeper := conformtest.Subject{Spec: servers{ZooKeeper: at.ZooKeeper}.spec(), Drop: ensemble.drop, Left: ensemble.left}
	inEtcd := conformtest.Subject{Spec: servers{Etcd: at.Etcd}.spec(), Drop: cluster.drop, Left: cluster.left}
	unseen := func(s conformtest.Subject) conformtest.Subject {
		s.Unseen = true
		return s
	}
	subjects := map[string]conformtest.Subject{
		"mysql-getlock":    {Spec: servers{DSN: at.DSN}.spec(), Drop: dropName(db), Left: leftName(db), Settling: noticing},
		"mysql-forupdate":  {Spec: servers{DSN: at.DSN}.spec(), Left: leftRow(db), Settling: noticing},
		"mysql-cas":        {Spec: servers{DSN: at.DSN}.spec()},
		"mysql-unique":     {Spec: servers{DSN: at.DSN}.spec()},
		"zookeeper":        inZooKeeper,
		"zookeeper-fenced": inZooKeeper,
		"etcd":             inEtcd,
		"etcd-fenced":      inEtcd,
		"etcd-mutex":       unseen(inEtcd),
		"zk-lock":          unseen(inZooKeeper),
	}
	var all []conformtest.Subject
	for _, st := range slices.Concat(lock.Strategies, lock.Peers) {
		if st.Needs&needs == 0 || slices.Contains(ofUnits, st.Name) || slices.Contains(sameLocks, st.Name) && os.Getenv("GRABLAB_PROVE") != "1" {
			continue
		}
		s, ok := subjects[st.Name]
		if !ok {
			t.Fatalf("%s has no subject", st.Name)
		}
		s.Strategy, err = find(st.Name)
		must(t, err)
		s.Open = open
		all = append(all, s)
	}
	conformtest.Conform(t, all...)
}

// dropName ends the session that holds the named lock.
func dropName(db *order.SQL) func(context.Context, string) error {
	return func(ctx context.Context, key string) error {
		id, err := usedBy(ctx, db, key)
		if err != nil {
			return err
		}
		if !id.Valid {
			return errNoHolder
		}
		if _, err := db.DB().ExecContext(ctx, fmt.Sprint("KILL ", id.Int64)); err != nil {
			return err
		}
		left, err := soon(func() ([]string, error) { return leftName(db)(ctx, key) })
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("the session was killed, but still holds its lock: %v", left)
		}
		return err
	}
}

// usedBy returns the session that holds the named lock, if there is one.
func usedBy(ctx context.Context, db *order.SQL, key string) (id sql.NullInt64, err error) {
	err = db.DB().QueryRowContext(ctx, "SELECT IS_USED_LOCK(?)", key).Scan(&id)
	return id, err
}

// leftName returns a function that reports whether a named lock still has a holder.
func leftName(db *order.SQL) func(context.Context, string) ([]string, error) {
	return func(ctx context.Context, key string) (left []string, err error) {
		id, err := usedBy(ctx, db, key)
		if id.Valid {
			left = append(left, fmt.Sprintf("%s, of session %d", key, id.Int64))
		}
		return left, err
	}
}

// leftRow returns a function that reports whether the row of a key's order is still locked.
func leftRow(db *order.SQL) func(context.Context, string) ([]string, error) {
	return func(ctx context.Context, key string) ([]string, error) {
		tx, err := db.Begin(ctx)
		if err != nil {
			return nil, err
		}
		defer tx.Close(ctx)
		free, err := tx.LockRow(ctx, orderOf(key), 0)
		if err != nil || free {
			return nil, err
		}
		return []string{fmt.Sprintf("order %d is locked", orderOf(key))}, nil
	}
}

// zooKeeper inspects an ensemble through a separate connection, bypassing the locks.
type zooKeeper struct{ *zk.Conn }

type silent struct{}

func (silent) Printf(string, ...any) {}

func dialZooKeeper(t testing.TB, servers []string) zooKeeper {
	t.Helper()
	conn, _, err := zk.Connect(servers, 10*time.Second, zk.WithLogger(silent{}))
	must(t, err)
	t.Cleanup(conn.Close)
	return zooKeeper{conn}
}

// dir returns the parent node of a lock.
func dir(key string) string { return "/grablab/" + url.PathEscape(key) }

func (z zooKeeper) drop(_ context.Context, key string) error {
	names, _, err := z.Children(dir(key))
	for _, name := range names {
		if err == nil {
			err = z.Delete(dir(key)+"/"+name, -1)
		}
	}
	if err == nil && len(names) == 0 {
		err = errNoHolder
	}
	return err
}

func (z zooKeeper) left(_ context.Context, key string) ([]string, error) {
	names, _, err := z.Children(dir(key))
	if err == zk.ErrNoNode {
		return nil, nil
	}
	return names, err
}

// etcd inspects a cluster through a separate client, bypassing the locks.
type etcd struct{ *clientv3.Client }

func dialEtcd(t testing.TB, endpoints []string) etcd {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop()})
	must(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return etcd{client}
}

// drop revokes the leases that keep the keys alive.
func (e etcd) drop(ctx context.Context, key string) error {
	got, err := e.Get(ctx, key+"/", clientv3.WithPrefix())
	if err != nil {
		return err
	}
	for _, kv := range got.Kvs {
		if _, err := e.Revoke(ctx, clientv3.LeaseID(kv.Lease)); err != nil {
			return err
		}
	}
	if len(got.Kvs) == 0 {
		return errNoHolder
	}
	return nil
}

func (e etcd) left(ctx context.Context, key string) (left []string, err error) {
	got, err := e.Get(ctx, key, clientv3.WithPrefix())
	if err != nil {
		return nil, err
	}
	for _, kv := range got.Kvs {
		left = append(left, string(kv.Key))
	}
	return left, nil
}
