package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/explore/schedule"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/order"

	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Setting is what all schedules of a search have in common.
type Setting struct {
	Strategy lock.Strategy
	Guard    order.Guard // in force
	OnLost   grab.OnLost
	Actors   []schedule.Actor
	TTL      time.Duration
	Work     time.Duration
	Wait     time.Duration
	Nodes    int // of a Redlock
	Stock    int // units of the order; 0: 1
}

// Schedule has the setting, and no steps.
func (set Setting) Schedule() schedule.Schedule {
	return schedule.Schedule{
		Strategy: set.Strategy.Name, Guard: string(set.Guard), OnLost: string(set.OnLost), Actors: set.Actors,
		Nodes: set.nodeNames(), TTL: set.TTL, Work: set.Work, Wait: set.Wait,
		Stock: set.Stock,
	}
}

// locks says whether the strategy is a lock at all.
func (set Setting) locks() bool { return set.Strategy.Excludes != catalog.NoExclusion }

// units is how many the order has.
func (set Setting) units() int { return max(set.Stock, 1) }

// Bubble runs f in a bubble of testing/synctest, and returns when everything in
// it has ended.
type Bubble func(f func())

// Cluster is the servers, and the instances with their clients. Schedules run on
// it one after the other, each in a bubble of its own; the cluster itself is made
// outside of them.
type Cluster struct {
	Setting
	// TokenIsDriver says that a lease's token is its driver's: to the lock, two
	// attempts of one driver are one.
	TokenIsDriver bool

	bubble    Bubble
	present   atomic.Pointer[execution] // nil: there is none
	nodes     []*node
	instances []*instance // by number, from 1
	prober    *instance   // takes no part, and grabs when all others have ended

	// What a lease of the strategy is like.
	renews       bool     // it makes calls by itself
	notifiesLoss bool     // its holder can be told of its loss
	showsToken   bool     // its token is stored on the server
	residue      []string // the keys that a released one leaves behind
	counters     []counter
}

// counter is a number that a released lease leaves on a node, such as the last fencing
// token. Every schedule begins with it, at the last number before one with a digit more:
// those who compare numbers as text come to grief there.
type counter struct {
	server *redisServer
	key    string
	ttl    time.Duration // 0: for ever
	last   string
}

// instance is one process.
type instance struct {
	number    int
	redis     redis.UniversalClient
	redlock   []redis.UniversalClient
	zooKeeper *lock.Ensemble
	etcd      *clientv3.Client
	clients   []io.Closer // all of them

	// Of the present execution:
	world     *world       // nil between two schedules
	processes atomic.Int64 // that it has been, in all executions
	stopped   atomic.Bool  // the process is paused, with all its actors and its connections
	pausedAs  *actor       // the actor that the step named which paused the process; nil if it is not paused
	service   *grab.Service
	sessions  []order.Tx
	ahead     time.Duration   // of its wall clock
	askedTime bool            // it has read its wall clock
	tokens    int             // that it has drawn
	cut       map[string]bool // what it is cut off from: [schedule.DB], [schedule.Locks]
}

// Instances is how many instances the actors are spread over.
const Instances = 2

// nodeNames are the lock servers that the strategy needs.
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

// New makes the servers and the instances that a strategy needs, and finds out
// what its leases are like.
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

