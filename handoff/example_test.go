package handoff_test

import (
	"context"
	"database/sql"
	"errors"
	"log"
	"sync/atomic"
	"time"

	"grablab/handoff"
	"grablab/handoff/adapter"

	"github.com/redis/go-redis/v9"
)

// These variables stand for the values of a real program.
var (
	ctx   = context.Background()
	locks *handoff.Locker
	db    *sql.DB
)

func work(context.Context) error { return nil }

// Acquire a lock, work, and release it.
func Example() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer client.Close()
	locks, err := handoff.New(client, handoff.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	lease, err := locks.Acquire(ctx, "order:7")
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Release(ctx)
	if err := work(lease.Context()); err != nil {
		log.Fatal(err)
	}
}

// Wait for a limited time.
func ExampleLocker_AcquireWithin() {
	lease, err := locks.AcquireWithin(ctx, "order:7", 2*time.Second)
	if errors.Is(err, handoff.ErrBusy) {
		log.Print("other clients had the lock for two seconds")
		return
	}
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Release(ctx)
}

// Skip a job that another process is already running.
func ExampleLocker_TryAcquire() {
	lease, err := locks.TryAcquire(ctx, "nightly-report")
	if errors.Is(err, handoff.ErrBusy) {
		return
	}
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Release(ctx)
}

// Stop the work when the lease is lost.
func ExampleLease_Context() {
	lease, err := locks.Acquire(ctx, "order:7")
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Release(ctx)
	err = work(lease.Context())
	if errors.Is(context.Cause(lease.Context()), handoff.ErrLost) {
		log.Print("the lease was lost during the work")
	}
	_ = err
}

// Fence a write in SQL. The first statement raises the token in the row before the read, and the
// last one compares it. A holder that was paused past its lease then changes no row.
func ExampleLease_Fence() {
	lease, err := locks.Acquire(ctx, "order:7")
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Release(ctx)
	fence := int64(lease.Fence())

	changed := func(statement string, args ...any) bool {
		result, err := db.ExecContext(ctx, statement, args...)
		if err != nil {
			log.Fatal(err)
		}
		n, err := result.RowsAffected()
		return err == nil && n == 1
	}
	if !changed("UPDATE orders SET fence = ? WHERE id = 7 AND fence < ?", fence, fence) {
		log.Fatal("a later holder has read the order")
	}
	var winner sql.NullString
	if err := db.QueryRowContext(ctx, "SELECT winner FROM orders WHERE id = 7").Scan(&winner); err != nil || winner.Valid {
		return
	}
	if !changed("UPDATE orders SET winner = ? WHERE id = 7 AND fence = ?", "Ann", fence) {
		log.Fatal("a later holder has read the order")
	}
}

// Lock many keys at the same time, with fewer round trips.
func ExampleCombine() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	handoff.Combine(client)
	locks, err := handoff.New(client, handoff.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
}

// Use a Redis Cluster. All keys of one lock are in one slot.
func ExampleNew_cluster() {
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"node1:6379", "node2:6379", "node3:6379"}})
	locks, err := handoff.New(client, handoff.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
}

// Use a Redis behind Sentinels.
func ExampleNew_sentinel() {
	client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "mymaster", SentinelAddrs: []string{"sentinel1:26379", "sentinel2:26379"}})
	locks, err := handoff.New(client, handoff.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
}

// Count events. With Prometheus or OpenTelemetry, call the counters and histograms of that library in
// the same places.
func ExampleHooks() {
	var acquired, lost, waitedNS atomic.Int64
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	locks, err := handoff.New(client, handoff.Options{Hooks: handoff.Hooks{
		Acquired: func(_ string, waited time.Duration, _ bool) {
			acquired.Add(1)
			waitedNS.Add(waited.Nanoseconds())
		},
		Lost: func(string) { lost.Add(1) },
	}})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
}

// Adapt a key to sync.Locker. The package adapter also has the methods of redsync's Mutex.
func Example_syncLocker() {
	m := &adapter.Locker{Locks: locks, Key: "order:7"}
	m.Lock()
	defer m.Unlock()
}
