package experiment

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/service/control"
	"grablab/internal/tap"
	"grablab/internal/testbed/fault"
	"grablab/internal/testbed/fleet"
)

// variations decides at which points to inject the fault once more, in other ways than usual. It does so only
// for a service that the run starts, because its code is unknown.
type variations struct {
	cfg        Config
	reconnects bool // whether the instances belong to such a service
	fault      fault.Fault
	trail      trail
	needs      lock.Backend // the servers that the service uses
}

func (in *injection) variations() variations {
	return variations{in.w.cfg, in.traits.reconnects, in.fault, in.trail, in.strategy.Needs}
}

// at returns the variations in which to inject the fault once more at this step.
func (v variations) at(p fault.Point) []variation {
	return catalog.Filter([]variation{otherRestarts, worksLong, inOutage, headStart}, func(kind variation) bool {
		return v.reconnects && v.applies(kind, p)
	})
}

func (v variations) applies(kind variation, p fault.Point) bool {
	switch f := v.fault; kind {
	case otherRestarts: // its start-up code may delete the lock, or undo the unfinished work of a driver at the instance that still runs
		return f.Course == fault.Killed && p.InWork()
	case worksLong:
		return f.Severs && f.Hits == 0 && p.InWork() && v.cfg.Service.Uses("work_ms") && v.cfg.Work < longWork && !v.cfg.Asked.Work
	case inOutage:
		// The outage must affect every lock server. Otherwise, a contender could win simply because the paused
		// driver's lease has expired.
		allDown := v.needs == lock.Redis || v.needs == lock.RedisQuorum && f.Hits == v.needs
		return f.Course == fault.AtOnce && f.Lasts && allDown && p.InWork()
	case headStart:
		// A grab may rely on a key that an earlier call has created. Other drivers would create it again, which hides
		// that this driver leaves the order in a state in which no one can win.
		calls := v.trail.calls[fault.Alone]
		at := slices.IndexFunc(calls, isAt(p.Point))
		onRedis := func(c control.Call) bool { return strings.HasPrefix(string(c.Phase), "redis ") }
		return f.Hits != 0 && f.Course == fault.AfterHeal && f.EndsBeforeLease() && !p.After && !p.Background &&
			(p.Part == tap.Acquire || p.Part == fault.Work) && at > 0 && onRedis(calls[at]) && slices.ContainsFunc(calls[:at], onRedis)
	}
	return false
}

// strikeVariations injects the fault in each variation. This comes before the usual injections, because it
// restarts the instances with other settings. A restart ends everything that an instance still does
// for an order, such as renewing a lock that it should have released.
func (in *injection) strikeVariations(ctx context.Context) error {
	usually, varied := in.fault, false
	for _, p := range in.points {
		for _, v := range in.variations().at(p) {
			varied = true
			err := in.strikeVariation(ctx, p, v)
			if in.fault = usually; err != nil { // a variation may change the course of the fault
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

func (in *injection) strikeVariation(ctx context.Context, p fault.Point, v variation) error {
	switch v {
	case otherRestarts:
		return in.strikeAtOther(ctx, p)
	case worksLong:
		u := in.workload.setup
		u.Work = longWork
		if err := in.equip(ctx, u); err != nil {
			return err
		}
	case inOutage: // the stopped driver continues before the servers are back
		in.fault.Course, in.fault.ContendFor = fault.InOutage, min(in.fault.ContendFor, contendInOutage.Seconds()/in.lease().Seconds())
	case headStart: // the other drivers need not be in time, because no lease must outlive their arrival
		in.fault.Course, in.fault.Severs = fault.AtOnce, false
	}
	return in.strikeUntilHit(ctx, []fault.Point{p}, 0, v)
}

// equip restarts the instances at the same addresses if they do not have these settings yet.
func (in *injection) equip(ctx context.Context, u fleet.Setup) error {
	u.SameAddr = true
	return in.w.prepare(ctx, in.strategy, in.cell, u)
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
	began := len(in.contests)
	in.fault.Course, in.fault.ContendFor, in.fault.Severs = fault.AfterHeal, 0.3, true // like a fault that restarts a server
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

// longWork is how long drivers work after a database restart in an additional injection. Connection
// pools such as HikariCP do not check a connection that was idle for less than 500 ms. With shorter
// work, the affected driver fails because it uses a dead connection. With longer work, it may write
// through a new connection although the restart has ended the session with its lock.
const longWork = time.Second
