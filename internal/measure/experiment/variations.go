package experiment

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/service/control"
	"grablab/internal/tap"
	"grablab/internal/testbed/fault"
	"grablab/internal/testbed/fleet"
)

// strikeInVariations injects the fault in each variation. This comes before the usual injections,
// because it restarts the instances with other settings. A restart ends everything that an instance
// still does for an order, such as renewing a lock that it should have released.
func (in *injection) strikeInVariations(ctx context.Context) error {
	varied := false
	for _, p := range in.points {
		for _, strike := range in.extraStrikes(p) {
			varied = true
			if err := strike(ctx, p); err != nil {
				return err
			}
		}
	}
	if !varied {
		return nil
	}
	in.ttl = in.w.cfg.TTL
	return in.equip(ctx, in.workload.setup)
}

// equip restarts the instances at the same addresses if they do not have these settings yet.
func (in *injection) equip(ctx context.Context, u fleet.Setup) error {
	u.SameAddr = true
	return in.w.prepare(ctx, in.strategy, in.cell, u)
}

// extraStrikes returns functions that inject the fault at this step once more, each in a variation.
func (in *injection) extraStrikes(p fault.Point) (all []func(context.Context, fault.Point) error) {
	if in.testsStart(p) {
		all = append(all, in.strikeAtOther)
	}
	if in.testsLongWork(p) {
		all = append(all, in.strikeInLongWork)
	}
	if in.testsOutage(p) {
		all = append(all, in.strikeInOutage)
	}
	if in.testsHeadStart(p) {
		all = append(all, in.strikeWithHeadStart)
	}
	return all
}

// testsStart reports whether to inject the fault once more at this step, but into the other instance.
// That instance restarts, and its start-up code may delete the lock. The code may also undo the
// unfinished work of a driver at the instance that is still running.
func (in *injection) testsStart(p fault.Point) bool {
	return in.traits.reconnects && in.fault.Course == fault.Killed && p.InWork()
}

// ttlOfRestart returns a TTL that lets a lock outlast an instance restart and the rest of a grab. If
// the run cannot set the TTL, it returns the configured one.
func (in *injection) ttlOfRestart() time.Duration {
	if !in.w.cfg.setsTTL() || in.w.cfg.Asked.TTL {
		return in.ttl
	}
	needed := in.struck.StartTook
	if t := in.trail.service; t != nil {
		needed += t.takes
	}
	return max(in.ttl, restartTTL, 3*needed)
}

// strikeAtOther pauses a driver at one instance, and restarts the other instance. Contenders then
// compete at the restarted instance before the paused driver's lease ends, because its start-up code
// may have deleted the driver's lock.
//
// The dry runs used in.struck, and often only the first instance has start-up code, so the driver is
// paused at in.other. If it does not reach the step there, for example because only in.struck reads a
// queue, the instances swap roles.
func (in *injection) strikeAtOther(ctx context.Context, p fault.Point) error {
	in.ttl = in.ttlOfRestart()
	u := in.workload.setup
	u.TTL = in.ttl
	if err := in.equip(ctx, u); err != nil {
		return err
	}
	f, began := in.fault, len(in.contests)
	in.fault.Course, in.fault.ContendFor, in.fault.Severs = fault.AfterHeal, 0.3, true // like a fault that restarts a server
	defer func() { in.fault = f }()
	in.swapInstances()
	err := in.strikeUntilHit(ctx, []fault.Point{p}, 0, otherRestarts)
	in.swapInstances()
	if last := in.contests[len(in.contests)-1]; err != nil || last.struck || last.answeredAt.IsZero() {
		return err
	}
	for _, c := range in.contests[began:] {
		c.repeated = true
	}
	in.swapInstances() // prepareFault chooses the instance to kill
	err = in.prepareFault(ctx)
	in.swapInstances()
	if err == nil {
		err = in.strikeUntilHit(ctx, []fault.Point{p}, 0, otherRestarts)
	}
	return errors.Join(err, in.prepareFault(ctx))
}

