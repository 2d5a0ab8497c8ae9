package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab"
	"grablab/internal/order"
	"grablab/internal/service/control"
	"grablab/internal/tap"
	"grablab/internal/testbed/fault"
	"grablab/internal/testbed/fleet"
)

// These are the kinds of breakpoints. A breakpoint's name consists of its kind and an order ID.
const (
	pointHold     = "point"     // stops a driver where the fault will hit it
	workHold      = "work"      // stops a request while the fault delays a background call of the same request
	callsHold     = "calls"     // records the calls of the affected driver, a waiter or the contenders without stopping them
	retryHold     = "retry"     // stops a driver that polls for the lock before its second try
	beforeHold    = "before"    // stops the lock holder while another driver waits for the lock
	refusalHold   = "refusal"   // refuses the affected driver's write
	releaseHold   = "release"   // records when the affected driver releases its lock, without stopping it
	contenderHold = "contender" // stops the contenders just before they write
)

// hold is a breakpoint at one instance. It stops certain remote calls that the instance makes for
// an order's drivers.
type hold struct {
	in   *fleet.Instance
	kind string
	control.Hold
}

// breakpoints sets and removes the breakpoints of a strike, and reads which calls they have stopped.
type breakpoints struct {
	struck, other *fleet.Instance // the instance of the affected drivers, and the other one
	fault         fault.Fault
	trail         trail
	guard         order.Guard
	tellsDrivers  bool // whether a breakpoint can stop a single driver
	responses     *responses
}

func (in *injection) breakpoints() breakpoints {
	return breakpoints{in.struck, in.other, in.fault, in.trail, in.cell.Guard, in.traits.tellsDrivers, in.responses}
}

// of returns the breakpoints that must be set before the drivers of an order start.
func (b breakpoints) of(c *contest) []hold {
	affected := []int64{c.affected.Driver}
	all := []hold{{b.struck, callsHold, control.Hold{Drivers: affected, Outcome: control.Delivered}}}
	if c.point.Role == fault.HandingOver || b.fault.Course == fault.Released {
		all = append(all, hold{b.struck, refusalHold, control.Hold{Drivers: affected, At: *b.trail.claim, Outcome: control.Refused}})
	}
	all = append(all, hold{b.struck, pointHold, control.Hold{Drivers: affected, At: c.point.Point, Strike: true}})
	switch {
	case c.point.Role == fault.HandingOver:
		all = append(all, hold{b.struck, workHold, control.Hold{Drivers: affected, At: beforeClaim}})
	case c.point.Background:
		all = append(all, hold{b.struck, workHold, control.Hold{Drivers: affected, At: b.trail.work}})
	}
	if c.holder != nil {
		all = append(all, hold{b.other, beforeHold, control.Hold{Drivers: []int64{c.holder.Driver}, At: beforeRead}})
		if b.trail.queued == 0 {
			all = append(all, hold{b.struck, retryHold, control.Hold{Drivers: affected, At: secondTry}})
		}
	}
	if at := b.trail.release; at != nil && b.fault.Course == fault.BeforeHeal {
		all = append(all, hold{b.struck, releaseHold, control.Hold{Drivers: affected, At: *at, Outcome: control.Delivered}})
	}
	if !b.tellsDrivers {
		all = append(all, hold{b.other, callsHold, control.Hold{Drivers: []int64{0}, Outcome: control.Delivered}})
	}
	if !b.holdsContenders(c) {
		return all
	}
	if !b.tellsDrivers {
		if b.trail.claim != nil {
			at := *b.trail.claim
			if b.fault.RepliesAfter > 0 && c.units > 1 {
				at.N *= c.units // the proxies count the calls of all contenders together
			}
			all = append(all, hold{b.other, contenderHold, control.Hold{Drivers: []int64{0}, At: at}}) // at a service's proxies, the driver of a call is unknown
		}
		return all
	}
	held := c.contenders
	if b.fault.Course == fault.Released { // the contenders arrive one by one, so only the first of them must stop
		held = held[:1]
	}
	for _, r := range held {
		in := b.other
		if r.Target == b.struck.URL {
			in = b.struck
		}
		all = append(all, hold{in, contenderHold, control.Hold{Drivers: []int64{r.Driver}, At: beforeClaim}})
	}
	return all
}

