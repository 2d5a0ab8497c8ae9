package experiment

import (
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab"
	"grablab/internal/service/control"
	"grablab/internal/tap"
	"grablab/internal/testbed/fault"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/load"
)

// TestContendersOutlastTheLease tests a lock that tries only once to get the lock. The contenders
// must try again until the lease has ended. Otherwise, all of them are refused, and the cell looks
// safe although no one competed.
func TestContendersOutlastTheLease(t *testing.T) {
	long(t)
	t.Parallel()
	at, err := fault.ParsePoint("before claim 1")
	if err != nil {
		t.Fatal(err)
	}
	cfg := small(t, "local", "setnx")
	cfg.At, cfg.Wait, cfg.Asked.Wait = &at, 0, true
	cfg.Faults = []catalog.Fault{catalog.Pause, catalog.PartitionDB}
	run, err := execute(t, t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range run.Cells {
		if c.Verdict == catalog.Safe {
			t.Errorf("%s is safe: %s", c.Fault, c.Reason)
		}
		if c.Fault == catalog.Pause && c.Verdict != catalog.Unsafe {
			t.Errorf("%s: %s (%s), want unsafe", c.Fault, c.Verdict, c.Reason)
		}
	}
}

// TestRefusedDriversTryInTime checks when a refused driver counts as a competitor. It must certainly
// have tried between the end of the affected driver's lease and that driver's write. A response that
// came late on a busy machine proves nothing.
func TestRefusedDriversTryInTime(t *testing.T) {
	const lease = time.Second
	ms := func(n int) time.Time { return time.Unix(1000, 0).Add(time.Duration(n) * time.Millisecond) }
	waits := map[fault.Role][]control.Call{fault.Waiting: {{}}}
	for _, tt := range []struct {
		name        string
		wait        time.Duration
		foreign     bool
		calls       map[fault.Role][]control.Call
		contender   response
		late        response
		openUntil   int // last time at which the affected driver had certainly not written
		endedInTime bool
		want        bool
	}{
		{name: "busy before the lease ended, answered after", calls: waits, contender: response{grab.Busy, ms(995), ms(1400)}, openUntil: 1500},
		{name: "busy after the lease ended", calls: waits, contender: response{grab.Busy, ms(1001), ms(1002)}, openUntil: 1500, want: true},
		{name: "busy, of a lock that never waits", wait: 2 * lease, contender: response{grab.Busy, ms(995), ms(1400)}, openUntil: 1500},
		{name: "busy after waiting", wait: 2 * lease, calls: waits, contender: response{grab.Busy, ms(0), ms(2001)}, openUntil: 1500, want: true},
		{name: "busy although it may wait", wait: 2 * lease, calls: waits, contender: response{grab.Busy, ms(0), ms(20)}, openUntil: 1500},
		{name: "busy after too short a wait", wait: lease / 2, calls: waits, contender: response{grab.Busy, ms(0), ms(1300)}, openUntil: 1500},
		{name: "busy after a wait that may have ended with the lease", wait: lease + simultaneous/2, calls: waits, contender: response{grab.Busy, ms(0), ms(1300)}, openUntil: 1500},
		{name: "taken after waiting", wait: 2 * lease, calls: waits, contender: response{grab.Taken, ms(0), ms(1600)}, openUntil: 1500, want: true},
		{name: "taken, sent after the write", wait: 2 * lease, calls: waits, contender: response{grab.Taken, ms(1501), ms(1600)}, openUntil: 1500},
		{name: "taken, and the write may have come in time", wait: 2 * lease, calls: waits, contender: response{grab.Taken, ms(0), ms(1600)}, openUntil: 990},
		{name: "only the last driver came late enough", calls: waits, late: response{grab.Taken, ms(1800), ms(1810)}, openUntil: 1500},
		{name: "only the last driver grabbed", calls: waits, late: response{grab.Grabbed, ms(1800), ms(1810)}, openUntil: 1500},
		{name: "grabbed", calls: waits, contender: response{grab.Grabbed, ms(995), ms(1400)}, openUntil: 1500, want: true},
		{name: "failed", calls: waits, contender: response{grab.Failed, ms(1001), ms(1400)}, openUntil: 1500},
		{name: "the affected driver was answered in time", calls: waits, contender: response{grab.Busy, ms(10), ms(20)}, openUntil: 10, endedInTime: true, want: true},
		{name: "a service answers at once, a little late", foreign: true, contender: response{grab.Busy, ms(995), ms(1200)}, openUntil: 1500},
		{name: "taken after the lease ended, and just before the write", foreign: true, contender: response{grab.Taken, ms(1350), ms(1400)}, openUntil: 1450, want: true},
		{name: "taken after the lease ended, and just after the write", foreign: true, contender: response{grab.Taken, ms(1350), ms(1460)}, openUntil: 1450},
		{name: "a service lets a driver wait", foreign: true, contender: response{grab.Busy, ms(0), ms(1500)}, openUntil: 1500, want: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := &injection{
				traits: traits{unknownLock: tt.foreign}, ttl: lease, w: &worker{cfg: Config{Wait: tt.wait}, fleet: &fleet.Fleet{}},
				fault: fault.Fault{ContendFor: 1.5}, cell: &Cell{}, trail: trail{calls: tt.calls}, responses: newResponses(),
			}
			for _, held := range []int{-5, -900} { // when the driver was stopped, which may be long before the fault begins
				c := &contest{
					affected: load.Request{Driver: 1}, contenders: []load.Request{{Driver: 2}}, lateDriver: load.Request{Driver: 3},
					heldSince: ms(held), contendedSince: ms(0), openUntil: ms(tt.openUntil), endedInTime: tt.endedInTime,
				}
				in.responses.got[c.affected] = response{grab.Grabbed, ms(held - 5), ms(1700)}
				in.responses.got[c.contenders[0]], in.responses.got[c.lateDriver] = tt.contender, tt.late
				if got := in.competed(c); got != tt.want {
					t.Errorf("stopped at %d ms, competed: %v, want %v", held, got, tt.want)
				}
			}
		})
	}
}