func (in *injection) swapInstances() { in.struck, in.other = in.other, in.struck }

// longWork is how long drivers work after a database restart in an additional injection. Connection
// pools such as HikariCP do not check a connection that was idle for less than 500 ms. With shorter
// work, the affected driver fails because it uses a dead connection. With longer work, it may write
// through a new connection although the restart has ended the session with its lock.
const longWork = time.Second

// testsLongWork reports whether to inject a restart of the database once more at this step, with
// drivers that work for longWork.
func (in *injection) testsLongWork(p fault.Point) bool {
	cfg := in.w.cfg
	return in.traits.reconnects && in.fault.Severs && in.fault.Hits == 0 && p.InWork() &&
		cfg.Service.Uses("work_ms") && cfg.Work < longWork && !cfg.Asked.Work
}

func (in *injection) strikeInLongWork(ctx context.Context, p fault.Point) error {
	u := in.workload.setup
	u.Work = longWork
	if err := in.equip(ctx, u); err != nil {
		return err
	}
	return in.strikeUntilHit(ctx, []fault.Point{p}, 0, worksLong)
}

// testsOutage reports whether to inject an outage once more at this step. Contenders then compete
// during the outage, while the affected driver stays stopped. The outage must affect every lock server.
// Otherwise, a contender could win simply because the paused driver's lease has expired.
func (in *injection) testsOutage(p fault.Point) bool {
	needs := in.strategy.Needs
	allDown := needs == lock.Redis || needs == lock.RedisQuorum && in.fault.Hits == needs
	return in.traits.reconnects && in.fault.Course == fault.AtOnce && in.fault.Lasts && allDown && p.InWork()
}

// strikeInOutage stops a driver in its work. Contenders then compete during the outage, and the
// stopped driver continues before the servers are back.
func (in *injection) strikeInOutage(ctx context.Context, p fault.Point) error {
	f := in.fault
	in.fault.Course, in.fault.ContendFor = fault.InOutage, min(f.ContendFor, contendInOutage.Seconds()/in.lease().Seconds())
	defer func() { in.fault = f }()
	return in.strikeUntilHit(ctx, []fault.Point{p}, 0, inOutage)
}

// testsHeadStart reports whether to inject a loss of Redis data once more at this step, so that the affected driver
// continues before any other driver comes. A grab may rely on a key that an earlier call has created. Other drivers would
// create it again, which hides that this driver leaves the order in a state in which no one can win.
func (in *injection) testsHeadStart(p fault.Point) bool {
	calls := in.trail.calls[fault.Alone]
	at := slices.IndexFunc(calls, isAt(p.Point))
	onRedis := func(c control.Call) bool { return strings.HasPrefix(string(c.Phase), "redis ") }
	return in.traits.reconnects && in.fault.Hits != 0 && in.fault.Course == fault.AfterHeal && in.fault.EndsBeforeLease() && !p.After && !p.Background &&
		(p.Part == tap.Acquire || p.Part == fault.Work) && at > 0 && onRedis(calls[at]) && slices.ContainsFunc(calls[:at], onRedis)
}

func (in *injection) strikeWithHeadStart(ctx context.Context, p fault.Point) error {
	f := in.fault
	in.fault.Course, in.fault.Severs = fault.AtOnce, false // the other drivers need not be in time, because no lease must outlive their arrival
	defer func() { in.fault = f }()
	return in.strikeUntilHit(ctx, []fault.Point{p}, 0, headStart)
}

// bothOrders reports whether to inject the fault twice at this step. This is necessary because some
// checks, such as fencing tokens, refuse only the last writer. In the first injection, the delayed
// driver writes last. In the second, it writes first.
func (in *injection) bothOrders(p fault.Point) bool {
	return in.traits.unknownLock && in.trail.claim != nil && p.InWork() &&
		in.outlasts() && in.fault.Course == fault.AfterHeal
}
