package fleet

import (
	"context"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/testbed/load"
	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/stack/stacktest"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

const (
	soakDrivers = 20
	soakPeriods = 6 // the first is the warm-up, and the last is compared with the second
)

// soakRate is the number of requests per second: half of the highest rate that handoff sustained on two
// cores. GRABLAB_SOAK_RATE sets another rate for another machine.
var soakRate = 800

// soakMetrics are the metrics that must not grow.
var soakMetrics = []string{"process_resident_memory_bytes", "go_goroutines", "process_open_fds"}

// TestSoak sends grabs to two instances for a long time. GRABLAB_SOAK enables it and sets its duration,
// for example 30m. From the second to the last sixth of this time, memory, goroutines and open files
// must grow by at most 5 %. The test compares the smallest samples of both periods, because a leak raises
// them, but a short peak does not. The median p99 latency of the last period must not exceed the highest
// p99 of the second one.
func TestSoak(t *testing.T) {
	total, err := time.ParseDuration(os.Getenv("GRABLAB_SOAK"))
	if err != nil {
		t.Skip("GRABLAB_SOAK=30m runs it")
	}
	if rate := os.Getenv("GRABLAB_SOAK_RATE"); rate != "" {
		soakRate, err = strconv.Atoi(rate)
		stacktest.Check(t, err)
	}
	ctx := t.Context()
	st, err := stack.Start(ctx, stack.Config{Kind: stack.Local, Needs: lock.Redis})
	stacktest.Check(t, err)
	t.Cleanup(func() { _ = st.Close() })
	exe, err := os.Executable()
	stacktest.Check(t, err)
	f := New(Config{Exe: exe, Instances: 2, OnLost: grab.Abort, Say: t.Logf}, st, 0)
	t.Cleanup(func() { _ = f.Close() })
	stacktest.Check(t, f.Equip(ctx, Setup{Work: 5 * time.Millisecond, TTL: 30 * time.Second, Wait: 5 * time.Second, Timeout: 10 * time.Second}))
	_, err = f.Use(ctx, "handoff")
	stacktest.Check(t, err)
	orders := int(total.Seconds()) * soakRate / soakDrivers
	first, err := f.Create(ctx, orders, 1)
	stacktest.Check(t, err)

	// A burst fills the pools of connections, which otherwise grow whenever the machine is busy.
	burst, err := f.Create(ctx, 10, 1)
	stacktest.Check(t, err)
	plan := load.NewPlan(f.URLs(), burst, 10, 5*soakDrivers, 1)
	cfg := load.Config{Orders: 10, Drivers: 5 * soakDrivers, Timeout: 30 * time.Second, MaxWorkers: 1000}
	stacktest.Check(t, load.Attack(ctx, plan, cfg, func(*vegeta.Result, time.Time) {}))

	period := total / soakPeriods
	interval := period / 10
	samples := make([]map[string][]float64, soakPeriods) // the sums over the instances, by metric
	for i := range samples {
		samples[i] = map[string][]float64{}
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, total+time.Minute)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for tick := time.Tick(interval); ; {
			select {
			case <-ctx.Done():
				return
			case <-tick:
			}
			n := int(time.Since(began) / period)
			if n >= soakPeriods {
				return
			}
			for name, v := range soakSample(t, f) {
				samples[n][name] = append(samples[n][name], v)
			}
		}
	}()

	latencies := make([][10][]float64, soakPeriods) // in ms, by period and tenth of the period
	failed := 0
	plan = load.NewPlan(f.URLs(), first, orders, soakDrivers, 1)
	cfg = load.Config{Orders: orders, Drivers: soakDrivers, Rate: float64(soakRate), Timeout: 10 * time.Second, MaxWorkers: 1000}
	stacktest.Check(t, load.Attack(ctx, plan, cfg, func(r *vegeta.Result, due time.Time) {
		if r.Code != http.StatusOK && r.Code != http.StatusConflict {
			failed++
			t.Logf("after %v: HTTP %d, %s", due.Sub(began).Round(time.Second), r.Code, r.Error)
		}
		at := due.Sub(began)
		n := min(int(at/period), soakPeriods-1)
		tenth := &latencies[n][min(int((at-time.Duration(n)*period)/interval), 9)]
		*tenth = append(*tenth, r.Timestamp.Add(r.Latency).Sub(due).Seconds()*1000)
	}))
	<-done
	rows, err := f.Ledger(ctx, first, orders)
	stacktest.Check(t, err)
	if len(rows) != orders || failed > 0 {
		t.Errorf("%d of %d orders were grabbed, and %d requests failed", len(rows), orders, failed)
	}
	for _, name := range soakMetrics {
		least := smallest(samples, name)
		before, after := least[1], least[soakPeriods-1]
		t.Logf("%-30s %.0f, then %.0f (%+.1f %%)", name, before, after, 100*(after/before-1))
		if after > 1.05*before {
			t.Errorf("%s grew from %.0f to %.0f, which is more than 5 %%; the smallest of each period: %v", name, before, after, least)
		}
	}
	p99 := func(n int) (all []float64) {
		for _, ms := range latencies[n] {
			all = append(all, quantile(ms, 0.99))
		}
		return all
	}
	early, late := slices.Max(p99(1)), median(p99(soakPeriods-1))
	t.Logf("p99 of the latency: %.1f ms (at most %.1f ms), then %.1f ms", median(p99(1)), early, late)
	if late > early {
		t.Errorf("the p99 of the latency rose to %.1f ms; at first it was between %.1f and %.1f ms", late, slices.Min(p99(1)), early)
	}
}

// soakSample returns the sum of each metric over the instances.
func soakSample(t *testing.T, f *Fleet) map[string]float64 {
	sums := map[string]float64{}
	for _, in := range f.Instances {
		families, err := f.client.scrape(t.Context(), in.URL)
		if err != nil {
			t.Errorf("metrics of %s: %v", in.ID, err)
			return nil
		}
		for _, name := range soakMetrics {
			if families[name] == nil {
				t.Errorf("%s has no metric %s: %v", in.ID, name, slices.Sorted(maps.Keys(families)))
				continue
			}
			sums[name] += total(families[name])
		}
	}
	return sums
}

// smallest returns the smallest sample of each period.
func smallest(samples []map[string][]float64, name string) (all []float64) {
	for _, s := range samples {
		all = append(all, quantile(s[name], 0))
	}
	return all
}

func median(values []float64) float64 { return quantile(values, 0.5) }

// quantile returns the value below which this share of the values lies, or 0 if there are none.
func quantile(values []float64, share float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[int(share*float64(len(sorted)))]
}
