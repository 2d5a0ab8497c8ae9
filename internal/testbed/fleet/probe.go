package fleet

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"grablab/internal/grab"
	"grablab/internal/testbed/load"
	"grablab/internal/testbed/target"
	"grablab/internal/testbed/wait"

	"golang.org/x/sync/errgroup"
)

const (
	probesAtOnce = 256
	probeGivesUp = 3 * time.Second // a probe gives up if it gets only errors for this long
)

// IsProbe reports whether the driver makes only test grabs after the load.
func (f *Fleet) IsProbe(driver int64) bool { return driver >= f.probes }

// StuckOrders returns the orders that no new driver can grab within two leases. It calls probed,
// possibly concurrently, with each driver that got an answer. It returns an error if all test grabs
// failed.
func (f *Fleet) StuckOrders(ctx context.Context, first int64, count int, lease time.Duration, probed func(id, driver int64, outcome grab.Outcome)) ([]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*lease+readyTimeout)
	defer cancel()
	var (
		mu    sync.Mutex
		stuck []int64
	)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(probesAtOnce)
	for i := range int64(count) {
		g.Go(func() error {
			driver, outcome, err := f.askUntilTold(ctx, first+i, f.probes+i, int64(count), lease)
			probed(first+i, driver, outcome)
			if err == nil && outcome == "" {
				mu.Lock()
				defer mu.Unlock()
				stuck = append(stuck, first+i)
			}
			return err
		})
	}
	err := g.Wait()
	return stuck, err
}

// askUntilTold tries to grab the order with new drivers until one is told grabbed or taken. After
// two leases, it gives up and told is empty, because the lock is still held. step is the difference
// between two drivers.
func (f *Fleet) askUntilTold(ctx context.Context, id, driver, step int64, lease time.Duration) (last int64, told grab.Outcome, err error) {
	every := max(lease/20, 10*time.Millisecond)
	deadline := time.Now().Add(2 * lease)
	heard := time.Now()
	asked := slices.DeleteFunc(slices.Clone(f.Instances), func(in *Instance) bool { return in.killed })
	for n := 0; ; n++ {
		outcome, err := f.probe(ctx, asked[n%len(asked)], id, driver)
		switch outcome {
		case grab.Grabbed, grab.Taken:
			return driver, outcome, nil
		case grab.Busy:
			heard = time.Now()
		}
		if err != nil && time.Since(heard) > probeGivesUp {
			return driver, "", f.probeError(id, driver, err)
		}
		if err == nil && !time.Now().Before(deadline) {
			return driver, "", nil
		}
		if !wait.For(ctx, every) {
			return driver, "", context.Cause(ctx)
		}
		driver += step
	}
}

// probeError describes a test grab that got no clear answer. The user's service may refuse drivers
// that it does not know.
func (f *Fleet) probeError(id, driver int64, err error) error {
	hint := ""
	if !f.Ours && !f.Known() && f.Shape.TellsDrivers() {
		hint = "; if the service does not know this driver, name the first of some that it knows with -probe-drivers"
	}
	return fmt.Errorf("fleet: probe of order %d by driver %d: %w%s", id, driver, err, hint)
}

// Wins reports whether the driver has won the order, according to the first instance.
func (f *Fleet) Wins(ctx context.Context, id, driver int64) bool {
	outcome, err := f.probe(ctx, f.Instances[0], id, driver)
	return err == nil && outcome == grab.Grabbed
}

// probe sends a grab that does not wait for the lock. It returns an error unless the answer is
// grabbed, taken or busy.
func (f *Fleet) probe(ctx context.Context, in *Instance, id, driver int64) (grab.Outcome, error) {
	a, m, err := in.Ask(ctx, id, driver)
	if err == nil && (m.Outcome == grab.Failed || m.Outcome == grab.Timeout) {
		status := statusError(a.Status, a.Body)
		if len(a.Body) > target.MaxBody {
			status.Says += fmt.Sprintf(" (%s)", m.Kind)
		}
		err = status
	}
	return m.Outcome, err
}

// ProbeDriver returns the driver of a test grab. The load uses other drivers.
func (f *Fleet) ProbeDriver(index int64) int64 { return f.probes + index }

// Ask sends a grab that does not wait for the lock, and returns the answer and its meaning.
func (in *Instance) Ask(ctx context.Context, id, driver int64) (Answer, target.Meaning, error) {
	f := in.fleet
	path, body, header := f.Shape.Request(id, driver)
	a, err := f.send(ctx, f.Shape.Method, load.Request{Target: in.URL, Order: id, Driver: driver}.URL(append(path, f.Shape.TryOnce()...)), body, header)
	if err != nil {
		return a, target.Meaning{Outcome: grab.Failed}, err
	}
	return a, f.Shape.Meaning(a.Status, a.Header, a.Body), nil
}
