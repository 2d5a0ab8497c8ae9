package lockbench

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/rpc"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/testbed/stack"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
)

// h returns a hold of worker n. The times are when the worker asked for, acquired and released the
// lock, in µs.
func h(n int, asked, acquired, released int) Hold {
	at := func(us int) time.Duration { return time.Duration(us) * time.Microsecond }
	return Hold{Worker: n, Asked: at(asked), Acquired: at(acquired), Released: at(released), Done: at(released + 10)}
}

func TestHandoffGaps(t *testing.T) {
	for name, tt := range map[string]struct {
		holds []Hold
		want  []float64
	}{
		"one":                             {[]Hold{h(0, 0, 5, 9)}, nil},
		"one waits":                       {[]Hold{h(0, 0, 5, 9), h(1, 0, 30, 31)}, []float64{21}},
		"no worker waits":                 {[]Hold{h(0, 0, 5, 9), h(1, 10, 30, 31)}, nil},
		"a worker asks at that very time": {[]Hold{h(0, 0, 5, 9), h(1, 9, 30, 31)}, []float64{21}},
		// Worker 1 waits until the end, but worker 0 releases the lock and takes it again. This counts
		// as a hand-off too.
		"taken back":        {[]Hold{h(0, 0, 5, 9), h(0, 10, 12, 15), h(1, 0, 30, 31)}, []float64{3, 15}},
		"between two waves": {[]Hold{h(0, 0, 5, 9), h(1, 0, 15, 19), h(0, 100, 105, 109), h(1, 100, 111, 112)}, []float64{6, 2}},
		"an overlap":        {[]Hold{h(0, 0, 5, 9), h(1, 0, 7, 12)}, []float64{0}},
	} {
		if got, _ := handoffGaps(tt.holds, Case{Workers: 16, Processes: 16}); !slices.Equal(got, tt.want) {
			t.Errorf("%s: handoffGaps: got %v, want %v", name, got, tt.want)
		}
	}
}

// TestAcrossProcesses checks which hand-offs count as crossing processes, if the first two of three
// workers share a process. A worker's number must determine its process.
func TestAcrossProcesses(t *testing.T) {
	c := Case{Workers: 3, Processes: 2, Spread: []int{2, 1}, Keys: 1}
	for worker, want := range []int{0, 0, 1} {
		if got := c.processOf(worker); got != want {
			t.Errorf("worker %d is in process %d, want %d", worker, got, want)
		}
	}
	if workers, first := c.workersOf(1); workers != 1 || first != 2 {
		t.Errorf("process 1 has %d workers, beginning with %d; want 1 and 2", workers, first)
	}
	holds := []Hold{h(0, 0, 5, 9), h(1, 0, 15, 19), h(2, 0, 30, 39), h(0, 10, 43, 44)}
	if gaps, across := handoffGaps(holds, c); !slices.Equal(gaps, []float64{6, 11, 4}) || !slices.Equal(across, []float64{11, 4}) {
		t.Errorf("gaps %v, across %v", gaps, across)
	}
	if got := longestTurns(holds); got != 2 {
		t.Errorf("got %d turns during the longest wait, want 2", got)
	}
}

func TestViolations(t *testing.T) {
	pair := Case{Workers: 4, Processes: 2, Keys: 1}
	other := h(1, 0, 6, 8)
	other.Key = 1
	for name, tt := range map[string]struct {
		holds          []Hold
		global, inside int // overlaps counted for a global lock, and for a lock in each process
	}{
		"one after the other":         {[]Hold{h(0, 0, 5, 9), h(1, 0, 9, 12)}, 0, 0},
		"in one process":              {[]Hold{h(0, 0, 5, 9), h(1, 0, 8, 12)}, 1, 1},
		"of two processes":            {[]Hold{h(0, 0, 5, 9), h(2, 0, 8, 12)}, 1, 0},
		"two inside of a long one":    {[]Hold{h(0, 0, 5, 90), h(1, 0, 8, 12), h(3, 0, 13, 15)}, 2, 1},
		"two keys":                    {[]Hold{h(0, 0, 5, 9), other}, 0, 0},
		"the release takes its time":  {[]Hold{{Acquired: 5, Released: 9, Done: 100}, {Worker: 1, Acquired: 50, Released: 60}}, 0, 0},
		"the acquire began long ago":  {[]Hold{{Acquired: 5, Released: 9}, {Worker: 1, Asked: 1, Acquired: 50, Released: 60}}, 0, 0},
		"a third after an overlap":    {[]Hold{h(0, 0, 5, 90), h(1, 0, 8, 12), h(2, 0, 100, 110)}, 1, 1},
		"one that was still to begin": {[]Hold{h(0, 0, 5, 5), h(1, 0, 5, 5)}, 0, 0},
	} {
		if got := violations(tt.holds, pair, catalog.Global); got != tt.global {
			t.Errorf("%s: violations: got %d, want %d", name, got, tt.global)
		}
		if got := violations(tt.holds, pair, catalog.PerProcess); got != tt.inside {
			t.Errorf("%s, with a lock in each process: got %d, want %d", name, got, tt.inside)
		}
	}
}

