package grab

import (
	"context"
	"errors"
	"strings"

	"grablab/internal/grab/lock"
	"grablab/internal/order"
)

// backends lists the servers that a strategy may need, and the flags that set their addresses.
var backends = []struct {
	need  lock.Backend
	name  string
	given func(lock.Env) bool
}{
	{lock.Redis, "Redis (-redis)", func(e lock.Env) bool { return e.Redis != nil }},
	{lock.RedisQuorum, "Redlock nodes (-redlock)", func(e lock.Env) bool { return len(e.Redlock) > 0 }},
	{lock.SQL, "a database (-db)", func(e lock.Env) bool { return e.Orders != nil }},
	{lock.SQLLocks, "row locks and named locks, as in MySQL (-db; loadgen: -stack local)", locksRows},
	{lock.ZooKeeper, "ZooKeeper (-zk)", func(e lock.Env) bool { return e.ZooKeeper != nil }},
	{lock.Etcd, "etcd (-etcd)", func(e lock.Env) bool { return e.Etcd != nil }},
}

// locksRows reports whether the database supports row locks and named locks. It also returns true
// if the database does not respond, because only order.ErrUnsupported shows that they are missing.
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

// missingBackend names the servers that the strategy needs but env lacks. If there are none, it
// returns "".
func missingBackend(env lock.Env, needs lock.Backend) string {
	var missing []string
	for _, b := range backends {
		if needs&b.need != 0 && !b.given(env) {
			missing = append(missing, b.name)
		}
	}
	return strings.Join(missing, " and ")
}
