package grab

import (
	"strings"

	"grablab/internal/grab/lock"
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
	{lock.ZooKeeper, "ZooKeeper (-zk)", func(lock.Env) bool { return false }},
	{lock.Etcd, "etcd (-etcd)", func(lock.Env) bool { return false }},
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
