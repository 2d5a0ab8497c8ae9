// Package fault defines the faults that a test can inject into a lock on real servers. Start
// reading at the table Faults.
//
// A grab is a request in which a driver tries to win an order. A fault is injected while a grab is
// stopped at an exact point. Package experiment sends the grabs and judges the result. Failure mode
// numbers, such as F17, refer to docs/failure-modes.md.
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

// A Fault is a failure that a test can inject while drivers compete for an order.
//
// For each order, one driver, the affected driver, sends a request to the instance that the fault
// hits. When the request stops at a chosen point, the fault is injected. Then other drivers, the
// contenders, try to win the order. Course determines when the affected driver continues.
type Fault struct {
	Name catalog.Fault
	// Hits lists the kinds of lock servers that the fault affects. It is 0 if the fault hits an
	// instance or the database instead.
	Hits lock.Backend
	// Reach limits the points at which the fault can be injected. If it is nil, all points are
	// possible.
	Reach  *Reach
	Course Course
	// TTL is the default TTL under this fault. The user can choose another one. 0 means one second.
	TTL time.Duration
	// ContendFor limits how long the contenders may compete, as a multiple of the TTL. For a fault
	// that removes a lock, it is below 1, so that an expired lease cannot explain their success.
	ContendFor float64
	// Lasts means that the fault stays active until the time in ContendFor has passed.
	Lasts bool
	// HoldContenders means that the contenders must not write before the affected driver has
	// written.
	HoldContenders bool
	// RepliesBy is the longest delay of a reply to a user's service, in leases. The delay lasts this
	// long only if no other driver gets past the lock before.
	RepliesBy float64
	// RepliesAfter is the time, in leases, after which the first delayed reply arrives. It is 0 if the
	// fault delays no replies.
	RepliesAfter float64
	On           Ground
	Severs       bool // whether both instances lose their connections and need time to reconnect
	Once         bool // whether the fault must be prepared again before it can be injected again
	Freezes      bool // whether the affected process stands still until the fault ends, although servers answer it
	LocksLedger  bool // whether the fault blocks writes to the ledger's table
	// NotForeign explains why the fault cannot be injected into a user's service. It is empty if it
	// can.
	NotForeign string

	// Prepare prepares the servers for the fault before the instances start, and Prepared.Close
	// undoes that. If Prepare fails, there is nothing to undo.
	Prepare func(context.Context, Target) (Prepared, error)
}

// Course determines when the affected drivers, whom the fault hits, continue.
type Course int

// These are the possible courses. The default is AfterHeal.
const (
	AfterHeal  Course = iota // the drivers continue once the fault is healed
	BeforeHeal               // the drivers continue during the fault; it ends once they are releasing their locks
	InOutage                 // the drivers continue during the fault; it ends once they have written. Only package experiment sets it
	AtOnce                   // the drivers continue when the fault is injected
	Never                    // the drivers stay stopped until the test has judged the result
	Killed                   // the drivers do not continue, because their process was killed
	// Released is for a fault that needs no healing. When the leases expire, an affected driver tries
	// again. After the affected drivers have released their locks, another driver tries too.
	Released
	HungUp // the drivers continue, but their clients have disconnected
)

// Ground says which kind of servers a fault needs.
type Ground int

// These are the kinds of servers that a fault may need.
const (
	Anywhere    Ground = iota
	OwnServers         // only servers that this program has started
	RealServers        // only servers that run as separate processes
)

// A Target is a fault's view of the test: what it must know, and which parts it may change.
type Target struct {
	Stack     *stack.Stack
	Strategy  lock.Strategy
	Affected  Instance // the instance that the affected drivers use
	Contender Instance
	// Wire means that proxies between an instance and its servers hold back the calls at a point. Such
	// proxies can also drop the reply to a single call.
	Wire bool
	// Keys returns the lock keys that the fault should affect.
	Keys func() []string
	// Ledger is the name of the winners table.
	Ledger string
}

// An Instance is a service instance under test. It has a name even before it starts.
type Instance interface {
	Name() string
	Signal(syscall.Signal) error
	// Restart starts the instance again after it has died.
	Restart(context.Context) error
	// SetClock sets the instance's wall clock ahead by the given time. Only locking strategies read
	// this clock.
	SetClock(ctx context.Context, ahead time.Duration) error
}

// Prepared is a fault that is ready to be injected into the servers or an instance.
type Prepared struct {
	Affected, Contender []stack.Detour // proxies through which the instances reach the servers
	Strikes             []Strike       // the ways to inject the fault; each order uses one of them
	Loses               bool           // whether the stopped calls lose their replies
	Close               func(context.Context) error
}