func TestJain(t *testing.T) {
	for _, tt := range []struct {
		x    []float64
		want float64
	}{
		{[]float64{3, 3, 3, 3}, 1},
		{[]float64{7, 0, 0, 0}, 0.25},
		{[]float64{1, 3}, 0.8},
	} {
		if got := jain(tt.x); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("jain(%v) = %v, want %v", tt.x, got, tt.want)
		}
	}
}

func TestPercentile(t *testing.T) {
	ten := []float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	for p, want := range map[float64]float64{0: 1, 0.1: 1, 0.11: 2, 0.5: 5, 0.9: 9, 0.99: 10, 1: 10} {
		if got := percentile(ten, p); got != want {
			t.Errorf("percentile: p%v: got %v, want %v", p*100, got, want)
		}
	}
}

// TestMeasure checks every figure of a slice with few holds against values computed by hand.
func TestMeasure(t *testing.T) {
	loop := Case{Name: "loop", Workers: 2, Processes: 2, Keys: 1}
	giveUp := h(1, 0, 31, 40)
	giveUp.GaveUp = 3
	s := measure(1, trace{
		Case: loop, span: time.Millisecond, counted: 3, sent: 6, ran: 10, ranKnown: true,
		holds: []Hold{giveUp, h(0, 0, 1, 10), h(0, 20, 21, 25), h(0, 42, 43, 50)},
	}, Subject{Strategy: lock.Strategy{Name: "x", Excludes: catalog.Global, Needs: lock.Redis}})
	want := Slice{Round: 1, Seconds: 0.001, GaveUp: 3, WaitP999MS: 0.031, LongestMS: 0.031, Figures: Figures{
		Strategy: "x", Case: "loop", Acquisitions: 4, OpsPerS: 3000,
		P50US: 11, P99US: 41, GapP50US: new(6.0), GapP99US: new(11.0), SentPerOp: new(1.5), InsidePerOp: new(1.0),
		Jain: new(0.8), SelfRetake: new(1.0 / 3), Violations: new(0),
	}}
	for name, pair := range map[string][2]any{
		"gap":   {*s.GapP50US, *want.GapP50US},
		"gap99": {*s.GapP99US, *want.GapP99US},
		"sent":  {*s.SentPerOp, *want.SentPerOp}, "inside": {*s.InsidePerOp, *want.InsidePerOp},
		"jain": {*s.Jain, *want.Jain}, "self": {*s.SelfRetake, *want.SelfRetake}, "overlaps": {*s.Violations, *want.Violations},
		"ops": {s.OpsPerS, want.OpsPerS}, "p50": {s.P50US, want.P50US}, "p99": {s.P99US, want.P99US}, "gave up": {s.GaveUp, want.GaveUp},
		"wait": {s.WaitP999MS, want.WaitP999MS}, "longest": {s.LongestMS, want.LongestMS}, "n": {s.Acquisitions, want.Acquisitions},
	} {
		if pair[0] != pair[1] {
			t.Errorf("figure %s: got %v, want %v", name, pair[0], pair[1])
		}
	}
}

// TestMeasureLeavesOut checks that unknown figures are nil. Hand-offs are unknown if no worker competes
// for the key, and overlaps if the strategy excludes no one. Commands are unknown if the client or the
// server did not count them.
func TestMeasureLeavesOut(t *testing.T) {
	alone := trace{Case: Case{Workers: 1, Processes: 1, Keys: 1}, span: time.Second, counted: 1, holds: []Hold{h(0, 0, 1, 2)}}
	s := measure(1, alone, Subject{Strategy: lock.Strategy{Excludes: catalog.NoExclusion, Needs: lock.Etcd}})
	if s.GapP50US != nil || s.Jain != nil || s.SelfRetake != nil || s.Violations != nil || s.SentPerOp != nil || s.InsidePerOp != nil {
		t.Errorf("measure: %+v", s)
	}
	if s := measure(1, alone, Subject{Strategy: lock.Strategy{Excludes: catalog.Global, Needs: lock.Redis}}); s.SentPerOp == nil || s.InsidePerOp != nil {
		t.Errorf("sent %s, inside %s; want only sent to be known", show("%v", s.SentPerOp), show("%v", s.InsidePerOp))
	}
}

