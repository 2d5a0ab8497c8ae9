// Package fault defines the faults that can be injected into a lock on real servers. Start reading
// at the table Faults.
//
// A fault is injected while a grab is stopped at an exact point. Package experiment sends the grabs
// and judges the result.
package fault

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/testbed/stack"
)

// A Fault is one entry of the table.
//
// For each of a few orders, one driver (the affected driver) sends a grab to the affected instance.
// This grab is held at a point that differs between orders. Then the fault is injected, and the
// other drivers of the order (the contenders) arrive. Once a contender has made its claim (the
// write of the winner), or ContendFor is over, the affected drivers continue as Course says.
type Fault struct {
	Name catalog.Fault
	// Hits lists the kinds of servers that the fault affects. 0 means that it affects an instance or
	// the database.
	Hits lock.Backend
	// Reach says at which points of a grab the fault can be injected. Nil means at all points.
	Reach  *Reach
	Course Course
	// TTL is the length of the leases under this fault, unless the user has chosen another.
	TTL time.Duration
	// ContendFor limits how long the other drivers may compete, as a multiple of the lease. If the
	// fault makes a lock disappear, ContendFor is below 1. Otherwise, the other drivers could win
	// just because the lease expires.
	ContendFor float64
	// Lasts means that the fault stays active until ContendFor has passed.
	Lasts bool
	// HoldContenders means that the other drivers stop before they write, until the affected driver
	// has written.
	HoldContenders bool
	On             Ground
	Severs         bool // whether both instances lose their connections and need a moment to reconnect
	Once           bool // whether the fault must be prepared again before it can be injected again
	// NotForeign explains why the fault cannot be injected into the user's service. NotForeign is
	// empty if the fault can be injected.
	NotForeign string

	// Prepare sets up what the fault needs before the instances start. Prepared.Close removes it
	// again. If Prepare fails, it leaves nothing behind.
	Prepare func(context.Context, Target) (Prepared, error)
}

// Course says when the affected drivers continue.
type Course int

// These are the possible courses of a fault. Each says when the affected drivers continue.
const (
	AfterHeal  Course = iota // the drivers continue once the fault is healed
	BeforeHeal               // the drivers continue while the fault lasts; the fault ends once their releases are under way
	AtOnce                   // the drivers continue when the fault is injected
	Never                    // the drivers do not continue before the cell has been judged
	Killed                   // the drivers do not continue, because their process was killed
	// Released means that the fault needs no healing. A second driver arrives when the leases expire.
	// A third one arrives after the affected drivers have released their locks.
	Released
	HungUp // the drivers continue, but their clients have hung up
)

// Ground says on which stacks a fault is possible.
type Ground int

// These are the possible grounds.
const (
	Anywhere    Ground = iota
	OwnServers         // the fault is possible only on servers that the stack has started
	RealServers        // the fault is possible only on servers of the stack that are processes
)

// A Target contains everything that a fault can affect.
type Target struct {
	Stack     *stack.Stack
	Strategy  lock.Strategy
	Affected  Instance // the instance that the affected drivers use
	Contender Instance
	// Wire means that the calls of an instance are stopped in proxies. Such proxies can also lose
	// single replies.
	Wire bool
	// Keys returns the keys of the locks that the fault should affect.
	Keys func() []string
	// Ledger is the table in which claims are written.
	Ledger string
}

// An Instance is one of the two instances under test. Its name is known before it starts.
type Instance interface {
	Name() string
	Signal(syscall.Signal) error
	// Restart starts the instance again after it has died.
	Restart(context.Context) error
	// SetClock sets the instance's wall clock ahead by the given time. Only the strategies use this
	// clock.
	SetClock(ctx context.Context, ahead time.Duration) error
}

// A Prepared fault can be injected.
type Prepared struct {
	Affected, Contender []stack.Detour // proxies through which the instances reach the servers
	Strikes             []Strike       // the ways to inject the fault; each way is used for some of the orders
	Loses               bool           // whether the calls that are held at the points lose their replies
	Close               func(context.Context) error
}

// A Strike is one way to inject a fault. Steps and the functions that undo them may be nil.
type Strike struct {
	Before Step // runs before the affected drivers grab
	Do     Step // runs while the affected drivers are held at their points
}

// A Step changes the target, and returns a function that undoes the change. lease is the length of
// a lease.
type Step func(ctx context.Context, lease time.Duration) (stack.Heal, error)

// stepWithoutHeal returns a step that cannot be undone or need not be.
func stepWithoutHeal(do func(context.Context) error) Step {
	return func(ctx context.Context, _ time.Duration) (stack.Heal, error) { return nil, do(ctx) }
}

// Faults lists all faults, in the order in which tables show them.
var Faults = []Fault{
	slow,
	pause,
	hang,
	crash,
	redisRestart,
	redisRestartMost,
	redisDown,
	redisDownMost,
	amnesia,
	failover,
	partition,
	partitionDB,
	latency,
	clientClock,
	nodeClock,
	dbRestart,
	replyLost,
	redisFull,
	failoverSplit,
	slowDB,
	lateRelease,
	cancel,
	masterKilled,
	masterPartition,
	sentinelFailover,
	slotMoves,
}

