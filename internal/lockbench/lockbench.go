// Package lockbench measures locks by themselves, without HTTP and without the
// grab: our strategies, the libraries that one would otherwise take, and two
// PINGs as what nothing can be below.
//
// Every contestant takes its turn in every round, in short slices and in an
// order that the seed shuffles. What is compared is compared within a round,
// so that a machine whose speed drifts does not count.
//
// One acquisition travels like this: Run → crew.turn tells the worker processes
// when to begin, and what → worker.loop or worker.wave → contender.take and the
// release that it returned → Holds, which travel back → measure makes them the
// figures of a slice → Result.Rows makes slices rows.
package lockbench

import (
	"cmp"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"time"

	"grablab/internal/bench"
	"grablab/internal/grab/lock"
	"grablab/internal/stack"
)

// Config of a benchmark.
type Config struct {
	Contestants []Contestant // the floor is measured whether it is named or not
	Cases       []Case

	Rounds int
	Slice  time.Duration // how long a contestant has its turn
	Seed   uint64

	Stack stack.Config // Local or External; Needs is filled in
	Exe   string       // this program, which is also the worker

	// Begin is called before anything is saved, once it is sure that there will
	// be something; nil: nothing is to be done.
	Begin func() error

	Log io.Writer // progress
	TTY bool      // Log is a terminal: the progress line may overwrite itself
}

// ErrNothing says that no contestant was left to be measured.
var ErrNothing = errors.New("lockbench: nothing could be measured")

// Run measures. It hands what it has to save after every round. When ctx ends
// it returns what it has with the cause; likewise when a worker process dies.
// A contestant that fails three times is left out from then on, and the result
// says why.
func Run(ctx context.Context, cfg Config, save func(*Result) error) (res *Result, err error) {
	b := &run{cfg: cfg, progress: progress{w: cfg.Log, tty: cfg.TTY}, random: rand.New(rand.NewPCG(cfg.Seed, 0))}
	defer func() { err = errors.Join(err, b.close()) }()

	res = newResult(cfg)
	if err := b.open(ctx, res); err != nil {
		return res, err
	}
	if cfg.Begin != nil {
		if err := cfg.Begin(); err != nil {
			return res, err
		}
	}
	// Round 0 opens every connection and loads every script. It counts nowhere.
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

// run is a benchmark under way.
type run struct {
	cfg      Config
	progress progress
	random   *rand.Rand

	stack *stack.Stack
	crew  *crew
	redis *commandStats
	ids   []int64 // of the orders whose locks are taken
}

func (b *run) open(ctx context.Context, res *Result) (err error) {
	for _, c := range res.contestants {
		b.cfg.Stack.Needs |= c.Needs
	}
	b.progress.show("starting the %s stack", b.cfg.Stack.Kind)
	if b.stack, err = stack.Start(ctx, b.cfg.Stack); err != nil {
		return err
	}
	res.Environment.Redis, res.Environment.Database = b.stack.RedisVersion, b.stack.DatabaseVersion
	res.Environment.ZooKeeper, res.Environment.Etcd = b.stack.ZooKeeperVersion, b.stack.EtcdVersion
	if b.ids, err = b.orders(ctx, res); err != nil {
		return err
	}
	b.redis = newCommandStats(b.stack)
	b.crew, err = newCrew(ctx, b.stack, b.cfg.Exe)
	return err
}

// orders opens one for each key, for the locks that are rows. Where there is no
// database their ids are made up.
func (b *run) orders(ctx context.Context, res *Result) ([]int64, error) {
	keys := 0
	for _, c := range b.cfg.Cases {
		keys = max(keys, c.Keys)
	}
	first := time.Now().UnixMicro()
	if b.stack.DSN != "" && res.needs(lock.SQL) {
		var err error
		if first, err = createOrders(ctx, b.stack.DSN, keys); err != nil {
			return nil, err
		}
	}
	ids := make([]int64, keys)
	for i := range ids {
		ids[i] = first + int64(i)
	}
	return ids, nil
}

// round gives every contestant its turns in every case. What it returns with an
// error is what had been measured by then.
func (b *run) round(ctx context.Context, round int, res *Result) (measured []Slice, err error) {
	for _, i := range b.random.Perm(len(b.cfg.Cases)) {
		c := b.cfg.Cases[i]
		all := map[string]*turn{}
		for range max(c.Turns, 1) {
			b.progress.step("round %d/%d  %s", round, b.cfg.Rounds, c.Name)
			if err := b.turns(ctx, c, res, all); err != nil {
				return measured, err
			}
		}
		for _, who := range res.contestants {
			if t, ok := all[who.Name]; ok && t.counted > 0 { // else the machine stood still, or it is that slow
				s := measure(*t, who)
				s.Round = round
				measured = append(measured, s)
			}
		}
	}
	return measured, nil
}

// turns gives every contestant one turn in c, and adds it to what it did before.
func (b *run) turns(ctx context.Context, c Case, res *Result, all map[string]*turn) error {
	for _, i := range b.random.Perm(len(res.contestants)) {
		who := res.contestants[i]
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if res.isLeftOut(who.Name) {
			continue
		}
		t, err := b.turn(ctx, c, who)
		var lost *workerError
		switch {
		case errors.As(err, &lost), ctx.Err() != nil:
			return cmp.Or(context.Cause(ctx), err)
		case err != nil:
			b.progress.say("%s in %s: %v", who.Name, c.Name, err)
			res.failed(who.Name, err)
			continue
		}
		if all[who.Name] == nil {
			all[who.Name] = new(turn)
		}
		all[who.Name].add(t)
	}
	return nil
}

// turn is one turn of one contestant.
func (b *run) turn(ctx context.Context, c Case, who Contestant) (turn, error) {
	if who.Name == Floor {
		c = c.forFloor()
	}
	ran, err := b.redis.begin(ctx)
	if err != nil {
		return turn{}, err
	}
	t, err := b.crew.turn(c, who.Name, b.ids[:c.Keys], b.cfg.Slice/time.Duration(max(c.Turns, 1)))
	if err != nil {
		return t, err
	}
	t.ran, err = ran(ctx)
	return t, err
}

func (b *run) close() error {
	var errs []error
	if b.crew != nil {
		errs = append(errs, b.crew.close())
	}
	if b.redis != nil {
		errs = append(errs, b.redis.close())
	}
	if b.stack != nil {
		errs = append(errs, b.stack.Close())
	}
	b.progress.end()
	return errors.Join(errs...)
}

func newResult(cfg Config) *Result {
	res := &Result{
		Schema: Schema, StartedAt: time.Now().UTC(), Environment: bench.NewEnvironment(cfg.Stack.Kind),
		Config: ResultConfig{Rounds: cfg.Rounds, SliceMS: ms(cfg.Slice), Seed: cfg.Seed},
		Rows:   []Row{}, Bounds: []BoundRow{}, LeftOut: []LeftOut{},
		contestants: []Contestant{floor},
		cases:       cfg.Cases,
		waits:       map[cell][]float64{},
		failures:    map[string]int{},
	}
	for _, c := range cfg.Cases {
		res.Config.Cases = append(res.Config.Cases, c.Name)
	}
	for _, c := range cfg.Contestants {
		if c.Name != Floor {
			res.contestants = append(res.contestants, c)
		}
	}
	return res
}
