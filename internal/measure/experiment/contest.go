package experiment

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab"
	"grablab/internal/order"
	"grablab/internal/service/control"
	"grablab/internal/testbed/fault"
	"grablab/internal/testbed/load"
)

// variation is how an injection differs from the fault's usual course.
type variation int

const (
	usual         variation = iota
	affectedFirst           // the affected driver must write before the contenders may
	otherRestarts           // the affected driver is stopped at one instance, while the other one is killed and restarted
	inOutage                // contenders compete during an outage, while the affected driver stays stopped in its work
	worksLong               // the affected driver works for longWork after the fault
	headStart               // the affected driver gets its response before any other driver comes
)

// contest is the test of one order. Several drivers compete for it, but the fault hits only one of
// them, which is called the affected driver.
type contest struct {
	point     fault.Point
	order     int64
	units     int // how many drivers can win it
	calls     int // how many parallel calls of the affected driver to stop for the fault
	variation variation

	// These fields contain the drivers' requests, in the order in which they are sent.
	holder      *load.Request  // the driver that has the lock before the affected one, at the other instance; may be nil
	affected    load.Request   // the driver that the fault hits
	waiter      *load.Request  // the driver that waits for the affected driver's lock, at the other instance; may be nil
	contenders  []load.Request // sent once the fault is active; those for the other instance come first
	lateDriver  load.Request   // sent to the other instance once the fault has ended
	lastDrivers []load.Request // sent after all others have their responses, if there are several units

	// These fields record what has happened to the holder and the affected driver.
	followerSent   bool // whether the second of two drivers was sent, if the first one must have the lock before
	holderReleased bool
	lastCallAt     time.Time // when the program first saw that the waiter had made its last call before the wait
	heldSince      time.Time // when a call was first stopped for the fault; zero if none was
	callsBefore    int       // how many calls it had made shortly after its delayed call, possibly in parallel to it
	renewals       int       // how many renewals of its lock were seen while its reply was late
	renewedAt      time.Time // when the last of them was first seen; zero if none was
	reachedClaim   bool      // whether it was seen to send its write while a late reply was awaited
	movedOnAt      time.Time // when the affected driver was first seen to make another call than the one with a delayed reply; zero if it never was
	struck         bool      // whether the fault hit the affected driver at the chosen step
	repeated       bool      // whether the fault missed the affected driver and was injected again with another order
	missed         string    // why the injection does not count, for example because the affected driver never reached the chosen step
	forwarded      bool      // whether the affected driver got a response although its instance wrote nothing, so another instance may have done the work
	hangs          bool      // whether the affected driver will never get a response
	endedInTime    bool      // whether the affected driver wrote or got a response before its lease ended
	answeredAt     time.Time // when the affected driver got its response before it reached the chosen step; zero if it did not
	openUntil      time.Time // latest time at which the affected driver is known not to have written yet

	// These fields record what has happened to the drivers that the fault does not hit.
	contendedSince     time.Time // when the fault was active and the first contenders were about to start
	othersPassed       bool      // whether enough drivers to sell all units got past the lock before the affected driver wrote
	contenderHeldSince time.Time // when a driver that the fault does not hit first stopped before its write
	contenderFreed     bool      // whether the stopped contenders may continue
	gaveUp             bool      // whether the test was given up, so no other driver may compete
	retriedAt          time.Time // when the wait before sending the next driver began; zero if the test does not wait

	// These fields record what the contenders of a user's service did while the fault delayed the affected driver.
	window        window         // between the end of its lease and a delayed reply
	passed        bool           // whether one of them got past the lock
	refusedWrites int            // how many writes they had made when each of them had been refused
	foundSold     bool           // whether one of them was told that the order is taken
	tries         []control.Call // their calls
}

// contest assigns roles to the nth order's drivers. The assignment is random, but each run with the
// same seed repeats it.
func (in *injection) contest(n int, p fault.Point) *contest {
	c := &contest{point: p, order: in.first + int64(n), units: in.w.cfg.units(), calls: in.trail.callsAt(p)}
	drivers := rand.New(rand.NewPCG(in.w.cfg.Seed, uint64(n))).Perm(in.w.cfg.strikeDrivers())
	targets := catalog.Distinct([]string{in.struck.URL, in.other.URL}) // a third instance would have no breakpoints
	for k, driver := range drivers {
		r := load.Request{Target: targets[k%len(targets)], Order: c.order, Driver: int64(driver) + 1}
		switch {
		case k == 0:
			c.affected = r
		case k == len(drivers)-1:
			c.lateDriver = load.Request{Target: in.other.URL, Order: c.order, Driver: r.Driver}
		case k >= len(drivers)-in.w.cfg.units():
			c.lastDrivers = append(c.lastDrivers, load.Request{Target: in.other.URL, Order: c.order, Driver: r.Driver})
		case k == 1 && p.Role == fault.Waiting:
			c.holder = &r
		case k == 1 && p.Role == fault.HandingOver:
			c.waiter = &r
		default:
			c.contenders = append(c.contenders, r)
		}
	}
	// If the program cannot tell drivers apart, the fault would hit all drivers at this instance,
	// so send the other drivers to the other instance.
	if (!in.traits.tellsDrivers || in.w.cfg.units() > 1) && p != (fault.Point{}) {
		for i := range c.contenders {
			c.contenders[i].Target = in.other.URL
		}
	}
	atStruck := func(r load.Request) bool { return r.Target == in.struck.URL }
	c.contenders = append(slices.DeleteFunc(slices.Clone(c.contenders), atStruck), catalog.Filter(c.contenders, atStruck)...)
	if in.w.cfg.units() > 1 && in.cell.Guard == order.FenceWrite && p.Role == fault.Waiting && in.fault.Course != fault.Released {
		// Only one other driver may write before the waiting driver continues. If several wrote, a lock
		// that has lost its counter could give one of them the same token as the waiting driver.
		c.lastDrivers = append(c.lastDrivers, c.contenders[1:]...)
		c.contenders = c.contenders[:1:1]
	}
	if in.fault.Course == fault.Released { // the same driver tries again, like a user who taps twice
		c.contenders[0].Driver = c.affected.Driver
	}
	return c
}

