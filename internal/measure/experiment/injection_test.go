package experiment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/check"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/history"
	"grablab/internal/order"
	"grablab/internal/service/control"
	"grablab/internal/tap"
	"grablab/internal/testbed/fault"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/load"
	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/stack/stacktest"
)

// sceneOf runs one cell with a fault and checks what must be true of every such cell. The verdict
// must be as expected, and must be the worst verdict of all points and of the orders without a
// fault. The instances must have recorded at least as many strikes as the cell reports, and the
// fault must have been undone.
func sceneOf(t *testing.T, l *worker, strategy string, name catalog.Fault) Cell {
	t.Helper()
	s, err := lock.Find(strategy)
	if err != nil {
		t.Fatal(err)
	}
	f, err := fault.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	c := l.inject(t.Context(), s, f)
	for range 2 { // if other tests slow it down, a driver may reach its step too late, or work for longer than its lease
		struck := !slices.ContainsFunc(c.Points, func(p Point) bool { return p.Struck == 0 })
		if struck && c.Verdict != catalog.Unknown && c.AsExpected() {
			break
		}
		t.Logf("again: %s (%s)", c.Verdict, c.Reason)
		c = l.inject(t.Context(), s, f)
	}
	if c.Expected == nil || c.Verdict != *c.Expected {
		t.Errorf("verdict %s (%s), expected %v", c.Verdict, c.Reason, c.Expected)
	}
	if !c.AsExpected() {
		t.Errorf("the cell's verdict is %s, want %s", c.Said(), c.Claimed())
	}
	strikes := strikesOf(t, l)
	worst, double := catalog.Safe, 0
	for _, p := range c.Points {
		if p.Struck == 0 || p.Struck != p.Strikes && c.Verdict == catalog.Safe {
			t.Errorf("%s: struck %d of %d times", p.Point, p.Struck, p.Strikes)
		}
		at := p.Point
		if _, rest, ok := strings.Cut(at, ": "); ok {
			at = rest
		}
		if strikes[at] < p.Struck {
			t.Errorf("%s: the cell reports %d strikes, but the instances recorded %d", p.Point, p.Struck, strikes[at])
		}
		double += *p.DoubleGrabs
		if p.Verdict == catalog.Unsafe || p.Verdict == catalog.Stuck && worst == catalog.Safe {
			worst = p.Verdict
		}
	}
	if *c.DoubleGrabs > double { // an order without a fault was grabbed twice
		worst = catalog.Unsafe
	}
	if c.Verdict != worst || *c.DoubleGrabs < double {
		t.Errorf("the cell is %s with %d double-grabs, but its points together are %s with %d", c.Verdict, *c.DoubleGrabs, worst, double)
	}
	if len(c.Points) == 0 {
		t.Error("no point was struck")
	}
	if c.Latency.P50 < c.LatencySent.P50 {
		t.Errorf("the median latency from the schedule is %v ms, less than the %v ms from sending", c.Latency.P50, c.LatencySent.P50)
	}
	if l.dirty {
		t.Error("the fault was not undone")
	}
	return c
}

// strikesOf returns the number of orders that a fault struck at each point. It counts the events that
// the instances recorded in the worker's last cell.
func strikesOf(t *testing.T, l *worker) map[string]int {
	t.Helper()
	events, err := os.ReadFile(l.journal.path())
	if err != nil {
		t.Fatal(err)
	}
	// Decoding the events of all cells after each cell would take most of the test's time.
	last := max(0, bytes.LastIndex(events, []byte(`"op":"cell"`)))
	start := bytes.LastIndexByte(events[:last], '\n') + 1
	strikes := map[string]map[int64]bool{}
	for e, err := range history.Decode(bytes.NewReader(events[start:])) {
		switch {
		case err != nil:
			t.Fatal(err)
		case e.Op == history.Strike && strikes[e.Note] == nil:
			strikes[e.Note] = map[int64]bool{e.Order: true}
		case e.Op == history.Strike:
			strikes[e.Note][e.Order] = true
		}
	}
	counts := map[string]int{}
	for at, orders := range strikes {
		counts[at] = len(orders)
	}
	return counts
}

// openApart is like open, but the instances use any free ports, so that several tests can run at
// the same time.
func openApart(t *testing.T, cfg Config) *worker {
	t.Helper()
	l := open(t, cfg)
	if err := l.fleet.Stop(); err != nil {
		t.Fatal(err)
	}
	l.fleet = l.newFleet(0)
	if err := l.fleet.Equip(t.Context(), l.cfg.setup()); err != nil {
		t.Fatal(err)
	}
	return l
}

// proving is true under make prove, which also runs the tests and cases that take long.
var proving = os.Getenv("GRABLAB_PROVE") == "1"

// repetitions returns the number of repetitions of a test with random input.
func repetitions(usual, inProve int) int {
	if proving {
		return inProve
	}
	return usual
}

// long skips a test that takes long, unless proving is true.
func long(t *testing.T) {
	t.Helper()
	if !proving {
		t.Skip("GRABLAB_PROVE is not 1: it takes long")
	}
}

