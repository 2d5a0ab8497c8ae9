// Package fleet starts and drives the instances under test: processes of this
// very program over a stack, or targets that were started elsewhere.
//
// Of our own instances it can do more than any client: it starts them with the
// settings of a cell (Equip), kills and restarts them, holds their calls, sets
// their clocks, and reads their event files. Begin at Fleet.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"time"

	"grablab/internal/grab"
	"grablab/internal/history"
	"grablab/internal/order"
	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/target"

	"golang.org/x/sync/errgroup"
)

// FirstPort is the first of the article's two ports. More instances and worker
// stacks follow on the next ones.
const FirstPort = 8004

// Fleet is the instances under test.
type Fleet struct {
	Instances []*Instance
	Ours      bool          // they are processes of ours
	Shape     *target.Shape // of a grab
	Events    Events

	// Of targets.
	Foreign    bool          // they have no control API
	Strategies []Strategy    // by their control API
	Settings   grab.Settings // of the first; zero: it does not say

	client    *http.Client
	probes    int64 // the first driver of the probes
	token     string
	unlisted  bool            // targets have a control API that does not list their strategies
	open      *target.Opening // how targets open orders; nil: by POST /orders
	nextOrder int64           // where no call opens orders; 0: one does

	// restored has the processes of targets go on that were stopped; nil: none can be.
	restored func() error

	// Of those that the fleet has started.
	cfg     Config
	stack   *stack.Stack
	service *Service // nil: our own
}

// Config is what all instances of our own have in common.
type Config struct {
	Exe         string // this program, which is also the instance
	Instances   int
	Guard       order.Guard // "": each strategy's own
	OnLost      grab.OnLost
	PerDriver   int                  // units of an order of several that one driver may have; 0: 1
	ClockOffset time.Duration        // added to the wall clock of the second instance
	Lab         string               // the page that shows them; "": there is none
	Say         func(string, ...any) // what is worth telling the user
}

// Setup is what the instances are started with for a cell.
type Setup struct {
	Work, TTL, Wait time.Duration
	Timeout         time.Duration           // of one grab
	Control         bool                    // they serve the control API
	Routes          map[int]stack.Addresses // by instance, where one does not reach the stack directly
}

func newFleet(token string) *Fleet {
	return &Fleet{
		client: &http.Client{
			Timeout: 30 * time.Second, Transport: target.SendOnce(&http.Transport{MaxIdleConnsPerHost: 64}),
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // as load has it
		},
		token: token, Shape: target.Own, probes: history.ProbeDriver,
	}
}

// New names cfg.Instances processes over st, on ports from port on; 0: any. None
// of them runs before Equip.
func New(cfg Config, st *stack.Stack, port int) *Fleet {
	f := newFleet("")
	f.Ours, f.cfg, f.stack = true, cfg, st
	for i := range cfg.Instances {
		in := f.newInstance(i)
		if port > 0 {
			in.port = port + i
		}
		f.Instances = append(f.Instances, in)
	}
	return f
}

// Equip makes every instance that is ours to start run with the settings u: it starts
// those that have ended, and restarts those that run with others.
func (f *Fleet) Equip(ctx context.Context, u Setup) error {
	if !f.Started() {
		return nil
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, in := range f.Instances {
		g.Go(func() error { return in.equip(ctx, u) })
	}
	return g.Wait()
}

// Stop ends our instances gracefully. Equip starts fresh ones.
func (f *Fleet) Stop() error {
	var errs []error
	for _, in := range f.Instances {
		if in.proc != nil {
			errs = append(errs, in.end())
			in.args = nil
		}
		if in.wires != nil {
			in.wires.lead(f.stack.Addresses)
		}
	}
	f.client.CloseIdleConnections()
	return errors.Join(errs...)
}

// Close ends the instances, as Stop does, and what stands between them and their servers.
func (f *Fleet) Close() error {
	err := f.Stop()
	if f.restored != nil {
		err = errors.Join(err, f.restored())
		f.restored = nil
	}
	for _, in := range f.Instances {
		if in.wires != nil {
			err = errors.Join(err, in.wires.close())
			in.wires = nil
		}
	}
	return err
}

// URLs are the base URLs of the instances.
func (f *Fleet) URLs() []string {
	urls := make([]string, len(f.Instances))
	for i, in := range f.Instances {
		urls[i] = in.URL
	}
	return urls
}

// IDs of the instances by base URL.
func (f *Fleet) IDs() map[string]string {
	ids := map[string]string{}
	for _, in := range f.Instances {
		ids[in.URL] = in.ID
	}
	return ids
}

// Use switches every instance to the strategy, and returns for how long a lease
// lives there, in ms; 0: they do not tell. Targets without a control API have one
// that is not known.
func (f *Fleet) Use(ctx context.Context, strategy string) (leaseMS float64, err error) {
	if f.Foreign {
		return 0, nil
	}
	for _, in := range f.Instances {
		ms, err := in.use(ctx, strategy)
		if err != nil {
			return 0, fmt.Errorf("fleet: switch %s to %s: %w", in.ID, strategy, err)
		}
		leaseMS = max(leaseMS, ms)
	}
	return leaseMS, nil
}

// Create opens orders through the first instance, or takes the next ids where no call
// opens any, and returns the first id.
func (f *Fleet) Create(ctx context.Context, count int) (first int64, err error) {
	return f.CreateStock(ctx, count, 1)
}

// CreateStock is Create for orders of so many units each. Where orders are not opened by
// the call of our own instances, they have as many as they have.
func (f *Fleet) CreateStock(ctx context.Context, count, units int) (first int64, err error) {
	switch {
	case f.open != nil && f.open.ByCall():
		return f.openByCall(ctx, count)
	case f.nextOrder > 0:
		first, f.nextOrder = f.nextOrder, f.nextOrder+int64(count)
		return first, nil
	}
	var made grab.OrdersView
	body := map[string]int{"count": count}
	if units > 1 {
		body["stock"] = units
	}
	err = f.call(ctx, http.MethodPost, f.Instances[0].URL+"/orders", body, &made)
	if err == nil && (made.FirstID < 1 || made.Count != count || made.FirstID > math.MaxInt64-int64(count)) {
		err = fmt.Errorf("fleet: %s was asked for %d orders, and answers with %d from id %d on", f.Instances[0].ID, count, made.Count, made.FirstID)
	}
	if err == nil && units > 1 && made.Stock != units {
		err = fmt.Errorf("fleet: %s was asked for orders of %d units, and does not say that it has opened such (\"stock\":%d)", f.Instances[0].ID, units, units)
	}
	return made.FirstID, err
}

// Ledger asks the first instance for the ledger rows of each order.
func (f *Fleet) Ledger(ctx context.Context, first int64, count int) ([]order.Grab, error) {
	var rows []order.Grab
	for id := first; id < first+int64(count); id++ {
		var got grab.OrderView
		if err := f.call(ctx, http.MethodGet, fmt.Sprintf("%s/orders/%d", f.Instances[0].URL, id), nil, &got); err != nil {
			return nil, err
		}
		for _, g := range got.Grabs {
			rows = append(rows, order.Grab{Order: id, Driver: g.Driver, Instance: g.Instance, Token: g.Token, Fence: g.Fence})
		}
	}
	return rows, nil
}