func TestParseCalls(t *testing.T) {
	text := "# Commandstats\r\ncmdstat_info:calls=7,usec=9\r\ncmdstat_evalsha:calls=3,usec=9,usec_per_call=3.00,rejected_calls=1\r\ncmdstat_config|get:calls=2,usec=1\r\n"
	if got := parseCalls(text); got != 5 {
		t.Errorf("parseCalls: got %d, want 5", got)
	}
}

// TestCommandsOfEveryServer counts the commands of a single Redis server, of two Redlock nodes, or of
// both. On a local stack, the commands of all servers must count. On an external stack, no command must
// count, because other programs may use the servers.
func TestCommandsOfEveryServer(t *testing.T) {
	at := make([]string, 3)
	for i := range at {
		s, err := server.NewServer("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		err = s.Register("INFO", func(c *server.Peer, _ string, _ []string) {
			c.WriteBulk(fmt.Sprintf("cmdstat_get:calls=%d,usec=9\r\n", 1<<i))
		})
		if err != nil {
			t.Fatal(err)
		}
		at[i] = s.Addr().String()
	}
	for _, kind := range []string{stack.Local, stack.External} {
		for bits := range 1 << 2 {
			var addresses stack.Addresses
			want := uint64(0)
			if bits&1 != 0 {
				addresses.Redis, want = at[0], 1
			}
			if bits&2 != 0 {
				addresses.Redlock, want = at[1:], want+6
			}
			if kind != stack.Local {
				want = 0
			}
			all := newCommandStats(&stack.Stack{Kind: kind, Addresses: addresses})
			if got, err := all.calls(t.Context()); err != nil || got != want {
				t.Errorf("%s, %+v: %d commands, want %d: %v", kind, addresses, got, want, err)
			}
			for _, client := range all {
				client.Close()
			}
		}
	}
}

// TestTracesAddUp adds up two parts of a slice. Every count of the parts must be in the sum.
func TestTracesAddUp(t *testing.T) {
	sum := trace{holds: []Hold{h(1, 0, 1, 2)}, span: 1, counted: 2, sent: 3, ran: 4, ranKnown: true}
	sum.add(trace{holds: []Hold{h(2, 0, 1, 2), h(3, 0, 1, 2)}, span: 10, counted: 20, sent: 30, ran: 40, ranKnown: true})
	if len(sum.holds) != 3 || sum.span != 11 || sum.counted != 22 || sum.sent != 33 || sum.ran != 44 || !sum.ranKnown {
		t.Errorf("sum of the traces: %+v", sum)
	}
}

// TestFloorOfEachCase checks how the lowest possible cost of a case is measured: one worker does
// the work of all workers that share its key. A case without contention stays as it is.
func TestFloorOfEachCase(t *testing.T) {
	for _, c := range Cases {
		want := c
		if c.Workers > c.Keys {
			want.Workers, want.Processes, want.Spread, want.Wave = 1, 1, nil, c.Wave*c.Workers
		}
		if got := c.forFloor(); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: forFloor: %+v, want %+v", c.Name, got, want)
		}
	}
}

// TestKnownCommands measures locks of every server. The clients of ZooKeeper and etcd do not count what they send, and only
// Redis servers count what they run.
func TestKnownCommands(t *testing.T) {
	for _, needs := range []lock.Backend{lock.Redis, lock.RedisQuorum, lock.SQLLocks, lock.ZooKeeper, lock.Etcd} {
		for _, known := range []bool{false, true} {
			tr := trace{Case: Cases[0], span: time.Second, counted: 2, holds: []Hold{h(0, 0, 1, 2), h(0, 3, 4, 5)}, sent: 6, ran: 10, ranKnown: known}
			s := measure(1, tr, Subject{Strategy: lock.Strategy{Name: "x", Needs: needs, Excludes: catalog.Global}})
			sent, inside := needs != lock.ZooKeeper && needs != lock.Etcd, known && (needs == lock.Redis || needs == lock.RedisQuorum)
			if (s.SentPerOp != nil) != sent || sent && *s.SentPerOp != 3 || (s.InsidePerOp != nil) != inside || inside && *s.InsidePerOp != 2 {
				t.Errorf("backend %b, the servers count %v: %v sent, %v in scripts", needs, known, s.SentPerOp, s.InsidePerOp)
			}
		}
	}
}