// TestFaults checks that every fault strikes and is undone. Each fault is tested on a strategy that
// it breaks, so that a fault without effect makes the test fail. After the faults, a cell without a
// fault must be safe.
func TestFaults(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		needs      lock.Backend
		cells, too []CellName // too contains further cells, which run only if proving is true
	}{
		{lock.Redis | lock.SQL, []CellName{
			{"watchdog", catalog.Pause},
			{"setnx-fenced", catalog.RedisRestart}, // its lock has two holders, but the order stays safe
			{"setnx-fence-write", catalog.PartitionDB},
			{"setnx", catalog.NodeClock},
			{"setnx-nottl-no-cleanup", catalog.ReplyLost},
		}, []CellName{
			{"setnx-expire", catalog.Crash},
			{"setnx-expire", catalog.RedisDown},
			{"setnx-check", catalog.Slow},
			{"setnx", catalog.RedisFull},
			{"setnx-nottl", catalog.Hang},
			{"setnx", catalog.FailoverSplit},
			{"setnx-getset", catalog.ClientClock},
		}},
		{lock.Redis | lock.SQL, nil, []CellName{
			{"setnx", catalog.SlowDB},
			{"setnx-getdel", catalog.LateRelease},
			{"setnx-nottl-no-cleanup", catalog.Cancel},
			{"watchdog", catalog.Partition},
			{"setnx-del", catalog.Latency},
		}},
		{lock.Redis | lock.RedisTracking | lock.SQL, nil, []CellName{
			{"redislock", catalog.Slow}, // does not wait for a lock that is taken
			{"rueidislock-1", catalog.RedisRestart},
			{"redsync", catalog.Pause},
			{"rueidislock", catalog.ClientClock}, // moves the library's own clock
		}},
		{lock.RedisQuorum | lock.SQL | lock.SQLLocks, []CellName{
			{"redlock", catalog.RedisRestartMost},
			{"mysql-getlock-split", catalog.DBRestart},
		}, []CellName{
			{"redlock", catalog.Amnesia},
			{"redlock-long-ttl", catalog.RedisDownMost},
			{"redlock-miswired", catalog.Failover},
		}},
	} {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			if proving {
				tt.cells = append(tt.cells, tt.too...)
			}
			if len(tt.cells) == 0 {
				t.Skip("GRABLAB_PROVE is not 1: it takes long")
			}
			cfg := small(t, stack.Local, tt.cells[0].Strategy)
			cfg.Stack.Needs = tt.needs
			l := openApart(t, cfg)
			for _, cell := range tt.cells {
				t.Run(cell.String(), func(t *testing.T) { sceneOf(t, l, cell.Strategy, cell.Fault) })
			}
			if c := l.cell(t.Context(), cfg.Strategies[0], cfg.Load); c.Verdict != catalog.Safe {
				t.Errorf("afterwards: %s (%s)", c.Verdict, c.Reason)
			}
		})
	}
}

// TestFaultsOfTopologies checks a fault of a Redis Cluster, and one of a master with Sentinels.
// After it, a cell without a fault must be safe.
func TestFaultsOfTopologies(t *testing.T) {
	t.Parallel()
	for topology, cells := range map[catalog.Topology][]CellName{
		catalog.RedisCluster:  {{"handoff", catalog.SlotMoves}},
		catalog.RedisSentinel: {{"setnx", catalog.MasterKilled}},
	} {
		t.Run(string(topology), func(t *testing.T) {
			t.Parallel()
			cfg := small(t, stack.Local, cells[0].Strategy)
			cfg.Stack.Needs, cfg.Stack.Topology = lock.Redis|lock.SQL, topology
			l := openApart(t, cfg)
			for _, cell := range cells {
				t.Run(cell.String(), func(t *testing.T) { sceneOf(t, l, cell.Strategy, cell.Fault) })
			}
			if c := l.cell(t.Context(), cfg.Strategies[0], cfg.Load); c.Verdict != catalog.Safe {
				t.Errorf("afterwards: %s (%s)", c.Verdict, c.Reason)
			}
		})
	}
}

// TestFaultsOnTheEmbeddedStack checks that the embedded stack supports some of the faults, with the
// same results.
func TestFaultsOnTheEmbeddedStack(t *testing.T) {
	t.Parallel()
	cfg := small(t, stack.Embedded, "setnx")
	l := openApart(t, cfg)
	cells := []CellName{{"setnx-fenced", catalog.Slow}, {"mutex", catalog.Crash}}
	if proving {
		cells = append(cells, CellName{"setnx", catalog.Pause}, CellName{"setnx", catalog.NodeClock})
	}
	for _, cell := range cells {
		t.Run(cell.String(), func(t *testing.T) { sceneOf(t, l, cell.Strategy, cell.Fault) })
	}
}

// interrupted returns the faults for TestInterruptedScene.
func interrupted() []catalog.Fault {
	if proving {
		return []catalog.Fault{catalog.Pause, catalog.RedisDown, catalog.ClientClock, catalog.Latency}
	}
	return []catalog.Fault{catalog.RedisDown}
}

