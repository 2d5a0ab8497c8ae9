// Package fault defines the faults that can be injected into a lock on real servers. The table
// Faults lists them. A fault is injected while a grab is held at an exact point, and returns the
// function that heals it. Package experiment starts the instances, sends and holds the grabs, and
// judges the result.
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
// For each of a few orders, one driver (the faulted driver) sends a grab to the faulted instance.
// This grab is held at a point that differs between orders. Then the fault is injected, and the
// other drivers of the order (the contenders) arrive. Once a contender has claimed, or ContendFor
// is over, the faulted drivers continue as Course says.
type Fault struct {
	Name catalog.Fault
	// Hits names the backends that the fault affects. 0 means the instance or the database, which
	// every strategy uses.
	Hits lock.Backend
	// Reach says at which points of a grab the fault can be injected. If it is nil, all points are
	// possible.
	Reach  *Reach
	Course Course
	// TTL is the TTL of the leases, unless the user chooses another.
	TTL time.Duration
	// ContendFor is how many leases the contenders have in which to claim. It is less than one for
	// a fault that loses a lock, because otherwise contenders could win through the expiry of that
	// lock.
	ContendFor float64
	// Lasts means that the fault is not healed before ContendFor is over, even if a contender has
	// claimed earlier.
	Lasts bool
	// HoldContenders means that the contenders are held before their claim until the faulted
	// drivers have claimed. Under the course Released, they are held until the third driver has
	// claimed. If a fence is compared only at the write, contenders are always held.
	HoldContenders bool
	On             Ground
	Severs         bool // both instances lose their connections and need a moment to reconnect
	Once           bool // the fault must be prepared again before it can be injected again
	// NotForeign says why the fault cannot be injected into a foreign service. It is empty if the
	// fault can be injected there.
	NotForeign string

	// Prepare prepares the fault before the instances start. Prepared.Close closes everything that
	// Prepare has opened. If Prepare fails, it leaves nothing open.
	Prepare func(context.Context, Target) (Prepared, error)
}

// Course says when the faulted drivers continue after the fault was injected.
type Course int

// The courses.
const (
	AfterHeal  Course = iota // once the fault is healed
	BeforeHeal               // while the fault lasts; the fault is healed once their releases are under way
	AtOnce                   // at the moment when the fault is injected
	Never                    // not before the cell has been judged
	Killed                   // not at all, because their process was killed
	// Released means that there is nothing to heal. A second driver arrives while the leases of the
	// faulted drivers expire. A third one arrives after their claims were refused and they have
	// released.
	Released
	HungUp // their clients have hung up
)

// Ground says on which stacks a fault can be injected.
type Ground int

// The grounds.
const (
	Anywhere    Ground = iota
	OwnServers         // servers that the stack has started
	RealServers        // servers of the stack that are processes
)

// A Target contains everything that a fault may affect.
type Target struct {
	Stack     *stack.Stack
	Strategy  lock.Strategy
	Faulted   Instance // where the faulted drivers grab
	Contender Instance
	// Wire means that the calls of the faulted drivers are held in proxies, where each reply can be
	// lost separately.
	Wire bool
	// Keys returns the keys of the locks that the fault affects. The first master of a Cluster has
	// the slots of these keys. Other keys of the same lock are in the same slot.
	Keys func() []string
	// Ledger is the table to which a claim is written.
	Ledger string
}

// An Instance is one of the two instances under test. Its name is known before it runs.
type Instance interface {
	Name() string
	Signal(syscall.Signal) error
	// Restart starts the instance again once it has died.
	Restart(context.Context) error
	// SetClock sets the wall clock that the strategies of the instance see. The clock then runs
	// ahead by the given time.
	SetClock(ctx context.Context, ahead time.Duration) error
}

// A Prepared fault is ready to be injected.
type Prepared struct {
	Faulted, Contender []stack.Detour // proxies through which the instances reach the servers
	Strikes            []Strike       // each is used for a share of the orders
	Loses              bool           // whether the calls that are held at the points lose their replies
	Close              func(context.Context) error
}

