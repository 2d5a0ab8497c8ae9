// Package fleet starts and controls the service instances under test. An instance receives grab
// requests, in which a driver tries to win an order.
//
// An instance can be a process of this program, a process of another service, or a service that already
// runs elsewhere. The fleet has most control over instances of this program. It restarts them with
// given settings, pauses their calls, sets their clocks, and reads their event files. Start reading at
// Fleet.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab"
	"grablab/internal/history"
	"grablab/internal/order"
	"grablab/internal/testbed/load"
	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/target"

	"golang.org/x/sync/errgroup"
)

// FirstPort is the first instance's port. The other instances use the ports after it.
const FirstPort = 8004

// Fleet holds the instances under test.
type Fleet struct {
	Instances []*Instance
	Ours      bool          // whether the instances are processes of this program
	Shape     *target.Shape // how to send a grab and interpret the reply
	Events    Events

	// These fields describe instances that were running before this program.
	Foreign    bool          // whether the instances have no control API
	Strategies []Strategy    // strategies that the control API lists
	Settings   grab.Settings // settings of the first instance; zero if the instance does not report them

	client    client
	probes    int64           // id of the first driver for test requests after the load
	open      *target.Opening // how to open orders; nil means POST /orders
	nextOrder int64           // next order id; 0 if a call to the service opens orders

	// resumeAll resumes the user's instances that a fault has paused. It is nil if their processes
	// are unknown.
	resumeAll func() error

	// These fields describe instances that the fleet starts itself.
	cfg     Config
	stack   *stack.Stack
	service *Service // the command of the user's service; nil for instances of this program
	// readyWithin is the start timeout for a service's instance. 0 means serviceTimeout.
	readyWithin time.Duration
}

// Config contains the settings that all instances share.
type Config struct {
	Exe         string // path to this program, which also runs as an instance
	Instances   int
	Guard       order.Guard // condition for writing a winner; empty means the strategy's default
	OnLost      grab.OnLost
	PerDriver   int                  // how many units of one order a driver may win; 0 means 1
	ClockOffset time.Duration        // added to the wall clock of the second instance
	Lab         string               // URL of the lab page; empty for none
	OTLP        string               // URL of the collector for the traces; empty for none
	Say         func(string, ...any) // prints messages for the user
}

// Setup contains the instance settings that can change during a run.
type Setup struct {
	Work, TTL, Wait time.Duration
	Timeout         time.Duration           // timeout for one request
	Control         bool                    // serve the control API
	Routes          map[int]stack.Addresses // by instance index, the addresses of its proxies to the servers; may be nil
	SameAddr        bool                    // let an instance keep its address if it must restart
}

func newFleet(token string) *Fleet {
	f := &Fleet{Shape: target.Own, probes: history.ProbeDriver}
	f.client = client{&http.Client{
		Transport:     target.SendOnce(&http.Transport{MaxIdleConnsPerHost: 64}),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // package load does not follow redirects either
	}, token, func(next http.RoundTripper) http.RoundTripper { return load.Decide(next, f.Shape, f.Asking) }}
	return f
}

// New returns a fleet of instances that use the servers in st. It does not start them yet (see
// Equip). They listen on consecutive ports, beginning with port, or on any free ports if port is 0.
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

// Equip makes all instances run with these settings. It starts or restarts an instance only if its
// settings differ.
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

// Stop stops the instances gracefully, so that Equip can start them again.
func (f *Fleet) Stop() error {
	var errs []error
	for _, in := range f.Instances {
		if in.proc != nil {
			errs = append(errs, in.end())
			in.exe = "" // no settings are current any more
		}
		in.unreserve()
		if in.wires != nil {
			in.wires.lead(f.stack.Addresses)
		}
	}
	f.client.CloseIdleConnections()
	return errors.Join(errs...)
}

// Close stops the instances and closes their proxies.
func (f *Fleet) Close() error {
	err := f.Stop()
	if f.resumeAll != nil {
		err = errors.Join(err, f.resumeAll())
		f.resumeAll = nil
	}
	for _, in := range f.Instances {
		if in.wires != nil {
			in.wires.close()
			in.wires = nil
		}
	}
	return err
}

// URLs returns the base URLs of the instances.
func (f *Fleet) URLs() []string {
	return catalog.Map(f.Instances, func(in *Instance) string { return in.URL })
}

// IDs returns each instance's ID, by its base URL.
func (f *Fleet) IDs() map[string]string {
	ids := map[string]string{}
	for _, in := range f.Instances {
		ids[in.URL] = in.ID
	}
	return ids
}

// Use switches every instance to a locking strategy. It returns the longest TTL that an instance
// reports, in milliseconds, or 0 if none reports one.
func (f *Fleet) Use(ctx context.Context, strategy string) (leaseMS float64, err error) {
	if f.Foreign {
		return 0, nil
	}
	for _, in := range f.Instances {
		ms, err := in.use(ctx, strategy)
		if err != nil {
			return 0, fmt.Errorf("fleet: cannot switch %s to strategy %s: %w", in.ID, strategy, err)
		}
		leaseMS = max(leaseMS, ms)
	}
	return leaseMS, nil
}

// OpensOrders reports whether the user has described how to open orders, with a call or with SQL
// statements.
func (f *Fleet) OpensOrders() bool { return f.open != nil }

// Create opens orders and returns the first order ID. If the service cannot open orders, it takes
// the next unused IDs, beginning with -first-order. If SQL statements open the orders, Create also only
// takes the IDs, and the caller runs the statements. Orders with several units require POST /orders.
func (f *Fleet) Create(ctx context.Context, count, units int) (first int64, err error) {
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
	err = f.client.call(ctx, http.MethodPost, f.Instances[0].URL+"/orders", body, &made)
	if err == nil && (made.FirstID < 1 || made.Count != count || made.FirstID > math.MaxInt64-int64(count)) {
		err = fmt.Errorf("fleet: %s should open %d orders, but its answer has count %d and first_id %d: correct its POST /orders", f.Instances[0].ID, count, made.Count, made.FirstID)
	}
	if err == nil && units > 1 && made.Stock != units {
		err = fmt.Errorf("fleet: %s should open orders of %d units, but its answer lacks \"stock\":%d: let POST /orders support stock, or leave out -stock", f.Instances[0].ID, units, units)
	}
	return made.FirstID, err
}

// Ledger returns the winners of these orders, as the first instance reports them.
func (f *Fleet) Ledger(ctx context.Context, first int64, count int) ([]order.Grab, error) {
	var rows []order.Grab
	for id := first; id < first+int64(count); id++ {
		var got grab.OrderView
		if err := f.client.call(ctx, http.MethodGet, fmt.Sprintf("%s/orders/%s", f.Instances[0].URL, f.Shape.OrderText(id)), nil, &got); err != nil {
			return nil, err
		}
		for _, g := range got.Grabs {
			rows = append(rows, order.Grab{Order: id, Driver: g.Driver, Instance: g.Instance, Token: g.Token, Fence: g.Fence})
		}
	}
	return rows, nil
}