// TestInterruptedScene interrupts a cell after its fault has struck. The fault must be undone, so that
// the worker's next cell is safe.
func TestInterruptedScene(t *testing.T) {
	t.Parallel()
	cfg := small(t, stack.Embedded, "setnx")
	l := openApart(t, cfg)
	for _, name := range interrupted() {
		t.Run(string(name), func(t *testing.T) {
			ctx, interrupt := context.WithCancelCause(t.Context())
			f, err := fault.Find(name)
			if err != nil {
				t.Fatal(err)
			}
			prepare := f.Prepare
			f.Prepare = func(ctx context.Context, target fault.Target) (fault.Prepared, error) {
				prepared, err := prepare(ctx, target)
				strike := prepared.Strikes[0].Do
				prepared.Strikes[0].Do = func(ctx context.Context, lease time.Duration) (heal stack.Heal, err error) {
					defer interrupt(errors.New("Ctrl-C"))
					if strike == nil { // Prepare has already made the change
						return nil, nil
					}
					return strike(ctx, lease)
				}
				return prepared, err
			}
			c := l.inject(ctx, cfg.Strategies[0], f)
			if c.Verdict != catalog.Unknown || c.Reason == "" || l.dirty {
				t.Errorf("verdict %s (%s), dirty %v", c.Verdict, c.Reason, l.dirty)
			}
			if c := l.cell(t.Context(), cfg.Strategies[0], cfg.Load); c.Verdict != catalog.Safe {
				t.Errorf("afterwards: %s (%s)", c.Verdict, c.Reason)
			}
		})
	}
}

// TestFaultThatNeverStrikes checks that the verdict is unknown for a point that no driver reaches.
func TestFaultThatNeverStrikes(t *testing.T) {
	t.Parallel()
	cfg := small(t, stack.Embedded, "mutex")
	l := openApart(t, cfg)
	f, err := fault.Find(catalog.Slow)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.trails.get("mysql-cas", func() (trail, error) {
		return ourTrail(map[fault.Role][]control.Call{fault.Alone: {
			{Phase: tap.Read, N: 1, Target: tap.DB}, {Phase: tap.Claim, N: 1, Target: tap.DB}, {Phase: tap.Release, N: 1000, Target: tap.DB},
		}}), nil
	}); err != nil {
		t.Fatal(err)
	}
	cas, err := lock.Find("mysql-cas")
	if err != nil {
		t.Fatal(err)
	}
	c := l.inject(t.Context(), cas, f)
	if c.Verdict != catalog.Unknown || !strings.HasSuffix(c.Reason, "Points without a verdict: before release 1000; after release 1000") || c.Exclusive != nil {
		t.Errorf("the verdict is %s (%s), want unknown, and exclusive is %v", c.Verdict, c.Reason, c.Exclusive)
	}
	for _, p := range c.Points {
		if missing := strings.Contains(p.Point, "release"); missing != (p.Verdict == catalog.Unknown) {
			t.Errorf("only the points of the release should be unknown, but one is %+v", p)
		}
	}
}

// TestFailedRecordingIsRepeated makes the dry run of a strategy fail twice. A failure must not be
// stored as an empty list of calls, because no fault could then strike the strategy.
func TestFailedRecordingIsRepeated(t *testing.T) {
	all, tries := new(trails), 0
	for n := range 5 {
		got, err := all.get("setnx", func() (trail, error) {
			if tries++; tries < 3 {
				return trail{}, errors.New("no answer")
			}
			return trail{queued: tries}, nil
		})
		if failed := n < 2; (err != nil) != failed || !failed && got.queued != 3 || tries != min(n+1, 3) {
			t.Errorf("use %d: %+v, %v after %d recordings", n+1, got, err, tries)
		}
	}
}

