// Package fault holds what can go wrong underneath a lock on real servers; Faults
// is the table. A fault strikes at an exact point of a grab, where the grab is
// held meanwhile, and returns what heals it. The caller, package experiment,
// starts the instances, sends and holds the grabs, and judges what comes of it.
package fault

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/testbed/proc"
	"grablab/internal/testbed/stack"
)

// Fault is one entry of the table.
//
// Of each of a few orders one driver, the faulted driver, grabs at the instance
// that is struck, and is held at a point, on each order at another. Then the fault
// strikes, and the order's other drivers, the contenders, come. Once a contender
// has claimed, or has had the time to (ContendFor), the faulted drivers go on as Course says.
type Fault struct {
	Name catalog.Fault
	// Hits is what it strikes of a strategy; 0: the instance or the database,
	// which every strategy uses.
	Hits lock.Backend
	// Reach says at which points of a grab it can strike; nil: at every one.
	Reach  *Reach
	Course Course
	// TTL of the leases under it, unless the user says otherwise.
	TTL time.Duration
	// ContendFor is how long contenders get to claim, in leases. A fault that loses a
	// lock leaves them less than one: else they would win by its expiry.
	ContendFor float64
	// Lasts: it is healed once the contenders have had that time, and not before.
	Lasts bool
	// HoldContenders: the contenders are held before their claim until the faulted
	// drivers have claimed or, under the course Released, the third driver has. Under
	// a fence that is compared at the write alone they always are.
	HoldContenders bool
	On             Ground
	Severs         bool // the connections of both instances are lost by it, and take a moment to be made anew
	Once           bool // it can strike no more before it is prepared again
	// NotForeign says why the fault cannot strike a service that is not ours. It is empty if the
	// fault can.
	NotForeign string

	// Prepare prepares the fault before the instances start. Prepared.Close closes
	// what it has opened; if it fails, it has closed that itself.
	Prepare func(context.Context, Target) (Prepared, error)
}

// Course says when the faulted drivers go on.
type Course int

// The courses.
const (
	AfterHeal  Course = iota // once the fault is healed
	BeforeHeal               // while it lasts; it is healed once their releases are under way
	AtOnce                   // with the strike
	Never                    // not before the cell has been judged
	Killed                   // their process is gone
	// Released: there is nothing to heal. A second driver comes while their leases
	// run out, and a third one when they, whose claims are refused, have released.
	Released
	HungUp // their clients have hung up
)

// Ground says which stacks a fault can strike.
type Ground int

// The grounds.
const (
	Anywhere    Ground = iota
	OwnServers         // servers that the stack has started
	RealServers        // those of them that are processes
)

// Target is what a fault strikes.
type Target struct {
	Stack     *stack.Stack
	Strategy  lock.Strategy
	Faulted   Instance // where the faulted drivers grab
	Contender Instance
	// Wire: the faulted drivers' calls are held on the wire, where replies can be lost one
	// by one.
	Wire bool
	// Ledger is the table to which a claim is written.
	Ledger string
}

// Instance is one of the two under test. Both have their names before they run.
type Instance interface {
	Name() string
	Signal(syscall.Signal) error
	// Restart starts the instance again once it has died.
	Restart(context.Context) error
	// SetClock has its strategies see a wall clock that is ahead.
	SetClock(ctx context.Context, ahead time.Duration) error
}

// Prepared is a fault that is ready to strike.
type Prepared struct {
	Faulted, Contender []stack.Detour // by which the instances reach the servers
	Strikes            []Strike       // each is for a share of the orders
	Loses              bool           // the calls that are held at the points lose their replies
	Close              func(context.Context) error
}

// Strike is one way in which a fault strikes. Both steps may be nil, and so may
// what undoes them.
type Strike struct {
	Before Step // the faulted drivers grab
	Do     Step // the faulted drivers are held at their points
}

// Step does something to the target, and returns what undoes it. lease is for
// how long one lives.
type Step func(ctx context.Context, lease time.Duration) (stack.Heal, error)

// Faults is the table, in the order of lock.Faults.
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
}

// Find looks a fault up by name.
func Find(name catalog.Fault) (Fault, error) {
	i := slices.IndexFunc(Faults, func(f Fault) bool { return f.Name == name })
	if i < 0 {
		return Fault{}, fmt.Errorf("fault: no fault %q", name)
	}
	return Faults[i], nil
}

