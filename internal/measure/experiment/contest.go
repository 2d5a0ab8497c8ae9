package experiment

import (
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"grablab/internal/order"
	"grablab/internal/testbed/fault"
	"grablab/internal/testbed/load"
)

// contest holds the drivers of one order. The fault strikes one of them at a point.
type contest struct {
	point fault.Point
	order int64
	calls int // the number of calls that are held at the point

	// The drivers, in the order in which they come.
	holder      *load.Request  // holds the lock before the faulted driver, at the other instance; may be nil
	faulted     load.Request   // grabs at the struck instance
	waiter      *load.Request  // gets the lock from the faulted driver, at the other instance; may be nil
	contenders  []load.Request // come when the fault has struck, those at the other instance first
	lateDriver  load.Request   // comes when the fault is healed, at the other instance
	lastDrivers []load.Request // come when all others are answered, if there are several units

	// What has happened to the holder and to the faulted driver.
	holderReleased bool
	lastCallAt     time.Time // when the faulted driver made its last call before it waits
	heldSince      time.Time // since when a call is held at the point
	struck         bool      // whether the fault struck it at the point
	hangs          bool      // whether it will never be answered
	endedInTime    bool      // whether it wrote or was answered before its lease ended
	answeredAt     time.Time

	// What has happened to the contenders.
	contenderHeldSince time.Time // since when one is held before its claim
	contenderFreed     bool      // whether that one may continue
	retriedAt          time.Time // when one came again, or the first ones were answered
}

// contest returns the nth contest of the cell. Its drivers are shuffled by the seed.
func (in *injection) contest(n int, p fault.Point) *contest {
	c := &contest{point: p, order: in.first + int64(n), calls: in.trail.callsAt(p)}
	drivers := rand.New(rand.NewPCG(in.w.cfg.Seed, uint64(n))).Perm(in.w.cfg.strikeDrivers())
	targets := []string{in.struck.URL}
	for _, o := range in.w.fleet.Instances {
		if o != in.struck {
			targets = append(targets, o.URL)
		}
	}
	for k, driver := range drivers {
		r := load.Request{Target: targets[k%len(targets)], Order: c.order, Driver: int64(driver) + 1}
		switch {
		case k == 0:
			c.faulted = r
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
	// Requests at the struck instance are the faulted driver's: of others they cannot be told
	// apart, and where several drivers write their calls would be struck, too.
	if (!in.w.fleet.Ours || in.w.cfg.units() > 1) && p != (fault.Point{}) {
		for i := range c.contenders {
			c.contenders[i].Target = in.other.URL
		}
	}
	slices.SortStableFunc(c.contenders, func(a, b load.Request) int {
		return strings.Compare(in.place(a), in.place(b))
	})
	if in.tokensDecide(p) {
		c.lastDrivers = append(c.lastDrivers, c.contenders[1:]...)
		c.contenders = c.contenders[:1:1]
	}
	if in.fault.Course == fault.Released { // the same driver again, as after a double tap
		c.contenders[0].Driver = c.faulted.Driver
	}
	return c
}

// tokensDecide reports whether a waiting driver must continue after only one contender has
// claimed. If a lock forgets its counter, the waiting driver has a higher token than the
// first contender. If the fence is compared only at the write, its token is not higher than
// that of a second contender. With one unit, no second contender claims.
func (in *injection) tokensDecide(p fault.Point) bool {
	return in.w.cfg.units() > 1 && in.cell.Guard == order.FenceWrite && p.Role == fault.Waiting && in.fault.Course != fault.Released
}

// place returns a sort key for a request. Requests to the struck instance come last.
func (in *injection) place(r load.Request) string {
	if r.Target == in.struck.URL {
		return "struck"
	}
	return "other"
}

// all returns the drivers of the order.
func (c *contest) all() []load.Request { return append(c.others(), c.lastDrivers...) }

// others returns the drivers that do not come last.
func (c *contest) others() []load.Request {
	all := append([]load.Request{c.faulted, c.lateDriver}, c.contenders...)
	for _, r := range []*load.Request{c.holder, c.waiter} {
		if r != nil {
			all = append(all, *r)
		}
	}
	return all
}

// hasQueued is called after a driver has made its last call before it waits. It reports
// whether that call has been answered.
func (c *contest) hasQueued() bool {
	if c.lastCallAt.IsZero() {
		c.lastCallAt = time.Now()
	}
	return time.Since(c.lastCallAt) > simultaneous
}

// cancelStrike takes back a strike that has shown nothing.
func (s *strike) cancelStrike(c *contest) {
	if c.struck {
		c.struck = false
		*s.in.cell.Struck--
	}
}
