package grab

import (
	"context"
	"errors"
	"strings"

	"grablab/internal/grab/lock"
	"grablab/internal/order"
)

// backends names what an instance can be given, as its flags do.
var backends = []struct {
	need  lock.Backend
	name  string
	given func(lock.Env) bool
}{
	{lock.Redis, "Redis (-redis)", func(e lock.Env) bool { return e.Redis != nil }},
	{lock.RedisQuorum, "Redlock nodes (-redlock)", func(e lock.Env) bool { return len(e.Redlock) > 0 }},
	{lock.SQL, "a database (-db)", func(e lock.Env) bool { return e.Orders != nil }},
	{lock.SQLLocks, "row locks and named locks, as MySQL has them (-db; loadgen: -stack local)", locksRows},
	{lock.ZooKeeper, "ZooKeeper (-zk)", func(e lock.Env) bool { return e.ZooKeeper != nil }},
	{lock.Etcd, "etcd (-etcd)", func(e lock.Env) bool { return e.Etcd != nil }},
}

// locksRows says whether the database has sessions to lock in, as far as can be
// known: one that does not answer just now may.
func locksRows(e lock.Env) bool {
	if e.Orders == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), readyTimeout)
	defer cancel()
	tx, err := e.Orders.Begin(ctx)
	if err == nil {
		_ = tx.Close(ctx)
	}
	return !errors.Is(err, order.ErrUnsupported)
}

// lacks names the backends that are needed and that env does not have; "": none.
func lacks(env lock.Env, needs lock.Backend) string {
	var missing []string
	for _, b := range backends {
		if needs&b.need != 0 && !b.given(env) {
			missing = append(missing, b.name)
		}
	}
	return strings.Join(missing, " and ")
}