// Touches says whether the fault strikes anything that the strategy uses.
func (f Fault) Touches(s lock.Strategy) bool {
	return (f.Hits == 0 || f.Hits&s.Needs != 0) && s.Expected(f.Name) != catalog.NA
}

// Reaches says whether the fault can strike at a point.
func (f Fault) Reaches(p Point) bool { return f.Reach == nil || f.Reach.Meets(p) }

// Refused says in one sentence why the fault cannot strike that kind of stack on the
// operating system; "": it can.
func (f Fault) Refused(kind, goos string) string {
	switch {
	case f.Name.Entry().Process == catalog.ProcessStopped && !proc.CanStop(goos):
		return fmt.Sprintf("%s stops a process by a signal, and %s has none for that; run it on Linux or macOS, or see slow, which holds up the work of a process that lives", f.Name, goos)
	case kind == stack.External && f.On != Anywhere:
		return fmt.Sprintf("%s strikes servers, and those of the external stack are run by others; use -stack local", f.Name)
	case kind == stack.Embedded && f.On == RealServers:
		return fmt.Sprintf("%s needs servers that are processes, and the embedded stack is in this one; use -stack local", f.Name)
	default:
		return ""
	}
}

// locks is everything that a lock is kept in outside of the instances.
const locks = lock.Redis | lock.RedisQuorum | lock.SQLLocks | lock.ZooKeeper | lock.Etcd

// ready is the Prepare of faults that need nothing but their strikes.
func ready(strikes func(Target) []Strike) func(context.Context, Target) (Prepared, error) {
	return func(_ context.Context, t Target) (Prepared, error) { return Prepared{Strikes: strikes(t)}, nil }
}

// servers are those of the stack that the strategy keeps its locks in.
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

// backends are what the servers are to a strategy, by the names of their kinds.
// The database is missing: it is struck by faults of its own.
var backends = map[string]lock.Backend{
	"redis":     lock.Redis,
	"redlock":   lock.RedisQuorum, // redlock-1 and so on
	"zookeeper": lock.ZooKeeper,
	"etcd":      lock.Etcd,
}

// minority is the one Redis, or, of Redlock's nodes, as many as it can do
// without, the first among them: it is the one that redlock-miswired counts twice.
func (t Target) minority() []string {
	nodes := t.servers()
	if len(nodes) < 3 {
		return nodes
	}
	return append(nodes[:1:1], nodes[len(nodes)-(len(nodes)-1)/2+1:]...)
}

// majority is one node more than minority.
func (t Target) majority() []string {
	nodes := t.servers()
	return append(nodes[:1:1], nodes[len(nodes)-len(nodes)/2:]...)
}

// beyondBare are the nodes that a bare majority, the first of them, does without.
func (t Target) beyondBare() []string {
	nodes := t.servers()
	return nodes[len(nodes)/2+1:]
}

// routes from an instance to some servers.
func (t Target) routes(from Instance, servers []string) (stack.Routes, error) {
	var routes stack.Routes
	for _, server := range servers {
		r, err := t.Stack.Route(from.Name(), server)
		if err != nil {
			return nil, errors.Join(err, routes.Close())
		}
		routes = append(routes, r)
	}
	return routes, nil
}

// onRoutes prepares a fault that strikes the routes of the faulted drivers to
// some servers.
func (t Target) onRoutes(servers []string, strikes func(stack.Routes) []Strike) (Prepared, error) {
	routes, err := t.routes(t.Faulted, servers)
	if err != nil {
		return Prepared{}, err
	}
	return Prepared{Faulted: routes.Detours(), Strikes: strikes(routes), Close: closing(routes)}, nil
}

func closing(routes stack.Routes) func(context.Context) error {
	return func(context.Context) error { return routes.Close() }
}

// onEach is a step that strikes every route.
func onEach(routes stack.Routes, strike func(*stack.Route) (stack.Heal, error)) Step {
	return func(context.Context, time.Duration) (stack.Heal, error) { return routes.Each(strike) }
}

// leases is a number of them.
func leases(n float64, lease time.Duration) time.Duration {
	return time.Duration(n * float64(lease))
}