func (c *Cluster) build() error {
	for _, name := range c.nodeNames() {
		n, err := newNode(name)
		if err != nil {
			return err
		}
		n.drift = c.Strategy.Promises.Drift // the worst that it has to bear
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

func (inst *instance) connect(nodes []*node) error {
	for _, n := range nodes {
		switch s := n.lockServer.(type) {
		case *zkServer:
			inst.zooKeeper = s.ensemble(inst)
		case *etcdServer:
			client, err := s.client(inst)
			if err != nil {
				return err
			}
			inst.clients, inst.etcd = append(inst.clients, client), client
		case *redisServer:
			client, err := newClient(inst, s)
			if err != nil {
				return err
			}
			inst.clients = append(inst.clients, client)
			if n.name == "redis" {
				inst.redis = client
			} else {
				inst.redlock = append(inst.redlock, client)
			}
		}
	}
	return nil
}

// withinSecond: virtual time begins with a whole second, and a stamp that is cut to seconds
// would be exact by chance.
const withinSecond = 500 * time.Millisecond

// env is what the strategy of an instance may touch, but for what is its alone.
func (w *world) env(inst *instance) lock.Env {
	return lock.Env{
		Node: strconv.Itoa(inst.number), Redis: inst.redis, Redlock: inst.redlock, ZooKeeper: inst.zooKeeper, Etcd: inst.etcd,
		Orders: w.storeOf(inst), TTL: w.cluster.TTL, Wait: w.cluster.Wait, Log: quiet,
		Now:   func() time.Time { inst.askedTime = true; return time.Now().Add(withinSecond + inst.ahead) },
		Token: func() string { return w.newToken(inst) },
		Rand:  func() float64 { return jitter(inst.number) },
	}
}

// Close ends the servers and the clients.
func (c *Cluster) Close() {
	for _, inst := range c.instances {
		for _, client := range inst.clients {
			_ = client.Close()
		}
	}
	for _, n := range c.nodes {
		n.close()
	}
}

// execute runs f in a bubble, on servers that are as new.
func (c *Cluster) execute(f func(*execution) error) (err error) {
	c.bubble(func() {
		x, problem := newExecution(c)
		c.present.Store(x)
		defer c.present.Store(nil)
		defer x.world.stop()
		if err = problem; err == nil {
			err = f(x)
		}
	})
	return err
}

// learn finds out what a lease of the strategy is like, by holding two of them
// with no other actor.
func (x *execution) learn() error {
	x.gate.ungated = true
	env := x.world.env(x.cluster.prober)
	env.Node, env.Token = "0", func() string { return soleToken }
	locker, err := x.cluster.Strategy.New(env)
	if err != nil {
		return err
	}
	defer locker.Close()
	x.cluster.TTL = lock.LeaseOf(locker, x.cluster.TTL)
	err = x.holdAlone(locker, 1, func(lease lock.Lease) {
		x.cluster.notifiesLoss = lease.Lost() != nil
		x.cluster.showsToken = x.world.stores(soleToken)
	})
	if err != nil {
		return err
	}
	err = x.holdAlone(locker, soleDriver, func(lock.Lease) {
		x.cluster.TokenIsDriver = x.cluster.locks() && x.world.stores(strconv.Itoa(soleDriver))
		before := x.gate.callsPassed()
		time.Sleep(x.cluster.TTL * 2 / 3)
		x.cluster.renews = x.gate.callsPassed() > before
	})
	switch {
	case errors.Is(err, order.ErrTaken): // the first has the only unit
		err = nil
	case errors.Is(err, errNotTaken):
		return nil // the first release frees nothing, as every schedule will show
	}
	for _, e := range x.world.entries() {
		x.cluster.residue = append(x.cluster.residue, e.key)
	}
	for _, n := range x.cluster.nodes {
		if r, ok := n.lockServer.(*redisServer); ok {
			x.cluster.counters = append(x.cluster.counters, r.counters()...)
		}
	}
	return err
}

// beginCounters sets the counters of a node.
func (c *Cluster) beginCounters(n *node) {
	for _, k := range c.counters {
		if k.server.node == n {
			k.begin()
		}
	}
}

// begin sets the counter.
func (k counter) begin() {
	_ = k.server.redis.Set(k.key, k.last) // fails only for a key of another type
	if k.ttl > 0 {
		k.server.redis.SetTTL(k.key, k.ttl)
	}
}

// counters are those of a node.
func (n *redisServer) counters() (all []counter) {
	for _, key := range n.redis.Keys() {
		if n.redis.Type(key) != "string" {
			continue
		}
		text, _ := n.redis.Get(key)
		if number, err := strconv.ParseUint(text, 10, 53); err == nil && number > 0 {
			all = append(all, counter{n, key, n.redis.TTL(key), strings.Repeat("9", max(1, len(text)-1)) + "8"})
		}
	}
	return all
}

// What nothing else in the stores is like.
const (
	soleToken  = "sole"
	soleDriver = 904_190_419
)

var errNotTaken = errors.New("does not take a lock that is free")

// holdAlone takes the lock for a driver, and releases it after hold.
func (x *execution) holdAlone(l lock.Locker, driver int64, hold func(lock.Lease)) (err error) {
	ctx := context.Background()
	var lease lock.Lease
	unlessExited(func() {
		lease, err = l.Acquire(lock.TryOnce(lock.WithDriver(ctx, driver)), grab.Key(x.cluster.Strategy.Name, theOrder))
	})
	if err != nil {
		return fmt.Errorf("sim: %s %w: %w", x.cluster.Strategy.Name, errNotTaken, err)
	}
	hold(lease)
	unlessExited(func() { err = lease.Release(ctx) })
	if err != nil {
		return fmt.Errorf("sim: %s does not release its lock: %w", x.cluster.Strategy.Name, err)
	}
	x.world.timePassed()
	return nil
}

func (g *gate) callsPassed() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.passed
}
