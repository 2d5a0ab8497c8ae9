package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/explore/schedule"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/order"
)

// Setting contains the parameters that all schedules of a search share.
type Setting struct {
	Strategy lock.Strategy
	Guard    order.Guard // the condition under which the database accepts a claim
	OnLost   grab.OnLost
	Actors   []schedule.Actor
	TTL      time.Duration
	Work     time.Duration
	Wait     time.Duration
	Nodes    int    // the number of Redis nodes of a Redlock
	Stock    int    // the order's number of units; 0 means 1
	Mistake  string // a mistake that was found before New, such as one of the guard; usually empty
}

// Schedule returns an empty schedule with these parameters.
func (set Setting) Schedule() schedule.Schedule {
	return schedule.Schedule{
		Strategy: set.Strategy.Name, Guard: string(set.Guard), OnLost: string(set.OnLost), Actors: set.Actors,
		Nodes: set.nodeNames(), TTL: set.TTL, Work: set.Work, Wait: set.Wait,
		Stock: set.Stock,
	}
}

// locks reports whether the strategy's lock excludes other drivers.
func (set Setting) locks() bool { return set.Strategy.Excludes != catalog.NoExclusion }

// units returns the order's number of units: Stock, or 1 if Stock is not set.
func (set Setting) units() int { return max(set.Stock, 1) }

// Bubble runs f in a testing/synctest bubble, in which time is simulated. It returns after all
// goroutines in the bubble have ended.
type Bubble func(f func())

// Cluster contains the simulated servers and instances, and runs one schedule at a time.
type Cluster struct {
	Setting
	// TokenIsDriver means that the lock uses the driver ID as its token, so it cannot tell two
	// attempts of the same driver apart.
	TokenIsDriver bool

	bubble    Bubble
	nodes     []*node
	instances []*instance // the instance with number n is at index n-1
	prober    *instance   // an extra instance, which tries to grab the order at the end

	// New sets these fields by calling learn.
	renews       bool     // whether the lock renews its lease in the background
	notifiesLoss bool     // whether a holder is notified when it loses its lease
	showsToken   bool     // whether the server stores the token of a lease
	residue      []string // the keys that a released lease leaves behind
	mistake      string   // the first mistake that learn has found in the lock; "" if there is none

	// alsoCommutes is an extra rule for skipping schedules. Tests set it to a wrong rule, to check
	// that they notice the mistake.
	alsoCommutes func(last, next *call) bool
}

// counter is a number that a released lock leaves on the server, such as the last fencing token.
type counter struct {
	key  string
	ttl  time.Duration // 0 if it never expires
	last string        // the initial value, such as 98; a lock that compares numbers as text fails after 99
}

// instance is one simulated process of the service under test.
type instance struct {
	number  int
	clients lock.Env    // the lock server clients; its other fields are empty
	closers []io.Closer // all clients, to be closed at the end

	// Each schedule resets these fields.
	world     *world        // nil between two schedules
	processes atomic.Int64  // the number of processes started so far, in all executions
	stopped   atomic.Bool   // whether the process is paused, including all its actors and connections
	pausedAs  *actor        // the actor that the pause step named; nil if the process runs
	awake     chan struct{} // closed after the first step that follows a pause; nil if there was no pause
	service   *grab.Service
	sessions  []order.Tx      // its database sessions, which end when its process dies
	ahead     time.Duration   // how far its wall clock is ahead
	askedTime atomic.Bool     // whether it has read its wall clock
	tokens    int             // the number of tokens that it has created
	rivals    actorSet        // the actors in other processes that wait for the lock, as far as a renewal has reported them; see Promises.Turns
	cut       map[string]bool // the broken networks: [schedule.DB] or [schedule.Locks]
}

// Instances is the number of simulated service processes that drivers can use.
const Instances = 2

// nodeNames returns the names of the lock servers that the strategy needs.
func (set Setting) nodeNames() []string {
	var names []string
	if set.Strategy.Needs&lock.Redis != 0 {
		names = append(names, "redis")
	}
	if set.Strategy.Needs&lock.ZooKeeper != 0 {
		names = append(names, "zookeeper")
	}
	if set.Strategy.Needs&lock.Etcd != 0 {
		names = append(names, "etcd")
	}
	if set.Strategy.Needs&lock.RedisQuorum != 0 {
		for i := range set.Nodes {
			names = append(names, "redlock-"+strconv.Itoa(i+1))
		}
	}
	return names
}