// TestCancelUnawaited checks when a strike that delays a reply counts. It must not count if the
// client gave up around the end of the lease, or later, but before the reply arrived. For our own
// locks, it always counts.
func TestCancelUnawaited(t *testing.T) {
	const lease = time.Second
	latency, err := fault.Find(catalog.Latency)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name    string
		fault   fault.Fault
		waited  time.Duration // how long the grab took; 0 if it still runs
		movedOn time.Duration // when the client made its next call; 0 if it made none
		reply   time.Duration // when the delay of the reply ended; 0 if it did not
		ours    bool
		cancels bool
	}{
		{name: "long before the lease ends", fault: latency, waited: lease / 2},
		{name: "as the lease ends", fault: latency, waited: lease, cancels: true},
		{name: "just before the reply", fault: latency, waited: lease * 11 / 10, reply: lease * 5 / 4, cancels: true},
		{name: "after the reply", fault: latency, waited: lease * 5 / 4, reply: lease * 5 / 4},
		{name: "before a later reply", fault: latency, waited: lease * 3 / 2, reply: lease * 7 / 4, cancels: true},
		{name: "not at all", fault: latency},
		{name: "long before the lease ends, but tried again", fault: latency, waited: lease, movedOn: lease / 2},
		{name: "as the lease ends, and tried again", fault: latency, waited: lease * 3 / 2, movedOn: lease, reply: lease * 5 / 4, cancels: true},
		{name: "without a delayed reply", waited: lease},
		{name: "a lock of our own gives up", fault: latency, waited: lease, ours: true},
	} {
		began := time.Now()
		c := &contest{affected: load.Request{Driver: 1}, heldSince: began, struck: true}
		if tt.movedOn > 0 {
			c.movedOnAt = began.Add(tt.movedOn)
		}
		if tt.reply > 0 {
			c.window.closedAt = began.Add(tt.reply)
		}
		in := &injection{traits: traits{reconnects: !tt.ours}, ttl: lease, fault: tt.fault, cell: &Cell{Struck: new(1)}, responses: newResponses()}
		if tt.waited > 0 {
			in.responses.add(c.affected, response{grab.Failed, began, began.Add(tt.waited)})
		}
		if err := newStrike(in, c).cancelUnawaited(t.Context()); err != nil || c.struck == tt.cancels {
			t.Errorf("%s: cancelUnawaited left struck %v (%v)", tt.name, c.struck, err)
		}
	}
}

// TestNextCalls checks which calls show that a client no longer waits for a delayed reply.
func TestNextCalls(t *testing.T) {
	held := func(phase tap.Phase, n int, target string) control.Held {
		return control.Held{Call: control.Call{Phase: phase, N: n, Target: target}}
	}
	const set = "redlock SET lock:*"
	first := held(set, 1, "redlock-1")
	for name, tt := range map[string]struct {
		calls  []control.Held
		before int // how many calls came together with the delayed one, or before it
		want   bool
	}{
		"none":                     {nil, 0, false},
		"only the delayed call":    {[]control.Held{first}, 1, false},
		"a call before it":         {[]control.Held{held("redlock GET lock:*", 1, "redlock-1"), first}, 2, false},
		"the same on another node": {[]control.Held{first, held(set, 1, "redlock-2")}, 1, false},
		"the same again":           {[]control.Held{first, held(set, 2, "redlock-1")}, 1, true},
		"the release":              {[]control.Held{first, held("redlock EVALSHA 1 lock:*", 1, "redlock-1")}, 1, true},
		"a renewal":                {[]control.Held{first, held("redlock PEXPIRE lock:*", 1, "redlock-1")}, 1, false},
		"a poll of a worker":       {[]control.Held{first, held("redis BLPOP jobs", 1, "redis")}, 1, false},
		"a read of the database":   {[]control.Held{first, held("mysql SELECT *", 1, tap.DB)}, 1, false},
		"a parallel call":          {[]control.Held{first, held("redlock GET item:*", 1, "redlock-1")}, 2, false},
		"a call before a parallel": {[]control.Held{held("redlock GET item:*", 1, "redlock-1"), first, held("redlock GET item:*", 2, "redlock-1")}, 3, false},
		"a call after a parallel":  {[]control.Held{first, held("redlock GET item:*", 1, "redlock-1"), held(set, 2, "redlock-1")}, 2, true},
		"fewer calls than before":  {[]control.Held{first}, 2, false},
	} {
		c := &contest{order: 7, point: fault.Point{Point: control.Point{Phase: set, N: 1}}, callsBefore: tt.before}
		m := heldCalls{struck: map[string][]control.Held{holdName(callsHold, c): tt.calls}}
		if got := m.hasMovedOn(c, []control.Call{{Phase: "redlock PEXPIRE lock:*", N: 1, Target: "redlock-2"}}); got != tt.want {
			t.Errorf("%s: hasMovedOn: %v, want %v", name, got, tt.want)
		}
	}
}