// TestTableOfContendedLocks shows the hand-off gap of a lock and the round trips of the floor in one column.
func TestTableOfContendedLocks(t *testing.T) {
	for _, c := range Cases {
		for _, strategy := range []string{Floor, "setnx"} {
			row := Row{Figures: Figures{Strategy: strategy, P50US: 7, P99US: 8}}
			if strategy != Floor {
				row.GapP50US, row.GapP99US = new(90.0), new(91.0)
			}
			want := "7 8"
			if strategy != Floor && c.contended() {
				want = "90 91"
			}
			if _, texts := columns(row, c); texts[2]+" "+texts[3] != want {
				t.Errorf("columns: %s, %s: %q, want %s", strategy, c.Name, texts, want)
			}
		}
	}
}

// TestOverlapsOfAllLocks adds up the overlaps and the acquisitions of all locks and cases.
func TestOverlapsOfAllLocks(t *testing.T) {
	r := &Result{cases: Cases}
	want, acquisitions := 0, 0
	for i, c := range Cases {
		for _, strategy := range []string{Floor, "setnx", "handoff"} {
			row := Row{Figures: Figures{Strategy: strategy, Case: c.Name, Acquisitions: 10 + i}}
			if strategy != Floor {
				row.Violations = new(1 + i)
				want, acquisitions = want+1+i, acquisitions+10+i
			}
			r.Rows = append(r.Rows, row)
		}
	}
	var b strings.Builder
	if err := Text(&b, r); err != nil || !strings.Contains(b.String(), fmt.Sprintf("\noverlaps: %d in %d acquisitions\n", want, acquisitions)) {
		t.Errorf("want %d in %d, %v:\n%s", want, acquisitions, err, b.String())
	}
}

// scripted is a worker process whose workers report the holds that a function returns.
type scripted struct{ holds func(Job) []Hold }

// Do executes a job.
func (s scripted) Do(j Job, r *Report) error {
	if j.Workers > 0 {
		r.Holds = s.holds(j)
	}
	return nil
}

// TestAcquisitionsWithinTheSlice checks which acquisitions count for the rate. In a loop, a worker may get
// the lock for the last time after the end of the slice, and this acquisition must not count. A wave lasts
// until its last release, so all of its acquisitions count.
func TestAcquisitionsWithinTheSlice(t *testing.T) {
	const long = 20 * time.Millisecond
	for _, c := range []Case{{Workers: 2, Processes: 2, Keys: 1}, {Workers: 2, Processes: 2, Keys: 1, Wave: 3}} {
		var p pool
		span := long
		for i := range c.Processes {
			last := time.Duration(i+1) * time.Microsecond // time from the end of the slice until the last release
			server := rpc.NewServer()
			err := server.RegisterName("Worker", scripted{func(j Job) (holds []Hold) {
				for _, at := range []time.Duration{j.Until - 1, j.Until, j.Until + 1} {
					holds = append(holds, Hold{Worker: j.First, Acquired: at, Released: j.Until + last})
				}
				return holds
			}})
			if err != nil {
				t.Fatal(err)
			}
			ours, theirs := net.Pipe()
			go server.ServeConn(theirs)
			p = append(p, &process{Client: rpc.NewClient(ours)})
			if c.Wave > 0 {
				span = long + last
			}
		}
		got, err := p.run(c, "setnx", 1, long)
		if err := errors.Join(err, p.close()); err != nil {
			t.Fatal(err)
		}
		rounds := len(got.holds) / 6 // the number of waves depends on the speed of this machine
		counted := 4
		if c.Wave > 0 {
			counted = 6 * rounds
		}
		if rounds < 1 || c.Wave == 0 && rounds > 1 || got.counted != counted || got.span != time.Duration(rounds)*span {
			t.Errorf("%+v: %d of %d acquisitions count in %v, want %d", c, got.counted, len(got.holds), got.span, counted)
		}
	}
}

// TestHandoverHasOneElement lets two processes take the element of each key in turn. There must be only
// one element, whichever process comes first.
func TestHandoverHasOneElement(t *testing.T) {
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Protocol: 2, DisableIdentity: true})
	defer client.Close()
	var processes []lock.Locker
	for range 2 {
		l, err := handover.New(lock.Env{Redis: client})
		if err != nil {
			t.Fatal(err)
		}
		processes = append(processes, l)
	}
	for n, key := range []string{"grab:blpop:{1}", "grab:blpop:{2}"} {
		for turn := range 4 {
			lease, err := processes[(n+turn)%2].Acquire(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			if left := client.LLen(t.Context(), key).Val(); left != 0 {
				t.Errorf("%s, turn %d: %d elements are left while one process has the element", key, turn, left)
			}
			if err := lease.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			if free := client.LLen(t.Context(), key).Val(); free != 1 {
				t.Errorf("%s, turn %d: %d elements after the release, want 1", key, turn, free)
			}
		}
	}
}