// New creates the servers and instances for a strategy. To find out how the strategy behaves, it
// also takes the lock several times, and closes it while it is held or awaited.
func New(bubble Bubble, set Setting) (*Cluster, error) {
	c := &Cluster{Setting: set, bubble: bubble}
	err := c.build()
	if err == nil {
		err = c.execute(func(x *execution) error { return x.learn() })
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// key returns the name of the lock that all drivers want.
func (c *Cluster) key() string { return grab.Key(c.Strategy.Name, theOrder) }

// KnownMistake returns the mistakes that were found before the first schedule, or "". Every schedule reports them
// as a violation of answers-agree.
func (c *Cluster) KnownMistake() string {
	if c.Mistake == "" || c.mistake == "" {
		return c.Mistake + c.mistake
	}
	return c.Mistake + "; " + c.mistake
}

// build creates the servers and the instances, and connects them. The last instance is for probes.
func (c *Cluster) build() error {
	for _, name := range c.nodeNames() {
		n, err := newNode(name)
		if err != nil {
			return err
		}
		n.drift = c.Strategy.Promises.Drift // the largest clock drift that the strategy promises to tolerate
		c.nodes = append(c.nodes, n)
	}
	for i := range Instances + 1 {
		inst := &instance{number: i + 1}
		c.instances = append(c.instances, inst)
		if err := inst.connect(c.nodes); err != nil {
			return err
		}
	}
	c.prober = c.instances[Instances]
	return nil
}

// connect gives the instance one client for each server. ZooKeeper clients are made later, one for
// each service process.
func (inst *instance) connect(nodes []*node) error {
	for _, n := range nodes {
		switch s := n.lockServer.(type) {
		case *etcdServer:
			client, err := s.client(inst)
			if err != nil {
				return err
			}
			inst.closers, inst.clients.Etcd = append(inst.closers, client), client
		case *redisServer:
			client, err := newClient(inst, s)
			if err != nil {
				return err
			}
			inst.closers = append(inst.closers, client)
			if n.name == "redis" {
				inst.clients.Redis = client
			} else {
				inst.clients.Redlock = append(inst.clients.Redlock, client)
			}
		}
	}
	return nil
}

// withinSecond exposes strategies that round times incorrectly. It is added to every clock reading,
// so that the clock does not start at a whole second.
const withinSecond = 500 * time.Millisecond

// env returns everything that a strategy needs on one instance. Tokens and random numbers are the
// same in every run.
func (w *world) env(inst *instance) lock.Env {
	env := inst.clients
	for _, s := range serversOf[*zkServer](w.cluster) {
		env.ZooKeeper = s.ensemble(inst)
	}
	env.Node, env.Orders, env.TTL, env.Wait, env.Log = strconv.Itoa(inst.number), w.storeOf(inst), w.cluster.TTL, w.cluster.Wait, quiet
	env.Now = func() time.Time { inst.askedTime.Store(true); return time.Now().Add(withinSecond + inst.ahead) }
	env.Token = func() string { return w.newToken(inst) }
	env.Rand = func() float64 { return jitter(inst.number) }
	return env
}

// serversOf returns the cluster's servers of one type, such as [*redisServer].
func serversOf[S lockServer](c *Cluster) (servers []S) {
	for _, n := range c.nodes {
		if s, ok := n.lockServer.(S); ok {
			servers = append(servers, s)
		}
	}
	return servers
}

// Close closes the clients and the servers.
func (c *Cluster) Close() {
	for _, inst := range c.instances {
		for _, client := range inst.closers {
			_ = client.Close()
		}
	}
	for _, r := range serversOf[*redisServer](c) {
		r.redis.Close()
	}
}

// execute resets all servers and instances, and then runs f with simulated time.
func (c *Cluster) execute(f func(*execution) error) (err error) {
	c.bubble(func() {
		x, problem := newExecution(c)
		defer x.world.stop()
		if err = problem; err == nil {
			err = f(x)
		}
	})
	return err
}

// learn takes the lock twice without competitors, to find out how the strategy behaves. It then closes lockers.
// It records mistakes of the lock in the field mistake.
func (x *execution) learn() error {
	x.gate.ungated = true
	env, taken := x.world.env(x.cluster.prober), 0
	env.Node, env.Token = "0", func() string { taken++; return strings.Repeat(soleToken, taken) }
	locker, err := x.cluster.Strategy.New(env)
	if err != nil {
		return err
	}
	defer locker.Close()
	x.cluster.TTL = lock.LeaseOf(locker, x.cluster.TTL)
	var first lock.Lease
	err = x.holdAlone(locker, soleDriver, func(lease lock.Lease) {
		first = lease
		x.cluster.notifiesLoss = lease.Lost() != nil
		x.cluster.showsToken = x.world.stores(soleToken)
		x.cluster.TokenIsDriver = x.cluster.locks() && x.world.stores(strconv.Itoa(soleDriver))
		before := x.gate.passed.Load()
		time.Sleep(x.cluster.TTL * 2 / 3)
		x.cluster.renews = x.gate.passed.Load() > before
	})
	if err != nil {
		return x.noteNotReleased(err)
	}
	err = x.holdAlone(locker, 1, func(lock.Lease) { x.releaseAgain(first) })
	switch {
	case errors.Is(err, order.ErrTaken): // expected, because the first driver has bought the only unit
		err = nil
	case x.cluster.mistake != "": // the first driver's second release may have freed this lock
		err = nil
	case errors.Is(err, errNotTaken):
		return nil // the first release did not free the lock, and every schedule will show that
	case err != nil:
		return x.noteNotReleased(err)
	}
	x.cluster.residue = catalog.Map(x.world.entries(), func(e entry) string { return e.key })
	for _, r := range serversOf[*redisServer](x.cluster) {
		r.findCounters()
	}
	x.learnClosing()
	return nil
}

// noteNotReleased records a failed release as a mistake of the lock, and returns any other error. learn then
// ends without residue and counters, because the servers may still store the lock. This makes no check weaker:
// without residue, the schedules accept no key.
func (x *execution) noteNotReleased(err error) error {
	if !errors.Is(err, errNotReleased) {
		return err
	}
	x.cluster.mistake = strings.TrimPrefix(err.Error(), "sim: ")
	return nil
}

// releaseAgain checks that a second release changes nothing, although another driver now has the
// lock. Only a lock whose release does not compare tokens may fail this.
func (x *execution) releaseAgain(released lock.Lease) {
	if !x.cluster.locks() || x.cluster.isBlind() {
		return
	}
	before := x.world.entries()
	err := released.Release(context.Background())
	switch {
	case !slices.Equal(before, x.world.entries()):
		x.cluster.mistake = "a second release of a lease changes the next driver's lock"
	case !errors.Is(err, lock.ErrLost):
		x.cluster.mistake = fmt.Sprintf("a second release of a lease returns %v, want ErrLost", err)
	case lock.IsClosed(released.Lost()):
		x.cluster.mistake = "a lease reports its loss after its release"
	}
}

func (n *redisServer) beginCounters() {
	for _, c := range n.counters {
		_ = n.redis.Set(c.key, c.last) // fails only if the key has another type
		if c.ttl > 0 {
			n.redis.SetTTL(c.key, c.ttl)
		}
	}
}

// findCounters records the keys that contain a positive number even after the release.
func (n *redisServer) findCounters() {
	for _, key := range n.redis.Keys() {
		if n.redis.Type(key) != "string" {
			continue
		}
		text, _ := n.redis.Get(key)
		if number, err := strconv.ParseUint(text, 10, 53); err == nil && number > 0 {
			n.counters = append(n.counters, counter{key, n.redis.TTL(key), strings.Repeat("9", max(1, len(text)-1)) + "8"})
		}
	}
}

// learn uses these values for its own lock, so that it can find the lock on the servers.
const (
	soleToken  = "sole"
	soleDriver = 904_190_419
)

var (
	errNotTaken    = errors.New("does not get its lock, although the lock is free")
	errNotReleased = errors.New("does not release its lock, although its lease is valid")
)

// holdAlone takes the lock for a driver without competitors, calls hold, and releases the lock.
func (x *execution) holdAlone(l lock.Locker, driver int64, hold func(lock.Lease)) (err error) {
	ctx := context.Background()
	var lease lock.Lease
	unlessExited(func() {
		lease, err = l.Acquire(lock.TryOnce(lock.WithDriver(ctx, driver)), x.cluster.key())
	})
	if err != nil {
		return fmt.Errorf("sim: %s %w: %w", x.cluster.Strategy.Name, errNotTaken, err)
	}
	hold(lease)
	unlessExited(func() { err = lease.Release(ctx) })
	if err != nil {
		return fmt.Errorf("sim: %s %w: %w", x.cluster.Strategy.Name, errNotReleased, err)
	}
	x.world.timePassed()
	return nil
}
