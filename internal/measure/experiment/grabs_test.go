package experiment

import (
	"os"
	"testing"
	"time"

	"grablab/internal/grab"
	"grablab/internal/measure/stat"
	"grablab/internal/order"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/load"
	"grablab/internal/testbed/stack/stacktest"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

// BenchmarkGrabs measures the rate of winning grabs through two instances, without a lock and without
// work. It divides this rate by the rate of the same statements sent directly over database/sql. Both
// use the same server and the same number of connections. The lower limit is one half.
//
//	go test ./internal/measure/experiment -run '^$' -bench Grabs -benchtime 1x
func BenchmarkGrabs(b *testing.B) {
	const rounds, orders, inFlight = 21, 3000, 32
	st := stacktest.Local(b)
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
	instances := fleet.New(fleet.Config{OnLost: grab.Abort, Instances: 2, Exe: exe, Say: b.Logf}, st, fleet.FirstPort)
	defer instances.Stop()
	if err := instances.Equip(b.Context(), fleet.Setup{TTL: time.Minute, Timeout: time.Minute}); err != nil {
		b.Fatal(err)
	}

	create := func() int64 {
		first, err := store.Create(b.Context(), orders, 1)
		if err != nil {
			b.Fatal(err)
		}
		return first
	}
	ours := func() float64 {
		p := load.NewPlan(instances.URLs(), create(), orders, 1, 1)
		t := newAccounting(1, instances.IDs(), instances.Shape)
		size := Load{Timeout: time.Minute, MaxWorkers: inFlight}
		began := time.Now()
		err := load.Attack(b.Context(), p, size, func(r *vegeta.Result, due time.Time) { t.add(r, due) })
		if err != nil || t.outcomes[grab.Grabbed] != orders {
			b.Fatalf("%v: Attack: %v %v", err, t.outcomes, t.errors)
		}
		return orders / time.Since(began).Seconds()
	}
	bare := bareGrab(b, st.DSN, inFlight)
	alone := func() float64 {
		return orders / grabAll(b, bare, create(), orders, inFlight).Seconds()
	}
	for b.Loop() {
		var a, v []float64
		for round := range rounds + 1 { // round 0 warms up
			x, y := ours(), alone()
			if round > 0 {
				a, v = append(a, x), append(v, y)
			}
		}
		ratio := stat.Ratio(a, v)
		b.ReportMetric(stat.Median(a).Median, "service-grabs/s")
		b.ReportMetric(stat.Median(v).Median, "sql-grabs/s")
		b.ReportMetric(ratio.Median, "service/sql")
		b.Logf("grabs/s, two instances/bare SQL: %.3f, median of %d rounds with its 95 %% interval", ratio, rounds)
		if ratio.High < 0.5 {
			b.Errorf("the service reaches less than half the rate of the same SQL sent directly")
		}
	}
}