// TestPreparedAgainForAService prepares a fault several times for a service. Each preparation replaces the Redis of the service, and
// closes the one before. The service must always reach the latest one.
func TestPreparedAgainForAService(t *testing.T) {
	t.Parallel()
	st, err := stack.Start(t.Context(), stack.Config{Kind: stack.Embedded, Needs: lock.Redis})
	stacktest.Check(t, err)
	t.Cleanup(func() { _ = st.Close() })
	st.DSN = "user@tcp(127.0.0.1:1)/shop" // the command of a service cannot refer to the file of the embedded database
	dir := t.TempDir()
	service, err := fleet.ParseService("mkdir -p " + dir + "/{port}/{redis}") // this service only prints the address of its Redis
	if err != nil {
		t.Fatal(err)
	}
	f := fleet.NewService(fleet.Config{Instances: 1, Say: t.Logf}, service, st, 0)
	t.Cleanup(func() { _ = f.Close() })
	prepared := 0
	reached := make(chan int, 10) // the preparation whose Redis the service has reached
	in := &injection{w: &worker{stack: st, fleet: f}, struck: f.Instances[0], other: f.Instances[0], fault: fault.Fault{Prepare: func(context.Context, fault.Target) (fault.Prepared, error) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return fault.Prepared{}, err
		}
		prepared++
		go func(n int) {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				reached <- n
				_ = c.Close()
			}
		}(prepared)
		way := []stack.Detour{stack.Way{Server: "redis", Addr: l.Addr().String()}}
		return fault.Prepared{Affected: way, Contender: way, Close: func(context.Context) error { return l.Close() }}, nil
	}}}
	if err := in.prepareFault(t.Context()); err != nil {
		t.Fatal(err)
	}
	ended := f.Equip(t.Context(), fleet.Setup{Routes: in.routes()}) // Equip returns an error, because the command ends at once
	shown, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	if err != nil || len(shown) != 1 {
		t.Fatalf("the service has shown %q, %v, %v", shown, err, ended)
	}
	for n := 1; n <= 3; n++ {
		c, err := net.Dial("tcp", filepath.Base(shown[0]))
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		_, _ = fmt.Fprint(c, "*1\r\n$4\r\nPING\r\n")
		_, _ = io.Copy(io.Discard, c) // ends when the Redis, or the proxy that cannot reach it, closes the connection
		_ = c.Close()
		select {
		case got := <-reached:
			if got != n {
				t.Errorf("after %d preparations, the service reaches the Redis of no. %d", n, got)
			}
		default:
			t.Errorf("after %d preparations, the service reaches no Redis", n)
		}
		if err := in.prepareAgain(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := in.prepared.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestCancelledStrikesAreNoHits injects a fault that strikes the first of two orders, and then cancels
// the strikes in every sequence. Only the first reason for an order must count, and only if the fault struck it.
func TestCancelledStrikesAreNoHits(t *testing.T) {
	for sequence := range 1 << 4 {
		hit, missed := &contest{struck: true}, &contest{}
		first := ""
		for n := range 4 {
			c, why := []*contest{hit, missed}[sequence>>n&1], fmt.Sprint("reason ", n)
			if c.cancel(why); c == hit && first == "" {
				first = why
			}
			if hit.struck != (first == "") || missed.struck || hit.missed != first || missed.missed != "" {
				t.Fatalf("%04b: struck %v and %v; missed because of %q and %q, want %q and none", sequence, hit.struck, missed.struck, hit.missed, missed.missed, first)
			}
		}
	}
}

// TestStrikesOfAPoint injects a fault several times at one point, in the usual way and in variations.
// Some injections miss and are repeated. Each variation must count once. The point is safe only if the
// last injection of each variation struck.
func TestStrikesOfAPoint(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 7))
	for range 500 {
		ways := 1 + r.IntN(3)
		in := &injection{w: &worker{}, cell: &Cell{}, responses: newResponses(), prepared: fault.Prepared{Strikes: make([]fault.Strike, ways)}}
		hits := 0
		inject := func(v variation) {
			for tries := 1 + r.IntN(strikeTries); tries > 0; tries-- {
				c := &contest{point: fault.Point{Moment: "here"}, order: int64(len(in.contests) + 1), variation: v, repeated: tries > 1}
				if c.struck = tries == 1 && r.IntN(4) > 0; c.struck {
					hits++
				}
				c.contenders = []load.Request{{Order: c.order, Driver: 2}}
				in.responses.got[c.contenders[0]] = response{outcome: grab.Taken}
				in.contests = append(in.contests, c)
			}
		}
		for range ways {
			inject(usual)
		}
		for _, v := range []variation{affectedFirst, otherRestarts, inOutage, worksLong} {
			if r.IntN(2) == 0 {
				inject(v)
				ways++
			}
		}
		p := judgement{in: in, evidence: check.Evidence{}}.row(fault.Point{Moment: "here"})
		want := map[bool]catalog.Verdict{true: catalog.Safe, false: catalog.Unknown}[hits == ways]
		if p.Strikes != ways || p.Struck != hits || p.Verdict != want {
			t.Fatalf("%d injections: struck %d of %d, %s; want %d of %d, %s", len(in.contests), p.Struck, p.Strikes, p.Verdict, hits, ways, want)
		}
	}
}

// TestForwardedGrabs checks when the reason for a missed strike gives the advice about leaders:
// only if the struck instance forwarded or refused the grab.
func TestForwardedGrabs(t *testing.T) {
	db := func(names ...tap.Phase) []control.Held {
		return catalog.Map(names, func(n tap.Phase) control.Held { return control.Held{Call: control.Call{Phase: n, Target: tap.DB}} })
	}
	redis := []control.Held{{Call: control.Call{Phase: "redis SET leader PX NX", Target: "redis"}}}
	for name, tt := range map[string]struct {
		calls   []control.Held
		outcome grab.Outcome // empty if there was no response
		leads   bool
	}{
		"forwards":               {db("mysql SELECT leaders", "mysql COMMIT"), grab.Grabbed, true},
		"refuses without a call": {nil, grab.Busy, true},
		"writes":                 {db("mysql SELECT leaders", "mysql UPDATE orders"), grab.Grabbed, false},
		"asks Redis who leads":   {redis, grab.Grabbed, true},
		"waits for Redis":        {redis, grab.Busy, false},
		"waits for the database": {db("mysql SELECT GET_LOCK"), grab.Busy, false},
		"fails":                  {nil, grab.Failed, false},
		"does not respond":       {nil, "", false},
	} {
		in := &injection{responses: newResponses()}
		c := &contest{affected: load.Request{Order: 1}, missed: "the grab had ended"}
		if tt.outcome != "" {
			in.responses.got[c.affected] = response{outcome: tt.outcome}
		}
		c.forwarded = approach{responses: in.responses}.wasForwarded(c, heldCalls{struck: map[string][]control.Held{holdName(callsHold, c): tt.calls}})
		in.contests = []*contest{c}
		if why := (judgement{in: in}).whyMissed(); strings.HasSuffix(why, oneLeads) != tt.leads {
			t.Errorf("%s: whyMissed: %q", name, why)
		}
	}
}

