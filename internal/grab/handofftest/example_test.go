package handoff_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"time"

	"grablab/handoff"

	"github.com/alicebob/miniredis/v2"
	_ "github.com/glebarez/go-sqlite"
	"github.com/redis/go-redis/v9"
)

// exampleLocker returns a Locker that uses a Redis server in this process, and a function that stops
// both.
func exampleLocker() (l *handoff.Locker, end func()) {
	server, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	l, err = handoff.New(client, handoff.Options{TTL: 10 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	return l, func() { _, _ = l.Close(), client.Close(); server.Close() }
}

func Example() {
	locks, end := exampleLocker() // handoff.New(redis.NewClient(…), handoff.Options{})
	defer end()
	ctx := context.Background()

	lease, err := locks.Acquire(ctx, "order:7")
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Release(ctx)
	fmt.Println(lease.Key(), "is ours")
	// Output: order:7 is ours
}

// Pass the lease's context to the work, so that the work ends if the lease is lost.
func Example_leaseContext() {
	locks, end := exampleLocker()
	defer end()
	lease, err := locks.AcquireWithin(context.Background(), "report", 2*time.Second)
	if errors.Is(err, handoff.ErrBusy) {
		fmt.Println("another process writes the report")
		return
	}
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Release(context.Background())

	ctx := lease.Context()
	select {
	case <-ctx.Done():
		fmt.Println("cancelled:", context.Cause(ctx)) // handoff.ErrLost
	case <-time.After(10 * time.Millisecond): // the work
		fmt.Println("done")
	}
	// Output: done
}

// Fence a write in the database. The first statement raises the token in the row before the read, and
// the last one compares it. A holder that was paused past its lease then changes no row.
func Example_leaseFence() {
	locks, end := exampleLocker()
	defer end()
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	if _, err := db.Exec(`CREATE TABLE orders (id INTEGER PRIMARY KEY, winner TEXT, fence INTEGER NOT NULL);
		INSERT INTO orders VALUES (7, NULL, 0)`); err != nil {
		log.Fatal(err)
	}

	grab := func(driver string, fence uint64) error {
		// This changes no row if the row already has this token or a higher one.
		res, err := db.Exec(`UPDATE orders SET fence = ? WHERE id = 7 AND fence < ?`, int64(fence), int64(fence))
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			return errors.Join(err, errors.New("stale"))
		}
		var winner sql.NullString
		if err := db.QueryRow(`SELECT winner FROM orders WHERE id = 7`).Scan(&winner); err != nil {
			return err
		}
		if winner.Valid {
			return errors.New("taken by " + winner.String)
		}
		res, err = db.Exec(`UPDATE orders SET winner = ? WHERE id = 7 AND fence = ?`, driver, int64(fence))
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			return errors.Join(err, errors.New("stale"))
		}
		return nil
	}

	ctx := context.Background()
	for _, driver := range []string{"Ann", "Bob"} {
		lease, err := locks.Acquire(ctx, "order:7")
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(driver, grab(driver, lease.Fence()))
		_ = lease.Release(ctx)
	}
	fmt.Println("paused", grab("Zoe", 1))
	// Output:
	// Ann <nil>
	// Bob taken by Ann
	// paused stale
}
