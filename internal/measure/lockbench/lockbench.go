// Package lockbench measures the cost of a lock by itself, without HTTP and without a grab. It
// compares our own locks with libraries, and all of them with the floor. The floor sends two PINGs,
// because a lock in Redis needs one request to acquire and one to release. Only a lock that avoids or
// combines requests can cost less, as handoff does in some cases.
//
// The input is a Config, which names the subjects (locks), the cases (how many workers compete for
// how many keys) and the number of rounds. The output is a Result, with a Row for each subject in
// each case and a verdict on each limit (bound) for our own locks. Text, JSON and Benchstat write
// the Result.
//
// In every round, each subject gets one short time slice in each case, in an order that the seed
// shuffles. The benchmark compares figures only within a round, so changes in machine speed favor
// no subject.
//
// In most cases, the workers run in at least two processes, because the locks must work between
// processes. For one slice, pool.run tells each worker process what to do and when to begin. In each
// worker, the function loop acquires and releases the lock, and returns each acquisition as a Hold.
// Finally, measure computes the slice's figures, and Result.row combines the slices of all rounds.
package lockbench

import (
	"cmp"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/measure/status"
	"grablab/internal/order"
	"grablab/internal/testbed/stack"
)

// Config configures a benchmark.
type Config struct {
	Subjects []Subject // locks to measure; the floor is always measured too
	Cases    []Case
	LeftOut  []LeftOut // locks that are skipped, with the reason

	Rounds int
	Slice  time.Duration // measuring time per subject, case and round
	Seed   uint64

	Stack stack.Config // its kind is Local or External; Run sets Needs
	Exe   string       // path of this program, which worker processes run too

	Log io.Writer // receives progress lines
	TTY bool      // whether Log is a terminal, where each progress line can overwrite the last one
}

// ErrNothing means that every lock failed.
var ErrNothing = errors.New("lockbench: none of the locks could be measured")

// Run runs a benchmark, and calls save after each round. It skips a lock that has failed three
// times. If ctx ends or a worker process dies, it returns the results so far and the cause.
func Run(ctx context.Context, cfg Config, save func(*Result) error) (res *Result, err error) {
	b := &benchmark{cfg: cfg, progress: status.Line{W: cfg.Log, TTY: cfg.TTY, Every: 10 * time.Second}, random: rand.New(rand.NewPCG(cfg.Seed, 0))}
	defer func() { err = errors.Join(err, b.close()) }()

	res = newResult(cfg)
	if err := b.open(ctx, res); err != nil {
		return res, err
	}
	// Round 0 is a warm-up that opens connections and loads scripts, so its measurements do not
	// count.
	for round := range cfg.Rounds + 1 {
		measured, err := b.round(ctx, round, res)
		if round > 0 {
			res.add(measured, err == nil)
			err = errors.Join(err, save(res))
		}
		if err != nil {
			return res, err
		}
	}
	if len(res.Rows) < 2 {
		return res, ErrNothing
	}
	res.Complete = true
	return res, save(res)
}

type benchmark struct {
	cfg      Config
	progress status.Line
	random   *rand.Rand

	stack *stack.Stack
	pool  pool
	redis commandStats
	first int64 // ID of the first order; the workers lock this order and those after it
}

// open starts the servers, creates the orders and starts the worker processes.
func (b *benchmark) open(ctx context.Context, res *Result) (err error) {
	for _, s := range res.subjects {
		b.cfg.Stack.Needs |= s.Needs
	}
	b.progress.Step("starting the %s stack", b.cfg.Stack.Kind)
	if b.stack, err = stack.Start(ctx, b.cfg.Stack); err != nil {
		return err
	}
	res.Environment.Redis, res.Environment.Database = b.stack.RedisVersion, b.stack.DatabaseVersion
	res.Environment.ZooKeeper, res.Environment.Etcd = b.stack.ZooKeeperVersion, b.stack.EtcdVersion
	keys, processes := 0, 0
	for _, c := range b.cfg.Cases {
		keys, processes = max(keys, c.Keys), max(processes, c.Processes)
	}
	if b.first, err = b.orders(ctx, keys); err != nil {
		return err
	}
	b.redis = newCommandStats(b.stack)
	b.pool, err = newPool(ctx, b.stack, b.cfg.Exe, processes)
	return err
}

// orders returns the first order's ID. If a lock needs database rows, it first opens an order for
// each key.
func (b *benchmark) orders(ctx context.Context, keys int) (first int64, err error) {
	if b.stack.DSN == "" || b.cfg.Stack.Needs&lock.SQL == 0 {
		return time.Now().UnixMicro(), nil
	}
	db, err := order.Connect(ctx, b.stack.DSN, order.Options{MaxConns: 2})
	if err != nil {
		return 0, err
	}
	defer db.Close()
	if err := db.Migrate(ctx); err != nil {
		return 0, err
	}
	return db.Create(ctx, keys, 1)
}

// round measures every lock in every case. If there is an error, it also returns the measurements
// so far.
func (b *benchmark) round(ctx context.Context, round int, res *Result) (measured []Slice, err error) {
	for _, i := range b.random.Perm(len(b.cfg.Cases)) {
		c := b.cfg.Cases[i]
		traces := map[string]*trace{}
		for range max(c.Parts, 1) {
			b.progress.Step("round %d/%d  %s", round, b.cfg.Rounds, c.Name)
			if err := b.parts(ctx, c, res, traces); err != nil {
				return measured, err
			}
		}
		for _, s := range res.subjects {
			// If no worker got the lock, the machine or the lock was too slow for this time slice,
			// so ignore the measurement.
			if t := traces[s.Name]; t != nil && t.counted > 0 {
				measured = append(measured, measure(round, *t, s))
			}
		}
	}
	return measured, nil
}

// parts measures each lock for one part of its time slice, and adds the measurements to traces.
func (b *benchmark) parts(ctx context.Context, c Case, res *Result, traces map[string]*trace) error {
	for _, i := range b.random.Perm(len(res.subjects)) {
		s := res.subjects[i]
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if res.isLeftOut(s.Name) {
			continue
		}
		t, err := b.part(ctx, c, s)
		switch {
		case errors.Is(err, errProcess), ctx.Err() != nil:
			return cmp.Or(context.Cause(ctx), err)
		case err != nil:
			b.progress.Say("%s in %s: %v", s.Name, c.Name, err)
			res.failed(s.Name, err)
		case traces[s.Name] == nil:
			traces[s.Name] = &t
		default:
			traces[s.Name].add(t)
		}
	}
	return nil
}

func (b *benchmark) part(ctx context.Context, c Case, s Subject) (trace, error) {
	if s.Name == Floor {
		c = c.forFloor()
	}
	before, err := b.redis.calls(ctx)
	if err != nil {
		return trace{}, err
	}
	t, err := b.pool.run(c, s.Name, b.first, b.cfg.Slice/time.Duration(max(c.Parts, 1)))
	if err != nil {
		return t, err
	}
	after, err := b.redis.calls(ctx)
	t.ran, t.ranKnown = after-before, len(b.redis) > 0
	return t, err
}

func (b *benchmark) close() (err error) {
	err = b.pool.close()
	for _, server := range b.redis {
		err = errors.Join(err, server.Close())
	}
	if b.stack != nil {
		err = errors.Join(err, b.stack.Close())
	}
	b.progress.Clear()
	return err
}