// TestHealOfAFailedStep makes a step of a fault fail after it has changed something. The change
// must be undone exactly once. If the error is ErrInUse, the strike does not count, but the test of
// the strategy continues.
func TestHealOfAFailedStep(t *testing.T) {
	for _, failed := range []error{nil, stack.ErrInUse, errors.New("no answer")} {
		for _, changes := range []bool{false, true} {
			healed := 0
			s := &strike{in: &injection{w: &worker{}, cell: &Cell{Struck: new(1)}}, contests: []*contest{{struck: true}}}
			err := applying(func(context.Context, time.Duration) (heal stack.Heal, _ error) {
				if changes {
					heal = func() error { healed++; return nil }
				}
				return heal, failed
			})(s, t.Context())
			if inUse := errors.Is(failed, stack.ErrInUse); s.contests[0].struck == inUse || (err != nil) != (failed != nil && !inUse) {
				t.Errorf("fails with %v: struck %v, %v", failed, s.contests[0].struck, err)
			}
			if err := errors.Join(s.heal(t.Context()), s.heal(t.Context())); err != nil || (healed == 1) != changes {
				t.Errorf("fails with %v, changes something: %v; undone %d times, %v", failed, changes, healed, err)
			}
		}
	}
}

// TestAwaitsEveryDriver answers the drivers of two orders at random times, or never. awaitOthers
// must wait for all drivers except the last ones, and awaitAnswers for all. Both must stop at the
// timeout, and must not wait for a driver that hangs.
func TestAwaitsEveryDriver(t *testing.T) {
	t.Parallel()
	const timeout = 3 * time.Second
	r := rand.New(rand.NewPCG(12, 7))
	synctest.Test(t, func(t *testing.T) {
		for range 500 {
			in := &injection{w: &worker{cfg: Config{Load: Load{Timeout: timeout}}}, responses: newResponses()}
			s := &strike{in: in}
			var want struct{ all, others time.Duration }
			began := time.Now()
			for id := range int64(2) {
				driver := func(n int64) load.Request { return load.Request{Order: id, Driver: n} }
				holder, waiter := driver(5), driver(6)
				c := &contest{affected: driver(1), lateDriver: driver(2), contenders: []load.Request{driver(3), driver(4)}, holder: &holder, waiter: &waiter, lastDrivers: []load.Request{driver(7)}}
				c.hangs = r.IntN(2) == 0
				s.contests = append(s.contests, c)
				for n := range int64(7) {
					request, after := driver(n+1), time.Duration(r.IntN(40))*pollInterval
					if r.IntN(40) == 0 {
						after = timeout
					} else if !(c.hangs && request == c.affected) {
						time.AfterFunc(after, func() { in.responses.add(request, response{ended: time.Now()}) })
					}
					switch {
					case c.hangs && request == c.affected:
					case n+1 == 7:
						want.all = max(want.all, after)
					default:
						want.all, want.others = max(want.all, after), max(want.others, after)
					}
				}
			}
			for _, wait := range []struct {
				of   func(*strike, context.Context) error
				want time.Duration
			}{{(*strike).awaitOthers, want.others}, {(*strike).awaitAnswers, max(want.others, want.all)}} {
				err := wait.of(s, t.Context())
				if took := time.Since(began); err != nil || took < wait.want || wait.want < timeout && took > wait.want+pollInterval {
					t.Fatalf("waited for %v, want %v: %v", took, wait.want, err)
				}
			}
			time.Sleep(2 * timeout) // until all timers have fired
		}
	})
}

// TestLastDriversComeLast answers the drivers of two orders one after another. The strike must send the
// requests of the last drivers only after all others have their responses. With one unit, there are no
// last drivers.
func TestLastDriversComeLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for units := 1; units <= 3; units++ {
			in := &injection{w: &worker{cfg: Config{Stock: units, Load: Load{Timeout: time.Minute}}}, bursts: load.NewBursts(), responses: newResponses()}
			s := &strike{in: in}
			began, last := time.Now(), time.Duration(0)
			answer := func(r load.Request) {
				last += time.Second
				time.AfterFunc(last, func() { in.responses.add(r, response{ended: time.Now()}) })
			}
			for id := range int64(2) {
				c := &contest{affected: load.Request{Order: id, Driver: 1}, lateDriver: load.Request{Order: id, Driver: 2}}
				for n := range units - 1 {
					c.lastDrivers = append(c.lastDrivers, load.Request{Order: id, Driver: int64(3 + n)})
				}
				answer(c.affected)
				answer(c.lateDriver)
				s.contests = append(s.contests, c)
			}
			sent := make(chan int, 1)
			time.AfterFunc(last-time.Millisecond, func() { sent <- in.bursts.Requests() })
			for _, c := range s.contests {
				for _, r := range c.lastDrivers {
					answer(r)
				}
			}
			err := s.sendLast(t.Context())
			early := <-sent
			if took := time.Since(began); err != nil || early > 0 || in.bursts.Requests() != 2*(units-1) || took < last || took > last+pollInterval {
				t.Errorf("%d units: %d requests before the last response, %d in total, waited for %v, want 0, %d, %v: %v", units, early, in.bursts.Requests(), took, 2*(units-1), last, err)
			}
		}
	})
}

