package fault_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/service/control"
	"grablab/internal/tap"
	"grablab/internal/testbed/fault"
	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/stack/stacktest"

	"github.com/redis/go-redis/v9"
)

func TestMain(m *testing.M) { stacktest.Main(m) }

// TestFaultsAreComplete checks that the table contains every fault in the order of the reports, and
// that each fault has its required fields.
func TestFaultsAreComplete(t *testing.T) {
	names := []catalog.Fault{catalog.NoFault}
	for _, f := range fault.Faults {
		names = append(names, f.Name)
		if f.TTL < 0 || f.ContendFor <= 0 || f.Prepare == nil {
			t.Errorf("%s: %+v lacks a required field", f.Name, f)
		}
	}
	if !slices.Equal(names, catalog.RunFaults) {
		t.Errorf("the table contains %v, want %v", names, catalog.RunFaults)
	}
	if _, err := fault.Find(catalog.NoFault); err == nil {
		t.Errorf("Find returns a fault for the name %q", catalog.NoFault)
	}
}

func TestTouches(t *testing.T) {
	anyStrategy := []catalog.Fault{catalog.Slow, catalog.Pause, catalog.Hang, catalog.Crash, catalog.PartitionDB, catalog.DBRestart, catalog.ReplyLost, catalog.SlowDB}
	redis := append([]catalog.Fault{
		catalog.MasterKilled, catalog.MasterPartition, catalog.SentinelFailover, catalog.SlotMoves,
		catalog.RedisRestart, catalog.RedisDown, catalog.Failover, catalog.Partition, catalog.Latency, catalog.ClientClock, catalog.NodeClock, catalog.LateRelease, catalog.Cancel,
		catalog.RedisFull, catalog.FailoverSplit,
	}, anyStrategy...)
	quorum := append([]catalog.Fault{catalog.RedisRestartMost, catalog.RedisDownMost}, redis[4:]...)
	for strategy, want := range map[string][]catalog.Fault{
		"none": anyStrategy, "mutex": anyStrategy, "mysql-cas": anyStrategy,
		"mysql-getlock":    append([]catalog.Fault{catalog.ClientClock, catalog.Cancel}, anyStrategy...),
		"etcd":             append([]catalog.Fault{catalog.Partition, catalog.ClientClock, catalog.LateRelease, catalog.Cancel}, anyStrategy...),
		"setnx":            redis,
		"redlock":          append([]catalog.Fault{catalog.Amnesia}, quorum...),
		"redlock-miswired": quorum,
	} {
		s, err := lock.Find(strategy)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range fault.Faults {
			if got := f.Touches(s); got != slices.Contains(want, f.Name) {
				t.Errorf("%s touches %s: %v", f.Name, strategy, got)
			}
		}
	}
}

