// Package storetest grabs orders directly with SQL, as a baseline for benchmarks of a Store.
package storetest

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"testing"
	"time"

	"grablab/internal/order"

	"github.com/go-sql-driver/mysql"
)

// These are the SQL statements of a grab whose write has no condition.
const (
	ReadSQL   = "SELECT id, status, driver_id, fence FROM orders WHERE id = ? LIMIT 1"
	UpdateSQL = "UPDATE orders SET status = ?, driver_id = ?, grabbed_at = UTC_TIMESTAMP(6) WHERE id = ?"
	InsertSQL = "INSERT INTO grabs (order_id, driver_id, instance, strategy, token, fence, grabbed_at)" +
		" VALUES (?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6))"
)

// BareDB opens a connection pool of the given size, using only database/sql.
func BareDB(b testing.TB, dsn string, size int, interpolate bool) *sql.DB {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		b.Fatal(err)
	}
	cfg.InterpolateParams = interpolate
	c, err := mysql.NewConnector(cfg)
	if err != nil {
		b.Fatal(err)
	}
	db := sql.OpenDB(c)
	db.SetMaxOpenConns(size)
	db.SetMaxIdleConns(size)
	b.Cleanup(func() { db.Close() })
	return db
}

// BareGrab returns a function that grabs an order with plain SQL statements through database/sql.
func BareGrab(b testing.TB, dsn string, size int) func(context.Context, int64) error {
	db := BareDB(b, dsn, size, true)
	return func(ctx context.Context, id int64) error {
		var o order.Order
		if err := db.QueryRowContext(ctx, ReadSQL, id).Scan(&o.ID, &o.Status, &o.Driver, &o.Fence); err != nil {
			return err
		}
		if o.Status != order.Open {
			return order.ErrTaken
		}
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := tx.ExecContext(ctx, UpdateSQL, order.Grabbed, id, id); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, InsertSQL, id, id, "8004", "none", fmt.Sprint(id), 0); err != nil {
			return err
		}
		return tx.Commit()
	}
}

// GrabAll lets workers grab all orders, and returns how long that took.
func GrabAll(b testing.TB, grab func(context.Context, int64) error, first int64, count, workers int) time.Duration {
	began := time.Now()
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for id := first + int64(w); id < first+int64(count); id += int64(workers) {
				// Use a deadline, because a service also sets a deadline for its writes.
				ctx, cancel := context.WithTimeout(b.Context(), 10*time.Second)
				if err := grab(ctx, id); err != nil {
					b.Error(err)
				}
				cancel()
			}
		})
	}
	all.Wait()
	return time.Since(began)
}
