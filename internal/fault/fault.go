// Package fault holds what can go wrong underneath a lock: one file and one
// table line each. A fault strikes at an exact point of a grab, between two
// steps that holds keep apart, and returns what heals it.
package fault

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"grablab/internal/control"
	"grablab/internal/grab/lock"
	"grablab/internal/stack"
	"grablab/internal/tap"
)

// Fault is one entry of the table.
//
// It strikes a scene. One driver of each of a few orders, its victim, grabs at
// the instance that is struck, and is held where Aim says. Then the fault strikes,
// and the order's other drivers, the rivals, come. Once a rival has claimed, or
// has had the Patience to, the victims go on as Course says.
type Fault struct {
	Name  lock.Fault
	About string // one line
	// Hits is what it strikes of a strategy; 0: the instance or the database,
	// which are everybody's.
	Hits lock.Backend
	Aim  control.Point
	// Pass: the victims are not held at Aim, but only known to have come by.
	Pass   bool
	Course Course
	// TTL of the leases under it, unless the user says otherwise.
	TTL time.Duration
	// Patience is how long rivals get to claim, in leases. A fault that loses a
	// lock leaves them less than one: else they would win by its expiry.
	Patience float64
	// HoldRivals: the rivals wait before their claim until the victims have
	// claimed, as they do under a fence that is compared at the write alone.
	HoldRivals bool
	On         Ground

	// Prepare readies a scene before its instances start. What it has opened it
	// closes in Stage.Close, and by itself if it fails.
	Prepare func(context.Context, Target) (Stage, error)
}

// Course says when the victims go on.
type Course int

// The courses.
const (
	AfterHeal  Course = iota // once the fault is healed
	BeforeHeal               // while it lasts; it is healed once their releases are under way
	AtOnce                   // with the strike
	Never                    // not while anybody looks
	Killed                   // they are no more
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
	Stack    *stack.Stack
	Strategy lock.Strategy
	Victim   Instance // where the victims grab
	Rival    Instance
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

// Stage is a scene that is ready.
type Stage struct {
	Victim, Rival []stack.Detour // by which the instances reach the servers
	Acts          []Act          // each strikes a share of the orders
	Close         func(context.Context) error
}

// Act is one strike. Both steps may be nil, and their heals, too.
type Act struct {
	About  string
	Before Step // the victims grab
	Strike Step // they stand at the fault's point
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
}

// Find looks a fault up by name.
func Find(name lock.Fault) (Fault, error) {
	i := slices.IndexFunc(Faults, func(f Fault) bool { return f.Name == name })
	if i < 0 {
		return Fault{}, fmt.Errorf("fault: no fault %q", name)
	}
	return Faults[i], nil
}

// Touches says whether the fault strikes anything that the strategy uses.
func (f Fault) Touches(s lock.Strategy) bool {
	return (f.Hits == 0 || f.Hits&s.Needs != 0) && s.Expected(f.Name) != lock.NA
}

// AimAt is where the fault strikes the strategy.
func (f Fault) AimAt(s lock.Strategy) control.Point {
	if p, ok := s.Aims[f.Name]; ok {
		return control.Point{Phase: tap.Phase(p.Phase), N: p.Call, After: p.After}
	}
	return f.Aim
}

// Refused says in one sentence why the fault cannot strike that kind of stack;
// "": it can.
func (f Fault) Refused(kind string) string {
	switch {
	case kind == stack.External && f.On != Anywhere:
		return fmt.Sprintf("%s strikes servers, and those of the external stack are somebody else's; use -stack local", f.Name)
	case kind == stack.Embedded && f.On == RealServers:
		return fmt.Sprintf("%s needs servers that are processes, and the embedded stack is in this one; use -stack local", f.Name)
	default:
		return ""
	}
}

// Points that faults strike at.
var (
	// afterRead: the victim has seen that the order is open, and has its work before it.
	afterRead = control.Point{Phase: tap.Read, After: true}
	// beforeClaim lies behind the victim's last look at its lease.
	beforeClaim = control.Point{Phase: tap.Claim, N: 1}
	// beforeAcquire: the victim has asked for nothing yet.
	beforeAcquire = control.Point{Phase: tap.Acquire, N: 1}
)

// locks is everything that a lock is kept in outside of the instances.
const locks = lock.Redis | lock.RedisQuorum | lock.SQLLocks | lock.ZooKeeper | lock.Etcd

// staged is for faults that need nothing but their acts.
func staged(acts func(Target) []Act) func(context.Context, Target) (Stage, error) {
	return func(_ context.Context, t Target) (Stage, error) { return Stage{Acts: acts(t)}, nil }
}

// servers are those of the stack that the strategy keeps its locks in.
func (t Target) servers() []string {
	var names []string
	for _, name := range t.Stack.Servers() {
		if t.Strategy.Needs&backendOf(name) != 0 {
			names = append(names, name)
		}
	}
	return names
}

func backendOf(server string) lock.Backend {
	switch {
	case server == "redis":
		return lock.Redis
	case strings.HasPrefix(server, "redlock-"):
		return lock.RedisQuorum
	case server == "zookeeper":
		return lock.ZooKeeper
	case server == "etcd":
		return lock.Etcd
	default:
		return 0 // the database, which is struck by faults of its own
	}
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

// routes from an instance to some servers.
func (t Target) routes(from Instance, servers []string) (stack.Routes, error) {
	var way stack.Routes
	for _, server := range servers {
		r, err := t.Stack.Route(from.Name(), server)
		if err != nil {
			return nil, errors.Join(err, way.Close())
		}
		way = append(way, r)
	}
	return way, nil
}

// onTheWay is the stage of a fault that befalls the way of the victims to some servers.
func (t Target) onTheWay(servers []string, acts func(stack.Routes) []Act) (Stage, error) {
	way, err := t.routes(t.Victim, servers)
	if err != nil {
		return Stage{}, err
	}
	return Stage{Victim: way.Detours(), Acts: acts(way), Close: closing(way)}, nil
}

func closing(way stack.Routes) func(context.Context) error {
	return func(context.Context) error { return way.Close() }
}

// befall is a step that strikes all of the way.
func befall(way stack.Routes, strike func(*stack.Route) (stack.Heal, error)) Step {
	return func(context.Context, time.Duration) (stack.Heal, error) { return way.Each(strike) }
}

// leases is a number of them.
func leases(n float64, lease time.Duration) time.Duration {
	return time.Duration(n * float64(lease))
}