func (c *contest) all() []load.Request { return append(c.others(), c.lastDrivers...) }

// others returns the requests of all drivers except those in lastDrivers.
func (c *contest) others() []load.Request {
	all := append([]load.Request{c.affected, c.lateDriver}, c.contenders...)
	for _, r := range []*load.Request{c.holder, c.waiter} {
		if r != nil {
			all = append(all, *r)
		}
	}
	return all
}

// every reports whether holds is true for all contests.
func every(contests []*contest, holds func(*contest) bool) bool {
	return !slices.ContainsFunc(contests, func(c *contest) bool { return !holds(c) })
}

// hasQueued reports whether the waiter has probably joined the lock's queue. The program assumes so
// some time after the waiter's last call.
func (c *contest) hasQueued() bool {
	if c.lastCallAt.IsZero() {
		c.lastCallAt = time.Now()
	}
	return time.Since(c.lastCallAt) > simultaneous
}

// competed reports whether enough contenders have asked for the lock, so that one win too many was
// possible. If the fault outlasts the lease, only requests between the end of the lease and the delayed
// write count.
func (in *injection) competed(c *contest) bool {
	return in.atLeastUnits(c.all(), func(r load.Request) bool {
		a, _ := in.responses.of(r)
		switch {
		case r == c.affected || !reached(a.outcome):
			return false
		case !in.outlasts() || c.endedInTime:
			return true
		case r == c.lateDriver:
			return false
		default:
			return a.outcome == grab.Grabbed || a.outcome == grab.Taken && c.othersPassed || in.triedInTime(c, a)
		}
	})
}

// triedInTime reports whether a refused driver certainly asked for the lock between the end of the
// lease and the delayed write. The time of its response does not prove this, because responses may be
// late.
func (in *injection) triedInTime(c *contest, a response) bool {
	lease := in.lease()
	tried := a.sent // the driver was still trying at this time
	switch {
	case in.traits.unknownLock: // the driver's waiting time is unknown, but only a driver that has waited gets its response so late
		tried = a.ended.Add(-lease / 4)
	case len(in.trail.calls[fault.Waiting]) > 0:
		tried = a.sent.Add(in.w.cfg.Wait - simultaneous)
	}
	if tried.After(a.ended) {
		tried = a.ended
	}
	tried = latest(tried, a.sent)
	expired := c.contendedSince.Add(lease)
	if a.sent.After(expired) && a.ended.Before(c.openUntil) { // the whole attempt happened between these two times
		return true
	}
	waited := c.openUntil.After(expired) && c.openUntil.Sub(a.sent) > lease/4
	return tried.After(expired) && (a.outcome == grab.Busy || waited)
}

// outlasts reports whether the fault delays a write until after the driver's lease has ended. It
// returns false for a strategy without a lock, because there is no lease. For the user's service, whose
// lock is unknown, the program assumes a lease.
func (in *injection) outlasts() bool {
	if in.strategy.Excludes == catalog.NoExclusion && !in.traits.unknownLock {
		return false
	}
	return in.fault.ContendFor >= 1 && (in.fault.Course < fault.Never || in.fault.Course == fault.Released)
}

// atLeastUnits reports whether holds is true for at least as many requests as the order has units.
func (in *injection) atLeastUnits(requests []load.Request, holds func(load.Request) bool) bool {
	return len(catalog.Filter(requests, holds)) >= in.w.cfg.units()
}

// responses records the drivers' responses while a fault is injected. It is safe for concurrent
// use.
type responses struct {
	mu     sync.Mutex
	got    map[load.Request]response
	paused map[load.Request]bool // requests that are stopped at a breakpoint
	// callsAfterAnswer is how long a request may make calls after its response. Until then, the
	// request does not count as answered.
	callsAfterAnswer time.Duration
}

type response struct {
	outcome     grab.Outcome
	sent, ended time.Time
}

func newResponses() *responses {
	return &responses{got: map[load.Request]response{}, paused: map[load.Request]bool{}}
}

func (rs *responses) add(r load.Request, a response) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.got[r] = a
}

// of returns the response to a request. ok is false if there is none yet.
func (rs *responses) of(r load.Request) (a response, ok bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	a, ok = rs.got[r]
	return a, ok
}

// setPaused records whether a request is stopped. A stopped request counts as unanswered, even if
// its client already has the response.
func (rs *responses) setPaused(r load.Request, paused bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if a, ok := rs.got[r]; rs.paused[r] && ok {
		a.ended = time.Now()
		rs.got[r] = a
	}
	rs.paused[r] = paused
}

func (rs *responses) isAnswered(r load.Request) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	a, ok := rs.got[r]
	return ok && !rs.paused[r] && time.Since(a.ended) >= rs.callsAfterAnswer
}

func (rs *responses) isPending(r load.Request) bool { return !rs.isAnswered(r) }

// anyHears reports whether one of the requests has been answered with this outcome.
func (rs *responses) anyHears(requests []load.Request, o grab.Outcome) bool {
	return slices.ContainsFunc(requests, func(r load.Request) bool { a, _ := rs.of(r); return a.outcome == o })
}
