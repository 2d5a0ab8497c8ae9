package order_test

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"grablab/internal/order"

	"github.com/go-sql-driver/mysql"
	gormmysql "gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// BenchmarkGrab has every driver win an order of his own: one read and one
// claim. The store, whose statements are interpolated by the client, runs
// against the same SQL over bare database/sql, and over gorm with its prepared
// statements. All take turns in shuffled order, and a ratio is one of a round.
//
//	go test ./internal/order -run '^$' -bench Grab -benchtime 1x
func BenchmarkGrab(b *testing.B) {
	const rounds, workers, grabs = 21, 16, 1600
	dsn := mariaDSN(b)
	s := connect(b, dsn, order.Options{MaxConns: workers})
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
		for round := range rounds + 1 { // the first warms up
			for _, i := range rand.Perm(len(ways)) {
				first, err := s.Create(b.Context(), grabs)
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
			median, _, _ := interval(rate[i])
			b.ReportMetric(median, w.name+"/s")
			if i > 0 {
				ratio := make([]float64, rounds)
				for r := range ratio {
					ratio[r] = rate[i][r] / rate[0][r]
				}
				median, low, high := interval(ratio)
				b.ReportMetric(median, w.name+"/bare")
				b.Logf("%s/bare: %.3f [%.3f, %.3f], median of %d rounds with its 95 %% interval", w.name, median, low, high, rounds)
			}
		}
	}
}

// grabAll lets the workers share the orders, and returns how long they took.
func grabAll(b *testing.B, grab func(context.Context, int64) error, first int64, count, workers int) time.Duration {
	began := time.Now()
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for id := first + int64(w); id < first+int64(count); id += int64(workers) {
				// As the claim of a service has one.
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

// interval is the median of xs and its 95 % interval, from the ranks that the
// binomial distribution gives: of 21 values, the 6th from either end.
func interval(xs []float64) (median, low, high float64) {
	s, n := slices.Sorted(slices.Values(xs)), len(xs)
	rank, tail := 0, 0.0
	for chance := math.Pow(0.5, float64(n)); tail+chance < 0.025; rank++ {
		tail += chance
		chance *= float64(n-rank) / float64(rank+1)
	}
	rank = max(rank, 1)
	return s[n/2], s[rank-1], s[n-rank]
}

func TestInterval(t *testing.T) {
	xs := make([]float64, 21)
	for i, p := range rand.Perm(len(xs)) {
		xs[p] = float64(i + 1)
	}
	if median, low, high := interval(xs); median != 11 || low != 6 || high != 16 {
		t.Errorf("%v [%v, %v], want 11 [6, 16]", median, low, high)
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

const (
	readSQL   = "SELECT id, status, driver_id, fence FROM orders WHERE id = ? LIMIT 1"
	updateSQL = "UPDATE orders SET status = ?, driver_id = ?, grabbed_at = UTC_TIMESTAMP(6) WHERE id = ?"
	insertSQL = "INSERT INTO grabs (order_id, driver_id, instance, strategy, token, fence, grabbed_at)" +
		" VALUES (?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6))"
)

// bareDB is database/sql with nothing on it but a pool of the same size.
func bareDB(b *testing.B, dsn string, size int, interpolate bool) *sql.DB {
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

func bareGrab(b *testing.B, dsn string, size int) func(context.Context, int64) error {
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
