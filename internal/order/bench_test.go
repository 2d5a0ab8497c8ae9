package order_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"grablab/internal/measure/stat"
	"grablab/internal/order"
	"grablab/internal/order/storetest"

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
		{"bare", storetest.BareGrab(b, dsn, workers)},
		{"prepared", preparedGrab(b, dsn, workers)},
		{"store", storeGrab(s)},
	}

	for b.Loop() {
		rate := make([][]float64, len(ways))
		for round := range rounds + 1 { // the first warms up
			for _, i := range rand.Perm(len(ways)) {
				first, err := s.Create(b.Context(), grabs, 1)
				if err != nil {
					b.Fatal(err)
				}
				took := storetest.GrabAll(b, ways[i].grab, first, grabs, workers)
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
				b.Logf("%s/bare: %v, median of %d rounds with its 95 %% interval", w.name, ratio, rounds)
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
		Conn: storetest.BareDB(b, dsn, size, false), SkipInitializeWithVersion: true,
	}), &gorm.Config{
		Logger: logger.Discard, SkipDefaultTransaction: true, DisableAutomaticPing: true, PrepareStmt: true,
	})
	if err != nil {
		b.Fatal(err)
	}
	return func(ctx context.Context, id int64) error {
		var o order.Order
		if err := db.WithContext(ctx).Raw(storetest.ReadSQL, id).Scan(&o).Error; err != nil {
			return err
		}
		if o.Status != order.Open {
			return order.ErrTaken
		}
		return db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
			if err := tx.Exec(storetest.UpdateSQL, order.Grabbed, id, id).Error; err != nil {
				return err
			}
			return tx.Exec(storetest.InsertSQL, id, id, "8004", "none", fmt.Sprint(id), 0).Error
		})
	}
}
