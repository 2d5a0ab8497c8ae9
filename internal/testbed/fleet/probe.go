package fleet

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"grablab/internal/grab"
	"grablab/internal/history"
	"grablab/internal/testbed/wait"

	"golang.org/x/sync/errgroup"
)

// ProbeDriver is the first driver that belongs to no load.
const ProbeDriver = history.ProbeDriver

const (
	probesAtOnce = 256
	probeGivesUp = 3 * time.Second // of nothing but errors: this is not about a lock
)

// StuckOrders finds the orders on which a fresh driver gets neither grabbed
// nor taken until two leases have passed. probed is told after each order, with the
// outcome that told, if any did; it may be called by several goroutines at a time. The error says that it could
// not be found out, because the instances answered with errors.
func (f *Fleet) StuckOrders(ctx context.Context, first int64, count int, lease time.Duration, probed func(id int64, outcome grab.Outcome)) ([]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*lease+readyTimeout)
	defer cancel()
	var (
		mu    sync.Mutex
		stuck []int64
	)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(probesAtOnce)
	for i := range count {
		g.Go(func() error {
			outcome, err := f.askUntilTold(ctx, first+int64(i), ProbeDriver+int64(i), lease)
			probed(first+int64(i), outcome)
			if err == nil && outcome == "" {
				mu.Lock()
				defer mu.Unlock()
				stuck = append(stuck, first+int64(i))
			}
			return err
		})
	}
	err := g.Wait()
	return stuck, err
}

// askUntilTold asks one instance after the other for the order, until the first
// answer that tells, or until two leases have passed: then it is "". Busy says that the
// lock is held; errors to the end say nothing of it.
func (f *Fleet) askUntilTold(ctx context.Context, id, driver int64, lease time.Duration) (told grab.Outcome, err error) {
	every := max(lease/20, 10*time.Millisecond)
	deadline := time.Now().Add(2 * lease)
	heard := time.Now()
	asked := slices.DeleteFunc(slices.Clone(f.Instances), func(in *Instance) bool { return in.killed })
	for n := 0; ; n++ {
		outcome, err := f.probe(ctx, asked[n%len(asked)], id, driver)
		switch outcome {
		case grab.Grabbed, grab.Taken:
			return outcome, nil
		case grab.Busy:
			heard = time.Now()
		}
		if err != nil && time.Since(heard) > probeGivesUp {
			return "", fmt.Errorf("fleet: probe of order %d: %w", id, err)
		}
		if err == nil && !time.Now().Before(deadline) {
			return "", nil
		}
		if !wait.For(ctx, every) {
			return "", context.Cause(ctx)
		}
	}
}

// Wins says whether the driver who asks the first instance for the order is told to have won
// it.
func (f *Fleet) Wins(ctx context.Context, id, driver int64) bool {
	outcome, err := f.probe(ctx, f.Instances[0], id, driver)
	return err == nil && outcome == grab.Grabbed
}

// probe is a grab that does not wait for the lock. An error comes with any outcome that does not tell.
func (f *Fleet) probe(ctx context.Context, in *Instance, id, driver int64) (grab.Outcome, error) {
	path, body, header := f.Shape.Request(id, driver)
	code, answer, err := f.send(ctx, f.Shape.Method, in.URL+string(path)+f.Shape.TryOnce(), body, header)
	if err != nil {
		return grab.Failed, err
	}
	m := f.Shape.Meaning(code, answer)
	if m.Outcome == grab.Failed || m.Outcome == grab.Timeout {
		return m.Outcome, statusError(code, answer)
	}
	return m.Outcome, nil
}
