// Package servicetest is for go test. It checks whether your service ever lets an order be grabbed
// twice.
//
// [Run] makes many drivers grab every order at once, spread over all instances of the service. It
// can also inject faults into the processes. The test fails if an order was grabbed more than once,
// if an order can no longer be grabbed, or if no verdict was possible. In each case, it prints the
// reason. Two [net/http/httptest] servers are enough as instances:
//
//	func TestOrders(t *testing.T) {
//		one, two := httptest.NewServer(newService(db)), httptest.NewServer(newService(db))
//		defer one.Close()
//		defer two.Close()
//		servicetest.Run(t, servicetest.Target{URLs: []string{one.URL, two.URL}, FirstOrder: 1})
//	}
//
// docs/your-service.md explains how to describe requests, responses and the ledger. The loadgen
// command can also start a service behind proxies and inject faults at every step of a grab.
package servicetest

import (
	"cmp"
	"fmt"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/measure/experiment"
	"grablab/internal/present/report"
	"grablab/internal/testbed/target"
)

// Target describes a running service. An empty field selects the default of the loadgen flag with
// the same name.
type Target struct {
	// URLs contains the instances' base URLs. Use at least two instances, because otherwise the
	// test cannot pass.
	URLs []string
	// Method, Path and Body define the HTTP request with which a driver grabs an order. They may
	// contain {order} and {driver}. The default is POST /orders/{order}/grab with the body
	// {"driver_id":{driver}}.
	Method, Path, Body string
	// Grabbed, Taken and Busy define which responses mean that the driver got the order, was too
	// late, or should retry. The defaults are the status codes 200, 409 and 423.
	Grabbed, Taken, Busy string
	// FirstOrder is the ID of the first open order. Alternatively, set OpenOrders to an HTTP
	// request or SQL that opens new orders.
	FirstOrder int64
	OpenOrders []string
	// DB and LedgerQuery define where the service stores the winners. If they are empty, the test
	// judges only the responses.
	DB, LedgerQuery string
	// Lease is how long the service's lock lasts without renewal. If no driver can grab an order
	// for longer than this, the order counts as stuck.
	Lease time.Duration

	// Faults lists the faults to inject: "pause", "crash" or both. They strike the processes in
	// PIDs, which contains one process ID for each URL. Without Faults, PIDs has no effect. The
	// faults share the time that go test -timeout allows, which is 10 minutes by default.
	Faults []string
	PIDs   []int

	// Orders is the number of orders (default 50), and Drivers is how many drivers try to grab each
	// order (default 10). Rate is the number of grabs per second (default 500). A driver gives up
	// after Timeout (default 30 s).
	Orders, Drivers int
	Rate            float64
	Timeout         time.Duration
}

// Run tests the service. The load and each fault are subtests. Run skips a fault that it cannot
// inject.
func Run(t *testing.T, service Target) {
	t.Helper()
	cases, err := service.run(t)
	if err != nil {
		t.Fatalf("servicetest: %v", err)
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			details, err := c.Details()
			switch {
			case err != nil:
				t.Fatal(err)
			case c.Result == report.NotRun:
				t.Skip(c.Why)
			case c.Result != report.Passed:
				t.Errorf("%s\n%s", c.Why, details)
			}
		})
	}
}

func (service Target) run(t *testing.T) ([]report.Case, error) {
	cfg, err := service.config()
	if err != nil {
		return nil, err
	}
	end, _ := t.Deadline()
	cfg.Out, cfg.Budget = t.TempDir(), service.budget(end)
	run, err := experiment.Execute(t.Context(), cfg, func(*experiment.Run) error { return nil })
	if err != nil {
		return nil, err
	}
	return report.Cases(run, nil, nil), nil
}

// budget returns the time limit for one fault in a test that must end at end. go test would otherwise
// stop the test without a verdict.
func (service Target) budget(end time.Time) time.Duration {
	limit := 15 * time.Minute
	if !end.IsZero() {
		limit = min(limit, time.Until(end)*9/10/time.Duration(max(len(service.Faults), 1)))
	}
	return limit
}

// config converts the target's fields to the settings of a run, and checks them.
func (service Target) config() (experiment.Config, error) {
	cfg := experiment.Defaults(experiment.Scenarios[0].Name)
	cfg.Instances, cfg.Seed, cfg.Together = len(service.URLs), uint64(time.Now().UnixNano()), true
	cfg.Orders, cfg.Drivers = cmp.Or(service.Orders, 50), cmp.Or(service.Drivers, 10)
	cfg.Rate, cfg.Timeout = cmp.Or(service.Rate, cfg.Rate), cmp.Or(service.Timeout, cfg.Timeout)
	for _, name := range service.Faults {
		f, ok := catalog.FindFault(name)
		if !ok || f.Process == catalog.ProcessRuns {
			return cfg, fmt.Errorf("there is no fault %q: use pause or crash", name)
		}
		cfg.Faults = append(cfg.Faults, f.Name)
	}
	switch {
	case len(service.URLs) == 0:
		return cfg, fmt.Errorf("there are no URLs: name the base URL of each instance")
	case len(service.Faults) > 0 && (len(service.PIDs) != len(service.URLs) || len(service.URLs) < 2):
		return cfg, fmt.Errorf("there are %d PIDs for %d URLs: faults need one PID for each URL, and at least two of them", len(service.PIDs), len(service.URLs))
	case service.LedgerQuery != "" && service.DB == "":
		return cfg, fmt.Errorf("there is a LedgerQuery, but no DB: name the database that the query reads")
	}
	if len(service.Faults) == 0 {
		service.PIDs = nil
	}
	spec := target.Spec{
		Method: service.Method, Path: service.Path,
		Grabbed: service.Grabbed, Taken: service.Taken, Busy: service.Busy, OpenOrders: service.OpenOrders,
	}
	if service.Body != "" {
		spec.Body = &service.Body
	}
	shape, open, err := spec.Compile()
	if err != nil {
		return cfg, err
	}
	cfg.Target = target.Target{
		URLs: service.URLs, PIDs: service.PIDs, FirstOrder: service.FirstOrder, Open: open, Lease: service.Lease,
		Database: target.Database{DSN: service.DB, Query: service.LedgerQuery},
	}
	if !spec.IsOwn() {
		cfg.Target.Shape = shape
	}
	return cfg, nil
}