// TestEndsBeforeLease checks which faults must end before the lease of a stopped driver.
func TestEndsBeforeLease(t *testing.T) {
	for name, want := range map[catalog.Fault]bool{
		catalog.Crash: true, catalog.RedisRestart: true, catalog.DBRestart: true, catalog.Amnesia: true,
		catalog.Pause: false, catalog.Latency: false, catalog.RedisDown: false, catalog.Partition: false, catalog.LateRelease: false, catalog.SlowDB: false,
	} {
		f, err := fault.Find(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := f.EndsBeforeLease(); got != want {
			t.Errorf("%s: EndsBeforeLease: %v, want %v", name, got, want)
		}
	}
}

func TestRefused(t *testing.T) {
	embedded := []catalog.Fault{
		catalog.Failover, catalog.PartitionDB, catalog.DBRestart,
		catalog.ReplyLost, catalog.RedisFull, catalog.FailoverSplit, catalog.SlowDB,
	}
	topologies := []catalog.Fault{catalog.MasterKilled, catalog.MasterPartition, catalog.SentinelFailover, catalog.SlotMoves}
	for on, want := range map[string][]catalog.Fault{
		stack.Local:    nil,
		stack.Embedded: embedded,
		stack.External: {
			catalog.RedisRestart, catalog.RedisRestartMost, catalog.RedisDown, catalog.RedisDownMost, catalog.Amnesia, catalog.Failover,
			catalog.Partition, catalog.PartitionDB, catalog.Latency, catalog.NodeClock, catalog.DBRestart,
			catalog.ReplyLost, catalog.RedisFull, catalog.FailoverSplit, catalog.SlowDB,
		},
	} {
		var refused []catalog.Fault
		for _, f := range fault.Faults {
			if f.Refused(on, catalog.SingleRedis) != "" {
				refused = append(refused, f.Name)
			}
		}
		if want := append(want, topologies...); !slices.Equal(refused, want) {
			t.Errorf("%s refuses %v, want %v", on, refused, want)
		}
	}
}

// TestTopologies checks which faults are possible on a Redis Cluster and with Redis Sentinel. A
// fault that affects only Redis must not be possible on a single Redis server too. The reason for a
// refusal must name the option -redis-topology.
func TestTopologies(t *testing.T) {
	for topology, want := range map[catalog.Topology][]catalog.Fault{
		catalog.RedisCluster:  {catalog.MasterKilled, catalog.MasterPartition, catalog.SlotMoves},
		catalog.RedisSentinel: {catalog.MasterKilled, catalog.MasterPartition, catalog.SentinelFailover},
	} {
		for _, f := range fault.Faults {
			why := f.Refused(stack.Local, topology)
			onlyThere := f.Hits == lock.Redis
			if onlyThere && slices.Contains(want, f.Name) != (why == "") {
				t.Errorf("%s on %s: %q", f.Name, topology, why)
			}
			if alone := f.Refused(stack.Local, catalog.SingleRedis); (why != "" || onlyThere) && why+alone == "" || why != "" && !strings.Contains(why, "-redis-topology") {
				t.Errorf("%s on %s: %q, on a single Redis: %q", f.Name, topology, why, alone)
			}
		}
	}
}

// TestReaches checks at which points some faults can be injected, and that every Reach gives a
// reason. It also checks that ParsePoint rejects invalid points.
func TestReaches(t *testing.T) {
	for _, tt := range []struct {
		fault catalog.Fault
		point string
		want  bool
	}{
		{catalog.Pause, "before acquire 1", true},
		{catalog.Pause, "before renew 1", true},
		{catalog.Slow, "before claim 1", true},
		{catalog.Slow, "before renew 1", false},
		{catalog.Hang, "after read", true},
		{catalog.Hang, "waiting: after read", true},
		{catalog.Hang, "after read 1", false},
		{catalog.Latency, "before acquire 1", true},
		{catalog.Latency, "after acquire 1", false},
		{catalog.Latency, "before claim 1", false},
		{catalog.LateRelease, "before release 2", true},
		{catalog.LateRelease, "waiting: before release 2", false},
		{catalog.Cancel, "waiting: after acquire 2", true},
		{catalog.Cancel, "before read 1", false},
	} {
		f, err := fault.Find(tt.fault)
		if err != nil {
			t.Fatal(err)
		}
		p, err := fault.ParsePoint(tt.point)
		if err != nil {
			t.Fatal(err)
		}
		p.Background = p.Phase == tap.Renew
		if got := f.Reaches(p); got != tt.want {
			t.Errorf("Reaches: %s %s: %v", tt.fault, tt.point, got)
		}
		if p.String() != tt.point {
			t.Errorf("%q is written as %q", tt.point, p)
		}
	}
	for _, f := range fault.Faults {
		if f.Reach != nil && f.Reach.Why == "" {
			t.Errorf("%s does not say why it does not reach every point", f.Name)
		}
	}
	for _, text := range []string{"", "sleeping: before claim 1", "waiting: before lunch", "before claim"} {
		if p, err := fault.ParsePoint(text); err == nil {
			t.Errorf("ParsePoint accepted %q as %v", text, p)
		}
	}
}

// TestReachesEveryPoint compares the result of Reaches with a table of the allowed roles, phases and
// so on. It tries every combination of role, phase, side, part, background and open transaction.
func TestReachesEveryPoint(t *testing.T) {
	type reach struct {
		roles               []fault.Role
		parts               []tap.Phase
		before, after       bool
		background, inWrite bool
	}
	const update tap.Phase = "mysql UPDATE"
	roles := []fault.Role{fault.Alone, fault.Waiting, fault.HandingOver}
	parts := append(slices.Clone(tap.Phases), update, fault.Work)
	without := func(gone ...tap.Phase) []tap.Phase {
		return slices.DeleteFunc(slices.Clone(parts), func(p tap.Phase) bool { return slices.Contains(gone, p) })
	}
	for _, f := range fault.Faults {
		want, ok := map[catalog.Fault]reach{
			catalog.Slow:        {roles, parts, true, true, false, true},
			catalog.Hang:        {roles, []tap.Phase{fault.Work}, false, true, true, true},
			catalog.Latency:     {roles, without(tap.Read, tap.Claim, fault.Work), true, false, true, true},
			catalog.ReplyLost:   {roles, parts, true, false, true, true},
			catalog.SlowDB:      {roles, parts, true, true, true, false},
			catalog.LateRelease: {roles[:1], without(tap.Claim), true, true, false, true},
			catalog.Cancel:      {roles[:2], []tap.Phase{tap.Acquire}, true, true, true, true},
		}[f.Name]
		if !ok {
			want = reach{roles, parts, true, true, true, true}
		}
		for _, role := range roles {
			for _, phase := range parts {
				for bits := range 1 << 4 {
					after, background, inWrite, named := bits&1 != 0, bits&2 != 0, bits&4 != 0, bits&8 != 0
					p := fault.Point{Role: role, Point: control.Point{Phase: phase, N: 1, After: after}, Background: background, HoldsLedger: inWrite}
					if named { // a call of a service, whose phase is known by its place
						p.Phase, p.Part = update, phase
					} else if phase == fault.Work {
						continue // only a service has this phase
					}
					reached := slices.Contains(want.roles, role) && slices.Contains(want.parts, phase) &&
						(!after && want.before || after && want.after) && (!background || want.background) && (!inWrite || want.inWrite)
					if got := f.Reaches(p); got != reached {
						t.Errorf("%s at %v, part %q, background %v, in a transaction %v: %v", f.Name, p, p.Part, background, inWrite, got)
					}
				}
			}
			for _, phase := range tap.Phases {
				p := fault.Point{Role: role, Point: control.Point{Phase: phase, After: true}}
				reached := f.Name == catalog.Hang && phase == tap.Read ||
					f.Name != catalog.Hang && want.after && slices.Contains(want.roles, role) && slices.Contains(want.parts, phase)
				if got := f.Reaches(p); got != reached {
					t.Errorf("%s at %v: %v", f.Name, p, got)
				}
			}
		}
	}
}

// TestRefusedBySingleRedis checks that a stack with a single Redis server refuses to prepare the
// faults that need a Redis Cluster or Redis Sentinel.
func TestRefusedBySingleRedis(t *testing.T) {
	under, err := stack.Start(t.Context(), stack.Config{Kind: stack.Embedded, Needs: lock.Redis})
	if err != nil {
		t.Fatal(err)
	}
	defer under.Close()
	tried := 0
	for _, f := range fault.Faults {
		if f.Name.OnTopology(catalog.SingleRedis) {
			continue
		}
		tried++
		if _, err := f.Prepare(t.Context(), fault.Target{Stack: under}); !errors.Is(err, stack.ErrRefused) {
			t.Errorf("%s: Prepare: %v, want %v", f.Name, err, stack.ErrRefused)
		}
	}
	if tried != 4 {
		t.Errorf("%d faults need another Redis", tried)
	}
}

// instance logs what a fault does to it.
type instance struct {
	name string
	log  []string
}

func (i *instance) Name() string { return i.name }

func (i *instance) Signal(s syscall.Signal) error {
	i.log = append(i.log, s.String())
	return nil
}

func (i *instance) Restart(context.Context) error {
	i.log = append(i.log, "restart")
	return nil
}

func (i *instance) SetClock(_ context.Context, ahead time.Duration) error {
	i.log = append(i.log, "clock "+ahead.String())
	return nil
}

// TestInstancesAreHealed checks what each fault does to an instance, and that healing undoes it even
// after the context was cancelled.
func TestInstancesAreHealed(t *testing.T) {
	for _, tt := range []struct {
		fault               catalog.Fault
		affected, contender []string
	}{
		{catalog.Slow, nil, nil},
		{catalog.Hang, nil, nil},
		{catalog.Pause, []string{"stopped (signal)", "continued"}, nil},
		{catalog.Crash, []string{"killed", "restart"}, nil},
		{catalog.ClientClock, []string{"clock -2s", "clock 0s"}, []string{"clock 2s", "clock 0s"}},
	} {
		f, err := fault.Find(tt.fault)
		if err != nil {
			t.Fatal(err)
		}
		affected, contender := &instance{name: "instance 1"}, &instance{name: "instance 2"}
		ctx, cancel := context.WithCancel(t.Context())
		prepared, err := f.Prepare(ctx, fault.Target{Affected: affected, Contender: contender})
		if err != nil {
			t.Fatal(err)
		}
		heal := perform(t, ctx, prepared)
		cancel()
		heal()
		if !slices.Equal(affected.log, tt.affected) || !slices.Equal(contender.log, tt.contender) {
			t.Errorf("%s: affected %q, contender %q, want %q and %q", tt.fault, affected.log, contender.log, tt.affected, tt.contender)
		}
	}
}

// perform runs the steps of all strikes, and returns a function that undoes them.
func perform(t *testing.T, ctx context.Context, prepared fault.Prepared) (heal func()) {
	t.Helper()
	var heals []stack.Heal
	for _, act := range prepared.Strikes {
		for _, step := range []fault.Step{act.Before, act.Do} {
			if step == nil {
				continue
			}
			heal, err := step(ctx, time.Second)
			if err != nil {
				t.Fatal(err)
			}
			if heal != nil {
				heals = append(heals, heal)
			}
		}
	}
	return func() {
		for _, heal := range heals {
			if err := heal(); err != nil {
				t.Error(err)
			}
		}
	}
}

// prepareEmbedded prepares a fault on an embedded stack. The fault affects the strategy's lock on key k.
func prepareEmbedded(t *testing.T, f fault.Fault, strategy string) (*stack.Stack, fault.Prepared) {
	t.Helper()
	s, err := lock.Find(strategy)
	if err != nil {
		t.Fatal(err)
	}
	under, err := stack.Start(t.Context(), stack.Config{Kind: stack.Embedded, Needs: s.Needs})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = under.Close() })
	prepared, err := f.Prepare(t.Context(), fault.Target{
		Stack: under, Strategy: s, Affected: &instance{name: "instance 1"}, Contender: &instance{name: "instance 2"},
		Keys: func() []string { return []string{"k"} },
	})
	if err != nil {
		t.Fatal(err)
	}
	return under, prepared
}

