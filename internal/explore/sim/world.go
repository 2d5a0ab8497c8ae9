package sim

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"grablab/internal/explore/search"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/history"
	"grablab/internal/order"
	"grablab/internal/schedule"
	"grablab/internal/tap"

	"github.com/redis/go-redis/v9"
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
}

// Schedule has the setting, and no steps.
func (set Setting) Schedule() schedule.Schedule {
	return schedule.Schedule{
		Strategy: set.Strategy.Name, Guard: string(set.Guard), OnLost: string(set.OnLost), Actors: set.Actors,
		Nodes: nodeNames(set.Strategy.Needs), TTL: set.TTL, Work: set.Work, Wait: set.Wait,
	}
}

// Bubble runs f in a bubble of testing/synctest, and returns when everything in
// it has ended.
type Bubble func(f func())

// theOrder is what everybody is after.
const theOrder = 1

// cluster is what schedules are played on, one after the other: servers, and the
// clients of the instances. It is made outside of the bubbles.
type Cluster struct {
	Setting
	// TokenIsDriver says that a lease's token is its driver's: to the lock, two
	// attempts of one driver are one.
	TokenIsDriver bool

	bubble    Bubble
	nodes     []*node
	instances []*instance // by number, from 1
	prober    *instance   // an instance that is fresh, when all is over

	// What a lease of the strategy is like.
	renews   bool     // it makes calls by itself
	tells    bool     // its loss can be known
	shows    bool     // its token stands on the server
	baseline []string // the keys that a released one leaves behind
}

// instance is one process.
type instance struct {
	number  int
	redis   redis.UniversalClient
	redlock []redis.UniversalClient
	clients []redis.UniversalClient // all of them

	// Of the schedule that is being played:
	execution *execution // nil: none is
	service   *grab.Service
	sessions  []order.Tx
	ahead     time.Duration // its wall clock, of everybody's
	asked     bool          // for its wall clock
	tokens    int
}

// quorumNodes is how many nodes a Redlock is played on: the fewest.
const quorumNodes = 3

// nodeNames are the lock servers that a strategy needs.
func nodeNames(needs lock.Backend) []string {
	var names []string
	if needs&lock.Redis != 0 {
		names = append(names, "redis")
	}
	if needs&lock.RedisQuorum != 0 {
		for i := range quorumNodes {
			names = append(names, "redlock-"+strconv.Itoa(i+1))
		}
	}
	return names
}