// TestAwaitsFailedRelease checks when an outage lasts until the affected driver has its response. It
// must do so only if the driver was stopped before its release, so that the release fails.
func TestAwaitsFailedRelease(t *testing.T) {
	const answered = time.Second
	synctest.Test(t, func(t *testing.T) {
		for bits := range 1 << 5 {
			has := func(n int) bool { return bits>>n&1 != 0 }
			in := &injection{traits: traits{reconnects: has(0)}, fault: fault.Fault{Lasts: has(1)}, responses: newResponses()}
			c := &contest{struck: has(2), point: fault.Point{Part: tap.Claim}, affected: load.Request{Driver: 1}}
			if c.point.After = !has(3); has(4) {
				c.point.Part = tap.Release
			}
			s := &strike{in: in, contests: []*contest{{}, c}}
			began := time.Now()
			time.AfterFunc(answered, func() { in.responses.add(c.affected, response{ended: time.Now()}) })
			if err := s.contention().awaitFailedRelease(t.Context()); err != nil {
				t.Fatal(err)
			}
			if waited := time.Since(began) >= answered; waited != (bits == 1<<5-1) {
				t.Errorf("reconnects %v, lasts %v, struck %v, before the call %v, release %v: waited %v", has(0), has(1), has(2), has(3), has(4), waited)
			}
			time.Sleep(answered)
		}
	})
}

// TestAffectedDriverWritesFirst makes the affected driver write, or get its response, early or late. In
// some cases, the test can show a failure only if this driver writes before the contenders. In these
// cases, an injection after which it writes late must not count.
func TestAffectedDriverWritesFirst(t *testing.T) {
	const lease = 3 * time.Second
	at := func(phase tap.Phase, after bool) fault.Point {
		return fault.Point{Point: control.Point{Phase: phase, N: 1, After: after}}
	}
	waiting := at(tap.Read, true)
	waiting.Role = fault.Waiting
	for _, tt := range []struct {
		name   string
		v      variation
		guard  order.Guard
		course fault.Course
		point  fault.Point
		must   bool
	}{
		{"any point", usual, order.FenceWrite, fault.AfterHeal, at(tap.Acquire, true), false},
		{"the variation", affectedFirst, order.Guarded, fault.AtOnce, at(tap.Acquire, true), true},
		{"after its read", usual, order.FenceWrite, fault.AfterHeal, at(tap.Read, true), true},
		{"before its read", usual, order.FenceWrite, fault.AfterHeal, at(tap.Read, false), false},
		{"before its write", usual, order.FenceWrite, fault.AfterHeal, at(tap.Claim, false), true},
		{"after its write", usual, order.FenceWrite, fault.AfterHeal, at(tap.Claim, true), false},
		{"as a waiting driver", usual, order.FenceWrite, fault.AfterHeal, waiting, false},
		{"under another guard", usual, order.Guarded, fault.AfterHeal, at(tap.Read, true), false},
		{"during the fault", usual, order.FenceWrite, fault.BeforeHeal, at(tap.Read, true), false},
	} {
		for _, wrote := range []time.Duration{0, lease / 4, lease} {
			for _, answered := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					nothing := func(context.Context, string, string, any, any) error { return nil }
					in := &injection{
						traits: traits{liveLedger: true, tellsDrivers: true}, cell: &Cell{Struck: new(1), Guard: tt.guard}, responses: newResponses(), ttl: lease, fault: fault.Fault{Course: tt.course},
						struck: &fleet.Instance{Client: nothing}, other: &fleet.Instance{Client: nothing},
					}
					c := &contest{order: 7, affected: load.Request{Order: 7, Driver: 1}, contenders: []load.Request{{Order: 7, Driver: 2}}, variation: tt.v, point: tt.point, struck: true}
					written := map[int64]time.Time{1: time.Now().Add(wrote)}
					if answered {
						delete(written, 1)
						time.AfterFunc(wrote, func() { in.responses.add(c.affected, response{ended: time.Now()}) })
					}
					in.w = &worker{fleet: &fleet.Fleet{Ours: true}, orders: slowLedger{0, written}, ledger: true}
					if err := newStrike(in, c).contention().release(t.Context()); err != nil {
						t.Fatal(err)
					}
					if want := !tt.must || wrote < lease*2/3; c.struck != want {
						t.Errorf("%s, wrote after %v (answered: %v): counts %v, want %v (%s)", tt.name, wrote, answered, c.struck, want, c.missed)
					}
					time.Sleep(lease)
				})
			}
		}
	}
}

// TestAnsweredByDefinition pauses, continues and answers a request at random times. It counts as
// answered only when callsAfterAnswer has passed since its response and its last pause, because all
// its writes have then arrived.
func TestAnsweredByDefinition(t *testing.T) {
	r, request := rand.New(rand.NewPCG(11, 12)), load.Request{Order: 1, Driver: 1}
	synctest.Test(t, func(t *testing.T) {
		for n := range 1000 {
			rs := newResponses()
			rs.callsAfterAnswer = time.Duration(r.IntN(3)) * 100 * time.Millisecond
			var since time.Time // time of its response, or of the end of its last pause
			answered, paused := false, false
			for range 12 {
				switch r.IntN(3) {
				case 0:
					if !answered {
						answered, since = true, time.Now()
						rs.add(request, response{outcome: grab.Grabbed, ended: since})
					}
				case 1:
					if paused = !paused; !paused {
						since = time.Now()
					}
					rs.setPaused(request, paused)
				case 2:
					time.Sleep(time.Duration(1+r.IntN(150)) * time.Millisecond)
				}
				want := answered && !paused && time.Since(since) >= rs.callsAfterAnswer
				if got := rs.isAnswered(request); got != want || rs.isPending(request) == got {
					t.Fatalf("case %d: answered %v, paused %v, for %v of %v: %v", n, answered, paused, time.Since(since), rs.callsAfterAnswer, got)
				}
			}
		}
	})
}

