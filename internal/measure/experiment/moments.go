package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab"
	"grablab/internal/testbed/fault"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/load"
	"grablab/internal/testbed/proc"
	"grablab/internal/testbed/target"
	"grablab/internal/testbed/wait"
)

// These settings are for processes that the program cannot stop at a certain call. Instead, it
// injects the fault at several times during a request.
const (
	momentCount = 8
	stopTries   = 3 // how often to try to stop a process that still answers
	momentTries = 6 // how often to try to inject the fault while the request is still running
	momentRuns  = 5 // requests without a fault that measure the duration, after a warm-up request
)

const momentPrefix = "moment "

// IsMoment reports whether the fault was injected at a fixed time after the start of a request
// instead of at a known step.
func (p Point) IsMoment() bool { return strings.HasPrefix(p.Point, momentPrefix) }

// byTime reports whether the program can choose only when the fault happens, but not which remote
// call it hits.
func (cfg Config) byTime() bool { return len(cfg.Target.PIDs) > 0 }

// checkMoments returns an error if a requested fault does not work on running processes.
func (cfg Config) checkMoments(at *fleet.Fleet) error {
	process := map[catalog.ProcessEffect]bool{} // what the requested faults do to a process
	for _, s := range cfg.specs(at) {
		process[s.Fault.Entry().Process] = true
	}
	switch {
	case !cfg.byTime():
		return nil
	case !process[catalog.ProcessStopped] && !process[catalog.ProcessKilled]:
		return fmt.Errorf("%w: with -target-pid, only the faults pause and crash are possible: use one of them, or let loadgen start the service with -service", fleet.ErrRefused)
	case process[catalog.ProcessStopped] && at.Foreign && cfg.Target.Lease == 0:
		return fmt.Errorf("%w: the fault pause must last longer than the service's lock: add -lease D, the time after which that lock expires", fleet.ErrRefused)
	case process[catalog.ProcessKilled] && len(cfg.strategies(at)) > 1:
		return fmt.Errorf("%w: loadgen cannot restart a process that the fault crash has killed: pass one strategy with -strategies, "+
			"restart the target after the run, and continue with the next strategy", fleet.ErrRefused)
	}
	return nil
}

// strikeInMoments injects the fault into running targets, at several moments of a request. Their calls are
// unknown, so there are no points to choose from.
func (in *injection) strikeInMoments(ctx context.Context) (m measured, err error) {
	moments, err := in.chooseMoments(ctx)
	if err != nil {
		return m, err
	}
	if in.prepared, err = in.fault.Prepare(ctx, fault.Target{Strategy: in.strategy, Affected: in.struck, Contender: in.other}); err != nil {
		return m, err
	}
	in.workload.setup, in.workload.killed = in.w.cfg.setup(), in.fault.Course == fault.Killed
	return in.measure(ctx, 2*momentTries*len(in.points)+1, func(ctx context.Context) error { return in.strikeAtMoments(ctx, moments) }), nil
}

// chooseMoments measures how long a normal request takes, and returns the times after the start of a
// request at which to inject the fault. It also checks that the process that the user named serves
// the requests.
func (in *injection) chooseMoments(ctx context.Context) (moments []time.Duration, err error) {
	lease, err := in.w.fleet.Use(ctx, in.strategy.Name)
	if err != nil {
		return nil, err
	}
	named, stops := in.w.cfg.Target, in.fault.Name.Entry().Process == catalog.ProcessStopped
	if stops && lease == 0 && named.Lease == 0 && !in.w.fleet.Known() {
		return nil, errors.New("the fault pause must last longer than the service's lock: add -lease D, the time after which that lock expires")
	}
	if lease > 0 {
		in.cell.LeaseMS = &lease
	}
	in.w.cfg.Load.Timeout = max(in.w.cfg.Load.Timeout, 4*in.lease()) // the client must wait longer than a pause lasts
	if in.spare, err = in.w.orders.Create(ctx, 1+1+momentRuns, 1); err != nil {
		return nil, err
	}
	p := timedProcess{in.struck, in.w.fleet.Shape, in.spare}
	if err := p.instance.AwaitGrab(ctx, p.order, dryStep); err != nil {
		return nil, err
	}
	if in.took, err = p.timeGrab(ctx); err != nil {
		return nil, fmt.Errorf("dry run: %w", err)
	}
	if n := len(named.PIDs); n > 0 {
		if err := p.checkAlone(named.PIDs[n-1]); err != nil {
			return nil, err
		}
		if stops {
			if err := p.checkServes(ctx, in.took, named.PIDs[n-1]); err != nil {
				return nil, err
			}
		}
	}
	n := momentCount
	if in.fault.Course == fault.Killed {
		n = 1 // the program does not restart the process, so it can kill the process only once
	}
	for i := range n {
		at := in.took * time.Duration(2*i+1) / time.Duration(2*n)
		moments = append(moments, at)
		in.points = append(in.points, fault.Point{Moment: fmt.Sprintf("%s%d of %d (%.1f of %.1f ms)", momentPrefix, i+1, n, millis(at), millis(in.took))})
	}
	return moments, nil
}