// New makes the servers and the instances that a strategy needs, and finds out
// what its leases are like.
func New(bubble Bubble, set Setting) (*Cluster, error) {
	s := &Cluster{Setting: set, bubble: bubble}
	err := s.build()
	if err == nil {
		bubble(func() { err = s.learn() })
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Cluster) build() error {
	for _, name := range nodeNames(s.Strategy.Needs) {
		n, err := newNode(name)
		if err != nil {
			return err
		}
		s.nodes = append(s.nodes, n)
	}
	for i := range Instances + 1 {
		inst, err := s.newInstance(i + 1)
		if err != nil {
			return err
		}
		s.instances = append(s.instances, inst)
	}
	s.prober = s.instances[Instances]
	s.instances = s.instances[:Instances]
	return nil
}

// Instances is how many instances the actors are spread over.
const Instances = 2

// Close ends the servers and the clients.
func (s *Cluster) Close() {
	for _, inst := range s.instances {
		_ = inst.close()
	}
	if s.prober != nil {
		_ = s.prober.close()
	}
	for _, n := range s.nodes {
		n.close()
	}
}

func (inst *instance) close() error {
	var errs []error
	for _, client := range inst.clients {
		errs = append(errs, client.Close())
	}
	return errors.Join(errs...)
}

func (s *Cluster) newInstance(number int) (*instance, error) {
	inst := &instance{number: number}
	for _, n := range s.nodes {
		client, err := newClient(inst, n)
		if err != nil {
			return nil, err
		}
		inst.clients = append(inst.clients, client)
		if n.name == "redis" {
			inst.redis = client
		} else {
			inst.redlock = append(inst.redlock, client)
		}
	}
	return inst, nil
}

// world is one schedule that is being played, in one bubble.
type execution struct {
	*Cluster
	db     *order.Mem
	actors []*actor
	probe  *actor
	ended  chan struct{} // closed when the schedule is over
	// services are those of all instances that were ever started.
	services []*grab.Service

	mu   sync.Mutex // never held while waiting
	open bool       // calls pass without a step, but for those of the dead
	// starting: an instance is being started, and its calls pass in any case.
	starting bool
	waiting  []*call // to be sent
	late     []*call // applied and not answered
	inFlight []*call // given up, and still on their way
	arrived  chan struct{}
	events   []event
	passed   int  // calls that went through while open
	excused  bool // something that may rightly leave a lock behind

	current *actor  // who moved last
	last    *call   // the call that the last step let through
	struck  *node   // the server that the last step did something to
	before  []*call // what could have gone instead of the last step
	running sync.WaitGroup
	dbSum   search.Fingerprint
	broken  []search.Violation
	steps   int

	telling bool     // somebody wants to know
	did     []string // what the last calls asked, and were answered: a line each
}

// actor is one driver.
type actor struct {
	name   string
	index  int
	driver int64
	inst   *instance
	cancel context.CancelFunc
	counts []callCount
	seen   search.Fingerprint // all that its code can know
	early  uint8              // who had the lock before this one began

	begun, done, dead, paused, cancelled bool
	answer                               grab.Answer

	// What is known of its hold.
	granted  bool // the acquire has succeeded
	leaving  bool // and the release has begun
	released bool // and succeeded
	lostIt   bool // and the holder knows of a loss
	inside   bool // it has read an open order
	fence    uint64
	token    string
	stands   string // what stands on a server that has granted it a lease
	leases   []leaseOn
	ours     bool // at the end of its release the lease still ran
}

type callCount struct {
	phase  tap.Phase
	target string
	n      int
}

// leaseOn is what one server has granted, until then on its own clock.
type leaseOn struct {
	node  *node
	until time.Time
}

func (a *actor) count(p tap.Phase, target string) int {
	for i := range a.counts {
		if c := &a.counts[i]; c.phase == p && c.target == target {
			c.n++
			return c.n
		}
	}
	a.counts = append(a.counts, callCount{p, target, 1})
	return 1
}

// event is what an instance records.
type event struct {
	history.Event
	actor *actor
}

// newExecution is called inside of the bubble.
func newExecution(s *Cluster) (*execution, error) {
	x := &execution{
		Cluster: s, db: &order.Mem{},
		ended: make(chan struct{}), arrived: make(chan struct{}, 1),
	}
	if _, err := x.db.Create(context.Background(), 1); err != nil {
		return nil, err
	}
	for _, n := range s.nodes {
		n.reset()
	}
	for i, a := range s.Actors {
		x.actors = append(x.actors, &actor{
			name: a.Name, index: i, driver: driverOf(s.Actors, i), inst: s.instances[a.Instance-1], seen: search.EmptyFingerprint,
		})
	}
	x.probe = &actor{name: "probe", index: len(x.actors), driver: int64(len(x.actors)) + 1, inst: s.prober, seen: search.EmptyFingerprint}
	x.open = true // Setting up is no step
	for _, inst := range append(s.instances, s.prober) {
		inst.execution, inst.ahead, inst.asked, inst.tokens = x, 0, false, 0
		if err := x.start(inst); err != nil {
			return x, err
		}
	}
	x.open = false
	return x, nil
}

// driverOf numbers the drivers from 1.
func driverOf(actors []schedule.Actor, i int) int64 {
	for j, a := range actors[:i] {
		if a.Name == actors[i].As {
			return driverOf(actors, j)
		}
	}
	return int64(i) + 1
}

// start starts an instance, or starts it again.
func (x *execution) start(inst *instance) error {
	inst.sessions = nil
	orders := x.storeOf(inst)
	service, err := grab.New(grab.Config{
		Instance: strconv.Itoa(inst.number),
		Orders:   orders,
		Lock: lock.Env{
			Node: strconv.Itoa(inst.number), Redis: inst.redis, Redlock: inst.redlock, Orders: orders,
			TTL: x.TTL, Wait: x.Wait,
			Now:   func() time.Time { inst.asked = true; return time.Now().Add(inst.ahead) },
			Token: func() string { return x.newToken(inst) },
			Rand:  func() float64 { return jitter(inst.number) },
			Log:   quiet,
		},
		Strategy: x.Strategy.Name,
		Work:     x.Work,
		Guard:    x.Guard,
		OnLost:   x.OnLost,
		History:  recorder{inst},
	})
	if err == nil {
		inst.service = service
		x.services = append(x.services, service)
	}
	return err
}

var quiet = slog.New(slog.DiscardHandler)

// jitter differs between instances, so that no two of their timers fall due in
// the same instant.
func jitter(number int) float64 { return 0.3 + 0.07*float64(number) }

func (x *execution) newToken(inst *instance) string {
	x.mu.Lock()
	defer x.mu.Unlock()
	inst.tokens++
	return tokenPrefix + strconv.Itoa(inst.number) + "-" + strconv.Itoa(inst.tokens)
}

// tokenPrefix tells a token from whatever else a command has.
const tokenPrefix = "token-"

// recorder is an instance's history.
type recorder struct{ inst *instance }

func (r recorder) Record(e history.Event) {
	x := r.inst.execution
	x.mu.Lock()
	defer x.mu.Unlock()
	e.T = x.elapsed()
	if a := x.actorOf(r.inst, e.Driver); a != x.probe {
		x.events = append(x.events, event{e, a})
	}
}

// elapsed is the time since the schedule began.
func (x *execution) elapsed() time.Duration { return time.Since(epoch) }

// applied is called when a server has carried out a call, or has not: then with
// the error.
func (x *execution) applied(c *call, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if c.node == nil {
		x.dbSum = 0
		return
	}
	c.node.past = c.node.past.Text(c.actor.name).Text(string(c.phase)).Number(int64(c.n)).Number(int64(x.elapsed())).Number(int64(c.fate)).Flag(err == nil)
	if err == nil || err == redis.Nil {
		x.grant(c)
	}
}

// grant notes the leases that there are after c: of everybody whose name stands
// in a key, for a release may have brought one to somebody else. A lock whose
// names are not to be seen there is believed.
func (x *execution) grant(c *call) {
	now := c.node.now()
	if !x.shows {
		if c.phase == tap.Acquire || c.phase == tap.Renew {
			c.actor.lease(leaseOn{c.node, now.Add(x.TTL)})
		}
		return
	}
	if name := x.nameIn(c); name != "" {
		c.actor.stands = name
	}
	for _, a := range x.actors {
		if ttl, ok := c.node.names(a.stands); ok {
			a.lease(leaseOn{c.node, now.Add(cmp.Or(ttl, x.TTL))})
		}
	}
}

func (a *actor) lease(l leaseOn) {
	for i := range a.leases {
		if a.leases[i].node == l.node {
			a.leases[i] = l
			return
		}
	}
	a.leases = append(a.leases, l)
}

// nameIn is what a call that takes a lock would have stand there: the argument
// with a token in it; "": there is none.
func (x *execution) nameIn(c *call) string {
	if c.phase != tap.Acquire {
		return ""
	}
	for _, args := range c.sent {
		for _, arg := range args {
			if text, ok := arg.(string); ok && strings.Contains(text, tokenPrefix) {
				return text
			}
		}
	}
	return ""
}

// quorum is how many servers have to grant a lease; 0: there are no leases.
func (x *execution) quorum() int {
	if !x.leased() {
		return 0
	}
	return len(x.nodes)/2 + 1
}

// leaseLeft is for how long the actor's lease still runs by the clocks of the
// servers that granted it; with several, of a majority of them.
func (x *execution) leaseLeft(a *actor) time.Duration {
	quorum := min(x.quorum(), len(a.leases))
	if quorum == 0 {
		return 0
	}
	left := make([]time.Duration, len(a.leases))
	for i, l := range a.leases {
		left[i] = l.until.Sub(l.node.now())
	}
	for i := range left { // so few that sorting by hand is cheapest
		for j := i + 1; j < len(left); j++ {
			if left[j] > left[i] {
				left[i], left[j] = left[j], left[i]
			}
		}
	}
	return left[quorum-1]
}

// subscribing has a SUBSCRIBE wait for its step. It is false if it needs none.
func (x *execution) subscribing(inst *instance, n *node, arrive func(), args []string) bool {
	c := &call{
		phase: tap.Acquire, target: n.name, flight: arrive,
		text: func() string { return strings.Join(args, " ") },
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	c.actor = x.listener(inst)
	if x.open || c.actor == x.probe {
		return false
	}
	x.waiting = append(x.waiting, c)
	x.arrive()
	return true
}

// listener is who an instance's subscription is for: the last one who has begun
// and has nothing yet.
func (x *execution) listener(inst *instance) *actor {
	found := x.actorOf(inst, 0)
	for _, a := range x.actors {
		if a.inst == inst && a.begun && !a.done && !a.granted {
			found = a
		}
	}
	return found
}

// stop ends the schedule. What still waits is told so.
func (x *execution) stop() {
	x.mu.Lock()
	x.open = false
	x.mu.Unlock()
	close(x.ended)
	for _, a := range x.actors {
		if a.cancel != nil {
			a.cancel()
		}
	}
	x.running.Wait()
	for _, service := range x.services {
		_ = service.Close()
	}
	for _, n := range x.nodes {
		n.hangUp()
	}
	for _, inst := range append(x.instances, x.prober) {
		inst.execution = nil
	}
}
