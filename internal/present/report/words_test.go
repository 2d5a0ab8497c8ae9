package report

import (
	"strings"
	"testing"

	"grablab/internal/catalog"
	"grablab/internal/measure/experiment"
)

// TestFindings checks the texts about repeated rows, compensation and the time that the ledger was watched.
func TestFindings(t *testing.T) {
	for _, tt := range []struct {
		verdict                   catalog.Verdict
		repeatedRows, compensated *int
		settled                   *float64
		want                      string
	}{
		{catalog.Safe, nil, nil, nil, ""},
		{catalog.Safe, new(1), nil, nil, "1 row of the ledger repeats an order and its driver, and no order has a second driver"},
		{catalog.Stuck, new(3), nil, nil, "3 rows of the ledger repeat an order and its driver, and no order has a second driver"},
		{catalog.Unsafe, new(3), nil, nil, ""},
		{catalog.Safe, nil, new(1), nil, "1 order had more than one winner, for at most 250 ms, until the service took the rest back"},
		{catalog.Safe, nil, new(2), new(1500.0), "2 orders had more than one winner, for at most 250 ms, until the service took the rest back|the ledger was watched for 1.5 s after the last driver had asked"},
	} {
		c := experiment.Cell{
			Strategy: "setnx", Fault: catalog.NoFault, Verdict: tt.verdict, DoubleGrabs: new(0), RepeatedRows: tt.repeatedRows,
			CompensatedOrders: tt.compensated, LongestCompensationMS: new(249.6), SettleMS: tt.settled,
		}
		if got := strings.Join(findings(c, experiment.RunConfig{Instances: 2}), "|"); got != tt.want {
			t.Errorf("findings for %+v: %q, want %q", tt, got, tt.want)
		}
	}
}
