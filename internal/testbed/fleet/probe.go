package fleet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab"
	"grablab/internal/testbed/load"
	"grablab/internal/testbed/target"
	"grablab/internal/testbed/wait"

	"golang.org/x/sync/errgroup"
)

const (
	probesAtOnce = 256
	probeGivesUp = 3 * time.Second  // give up if all test requests fail for this long
	probeWaits   = 10 * time.Second // how long to wait for a response, in addition to a TTL
)

var errSilent = errors.New("no instance answered in time. Grabs may be waiting for each other: look for a connection or thread pool that is too small, or that does not get its connections back")

// IsProbe reports whether this driver only sends the test requests after the load.
func (f *Fleet) IsProbe(driver int64) bool { return driver >= f.probes }

// StuckOrders finds orders that are stuck. An order is stuck if, for two TTLs, no new driver can win it
// and no response says that it is taken. StuckOrders sends test requests, and calls probed with each
// order's last driver and outcome. These calls may be concurrent.
//
// In the user's service, the test requests may extend the lock while they wait for it. Therefore, an
// order counts as stuck only if another request, a lease later, gets no final outcome either.
//
// An order whose test requests get no response counts as stuck. If no order gets a response,
// StuckOrders returns an error instead.
//
// If reserved returns true for an order, the outcome "taken" counts only after two TTLs, because
// the reservation may expire. reserved may be nil.
func (f *Fleet) StuckOrders(ctx context.Context, first int64, count int, lease time.Duration, reserved func(id int64) bool, probed func(id, driver int64, outcome grab.Outcome)) ([]int64, error) {
	rounds := (count + probesAtOnce - 1) / probesAtOnce                                            // only so many orders are probed at once
	longest := 2*lease + undisturbed(lease) + time.Duration(1+len(f.Instances))*(lease+probeWaits) // the last requests for an order may begin after all pauses
	ctx, cancel := context.WithTimeout(ctx, time.Duration(rounds)*longest)
	defer cancel()
	var (
		mu            sync.Mutex
		stuck, silent []int64
		silence       error // the error for an order that got no response
	)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(probesAtOnce)
	for i := range int64(count) {
		g.Go(func() error {
			driver, outcome, err := f.askUntilTold(ctx, first+i, f.probes+i, int64(count), lease, reserved != nil && reserved(first+i))
			probed(first+i, driver, outcome)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.Is(err, errSilent):
				silent, silence = append(silent, first+i), err
				return nil
			case err == nil && outcome == grab.Busy:
				stuck = append(stuck, first+i)
			}
			return err
		})
	}
	err := g.Wait()
	if err == nil && len(silent) == count {
		return nil, silence
	}
	return append(stuck, silent...), err
}

// undisturbed returns the length of a pause without requests for an order. A lock with this lease ends
// during the pause if only waiting drivers extend it.
func undisturbed(lease time.Duration) time.Duration { return lease * 11 / 10 }

// askUntilTold sends requests for an order from new test drivers, until one gets a final outcome.
// After two TTLs, it gives up and returns "busy". It first asks the user's service once more, after a
// pause. If no instance responds, it returns errSilent. Consecutive driver IDs differ by step.
func (f *Fleet) askUntilTold(ctx context.Context, id, driver, step int64, lease time.Duration, reserved bool) (last int64, told grab.Outcome, err error) {
	every := max(lease/20, 10*time.Millisecond)
	deadline := time.Now().Add(2 * lease)
	heard := time.Now()
	asked := catalog.Filter(f.Instances, func(in *Instance) bool { return !in.killed })
	unanswered, paused := 0, f.Ours || f.Known()
	for n := 0; ; n++ {
		outcome, err := f.probe(ctx, lease+probeWaits, asked[n%len(asked)], id, driver)
		if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() && ctx.Err() == nil {
			if unanswered++; unanswered == len(asked) {
				return driver, "", f.probeError(id, driver, errSilent)
			}
			driver += step
			continue
		}
		unanswered = 0
		over := !time.Now().Before(deadline)
		switch {
		case outcome == grab.Grabbed, outcome == grab.Taken && (over || !reserved):
			return driver, outcome, nil
		case outcome == grab.Busy, outcome == grab.Taken:
			heard = time.Now()
		}
		pause := every
		switch {
		case err != nil && time.Since(heard) > probeGivesUp:
			return driver, "", f.probeError(id, driver, err)
		case err == nil && over && paused:
			return driver, grab.Busy, nil
		case err == nil && over:
			paused, pause = true, undisturbed(lease)
			heard = time.Now().Add(pause)
		}
		if !wait.For(ctx, pause) {
			return driver, "", context.Cause(ctx)
		}
		driver += step
	}
}