// Find returns the fault with that name.
func Find(name catalog.Fault) (Fault, error) {
	i := slices.IndexFunc(Faults, func(f Fault) bool { return f.Name == name })
	if i < 0 {
		return Fault{}, fmt.Errorf("fault: no fault %q", name)
	}
	return Faults[i], nil
}

// Touches reports whether the fault can affect any server or process that the strategy uses.
func (f Fault) Touches(s lock.Strategy) bool {
	return f.HitsAny(s.Needs) && s.Expected(f.Name) != catalog.NA
}

// HitsAny reports whether the fault affects one of these kinds of servers, or something that every
// strategy uses, such as the process.
func (f Fault) HitsAny(backends lock.Backend) bool { return f.Hits == 0 || f.Hits&backends != 0 }

// Reaches reports whether the fault can be injected at this point.
func (f Fault) Reaches(p Point) bool { return f.Reach == nil || f.Reach.Meets(p) }

// Refused explains why the fault is impossible on this kind of stack, or with this topology of Redis.
// It returns "" if the fault is possible.
func (f Fault) Refused(kind string, topology catalog.Topology) string {
	switch {
	case !f.Name.OnTopology(topology):
		return fmt.Sprintf("%s needs another topology of Redis: use -stack local -redis-topology %s", f.Name, f.Name.Entry().Topologies[0])
	case kind == stack.External && f.On != Anywhere:
		return fmt.Sprintf("%s stops or changes servers, and the program does not control those of an external stack: use -stack local", f.Name)
	case kind == stack.Embedded && f.On == RealServers:
		return fmt.Sprintf("%s needs servers with their own processes, and the embedded stack has none: use -stack local", f.Name)
	default:
		return ""
	}
}

// locks lists the servers that store locks.
const locks = lock.Redis | lock.RedisQuorum | lock.SQLLocks | lock.ZooKeeper | lock.Etcd

// ready returns a Prepare function for a fault that needs no preparation.
func ready(strikes func(Target) []Strike) func(context.Context, Target) (Prepared, error) {
	return func(_ context.Context, t Target) (Prepared, error) { return Prepared{Strikes: strikes(t)}, nil }
}

// servers returns the names of the servers that store the strategy's locks.
func (t Target) servers() []string {
	var names []string
	for _, name := range t.Stack.Servers() {
		kind, _, _ := strings.Cut(name, "-")
		if t.Strategy.Needs&backends[kind] != 0 {
			names = append(names, name)
		}
	}
	return names
}

// backends maps the name of each server to its kind. The database is missing, because it has faults
// of its own.
var backends = map[string]lock.Backend{
	"redis":     lock.Redis,
	"redlock":   lock.RedisQuorum, // the nodes are named redlock-1, redlock-2 and so on
	"zookeeper": lock.ZooKeeper,
	"etcd":      lock.Etcd,
}

// minority returns the single Redis server, or as many nodes as a Redlock can lose. It includes the
// first node, because the redlock-miswired strategy counts that node twice.
func (t Target) minority() []string {
	nodes := t.servers()
	if len(nodes) < 3 {
		return nodes
	}
	return append(nodes[:1:1], nodes[len(nodes)-(len(nodes)-1)/2+1:]...)
}

// majority returns one node more than a Redlock can lose.
func (t Target) majority() []string {
	nodes := t.servers()
	return append(nodes[:1:1], nodes[len(nodes)-len(nodes)/2:]...)
}

// beyondBare returns the nodes that a Redlock does not need for a majority.
func (t Target) beyondBare() []string {
	nodes := t.servers()
	return nodes[len(nodes)/2+1:]
}

// routes opens proxies to these servers. The proxies of the first instance come first.
func (t Target) routes(servers []string, instances ...Instance) (stack.Routes, error) {
	var routes stack.Routes
	for _, from := range instances {
		for _, server := range servers {
			r, err := t.Stack.Route(from.Name(), server)
			if err != nil {
				routes.Close()
				return nil, err
			}
			routes = append(routes, r)
		}
	}
	return routes, nil
}

// onRoutes prepares a fault of the connections between the affected drivers and some servers.
func (t Target) onRoutes(servers []string, strikes func(stack.Routes) []Strike) (Prepared, error) {
	routes, err := t.routes(servers, t.Affected)
	if err != nil {
		return Prepared{}, err
	}
	return Prepared{Affected: routes.Detours(), Strikes: strikes(routes), Close: closing(routes)}, nil
}

func closing(routes stack.Routes) func(context.Context) error {
	return func(context.Context) error { routes.Close(); return nil }
}

// onEach returns a step that injects a fault into each of the routes.
func onEach(routes stack.Routes, strike func(*stack.Route) (stack.Heal, error)) Step {
	return func(context.Context, time.Duration) (stack.Heal, error) { return routes.Each(strike) }
}

// leases returns the duration of n leases.
func leases(n float64, lease time.Duration) time.Duration {
	return time.Duration(n * float64(lease))
}
