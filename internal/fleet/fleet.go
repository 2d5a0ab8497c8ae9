// Package fleet starts and drives the instances under test: processes of this
// very program over a stack, or targets that were started elsewhere.
//
// Of our own instances it can do more than any client: it starts them with the
// settings of a cell (Equip), kills and restarts them, holds their calls, sets
// their clocks, and reads their event files. Begin at Fleet.
package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strings"
	"time"

	"grablab/internal/grab"
	"grablab/internal/order"
	"grablab/internal/stack"

	"golang.org/x/sync/errgroup"
)

// FirstPort is the first of the article's two ports. More instances and worker
// stacks follow on the next ones.
const FirstPort = 8004

// Fleet is the instances under test.
type Fleet struct {
	Instances []*Instance
	Ours      bool          // they are processes of ours
	Foreign   bool          // they answer the grab call and nothing else
	Settings  grab.Settings // of the first target

	client    *http.Client
	token     string
	nextOrder int64 // of foreign targets, which cannot open orders
	Events    Events

	// Of our own.
	cfg   Config
	stack *stack.Stack
}

// Config is what all instances of our own have in common.
type Config struct {
	Exe         string // this program, which is also the instance
	Instances   int
	Guard       order.Guard // "": each strategy's own
	OnLost      grab.OnLost
	ClockOffset time.Duration        // added to the wall clock of the second instance
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
		client: &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 64}},
		token:  token,
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

// Equip makes every instance of ours run with the settings u: it starts those
// that have ended, and restarts those that run with others.
func (f *Fleet) Equip(ctx context.Context, u Setup) error {
	if !f.Ours {
		return nil
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, in := range f.Instances {
		g.Go(func() error { return in.equip(ctx, u) })
	}
	return g.Wait()
}

// Attach takes instances that were started elsewhere, by their base URLs, and
// finds out how much of the API they know. firstOrder is the id to begin at
// where they cannot open orders; token is what PUT /strategy asks for.
func Attach(ctx context.Context, targets []string, firstOrder int64, token string) (*Fleet, error) {
	f := newFleet(token)
	f.nextOrder = firstOrder
	for i, base := range targets {
		base = strings.TrimRight(base, "/")
		in := f.newInstance(i)
		in.URL, in.ID = base, strings.TrimPrefix(strings.TrimPrefix(base, "http://"), "https://")
		var health grab.Health
		err := f.call(ctx, http.MethodGet, base+"/healthz", nil, &health)
		if sent := (*url.Error)(nil); errors.As(err, &sent) {
			return f, fmt.Errorf("fleet: target %s does not answer: %w", base, err)
		}
		in.ID = cmp.Or(health.Instance, in.ID)
		if len(f.Instances) == 0 {
			f.Settings = health.Settings
		}
		f.Instances = append(f.Instances, in)
		var current grab.CurrentStrategy
		if f.call(ctx, http.MethodGet, base+"/strategy", nil, &current) != nil || current.Name == "" {
			f.Foreign = true
		}
	}
	if f.Foreign && firstOrder == 0 {
		return f, errors.New("fleet: the targets cannot open orders: say with -first-order which id to begin at")
	}
	return f, nil
}

// Stop ends our instances gracefully. Equip starts fresh ones.
func (f *Fleet) Stop() error {
	var errs []error
	for _, in := range f.Instances {
		if in.proc != nil {
			errs = append(errs, in.proc.Stop(stopGrace))
			in.args = nil
		}
	}
	f.client.CloseIdleConnections()
	return errors.Join(errs...)
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
// lives there, in ms; 0: they do not tell. Foreign targets have a strategy of
// their own.
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

// Create opens orders through the first instance, and returns the first id.
func (f *Fleet) Create(ctx context.Context, count int) (int64, error) {
	if f.Foreign {
		first := f.nextOrder
		f.nextOrder += int64(count)
		return first, nil
	}
	var made grab.OrdersView
	err := f.call(ctx, http.MethodPost, f.Instances[0].URL+"/orders", map[string]int{"count": count}, &made)
	if err == nil && (made.FirstID < 1 || made.Count != count || made.FirstID > math.MaxInt64-int64(count)) {
		err = fmt.Errorf("fleet: %s was asked for %d orders, and answers with %d from id %d on", f.Instances[0].ID, count, made.Count, made.FirstID)
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
