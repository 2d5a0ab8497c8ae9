package fault_test

import (
	"context"
	"slices"
	"syscall"
	"testing"
	"time"

	"grablab/internal/fault"
	"grablab/internal/grab/lock"
	"grablab/internal/stack"
	"grablab/internal/stack/stacktest"
	"grablab/internal/tap"

	"github.com/redis/go-redis/v9"
)

func TestMain(m *testing.M) { stacktest.Main(m) }

// The table names every fault there is, in the order of all tables.
func TestFaultsAreComplete(t *testing.T) {
	names := []lock.Fault{lock.NoFault}
	for _, f := range fault.Faults {
		names = append(names, f.Name)
		if f.TTL <= 0 || f.Patience <= 0 || f.Aim.Phase == "" || f.Prepare == nil {
			t.Errorf("%s: %+v lacks something", f.Name, f)
		}
	}
	if !slices.Equal(names, lock.Faults) {
		t.Errorf("%v, want %v", names, lock.Faults)
	}
	if _, err := fault.Find(lock.NoFault); err == nil {
		t.Error("there is a fault that is none")
	}
}

func TestTouches(t *testing.T) {
	everybody := []lock.Fault{lock.Slow, lock.Pause, lock.Hang, lock.Crash, lock.PartitionDB, lock.DBRestart}
	redis := append([]lock.Fault{
		lock.RedisRestart, lock.RedisDown, lock.Failover, lock.Partition, lock.Latency, lock.ClientClock, lock.NodeClock,
	}, everybody...)
	quorum := append([]lock.Fault{lock.RedisRestartMost, lock.RedisDownMost}, redis...)
	for strategy, want := range map[string][]lock.Fault{
		"none": everybody, "mutex": everybody, "mysql-cas": everybody,
		"mysql-getlock":    append([]lock.Fault{lock.ClientClock}, everybody...),
		"etcd":             append([]lock.Fault{lock.Partition, lock.ClientClock}, everybody...),
		"setnx":            redis,
		"redlock":          append([]lock.Fault{lock.Amnesia}, quorum...),
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

func TestRefused(t *testing.T) {
	for kind, want := range map[string][]lock.Fault{
		stack.Local:    nil,
		stack.Embedded: {lock.Failover, lock.PartitionDB, lock.DBRestart},
		stack.External: {
			lock.RedisRestart, lock.RedisRestartMost, lock.RedisDown, lock.RedisDownMost, lock.Amnesia, lock.Failover,
			lock.Partition, lock.PartitionDB, lock.Latency, lock.NodeClock, lock.DBRestart,
		},
	} {
		var refused []lock.Fault
		for _, f := range fault.Faults {
			if f.Refused(kind) != "" {
				refused = append(refused, f.Name)
			}
		}
		if !slices.Equal(refused, want) {
			t.Errorf("%s refuses %v, want %v", kind, refused, want)
		}
	}
}

// A strategy may have a weaker spot than the others.
func TestAim(t *testing.T) {
	for _, tt := range []struct {
		strategy string
		fault    lock.Fault
		want     string
	}{
		{"setnx", lock.Pause, "after read"},
		{"setnx-check", lock.Pause, "before claim 1"},
		{"setnx", lock.Crash, "after read"},
		{"setnx-expire", lock.Crash, "after acquire 1"},
		{"redlock", lock.Amnesia, "before claim 1"},
	} {
		s, err := lock.Find(tt.strategy)
		if err != nil {
			t.Fatal(err)
		}
		f, err := fault.Find(tt.fault)
		if err != nil {
			t.Fatal(err)
		}
		if got := f.AimAt(s).String(); got != tt.want {
			t.Errorf("%s under %s: %s, want %s", tt.strategy, tt.fault, got, tt.want)
		}
	}
	for _, s := range slices.Concat(lock.Strategies, lock.KnownBroken) {
		for name, p := range s.Aims {
			known := []tap.Phase{tap.Acquire, tap.Read, tap.Claim, tap.Release}
			if !slices.Contains(known, tap.Phase(p.Phase)) || !slices.Contains(lock.Faults, name) {
				t.Errorf("%s: %s at %+v", s.Name, name, p)
			}
		}
	}
}

// instance remembers what was done to it.
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

// What strikes an instance is undone by its heal, also when the run is over.
func TestInstancesAreHealed(t *testing.T) {
	for _, tt := range []struct {
		fault              lock.Fault
		faulted, contender []string
	}{
		{lock.Slow, nil, nil},
		{lock.Hang, nil, nil},
		{lock.Pause, []string{"stopped (signal)", "continued"}, nil},
		{lock.Crash, []string{"killed", "restart"}, nil},
		{lock.ClientClock, []string{"clock -2s", "clock 0s"}, []string{"clock 2s", "clock 0s"}},
	} {
		f, err := fault.Find(tt.fault)
		if err != nil {
			t.Fatal(err)
		}
		faulted, contender := &instance{name: "instance 1"}, &instance{name: "instance 2"}
		ctx, cancel := context.WithCancel(t.Context())
		prepared, err := f.Prepare(ctx, fault.Target{Faulted: faulted, Contender: contender})
		if err != nil {
			t.Fatal(err)
		}
		heal := perform(t, ctx, prepared)
		cancel()
		heal()
		if !slices.Equal(faulted.log, tt.faulted) || !slices.Equal(contender.log, tt.contender) {
			t.Errorf("%s: faulted %q, contender %q, want %q and %q", tt.fault, faulted.log, contender.log, tt.faulted, tt.contender)
		}
	}
}

// perform strikes with every act, and returns what heals them.
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

// Faults of servers strike what they say, the first acts of them, and leave all
// of it as they have found it but for what was forgotten.
func TestServersAreHealed(t *testing.T) {
	for _, tt := range []struct {
		fault    lock.Fault
		strategy string
		forget   []string // nodes that have
		fail     []string // nodes that the faulted holder does not reach
	}{
		{lock.RedisRestart, "redlock", []string{"redlock-1", "redlock-5"}, nil},
		{lock.RedisRestart, "setnx", []string{"redis"}, nil},
		{lock.RedisRestartMost, "redlock", []string{"redlock-1", "redlock-4", "redlock-5"}, nil},
		{lock.RedisDown, "redlock", nil, []string{"redlock-1", "redlock-5"}},
		{lock.RedisDown, "setnx", nil, []string{"redis"}},
		{lock.RedisDownMost, "redlock", nil, []string{"redlock-1", "redlock-4", "redlock-5"}},
		{lock.Amnesia, "redlock", []string{"redlock-3"}, []string{"redlock-4", "redlock-5"}},
		{lock.Latency, "setnx", nil, []string{"redis"}},
		{lock.NodeClock, "setnx", []string{"redis"}, nil},
		{lock.NodeClock, "redlock", []string{"redlock-1", "redlock-5"}, nil},
	} {
		t.Run(string(tt.fault)+" "+tt.strategy, func(t *testing.T) {
			s, err := lock.Find(tt.strategy)
			if err != nil {
				t.Fatal(err)
			}
			f, err := fault.Find(tt.fault)
			if err != nil {
				t.Fatal(err)
			}
			under, err := stack.Start(t.Context(), stack.Config{Kind: stack.Embedded, Needs: s.Needs})
			if err != nil {
				t.Fatal(err)
			}
			defer under.Close()
			prepared, err := f.Prepare(t.Context(), fault.Target{
				Stack: under, Strategy: s, Faulted: &instance{name: "instance 1"}, Contender: &instance{name: "instance 2"},
			})
			if err != nil {
				t.Fatal(err)
			}
			at := nodesOf(under.Via(prepared.Faulted...))
			for node, addr := range at {
				if !reaches(t, addr, func(c *redis.Client) error { return c.Set(t.Context(), "k", "v", time.Second).Err() }) {
					t.Fatalf("%s cannot be reached", node)
				}
			}
			heal := perform(t, t.Context(), prepared)
			for node, addr := range at {
				ok := reaches(t, addr, func(c *redis.Client) error { return c.Ping(t.Context()).Err() })
				if ok == slices.Contains(tt.fail, node) {
					t.Errorf("%s is reached: %v", node, ok)
				}
			}
			heal()
			for node, addr := range at {
				ok := reaches(t, addr, func(c *redis.Client) error { return c.Get(t.Context(), "k").Err() })
				if ok == slices.Contains(tt.forget, node) {
					t.Errorf("%s, healed, remembers: %v", node, ok)
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

// nodesOf are the addresses of the Redis servers by name.
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

// reaches asks on a connection of its own.
func reaches(t *testing.T, addr string, ask func(*redis.Client) error) bool {
	t.Helper()
	c := redis.NewClient(&redis.Options{
		Addr: addr, MaxRetries: -1, DialerRetries: 1, DialTimeout: 300 * time.Millisecond, ReadTimeout: 300 * time.Millisecond,
	})
	defer c.Close()
	return ask(c) == nil
}
