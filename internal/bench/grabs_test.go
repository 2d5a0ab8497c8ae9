package bench

import (
	"context"
	"database/sql"
	"os"
	"sync"
	"testing"
	"time"

	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/order"
	"grablab/internal/stack/stacktest"
	"grablab/internal/stat"

	"github.com/go-sql-driver/mysql"
	vegeta "github.com/tsenart/vegeta/v12/lib"
)

// BenchmarkGrabs has every request be a full winning grab, with no lock and no
// work, through two instances, and compares the grabs per second with what the
// same statements reach alone over database/sql: same server, same durability,
// as many connections as grabs in flight. The bound is one half.
//
//	go test ./internal/bench -run '^$' -bench Grabs -benchtime 1x
func BenchmarkGrabs(b *testing.B) {
	const rounds, orders, inFlight = 21, 3000, 32
	st := stacktest.Local(b)
	none, err := lock.Find("none")
	if err != nil {
		b.Fatal(err)
	}
	store, err := order.Connect(b.Context(), st.DSN, order.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	if err := store.Migrate(b.Context()); err != nil {
		b.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cfg := Config{Strategies: []lock.Strategy{none}, Load: Load{Timeout: time.Minute}, TTL: time.Minute, OnLost: grab.Abort, Instances: 2, Exe: exe}
	fleet, err := startFleet(b.Context(), cfg, st, b.Logf)
	if err != nil {
		b.Fatal(err)
	}
	defer fleet.stop()

	create := func() int64 {
		first, err := store.Create(b.Context(), orders)
		if err != nil {
			b.Fatal(err)
		}
		return first
	}
	ours := func() float64 {
		p := newPlan(fleet.urls(), create(), orders, 1, 1)
		t := newTally(1, fleet.names())
		load := Load{Timeout: time.Minute, MaxWorkers: inFlight}
		began := time.Now()
		err := attack(b.Context(), p, load, func(r *vegeta.Result, due time.Time) { t.add(r, due) })
		if err != nil || t.outcomes[grab.Grabbed] != orders {
			b.Fatalf("%v: %v %v", err, t.outcomes, t.errors)
		}
		return orders / time.Since(began).Seconds()
	}
	bare := bareGrabs(b, st.DSN, inFlight)
	alone := func() float64 {
		first := create()
		began := time.Now()
		bare(first, orders)
		return orders / time.Since(began).Seconds()
	}
	for b.Loop() {
		var a, v []float64
		for round := range rounds + 1 { // the first warms up
			x, y := ours(), alone()
			if round > 0 {
				a, v = append(a, x), append(v, y)
			}
		}
		ratio := stat.Ratio(a, v)
		b.ReportMetric(stat.Median(a).Median, "service-grabs/s")
		b.ReportMetric(stat.Median(v).Median, "sql-grabs/s")
		b.ReportMetric(ratio.Median, "service/sql")
		b.Logf("grabs/s, two instances/bare SQL: %v, median of %d rounds with its 95 %% interval", ratio, rounds)
		if ratio.High < 0.5 {
			b.Errorf("less than half of what the SQL reaches alone")
		}
	}
}

// bareGrabs returns what makes grabs by the statements of a naive grab, over
// database/sql and nothing else.
func bareGrabs(b *testing.B, dsn string, workers int) func(first int64, count int) {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		b.Fatal(err)
	}
	cfg.InterpolateParams = true
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		b.Fatal(err)
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(workers)
	db.SetMaxIdleConns(workers)
	b.Cleanup(func() { db.Close() })

	one := func(ctx context.Context, id int64) error {
		var status int
		if err := db.QueryRowContext(ctx, "SELECT status FROM orders WHERE id = ?", id).Scan(&status); err != nil {
			return err
		}
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := tx.ExecContext(ctx, "UPDATE orders SET status = 1, driver_id = ?, grabbed_at = UTC_TIMESTAMP(6) WHERE id = ?", 1, id); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, "INSERT INTO grabs (order_id, driver_id, instance, strategy, token, fence, grabbed_at) VALUES (?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6))",
			id, 1, "bare", "none", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", 0)
		if err != nil {
			return err
		}
		return tx.Commit()
	}
	return func(first int64, count int) {
		var all sync.WaitGroup
		for w := range workers {
			all.Go(func() {
				for id := first + int64(w); id < first+int64(count); id += int64(workers) {
					if err := one(b.Context(), id); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
	}
}