// TestFaultsOfSeveralUnits injects faults into grabs of orders with two units. The verdicts must be as
// expected. Each point that is not safe must have a failure mode. The timeline of an unsafe cell must
// end with the sale of a third unit.
func TestFaultsOfSeveralUnits(t *testing.T) {
	t.Parallel()
	cells := []CellName{{"mysql-cas", catalog.Pause}, {"redis-stock", catalog.RedisRestart}}
	if proving {
		cells = append(cells, CellName{"redis-stock", catalog.Crash}, CellName{"none", catalog.Slow}, CellName{"setnx", catalog.Pause}, CellName{"setnx-fenced", catalog.Pause},
			CellName{"setnx-fence-write", catalog.Slow}, CellName{"handoff", catalog.RedisRestart}, CellName{"redis-stock-returned", catalog.Crash})
	}
	oversold := regexp.MustCompile("[3-9] of 2 units sold")
	cfg := small(t, stack.Embedded, "setnx")
	cfg.Stock = 2
	l := openApart(t, cfg)
	for _, cell := range cells {
		t.Run(cell.String(), func(t *testing.T) {
			c := sceneOf(t, l, cell.Strategy, cell.Fault)
			if c.Sale == nil || c.Sale.SoldOutMS != nil || c.Sale.InOrder != nil {
				t.Fatalf("the sale is %+v, want one without the time and order of the sales", c.Sale)
			}
			for _, p := range c.Points {
				switch {
				case p.Unsold == nil:
					t.Errorf("%s: the number of unsold units is unknown", p.Point)
				case p.Verdict == catalog.Safe && *p.Unsold > 0, p.Verdict == catalog.Stuck && *p.Unsold != *p.StuckOrders:
					t.Errorf("%s is %s with %d unsold units", p.Point, p.Verdict, *p.Unsold)
				case p.Verdict != catalog.Safe && p.FailureMode == "":
					t.Errorf("%s is %s, but has no failure mode", p.Point, p.Verdict)
				}
			}
			if c.Verdict == catalog.Safe {
				return
			}
			switch story := c.Timeline; {
			case story == nil || story.Units != 2:
				t.Errorf("the verdict is %s, but the timeline is %+v", c.Verdict, story)
			case c.Verdict == catalog.Unsafe && !oversold.MatchString(story.Steps[len(story.Steps)-1].True):
				t.Errorf("the timeline ends with %+v", story.Steps[len(story.Steps)-1])
			}
		})
	}
}

// TestFewerDriversThanUnits checks two cases in which a point has no verdict. In the first, too few
// drivers came to buy a unit too many. In the second, a unit is left that a new driver could get.
func TestFewerDriversThanUnits(t *testing.T) {
	in := &injection{w: &worker{cfg: Config{Stock: 2}}, strategy: lock.Strategy{Excludes: catalog.Global}, cell: &Cell{Sale: &Sale{Stock: 2}}, responses: newResponses()}
	c := &contest{point: fault.Point{Point: fault.AfterRead}, order: 1, struck: true, affected: load.Request{Order: 1, Driver: 1}, lateDriver: load.Request{Order: 1, Driver: 2}}
	c.contenders = []load.Request{{Order: 1, Driver: 3}, {Order: 1, Driver: 4}}
	in.contests = []*contest{c}
	for _, tt := range []struct {
		reached, rows int
		stuck         []int64
		want          catalog.Verdict
	}{
		{3, 2, nil, catalog.Safe}, {2, 2, nil, catalog.Safe}, {1, 2, nil, catalog.Unknown}, {3, 1, nil, catalog.Unknown},
		{3, 1, []int64{1}, catalog.Stuck}, {1, 3, nil, catalog.Unsafe}, {0, 0, nil, catalog.Unknown},
	} {
		clear(in.responses.got)
		in.responses.got[c.affected] = response{outcome: grab.Grabbed}
		for i, r := range append([]load.Request{c.lateDriver}, c.contenders...) {
			in.responses.got[r] = response{outcome: grab.Failed}
			if i < tt.reached {
				in.responses.got[r] = response{outcome: grab.Taken}
			}
		}
		e := check.Evidence{Units: 2, Stuck: tt.stuck}
		for i := range tt.rows {
			e.Ledger = append(e.Ledger, order.Grab{Order: 1, Driver: int64(i) + 1})
		}
		p := judgement{in, e, map[int64]check.Timeline{1: {Mode: "F11"}}}.row(c.point)
		if p.Verdict != tt.want {
			t.Errorf("%d drivers reached the lock, and there are %d rows: %s, want %s", tt.reached, tt.rows, p.Verdict, tt.want)
		}
		if explained := p.FailureMode != ""; explained != (tt.want == catalog.Stuck || tt.want == catalog.Unsafe) {
			t.Errorf("a point that is %s has the failure mode %q", p.Verdict, p.FailureMode)
		}
	}
}