// A Strike is one way to inject a fault. A step, or the function that undoes it, may be nil.
type Strike struct {
	Before Step // runs before the affected drivers send their requests
	Do     Step // runs while the affected drivers are stopped
}

// A Step changes the servers or an instance, and returns a function that undoes the change. If it
// fails, it may still return this function, because it may have changed some of the servers.
type Step func(ctx context.Context, lease time.Duration) (stack.Heal, error)

func stepWithoutHeal(do func(context.Context) error) Step {
	return func(ctx context.Context, _ time.Duration) (stack.Heal, error) { return nil, do(ctx) }
}

// Faults lists all faults in the order of the tables in reports.
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

// Find returns the fault with this name.
func Find(name catalog.Fault) (Fault, error) {
	i := slices.IndexFunc(Faults, func(f Fault) bool { return f.Name == name })
	if i < 0 {
		return Fault{}, fmt.Errorf("fault: no fault %q", name)
	}
	return Faults[i], nil
}

// Touches reports whether the fault can affect anything that the strategy uses.
func (f Fault) Touches(s lock.Strategy) bool {
	return f.HitsAny(s.Needs) && s.Expected(f.Name) != catalog.NA
}

// HitsAny reports whether the fault affects one of these kinds of servers. For faults that hit an
// instance or the database, it is always true.
func (f Fault) HitsAny(backends lock.Backend) bool { return f.Hits == 0 || f.Hits&backends != 0 }

// Reaches reports whether the fault can be injected at this point of a request.
func (f Fault) Reaches(p Point) bool { return f.Reach == nil || f.Reach.Meets(p) }

// Refused explains why the fault is impossible with these servers, or returns "" if it is possible.
func (f Fault) Refused(kind string, topology catalog.Topology) string {
	switch {
	case !f.Name.OnTopology(topology):
		return fmt.Sprintf("%s needs another Redis topology: use -stack local -redis-topology %s", f.Name, f.Name.Entry().Topologies[0])
	case kind == stack.External && f.On != Anywhere:
		return fmt.Sprintf("%s stops or changes servers, but loadgen does not control an external stack's servers: use -stack local", f.Name)
	case kind == stack.Embedded && f.On == RealServers:
		return fmt.Sprintf("%s needs real server processes, but the embedded stack has none: use -stack local", f.Name)
	default:
		return ""
	}
}

const locks = lock.Redis | lock.RedisQuorum | lock.SQLLocks | lock.ZooKeeper | lock.Etcd

// EndsBeforeLease reports whether the fault keeps a driver stopped, but must end before the driver's lease does. This
// includes crash, which is also injected into the other instance while the driver is stopped.
func (f Fault) EndsBeforeLease() bool {
	return f.Course == Killed || (f.Course == AfterHeal || f.Course == BeforeHeal) && f.ContendFor < 1
}

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

// backends contains the kind of each lock server. The database is missing here, because it has its
// own faults.
var backends = map[string]lock.Backend{
	"redis":     lock.Redis,
	"redlock":   lock.RedisQuorum, // the nodes are named redlock-1, redlock-2 and so on
	"zookeeper": lock.ZooKeeper,
	"etcd":      lock.Etcd,
}

// minority returns the single Redis server, or as many Redlock nodes as may fail without losing the
// majority. It includes the first node, because redlock-miswired counts that node twice.
func (t Target) minority() []string {
	nodes := t.servers()
	if len(nodes) < 3 {
		return nodes
	}
	return append(nodes[:1:1], nodes[len(nodes)-(len(nodes)-1)/2+1:]...)
}

func (t Target) majority() []string {
	nodes := t.servers()
	return append(nodes[:1:1], nodes[len(nodes)-len(nodes)/2:]...)
}

// beyondBare returns the Redlock nodes outside the smallest possible majority.
func (t Target) beyondBare() []string {
	nodes := t.servers()
	return nodes[len(nodes)/2+1:]
}

// routes opens proxies between instances and servers. The proxies of the first instance come first.
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

// onRoutes prepares a fault on the connections between the affected drivers and these servers.
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

func onEach(routes stack.Routes, strike func(*stack.Route) (stack.Heal, error)) Step {
	return func(context.Context, time.Duration) (stack.Heal, error) { return routes.Each(strike) }
}

// onServers returns a step that changes each server with do. If this fails for one server, it undoes
// the changes to the others.
func onServers(servers []string, do func(ctx context.Context, server string, lease time.Duration) (stack.Heal, error)) Step {
	return func(ctx context.Context, lease time.Duration) (stack.Heal, error) {
		return stack.Each(servers, func(server string) (stack.Heal, error) { return do(ctx, server, lease) })
	}
}

func leases(n float64, lease time.Duration) time.Duration {
	return time.Duration(n * float64(lease))
}
