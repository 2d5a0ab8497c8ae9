package report

import (
	"strings"
	"testing"

	"grablab/internal/catalog"
	"grablab/internal/measure/experiment"
)

// TestExplanations checks the explanation of each kind of result, for one order and for several.
func TestExplanations(t *testing.T) {
	for _, tt := range []struct {
		verdict                       catalog.Verdict
		orders, grabbed, twice, extra int
		stuck                         *int
		want                          string
	}{
		{catalog.Safe, 1, 1, 0, 0, nil, "the order was grabbed exactly once."},
		{catalog.Safe, 9, 9, 0, 0, nil, "each of the 9 orders was grabbed exactly once."},
		{catalog.Safe, 9, 8, 0, 0, nil, "no order was grabbed twice; 8 of 9 orders were grabbed under this load."},
		{catalog.Safe, 9, 1, 0, 0, nil, "no order was grabbed twice; 1 of 9 orders was grabbed under this load."},
		{catalog.Unknown, 9, 8, 0, 0, nil, ""},
		{catalog.Unknown, 9, 9, 0, 0, new(2), ""},
		{catalog.Stuck, 1, 1, 0, 0, new(1), "the order was grabbed exactly once, but a new driver gets no final answer for 1."},
		{catalog.Stuck, 9, 9, 0, 0, new(2), "each of the 9 orders was grabbed exactly once, but a new driver gets no final answer for 2."},
		{catalog.Stuck, 1, 0, 0, 0, new(1), "no order was grabbed twice, but the order was left that no driver can grab any more."},
		{catalog.Stuck, 9, 7, 0, 0, new(2), "no order was grabbed twice, but 2 of 9 orders were left that no driver can grab any more."},
		{catalog.Stuck, 9, 7, 0, 0, nil, ""},
		{catalog.Unsafe, 9, 9, 2, 3, nil, "2 of 9 orders were grabbed more than once, 3 grabs too many"},
		{catalog.Unsafe, 9, 9, 1, 1, nil, "1 of 9 orders was grabbed more than once, 1 grab too many"},
		{catalog.Unsafe, 9, 9, 1, 1, new(1), "1 of 9 orders was grabbed more than once, 1 grab too many"},
	} {
		grabs := tt.grabbed + tt.extra
		c := experiment.Cell{Verdict: tt.verdict, StuckOrders: tt.stuck, OrdersGrabbed: &tt.grabbed, OrdersDoubleGrabbed: &tt.twice, DoubleGrabs: &tt.extra, Grabs: &grabs}
		c.Strategy, c.Orders = "setnx", tt.orders
		got := explainCounts(c, experiment.RunConfig{Instances: 2})
		if tt.extra > 0 {
			got = got[:min(len(got), len(tt.want))]
		}
		if got != tt.want {
			t.Errorf("%+v: %q, want %q", tt, got, tt.want)
		}
	}
}

// TestSales checks the explanation of each kind of result for orders with several units.
func TestSales(t *testing.T) {
	for _, tt := range []struct {
		verdict                      catalog.Verdict
		orders, grabs, extra         int
		left, lost, compensated, row *int
		want                         string
	}{
		{catalog.Unsafe, 1, 8, 3, nil, nil, nil, nil, "8 units of 5 were sold, 3 too many."},
		{catalog.Unsafe, 1, 8, 3, nil, new(2), nil, nil, "8 units of 5 were sold, 3 too many. The counter has missed 2 sales: two drivers read the same number, and both wrote this number minus one."},
		{catalog.Unsafe, 2, 11, 1, new(1), new(1), nil, nil, "11 units of 10 were sold, 1 too many. The counter has missed 1 sale: two drivers read the same number, and both wrote this number minus one."},
		{catalog.Stuck, 1, 4, 0, new(1), nil, nil, nil, "1 of 5 units were left, and drivers were refused."},
		{catalog.Safe, 2, 9, 0, new(1), nil, nil, nil, "1 of 10 units were left, and drivers were refused."},
		{catalog.Safe, 2, 10, 0, new(0), new(0), nil, nil, "exactly 10 units were sold."},
		{catalog.Unknown, 2, 10, 0, nil, nil, nil, nil, ""},
		{catalog.Safe, 2, 10, 0, nil, nil, nil, new(1), "1 row of the ledger repeats an order and its driver, and no order has a second driver."},
		{catalog.Stuck, 2, 10, 0, nil, nil, nil, new(3), "3 rows of the ledger repeat an order and its driver, and no order has a second driver."},
		{catalog.Unsafe, 2, 11, 1, nil, nil, nil, new(3), "11 units of 10 were sold, 1 too many."},
		{catalog.Safe, 2, 10, 0, nil, nil, new(1), nil, "exactly 10 units were sold.|1 order had more than one winner, for at most 250 ms, until the service took the rest back."},
		{catalog.Safe, 2, 10, 0, nil, nil, new(2), nil, "exactly 10 units were sold.|2 orders had more than one winner, for at most 250 ms, until the service took the rest back."},
	} {
		c := experiment.Cell{Verdict: tt.verdict, OrdersGrabbed: &tt.orders, OrdersDoubleGrabbed: new(0), DoubleGrabs: &tt.extra, Grabs: &tt.grabs, RepeatedRows: tt.row}
		c.Sale = &experiment.Sale{Stock: 5, Undersold: tt.left, LostUpdates: tt.lost}
		c.Strategy, c.Orders, c.CompensatedOrders, c.LongestCompensationMS = "setnx", tt.orders, tt.compensated, new(249.6)
		if got := strings.Join(findings(c, experiment.RunConfig{Instances: 2}), "|"); got != tt.want {
			t.Errorf("%+v: %q, want %q", tt, got, tt.want)
		}
	}
}