// TestModeOfAServiceWithoutALease checks that two winners after a pause are explained by the end of
// a lease, except for a service that has no lease.
func TestModeOfAServiceWithoutALease(t *testing.T) {
	e := check.Evidence{Ledger: []order.Grab{{Order: 1, Driver: 1}, {Order: 1, Driver: 2}}}
	for trail, want := range map[*serviceTrail]string{nil: "F11", {leased: true}: "F11", {}: ""} {
		in := &injection{cell: &Cell{}, fault: fault.Fault{Name: catalog.Pause}}
		in.trail.service = trail
		if got := (judgement{in: in, evidence: e}).modeOf(&contest{order: 1}); got != want {
			t.Errorf("%+v: explained by %q, want %q", trail, got, want)
		}
	}
}

// TestDriversOfAContest checks how many drivers try to grab an order, and at which instance. If
// there are several units, all except the affected driver use the other instance. A driver that has
// the lock before the affected one, or waits for its lock, uses the other instance too.
func TestDriversOfAContest(t *testing.T) {
	struck, other := &fleet.Instance{URL: "http://struck"}, &fleet.Instance{URL: "http://other"}
	alone, waiting, handing := fault.Point{Point: fault.AfterRead}, fault.Point{Role: fault.Waiting, Point: fault.AfterRead}, fault.Point{Role: fault.HandingOver, Point: fault.AfterRead}
	for _, tt := range []struct {
		name              string
		units             int
		point             fault.Point
		guard             order.Guard
		course            fault.Course
		contenders, atOne int // number of contenders, and how many of them use the struck instance
		last              int
	}{
		{"one unit", 1, alone, order.Naive, fault.AfterHeal, 3, 1, 0},
		{"one unit, one who waits", 1, waiting, order.FenceWrite, fault.AfterHeal, 2, 1, 0},
		{"one unit, for which a driver waits", 1, handing, order.FenceWrite, fault.AfterHeal, 2, 1, 0},
		{"two units", 2, alone, order.Naive, fault.AfterHeal, 4, 0, 1},
		{"two units, for which a driver waits", 2, handing, order.FenceWrite, fault.AfterHeal, 3, 0, 1},
		{"two units, one who waits", 2, waiting, order.Naive, fault.AfterHeal, 3, 0, 1},
		{"two units, and the tokens decide", 2, waiting, order.FenceWrite, fault.AfterHeal, 1, 0, 3},
		{"two units, and the first token writes first", 2, alone, order.FenceWrite, fault.AfterHeal, 4, 0, 1},
		{"three units, released late", 3, alone, order.FenceWrite, fault.Released, 5, 0, 2},
		{"twenty units", 20, alone, order.Fenced, fault.Killed, 22, 0, 19},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := &injection{
				traits: traits{tellsDrivers: true}, w: &worker{cfg: Config{Stock: tt.units, Seed: 7}, fleet: &fleet.Fleet{Instances: []*fleet.Instance{struck, other, {URL: "http://third, without breakpoints"}}}},
				struck: struck, other: other, cell: &Cell{Guard: tt.guard}, fault: fault.Fault{Course: tt.course}, first: 1,
			}
			c := in.contest(0, tt.point)
			atStruck, seen := 0, map[int64]bool{}
			for _, r := range c.contenders {
				if r.Target == struck.URL {
					atStruck++
				} else if r.Target != other.URL || atStruck > 0 {
					t.Errorf("driver %d goes to %s after %d drivers at the struck instance", r.Driver, r.Target, atStruck)
				}
			}
			if len(c.contenders) != tt.contenders || atStruck != tt.atOne || len(c.lastDrivers) != tt.last || c.affected.Target != struck.URL || c.lateDriver.Target != other.URL {
				t.Errorf("%d contenders, %d of them at the struck instance, %d last, of %+v", len(c.contenders), atStruck, len(c.lastDrivers), c)
			}
			for role, r := range map[fault.Role]*load.Request{fault.Waiting: c.holder, fault.HandingOver: c.waiter} {
				if (r != nil) != (tt.point.Role == role) || r != nil && r.Target != other.URL {
					t.Errorf("%q: the driver with this role is %+v", role, r)
				}
			}
			for _, r := range c.all() {
				seen[r.Driver] = true
			}
			want := in.w.cfg.strikeDrivers()
			if tt.course == fault.Released { // one driver sends two requests
				want--
			}
			if len(c.all()) != in.w.cfg.strikeDrivers() || len(seen) != want {
				t.Errorf("%d requests by %d drivers, want %d by %d", len(c.all()), len(seen), in.w.cfg.strikeDrivers(), want)
			}
		})
	}
}

// TestRolesOfDrivers assigns the roles of ten orders. The roles differ between orders, and only the seed decides them.
func TestRolesOfDrivers(t *testing.T) {
	roles := func(seed uint64) (affected []int64) {
		in := &injection{w: &worker{cfg: Config{Seed: seed}}, struck: &fleet.Instance{URL: "http://struck"}, other: &fleet.Instance{URL: "http://other"}, cell: &Cell{}}
		for n := range 10 {
			affected = append(affected, in.contest(n, fault.Point{}).affected.Driver)
		}
		return affected
	}
	for seed := range uint64(10) {
		if of := roles(seed); !slices.Equal(of, roles(seed)) || slices.Equal(of, roles(seed+1)) || len(catalog.Distinct(of)) < 3 {
			t.Errorf("seed %d: the affected drivers are %v", seed, of)
		}
	}
}