// A Strike is one way to inject a fault. Both steps may be nil, and so may the functions that heal
// them.
type Strike struct {
	Before Step // runs before the faulted drivers grab
	Do     Step // runs while the faulted drivers are held at their points
}

// A Step does something to the target and returns the function that undoes it. lease is the
// lifetime of a lease.
type Step func(ctx context.Context, lease time.Duration) (stack.Heal, error)

// stepWithoutHeal returns a step that has nothing to heal, or whose effect cannot be healed.
func stepWithoutHeal(do func(context.Context) error) Step {
	return func(ctx context.Context, _ time.Duration) (stack.Heal, error) { return nil, do(ctx) }
}

// Faults lists all faults, in the order of lock.Faults.
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

// HitsAny reports whether the fault affects one of these backends, or something that every strategy
// uses.
func (f Fault) HitsAny(backends lock.Backend) bool { return f.Hits == 0 || f.Hits&backends != 0 }

// Reaches reports whether the fault can be injected at the given point.
func (f Fault) Reaches(p Point) bool { return f.Reach == nil || f.Reach.Meets(p) }

// Refused says in one sentence why the fault cannot be injected on this kind of stack, or with a
// Redis of this topology. It returns "" if the fault can be injected.
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

// locks is the set of backends that store locks outside of the instances.
const locks = lock.Redis | lock.RedisQuorum | lock.SQLLocks | lock.ZooKeeper | lock.Etcd

// ready returns a Prepare function for faults that need no preparation and consist only of their
// strikes.
func ready(strikes func(Target) []Strike) func(context.Context, Target) (Prepared, error) {
	return func(_ context.Context, t Target) (Prepared, error) { return Prepared{Strikes: strikes(t)}, nil }
}

// servers returns the servers of the stack in which the strategy keeps its locks.
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

// backends maps the kinds of servers to backends. The database is missing, because it has
// its own faults.
var backends = map[string]lock.Backend{
	"redis":     lock.Redis,
	"redlock":   lock.RedisQuorum, // redlock-1 and so on
	"zookeeper": lock.ZooKeeper,
	"etcd":      lock.Etcd,
}

// minority returns the one Redis or, with Redlock, as many nodes as Redlock can lose. These always
// include the first node, because redlock-miswired counts it twice.
func (t Target) minority() []string {
	nodes := t.servers()
	if len(nodes) < 3 {
		return nodes
	}
	return append(nodes[:1:1], nodes[len(nodes)-(len(nodes)-1)/2+1:]...)
}

// majority returns one node more than minority, which is too many for Redlock to lose.
func (t Target) majority() []string {
	nodes := t.servers()
	return append(nodes[:1:1], nodes[len(nodes)-len(nodes)/2:]...)
}

// beyondBare returns all nodes except the first ones, which form a bare majority.
func (t Target) beyondBare() []string {
	nodes := t.servers()
	return nodes[len(nodes)/2+1:]
}

// routes opens routes from an instance to the named servers.
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

// onRoutes prepares a fault that affects the routes from the faulted drivers to some servers.
func (t Target) onRoutes(servers []string, strikes func(stack.Routes) []Strike) (Prepared, error) {
	routes, err := t.routes(t.Faulted, servers)
	if err != nil {
		return Prepared{}, err
	}
	return Prepared{Faulted: routes.Detours(), Strikes: strikes(routes), Close: closing(routes)}, nil
}

func closing(routes stack.Routes) func(context.Context) error {
	return func(context.Context) error { routes.Close(); return nil }
}

// onEach returns a step that injects the same fault into every route.
func onEach(routes stack.Routes, strike func(*stack.Route) (stack.Heal, error)) Step {
	return func(context.Context, time.Duration) (stack.Heal, error) { return routes.Each(strike) }
}

// leases returns the length of n leases.
func leases(n float64, lease time.Duration) time.Duration {
	return time.Duration(n * float64(lease))
}