// holdsContenders reports whether the contenders must stop before they write, so that the affected
// driver can write first.
func (b breakpoints) holdsContenders(c *contest) bool {
	fenced := b.guard == order.FenceWrite && b.fault.Course < fault.Never && c.point.Role == fault.Alone
	return b.fault.HoldContenders || c.variation == affectedFirst || fenced
}

func holdName(kind string, c *contest) string { return fmt.Sprintf("%s-%d", kind, c.order) }

// name returns the breakpoint's name. It includes the driver if each driver has its own breakpoint.
func (h hold) name(c *contest) string {
	if h.kind == contenderHold {
		return fmt.Sprintf("%s-of-%d", holdName(h.kind, c), h.Drivers[0])
	}
	return holdName(h.kind, c)
}

func (b breakpoints) set(ctx context.Context, contests []*contest) error {
	b.struck.Watch(contests[0].order, contests[0].affected.Driver)
	b.other.Watch(contests[0].order, 0)
	for _, c := range contests {
		for _, h := range b.of(c) {
			h.First, h.Count = c.order, 1
			if err := h.in.SetHold(ctx, h.name(c), h.Hold); err != nil {
				return err
			}
		}
	}
	return nil
}

// clear removes all breakpoints except those whose calls must stay stopped until the end of the
// test.
func (b breakpoints) clear(ctx context.Context) error {
	err := removeAll(ctx, b.other)
	if b.fault.Course != fault.Never {
		err = errors.Join(err, removeAll(ctx, b.struck))
	}
	return err
}

func removeAll(ctx context.Context, in *fleet.Instance) error {
	held, err := in.Holds(ctx)
	for name := range held {
		err = errors.Join(err, in.RemoveHold(ctx, name))
	}
	return err
}

// heldCalls contains the calls that are stopped at the two instances, by breakpoint name.
type heldCalls struct{ struck, other map[string][]control.Held }

func (b breakpoints) heldCalls(ctx context.Context) (m heldCalls, err error) {
	if m.struck, err = b.struck.Holds(ctx); err != nil {
		return m, err
	}
	m.other, err = b.other.Holds(ctx)
	return m, err
}

// simultaneous is the longest gap between two calls that still count as simultaneous.
const simultaneous = 100 * time.Millisecond

// isAtPoint reports whether the driver has stopped where the fault will hit it. If it makes several
// parallel calls there, all of them should have stopped.
func (m heldCalls) isAtPoint(c *contest) bool {
	n := len(m.struck[holdName(pointHold, c)])
	if n > 0 && c.heldSince.IsZero() {
		c.heldSince = time.Now()
	}
	return n >= c.calls || n > 0 && time.Since(c.heldSince) > simultaneous
}

// hasMovedOn reports whether the affected driver has made another call to a lock server since the fault
// hit it. Calls that may belong to another order do not count, nor do calls to other nodes at the same
// step. Renewals do not count either, because a background task makes them while the driver still waits
// for its reply. Calls that came together with the delayed one do not count, because the client made them in parallel or in a
// pipeline.
func (m heldCalls) hasMovedOn(c *contest, renewal []control.Call) bool {
	calls := m.struck[holdName(callsHold, c)]
	i := slices.IndexFunc(calls, func(h control.Held) bool { return h.IsAt(c.point.Point) })
	later := min(max(i+1, c.callsBefore), len(calls))
	return i >= 0 && slices.ContainsFunc(calls[later:], func(h control.Held) bool {
		renews := slices.ContainsFunc(renewal, func(r control.Call) bool { return h.Phase == r.Phase })
		return h.Target != tap.DB && !isShared(h.Call) && !renews && (h.Phase != c.point.Phase || h.N > c.point.N)
	})
}

// renewalsOf returns how many renewals of its lock the affected driver has made since its reply is late. A renewal is a
// background call with a key of a call that may acquire a lock.
func (m heldCalls) renewalsOf(c *contest, t trail) int {
	calls := m.struck[holdName(callsHold, c)]
	acquiring := catalog.Filter(t.calls[fault.Alone], acquiresKey)
	return len(catalog.Filter(calls[min(c.callsBefore, len(calls)):], func(h control.Held) bool {
		renews := slices.ContainsFunc(t.service.renewal, func(r control.Call) bool { return h.Phase == r.Phase })
		return renews && !isShared(h.Call) && usesKeyOf(h.Call, acquiring)
	}))
}