// timedProcess is the process that a fault at a moment will hit. Its methods try the process before the first injection.
type timedProcess struct {
	instance *fleet.Instance
	shape    *target.Shape
	order    int64 // the first of several orders that appear in no result
}

// timeGrab returns how long a normal request takes. It measures several requests and returns the
// shortest duration, so that even the last injection comes while the request is running.
func (p timedProcess) timeGrab(ctx context.Context) (time.Duration, error) {
	shortest := time.Duration(math.MaxInt64)
	for n := range int64(1 + momentRuns) {
		id, began := p.order+1+n, time.Now()
		outcome, err := p.instance.Grab(ctx, id, n)
		if err == nil && outcome != grab.Grabbed {
			err = fmt.Errorf("order %s should be open, but the service answered a grab with %s: use orders that no earlier run has used", p.shape.OrderText(id), outcome)
		}
		if err != nil {
			return 0, err
		}
		if n > 0 {
			shortest = min(shortest, time.Since(began))
		}
	}
	return shortest, nil
}

// checkAlone returns an error if another process serves requests at the same port, because the fault would hit only one
// of them.
func (p timedProcess) checkAlone(pid int) error {
	u, err := url.Parse(p.instance.URL)
	if err != nil {
		return err
	}
	port, _ := strconv.Atoi(cmp.Or(u.Port(), map[string]string{"https": "443"}[u.Scheme], "80"))
	if other := proc.Sharer(pid, port); other != 0 {
		return fmt.Errorf("processes %d and %d both serve %s, but the fault would hit only the first: start one process for each instance, or let loadgen start the service with -service", pid, other, p.instance.URL)
	}
	return nil
}

// checkServes returns an error if requests get responses even while the process is stopped. It
// tries several times, because a busy machine may stop a process late.
func (p timedProcess) checkServes(ctx context.Context, took time.Duration, pid int) error {
	for range stopTries {
		answered, err := p.answersWhileStopped(ctx, took)
		if err != nil || !answered {
			return err
		}
	}
	return fmt.Errorf("process %d was stopped, but %s still answered: name the processes that serve requests, not a supervisor or a proxy, in the same order as in -targets", pid, p.instance.URL)
}

// answersWhileStopped stops the process briefly, and reports whether a request gets a response
// meanwhile.
func (p timedProcess) answersWhileStopped(ctx context.Context, took time.Duration) (answered bool, err error) {
	if err := p.instance.Signal(syscall.SIGSTOP); err != nil {
		return false, err
	}
	wait.For(ctx, simultaneous) // give all threads time to stop
	grabbed, seen := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := p.instance.Grab(ctx, p.order, 0)
		grabbed <- err
	}()
	go func() { // unlike a grab, this request is answered even if the process is a server that the service needs
		path, _, _ := p.shape.Request(p.order, 0)
		seen <- p.instance.Call(ctx, http.MethodGet, string(path), nil, nil)
	}()
	wait.For(ctx, max(3*took, 3*simultaneous))
	answered = len(grabbed)+len(seen) > 0
	err = errors.Join(p.instance.Signal(syscall.SIGCONT), <-grabbed, context.Cause(ctx))
	<-seen
	return answered, err
}

// strikeAtMoments injects the fault at each of the chosen times after the start of a request. If a
// request has already ended by then, it retries with another order.
func (in *injection) strikeAtMoments(ctx context.Context, moments []time.Duration) error {
	for i, p := range in.points {
		for try := 1; ; try++ {
			if err := in.withoutFault(ctx); err != nil {
				return err
			}
			s := newStrike(in, in.following(p))
			done, err := s.runAt(ctx, moments[i])
			if err != nil {
				return fmt.Errorf("experiment: the injection failed: %w", err)
			}
			if done || try == momentTries {
				in.contests = append(in.contests, s.contests...)
				break
			}
			in.undisturbed = append(in.undisturbed, s.contests...)
		}
	}
	var err error
	if in.fault.Course != fault.Killed {
		err = in.withoutFault(ctx)
	}
	in.cell.Orders = in.next // drop the orders that were not needed
	return err
}

// runAt sends a request and injects the fault after the given time. It returns false if the request
// had ended by then.
func (s *strike) runAt(ctx context.Context, at time.Duration) (done bool, err error) {
	defer func() { err = errors.Join(err, s.heal(ctx)) }()
	c := s.contests[0]
	s.in.bursts.Send([]load.Request{c.affected})
	if !wait.For(ctx, at) {
		return false, context.Cause(ctx)
	}
	var steps []step
	if !s.in.responses.isAnswered(c.affected) {
		if err := applying(s.in.prepared.Strikes[0].Do)(s, ctx); err != nil {
			return false, err
		}
		wait.For(ctx, simultaneous) // wait for a response that is already on its way
		done = s.in.fault.Course == fault.Killed
		a, answered := s.in.responses.of(c.affected)
		c.struck = !answered || done && !reached(a.outcome)
		done = done || c.struck
	}
	if c.struck {
		steps = []step{contending(contention.send), contending(contention.await)}
	} else {
		steps = []step{(*strike).heal, contending(contention.send)}
	}
	return done, s.do(ctx, append(steps, (*strike).heal, (*strike).sendLate, (*strike).awaitAnswers)...)
}
