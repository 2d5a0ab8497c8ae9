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

// variations injects the fault once more at some points, in other ways than usual.
type variations struct{ in *injection }

// strike injects the fault in each variation. This comes before the usual injections, because it
// restarts the instances with other settings. A restart ends everything that an instance still does
// for an order, such as renewing a lock that it should have released.
func (v variations) strike(ctx context.Context) error {
	f, varied := v.in.fault, false
	for _, p := range v.in.points {
		for _, strike := range v.at(p) {
			varied = true
			err := strike(ctx, p)
			if v.in.fault = f; err != nil { // a variation may change the course of the fault
				return err
			}
		}
	}
	if !varied {
		return nil
	}
	v.in.ttl = v.in.w.cfg.TTL
	return v.equip(ctx, v.in.workload.setup)
}

// equip restarts the instances at the same addresses if they do not have these settings yet.
func (v variations) equip(ctx context.Context, u fleet.Setup) error {
	u.SameAddr = true
	return v.in.w.prepare(ctx, v.in.strategy, v.in.cell, u)
}

// at returns functions that inject the fault at this step once more, each in a variation.
func (v variations) at(p fault.Point) (all []func(context.Context, fault.Point) error) {
	if v.testsStart(p) {
		all = append(all, v.strikeAtOther)
	}
	if v.testsLongWork(p) {
		all = append(all, v.strikeInLongWork)
	}
	if v.testsOutage(p) {
		all = append(all, v.strikeInOutage)
	}
	if v.testsHeadStart(p) {
		all = append(all, v.strikeWithHeadStart)
	}
	return all
}

// testsStart reports whether to inject the fault once more at this step, but into the other instance.
// That instance restarts, and its start-up code may delete the lock. The code may also undo the
// unfinished work of a driver at the instance that is still running.
func (v variations) testsStart(p fault.Point) bool {
	return v.in.traits.reconnects && v.in.fault.Course == fault.Killed && p.InWork()
}

// ttlOfRestart returns a TTL that lets a lock outlast an instance restart and the rest of a grab. If
// the run cannot set the TTL, it returns the configured one.
func (v variations) ttlOfRestart() time.Duration {
	if !v.in.w.cfg.setsTTL() || v.in.w.cfg.Asked.TTL {
		return v.in.ttl
	}
	needed := v.in.struck.StartTook
	if t := v.in.trail.service; t != nil {
		needed += t.takes
	}
	return max(v.in.ttl, restartTTL, 3*needed)
}

// strikeAtOther pauses a driver at one instance, and restarts the other instance. Contenders then
// compete at the restarted instance before the paused driver's lease ends, because its start-up code
// may have deleted the driver's lock.
//
// The dry runs used in.struck, and often only the first instance has start-up code, so the driver is
// paused at in.other. If it does not reach the step there, for example because only in.struck reads a
// queue, the instances swap roles.
func (v variations) strikeAtOther(ctx context.Context, p fault.Point) error {
	v.in.ttl = v.ttlOfRestart()
	u := v.in.workload.setup
	u.TTL = v.in.ttl
	if err := v.equip(ctx, u); err != nil {
		return err
	}
	began := len(v.in.contests)
	v.in.fault.Course, v.in.fault.ContendFor, v.in.fault.Severs = fault.AfterHeal, 0.3, true // like a fault that restarts a server
	v.in.swapInstances()
	err := v.in.strikeUntilHit(ctx, []fault.Point{p}, 0, otherRestarts)
	v.in.swapInstances()
	if last := v.in.contests[len(v.in.contests)-1]; err != nil || last.struck || last.answeredAt.IsZero() {
		return err
	}
	for _, c := range v.in.contests[began:] {
		c.repeated = true
	}
	v.in.swapInstances() // prepareFault chooses the instance to kill
	err = v.in.prepareFault(ctx)
	v.in.swapInstances()
	if err == nil {
		err = v.in.strikeUntilHit(ctx, []fault.Point{p}, 0, otherRestarts)
	}
	return errors.Join(err, v.in.prepareFault(ctx))
}

// longWork is how long drivers work after a database restart in an additional injection. Connection
// pools such as HikariCP do not check a connection that was idle for less than 500 ms. With shorter
// work, the affected driver fails because it uses a dead connection. With longer work, it may write
// through a new connection although the restart has ended the session with its lock.
const longWork = time.Second

// testsLongWork reports whether to inject a restart of the database once more at this step, with
// drivers that work for longWork.
func (v variations) testsLongWork(p fault.Point) bool {
	cfg := v.in.w.cfg
	return v.in.traits.reconnects && v.in.fault.Severs && v.in.fault.Hits == 0 && p.InWork() &&
		cfg.Service.Uses("work_ms") && cfg.Work < longWork && !cfg.Asked.Work
}

func (v variations) strikeInLongWork(ctx context.Context, p fault.Point) error {
	u := v.in.workload.setup
	u.Work = longWork
	if err := v.equip(ctx, u); err != nil {
		return err
	}
	return v.in.strikeUntilHit(ctx, []fault.Point{p}, 0, worksLong)
}

// testsOutage reports whether to inject an outage once more at this step. Contenders then compete
// during the outage, while the affected driver stays stopped. The outage must affect every lock server.
// Otherwise, a contender could win simply because the paused driver's lease has expired.
func (v variations) testsOutage(p fault.Point) bool {
	needs := v.in.strategy.Needs
	allDown := needs == lock.Redis || needs == lock.RedisQuorum && v.in.fault.Hits == needs
	return v.in.traits.reconnects && v.in.fault.Course == fault.AtOnce && v.in.fault.Lasts && allDown && p.InWork()
}

// strikeInOutage stops a driver in its work. Contenders then compete during the outage, and the
// stopped driver continues before the servers are back.
func (v variations) strikeInOutage(ctx context.Context, p fault.Point) error {
	v.in.fault.Course, v.in.fault.ContendFor = fault.InOutage, min(v.in.fault.ContendFor, contendInOutage.Seconds()/v.in.lease().Seconds())
	return v.in.strikeUntilHit(ctx, []fault.Point{p}, 0, inOutage)
}

// testsHeadStart reports whether to inject a loss of Redis data once more at this step, so that the affected driver
// continues before any other driver comes. A grab may rely on a key that an earlier call has created. Other drivers would
// create it again, which hides that this driver leaves the order in a state in which no one can win.
func (v variations) testsHeadStart(p fault.Point) bool {
	calls := v.in.trail.calls[fault.Alone]
	at := slices.IndexFunc(calls, isAt(p.Point))
	onRedis := func(c control.Call) bool { return strings.HasPrefix(string(c.Phase), "redis ") }
	return v.in.traits.reconnects && v.in.fault.Hits != 0 && v.in.fault.Course == fault.AfterHeal && v.in.fault.EndsBeforeLease() && !p.After && !p.Background &&
		(p.Part == tap.Acquire || p.Part == fault.Work) && at > 0 && onRedis(calls[at]) && slices.ContainsFunc(calls[:at], onRedis)
}

func (v variations) strikeWithHeadStart(ctx context.Context, p fault.Point) error {
	v.in.fault.Course, v.in.fault.Severs = fault.AtOnce, false // the other drivers need not be in time, because no lease must outlive their arrival
	return v.in.strikeUntilHit(ctx, []fault.Point{p}, 0, headStart)
}
