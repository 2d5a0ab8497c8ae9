package backendtest

import (
	"testing"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/testbed/stack/stacktest"
)

// BenchmarkUncontended measures an acquire and a release of a free lock.
func BenchmarkUncontended(b *testing.B) {
	at := serversOf(b, stacktest.With(b, needs))
	for _, name := range []string{"mysql-getlock", "mysql-forupdate", "zookeeper", "etcd"} {
		b.Run("strategy="+name, func(b *testing.B) {
			env, disconnect, err := open(at.spec())
			must(b, err)
			defer disconnect()
			env.TTL, env.Wait = 10*time.Second, 10*time.Second
			ids, err := env.Orders.Create(b.Context(), 1, 1)
			must(b, err)
			st, err := lock.Find(name)
			must(b, err)
			l, err := st.New(env)
			must(b, err)
			defer l.Close()
			key := keyOf(ids)
			for b.Loop() {
				lease, err := l.Acquire(b.Context(), key)
				must(b, err)
				must(b, lease.Release(b.Context()))
			}
		})
	}
}

// BenchmarkHandOff measures how long a waiter takes to get the lock after a release. Two processes take
// turns, so that each acquire has to wait for the other process's release.
func BenchmarkHandOff(b *testing.B) {
	at := serversOf(b, stacktest.With(b, needs))
	for _, name := range []string{"mysql-getlock", "mysql-forupdate", "zookeeper", "etcd"} {
		b.Run("strategy="+name, func(b *testing.B) {
			var lockers [2]lock.Locker
			var key string
			for i := range lockers {
				env, disconnect, err := open(at.spec())
				must(b, err)
				defer disconnect()
				env.TTL, env.Wait = 10*time.Second, 10*time.Second
				if i == 0 {
					id, err := env.Orders.Create(b.Context(), 1, 1)
					must(b, err)
					key = keyOf(id)
				}
				st, err := lock.Find(name)
				must(b, err)
				lockers[i], err = st.New(env)
				must(b, err)
				defer lockers[i].Close()
			}
			held, err := lockers[0].Acquire(b.Context(), key)
			must(b, err)
			var gap time.Duration
			for i := range b.N {
				next := make(chan lock.Lease, 1)
				at := make(chan time.Time, 1)
				go func() {
					lease, err := lockers[(i+1)%2].Acquire(b.Context(), key)
					at <- time.Now()
					if err != nil {
						b.Error(err)
					}
					next <- lease
				}()
				time.Sleep(20 * time.Millisecond) // so that the acquire has to wait
				released := time.Now()
				must(b, held.Release(b.Context()))
				gap += (<-at).Sub(released)
				held = <-next
			}
			must(b, held.Release(b.Context()))
			b.ReportMetric(float64(gap.Microseconds())/float64(b.N), "gap-us")
		})
	}
}
