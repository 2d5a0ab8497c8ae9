package bench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"grablab/internal/grab"

	"golang.org/x/sync/errgroup"
)

const (
	probeDriver  = 1_000_000_000 // drivers from here on belong to no load
	probesAtOnce = 256
	probeGivesUp = 3 * time.Second // of nothing but errors: this is not about a lock
)

// stuckOrders finds the orders on which a fresh driver gets neither grabbed
// nor taken until two leases have passed. Its error says that it could not be
// found out: whoever was asked answered with errors.
func (l *lane) stuckOrders(ctx context.Context, first int64, count int, lease time.Duration) ([]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*lease+readyTimeout)
	defer cancel()
	var (
		probed atomic.Int64
		mu     sync.Mutex
		stuck  []int64
	)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(probesAtOnce)
	for i := range count {
		g.Go(func() error {
			free, err := l.probe(ctx, first+int64(i), probeDriver+int64(i), lease)
			l.progress.step("probed %d of %d orders", probed.Add(1), count)
			if err == nil && !free {
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

// probe asks one instance after the other for the order, until the first
// answer that tells, or until two leases have passed. Somebody who holds the
// lock answers busy; whoever answers with errors to the end knows nothing of it.
func (l *lane) probe(ctx context.Context, id, driver int64, lease time.Duration) (free bool, err error) {
	every := max(lease/20, 10*time.Millisecond)
	deadline := time.Now().Add(2 * lease)
	heard := time.Now()
	for n := 0; ; n++ {
		in := l.fleet.instances[n%len(l.fleet.instances)]
		outcome, err := l.fleet.probe(ctx, in, id, driver)
		switch outcome {
		case grab.Grabbed, grab.Taken:
			return true, nil
		case grab.Busy:
			heard = time.Now()
		}
		if err != nil && time.Since(heard) > probeGivesUp {
			return false, fmt.Errorf("bench: probe of order %d: %w", id, err)
		}
		if err == nil && !time.Now().Before(deadline) {
			return false, nil
		}
		if !rest(ctx, every) {
			return false, context.Cause(ctx)
		}
	}
}