// probeError describes a test request whose response was unclear. It adds a hint if the flags may
// describe the user's service incorrectly.
func (f *Fleet) probeError(id, driver int64, err error) error {
	hint := ""
	answer, ok := errors.AsType[*StatusError](err)
	undecided := ok && answer.Code == http.StatusAccepted
	if !errors.Is(err, errSilent) && !undecided && !f.Ours && !f.Known() && f.Shape.TellsDrivers() {
		hint = "; if this answer means that another driver holds the lock, add it to -busy; if the service does not know this driver, name the first of several known drivers with -probe-drivers"
	}
	return fmt.Errorf("the test grab of order %s by driver %d failed: %w%s", f.Shape.OrderText(id), driver, err, hint)
}

// Wins reports whether an instance says that the driver has won the order. It tries each instance
// until one says either grabbed or taken, and returns an error if none does.
func (f *Fleet) Wins(ctx context.Context, id, driver int64) (won bool, err error) {
	for _, in := range catalog.Filter(f.Instances, func(in *Instance) bool { return !in.killed }) {
		var outcome grab.Outcome
		outcome, err = f.probe(ctx, callTimeout, in, id, driver)
		switch {
		case err == nil && outcome != grab.Busy:
			return outcome == grab.Grabbed, nil
		case err == nil:
			err = errors.New("the lock is busy")
		}
	}
	return false, f.probeError(id, driver, err)
}

// probe sends a test request for an order, without waiting for the lock. It returns an error unless
// the outcome is grabbed, taken or busy.
func (f *Fleet) probe(ctx context.Context, within time.Duration, in *Instance, id, driver int64) (grab.Outcome, error) {
	a, m, err := in.ask(ctx, within, id, driver)
	if err == nil && (m.Outcome == grab.Failed || m.Outcome == grab.Timeout) {
		status := statusError(a.Status, a.Body)
		if len(a.Body) > target.MaxBody {
			status.Says += fmt.Sprintf(" (%s)", m.Kind)
		}
		err = status
	}
	return m.Outcome, err
}

// ProbeDriver returns a driver ID for test requests. The load never uses this ID.
func (f *Fleet) ProbeDriver(index int64) int64 { return f.probes + index }

// Ask requests an order for a driver, without waiting for the lock. It returns the response and its
// meaning.
func (in *Instance) Ask(ctx context.Context, id, driver int64) (Answer, target.Meaning, error) {
	return in.ask(ctx, callTimeout, id, driver)
}

// ask sends a grab for an order and a driver. It returns the answer, and what the rules say about
// it.
func (in *Instance) ask(ctx context.Context, within time.Duration, id, driver int64) (Answer, target.Meaning, error) {
	f := in.fleet
	path, body, header := f.Shape.Request(id, driver)
	a, err := f.client.send(ctx, within, f.Shape.Method, load.Request{Target: in.URL, Order: id, Driver: driver}.URL(append(path, f.Shape.TryOnce...)), body, header)
	if err != nil {
		return a, target.Meaning{Outcome: grab.Failed}, err
	}
	return a, f.Shape.Meaning(a.Status, a.Header, a.Body), nil
}