// ofContenders returns the breakpoints at which the contenders of each order are stopped now. If an
// instance's process is stopped, its breakpoints are missing, because it cannot report them.
func (b breakpoints) ofContenders(ctx context.Context, contests []*contest) map[*contest][]hold {
	all := map[*contest][]hold{}
	if !slices.ContainsFunc(contests, b.holdsContenders) {
		return all
	}
	held := map[*fleet.Instance]map[string][]control.Held{}
	for in, within := range map[*fleet.Instance]time.Duration{b.other: simultaneous, b.struck: 2 * pollInterval} {
		ctx, cancel := context.WithTimeout(ctx, within)
		held[in], _ = in.Holds(ctx)
		cancel()
	}
	for _, c := range contests {
		all[c] = catalog.Filter(b.of(c), func(h hold) bool { return h.kind == contenderHold && len(held[h.in][h.name(c)]) > 0 })
	}
	return all
}

// loseReplies forwards the stopped calls to their servers, but discards the replies.
func (b breakpoints) loseReplies(ctx context.Context, contests []*contest) error {
	for _, c := range contests {
		held, err := b.struck.Held(ctx, holdName(pointHold, c), 0, 0)
		if err != nil {
			return err
		}
		for _, h := range held {
			if h.State == control.Waiting {
				if _, err := b.struck.Release(ctx, holdName(pointHold, c), h.Call, control.ReplyLost); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// remove removes the order's breakpoints of these kinds.
func (b breakpoints) remove(ctx context.Context, c *contest, kinds ...string) error {
	for _, h := range b.of(c) {
		if !slices.Contains(kinds, h.kind) {
			continue
		}
		err := h.in.RemoveHold(ctx, h.name(c))
		answered, ok := errors.AsType[*fleet.StatusError](err)
		if err != nil && !errors.Is(err, control.ErrNoHold) && !(ok && answered.Code == http.StatusNotFound) {
			return err
		}
	}
	return nil
}

// releaseDriver removes all breakpoints that stop the affected driver, or the driver that has the
// lock before it.
func (b breakpoints) releaseDriver(ctx context.Context, c *contest) error {
	if b.hitOther(c) {
		c.cancel("the driver won although its call was stopped, so a background task has made the stopped call, or the grab does not wait for it: turn the task off for the test, or let the grab wait")
	}
	if err := b.remove(ctx, c, pointHold, workHold, retryHold, beforeHold); err != nil {
		return err
	}
	b.setPaused(c, false)
	return nil
}

// hitOther reports whether the affected driver won so soon after a statement was stopped that this statement cannot
// be its own. A client that gives up a statement, and repeats it, needs more time. A service may answer without
// waiting for a statement that follows the write of the winner, so such a statement does not count.
func (b breakpoints) hitOther(c *contest) bool {
	t := b.trail
	a, _ := b.responses.of(c.affected)
	if t.service == nil || t.callsAfterAnswer > 0 || c.point.Background || a.outcome != grab.Grabbed {
		return false
	}
	for _, o := range t.calls[fault.Alone] {
		switch {
		case o.IsAt(c.point.Point):
			return c.struck && o.Target == tap.DB && a.ended.Sub(c.heldSince) < simultaneous
		case o.IsAt(*t.claim):
			return false
		}
	}
	return false
}

// setPaused records whether a request is stopped, if it may still write after its response.
func (b breakpoints) setPaused(c *contest, paused bool) {
	course := b.fault.Course
	if b.trail.callsAfterAnswer > 0 && course != fault.Killed && course != fault.Never && course != fault.HungUp {
		b.responses.setPaused(c.affected, paused)
	}
}

// noteNextCalls records which affected drivers no longer wait for their delayed replies, which have sent their writes, and
// when their locks were renewed.
func (b breakpoints) noteNextCalls(ctx context.Context, contests []*contest) error {
	m, err := b.heldCalls(ctx)
	for _, c := range contests {
		if at := b.trail.claim; at != nil && slices.ContainsFunc(m.struck[holdName(callsHold, c)], func(h control.Held) bool { return h.IsAt(*at) }) {
			c.reachedClaim = true
		}
		if n := m.renewalsOf(c, b.trail); n > c.renewals {
			c.renewals, c.renewedAt = n, time.Now()
		}
		if err == nil && c.movedOnAt.IsZero() && m.hasMovedOn(c, b.trail.service.renewal) {
			c.movedOnAt = time.Now()
		}
	}
	return err
}
