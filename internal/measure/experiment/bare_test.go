package experiment

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"grablab/internal/measure/stat"
	"grablab/internal/order"
	"grablab/internal/testbed/stack/stacktest"

	"github.com/go-sql-driver/mysql"
	gormmysql "gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// BenchmarkStore measures grabs in which every driver wins a different order with one read and one
// claim. It compares the store with the same SQL through database/sql, and through gorm with
// prepared statements. In each round, they run in shuffled order. Ratios are computed within a
// round.
//
//	go test ./internal/measure/experiment -run '^$' -bench Store -benchtime 1x
func BenchmarkStore(b *testing.B) {
	const rounds, workers, grabs = 21, 16, 1600
	dsn := stacktest.Local(b).DSN
	s, err := order.Connect(b.Context(), dsn, order.Options{MaxConns: workers})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	if err := s.Migrate(b.Context()); err != nil {
		b.Fatal(err)
	}
	ways := []struct {
		name string
		grab func(ctx context.Context, id int64) error
	}{
		{"bare", bareGrab(b, dsn, workers)},
		{"prepared", preparedGrab(b, dsn, workers)},
		{"store", storeGrab(s)},
	}

	for b.Loop() {
		rate := make([][]float64, len(ways))
		for round := range rounds + 1 { // round 0 warms up
			for _, i := range rand.Perm(len(ways)) {
				first, err := s.Create(b.Context(), grabs, 1)
				if err != nil {
					b.Fatal(err)
				}
				took := grabAll(b, ways[i].grab, first, grabs, workers)
				if round > 0 {
					rate[i] = append(rate[i], grabs/took.Seconds())
				}
			}
		}
		for i, w := range ways {
			b.ReportMetric(stat.Median(rate[i]).Median, w.name+"/s")
			if i > 0 {
				ratio := stat.Ratio(rate[i], rate[0])
				b.ReportMetric(ratio.Median, w.name+"/bare")
				b.Logf("%s/bare: %.3f, median of %d rounds with its 95 %% interval", w.name, ratio, rounds)
			}
		}
	}
}

func storeGrab(s order.Store) func(context.Context, int64) error {
	return func(ctx context.Context, id int64) error {
		o, err := s.Read(ctx, id, 0)
		if err != nil {
			return err
		}
		if o.Status != order.Open {
			return order.ErrTaken
		}
		return s.Claim(ctx, order.Claim{Order: id, Driver: id, Instance: "8004", Strategy: "none", Token: fmt.Sprint(id)}, order.Naive)
	}
}

func preparedGrab(b *testing.B, dsn string, size int) func(context.Context, int64) error {
	db, err := gorm.Open(gormmysql.New(gormmysql.Config{
		Conn: bareDB(b, dsn, size, false), SkipInitializeWithVersion: true,
	}), &gorm.Config{
		Logger: logger.Discard, SkipDefaultTransaction: true, DisableAutomaticPing: true, PrepareStmt: true,
	})
	if err != nil {
		b.Fatal(err)
	}
	return func(ctx context.Context, id int64) error {
		var o order.Order
		if err := db.WithContext(ctx).Raw(readSQL, id).Scan(&o).Error; err != nil {
			return err
		}
		if o.Status != order.Open {
			return order.ErrTaken
		}
		return db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
			if err := tx.Exec(updateSQL, order.Grabbed, id, id).Error; err != nil {
				return err
			}
			return tx.Exec(insertSQL, id, id, "8004", "none", fmt.Sprint(id), 0).Error
		})
	}
}

// These are the SQL statements of a grab whose write has no condition.
const (
	readSQL   = "SELECT id, status, driver_id, fence FROM orders WHERE id = ? LIMIT 1"
	updateSQL = "UPDATE orders SET status = ?, driver_id = ?, grabbed_at = UTC_TIMESTAMP(6) WHERE id = ?"
	insertSQL = "INSERT INTO grabs (order_id, driver_id, instance, strategy, token, fence, grabbed_at)" +
		" VALUES (?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6))"
)

// bareDB opens a connection pool of the given size, using only database/sql.
func bareDB(b testing.TB, dsn string, size int, interpolate bool) *sql.DB {
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

// bareGrab returns a function that grabs an order with plain SQL statements through database/sql.
func bareGrab(b testing.TB, dsn string, size int) func(context.Context, int64) error {
	db := bareDB(b, dsn, size, true)
	return func(ctx context.Context, id int64) error {
		var o order.Order
		if err := db.QueryRowContext(ctx, readSQL, id).Scan(&o.ID, &o.Status, &o.Driver, &o.Fence); err != nil {
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
		if _, err := tx.ExecContext(ctx, updateSQL, order.Grabbed, id, id); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, insertSQL, id, id, "8004", "none", fmt.Sprint(id), 0); err != nil {
			return err
		}
		return tx.Commit()
	}
}

// grabAll grabs all orders with several workers, and returns how long that took.
func grabAll(b testing.TB, grab func(context.Context, int64) error, first int64, count, workers int) time.Duration {
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