// TestServersAreHealed checks which servers each fault makes unreachable for the affected instance.
// After healing, all servers must be reachable, and only the listed ones must have lost their data.
func TestServersAreHealed(t *testing.T) {
	for _, tt := range []struct {
		fault    catalog.Fault
		strategy string
		forget   []string // nodes that lose their data
		fail     []string // nodes that the affected instance cannot reach during the fault
	}{
		{catalog.RedisRestart, "redlock", []string{"redlock-1", "redlock-5"}, nil},
		{catalog.RedisRestart, "setnx", []string{"redis"}, nil},
		{catalog.RedisRestartMost, "redlock", []string{"redlock-1", "redlock-4", "redlock-5"}, nil},
		{catalog.RedisDown, "redlock", nil, []string{"redlock-1", "redlock-5"}},
		{catalog.RedisDown, "setnx", nil, []string{"redis"}},
		{catalog.RedisDownMost, "redlock", nil, []string{"redlock-1", "redlock-4", "redlock-5"}},
		{catalog.Amnesia, "redlock", []string{"redlock-3"}, []string{"redlock-4", "redlock-5"}},
		{catalog.Latency, "setnx", nil, []string{"redis"}},
		{catalog.NodeClock, "setnx", []string{"redis"}, nil},
		{catalog.NodeClock, "redlock", []string{"redlock-1", "redlock-5"}, nil},
	} {
		t.Run(string(tt.fault)+" "+tt.strategy, func(t *testing.T) {
			f, err := fault.Find(tt.fault)
			if err != nil {
				t.Fatal(err)
			}
			under, prepared := prepareEmbedded(t, f, tt.strategy)
			at := nodesOf(under.Via(prepared.Affected...))
			for node, addr := range at {
				if !reaches(t, addr, func(c *redis.Client) error { return c.Set(t.Context(), "k", "v", time.Second).Err() }) {
					t.Fatalf("%s cannot be reached", node)
				}
			}
			heal := perform(t, t.Context(), prepared)
			for node, addr := range at {
				ok := reaches(t, addr, func(c *redis.Client) error { return c.Ping(t.Context()).Err() })
				if ok == slices.Contains(tt.fail, node) {
					t.Errorf("during the fault, %s is reachable: %v", node, ok)
				}
			}
			heal()
			for node, addr := range at {
				ok := reaches(t, addr, func(c *redis.Client) error { return c.Get(t.Context(), "k").Err() })
				if ok == slices.Contains(tt.forget, node) {
					t.Errorf("after healing, %s still has the key: %v", node, ok)
				}
			}
			if prepared.Close != nil {
				if err := prepared.Close(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestEveryRedisFaultIsHealed checks that all Redis servers are reachable after healing, for every
// Redis fault that is possible on the embedded stack. The test includes new faults automatically.
func TestEveryRedisFaultIsHealed(t *testing.T) {
	for _, f := range fault.Faults {
		if f.Hits&(lock.Redis|lock.RedisQuorum) == 0 || f.Refused(stack.Embedded, catalog.SingleRedis) != "" {
			continue
		}
		t.Run(string(f.Name), func(t *testing.T) {
			under, prepared := prepareEmbedded(t, f, "redlock")
			for _, strike := range prepared.Strikes {
				perform(t, t.Context(), fault.Prepared{Strikes: []fault.Strike{strike}})()
			}
			for _, side := range [][]stack.Detour{prepared.Affected, prepared.Contender} {
				for node, addr := range nodesOf(under.Via(side...)) {
					if !reaches(t, addr, func(c *redis.Client) error { return c.Set(t.Context(), "k", "v", time.Second).Err() }) {
						t.Errorf("%s cannot be reached after the fault", node)
					}
				}
			}
			if prepared.Close != nil {
				if err := prepared.Close(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// nodesOf returns the addresses of the Redis servers by name.
func nodesOf(at stack.Addresses) map[string]string {
	nodes := map[string]string{}
	if at.Redis != "" {
		nodes["redis"] = at.Redis
	}
	for i, addr := range at.Redlock {
		nodes["redlock-"+string(rune('1'+i))] = addr
	}
	return nodes
}

// reaches reports whether ask succeeds on a new connection to addr.
func reaches(t *testing.T, addr string, ask func(*redis.Client) error) bool {
	t.Helper()
	c := redis.NewClient(&redis.Options{
		Addr: addr, MaxRetries: -1, DialerRetries: 1, DialTimeout: 300 * time.Millisecond, ReadTimeout: 300 * time.Millisecond,
	})
	defer c.Close()
	return ask(c) == nil
}
