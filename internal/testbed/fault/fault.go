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
// other drivers of the order (the contenders) arrive. Once a contender has claimed, or ContendFor
// is over, the affected drivers continue as Course says.
type Fault struct {
	Name catalog.Fault
	// Hits lists the servers that the fault affects. 0 means an instance or the database.
	Hits lock.Backend
	// Reach says at which points of a grab the fault can be injected. Nil means all points.
	Reach  *Reach
	Course Course
	// TTL is the length of the leases, if the user has not chosen another.
	TTL time.Duration
	// ContendFor limits how long the other drivers may compete, in lease times. It is below 1 if
	// the fault makes a lock disappear, so that they do not win just because the lease expires.
	ContendFor float64
	// Lasts means that the fault continues until ContendFor has passed.
	Lasts bool
	// HoldContenders stops the other drivers before they write, until the affected driver has
	// written.
	HoldContenders bool
	On             Ground
	Severs         bool // both instances lose their connections and need a moment to reconnect
	Once           bool // the fault must be prepared again before it can be injected again
	// NotForeign explains why the fault cannot be injected into the user's service. It is empty if
	// it can.
	NotForeign string

	// Prepare sets up what the fault needs before the instances start, and Prepared.Close removes
	// it. If Prepare fails, nothing is left.
	Prepare func(context.Context, Target) (Prepared, error)
}

// Course says when the affected drivers continue.
type Course int

// The courses.
const (
	AfterHeal  Course = iota // once the fault is healed
	BeforeHeal               // while the fault lasts; the fault is healed once their releases are under way
	AtOnce                   // at the moment when the fault is injected
	Never                    // not before the cell has been judged
	Killed                   // not at all, because their process was killed
	// Released means that the fault needs no healing. A second driver arrives when the leases
	// expire, and a third one after the affected drivers have released their locks.
	Released
	HungUp // their clients have hung up
)

// Ground tells on which stacks a fault is possible.
type Ground int

// The grounds.
const (
	Anywhere    Ground = iota
	OwnServers         // servers that the stack has started
	RealServers        // servers of the stack that are processes
)

// A Target contains everything that a fault can affect.
type Target struct {
	Stack     *stack.Stack
	Strategy  lock.Strategy
	Affected  Instance // where the affected drivers grab
	Contender Instance
	// Wire means that calls are stopped in proxies, which can also lose single replies.
	Wire bool
	// Keys returns the keys of the locks that the fault affects.
	Keys func() []string
	// Ledger is the table with the claims.
	Ledger string
}

// An Instance is one of the two tested instances. Its name is known before it starts.
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
	Strikes             []Strike       // each is used for a share of the orders
	Loses               bool           // whether the calls that are held at the points lose their replies
	Close               func(context.Context) error
}

// A Strike is one way to inject a fault. Steps and the functions that undo them may be nil.
type Strike struct {
	Before Step // runs before the affected drivers grab
	Do     Step // runs while the affected drivers are held at their points
}

// A Step does something to the target, and returns a function that undoes this. lease is the length
// of a lease.
type Step func(ctx context.Context, lease time.Duration) (stack.Heal, error)

// stepWithoutHeal returns a step that cannot or need not be undone.
func stepWithoutHeal(do func(context.Context) error) Step {
	return func(ctx context.Context, _ time.Duration) (stack.Heal, error) { return nil, do(ctx) }
}

// Faults lists all faults in the order of lock.Faults.
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

// Touches reports whether the fault affects anything that the strategy uses.
func (f Fault) Touches(s lock.Strategy) bool {
	return f.HitsAny(s.Needs) && s.Expected(f.Name) != catalog.NA
}

// HitsAny reports whether the fault affects one of these servers, or something that every strategy
// uses.
func (f Fault) HitsAny(backends lock.Backend) bool { return f.Hits == 0 || f.Hits&backends != 0 }

// Reaches reports whether the fault can be injected at this point.
func (f Fault) Reaches(p Point) bool { return f.Reach == nil || f.Reach.Meets(p) }

// Refused explains why the fault is impossible on this kind of stack or with this topology of
// Redis. It returns "" if it is possible.
func (f Fault) Refused(kind string, topology catalog.Topology) string {
	switch {
	case !f.Name.OnTopology(topology):
		return fmt.Sprintf("%s strikes another kind of Redis; use -stack local -redis-topology %s", f.Name, f.Name.Entry().Topologies[0])
	case kind == stack.External && f.On != Anywhere:
		return fmt.Sprintf("%s strikes servers, and those of the external stack are run by others; use -stack local", f.Name)
	case kind == stack.Embedded && f.On == RealServers:
		return fmt.Sprintf("%s needs servers that are processes, and the embedded stack is in this one; use -stack local", f.Name)
	default:
		return ""
	}
}

// locks lists the servers that store locks.
const locks = lock.Redis | lock.RedisQuorum | lock.SQLLocks | lock.ZooKeeper | lock.Etcd

// ready returns a Prepare function for faults that need no preparation.
func ready(strikes func(Target) []Strike) func(context.Context, Target) (Prepared, error) {
	return func(_ context.Context, t Target) (Prepared, error) { return Prepared{Strikes: strikes(t)}, nil }
}

// servers returns the servers with the locks of the strategy.
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

// backends maps the name of each server to its kind. The database is not included, because it has
// its own faults.
var backends = map[string]lock.Backend{
	"redis":     lock.Redis,
	"redlock":   lock.RedisQuorum, // redlock-1 and so on
	"zookeeper": lock.ZooKeeper,
	"etcd":      lock.Etcd,
}

// minority returns Redis, or as many nodes as Redlock can lose. It includes the first node, because
// redlock-miswired counts this node twice.
func (t Target) minority() []string {
	nodes := t.servers()
	if len(nodes) < 3 {
		return nodes
	}
	return append(nodes[:1:1], nodes[len(nodes)-(len(nodes)-1)/2+1:]...)
}

// majority returns one node more than Redlock can lose.
func (t Target) majority() []string {
	nodes := t.servers()
	return append(nodes[:1:1], nodes[len(nodes)-len(nodes)/2:]...)
}

// beyondBare returns the nodes that a majority can do without.
func (t Target) beyondBare() []string {
	nodes := t.servers()
	return nodes[len(nodes)/2+1:]
}

// routes opens proxies from an instance to these servers.
func (t Target) routes(from Instance, servers []string) (stack.Routes, error) {
	var routes stack.Routes
	for _, server := range servers {
		r, err := t.Stack.Route(from.Name(), server)
		if err != nil {
			routes.Close()
			return nil, err
		}
		routes = append(routes, r)
	}
	return routes, nil
}

// onRoutes prepares a fault between the affected drivers and some servers.
func (t Target) onRoutes(servers []string, strikes func(stack.Routes) []Strike) (Prepared, error) {
	routes, err := t.routes(t.Affected, servers)
	if err != nil {
		return Prepared{}, err
	}
	return Prepared{Affected: routes.Detours(), Strikes: strikes(routes), Close: closing(routes)}, nil
}

func closing(routes stack.Routes) func(context.Context) error {
	return func(context.Context) error { routes.Close(); return nil }
}

// onEach returns a step that injects a fault into every route.
func onEach(routes stack.Routes, strike func(*stack.Route) (stack.Heal, error)) Step {
	return func(context.Context, time.Duration) (stack.Heal, error) { return routes.Each(strike) }
}

// leases returns n times the length of a lease.
func leases(n float64, lease time.Duration) time.Duration {
	return time.Duration(n * float64(lease))
}
