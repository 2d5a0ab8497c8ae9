package report_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"grablab/internal/catalog"
	"grablab/internal/check"
	"grablab/internal/measure/experiment"
	"grablab/internal/present/report"
)

// TestCauses checks the sentence that explains double grabs, and the settings at the top of the report.
func TestCauses(t *testing.T) {
	const checkThenAct = "one driver reads that an order is open"
	five := cell("mutex", catalog.Unsafe, 500, 100, 100, 12.52)
	once := five
	once.Requests = 5 * once.Orders
	known := cell("setnx", catalog.Unsafe, 200, 100, 100, 12.52)
	known.Timeline = &check.Timeline{Mode: "F11"}
	paused := cell("setnx", catalog.Unsafe, 200, 100, 100, 12.52)
	paused.Fault, paused.WorkMS, paused.TTLMS, paused.WaitMS = catalog.Pause, new(5.0), new(1000.0), new(2000.0)
	overlapped := cell("setnx-getset", catalog.Unsafe, 22, 10, 12, 12.52)
	overlapped.Overlaps = new(40)
	for _, tt := range []struct {
		name      string
		instances int
		cells     []experiment.Cell
		want, not string
	}{
		{"a mutex in five processes", 5, []experiment.Cell{five}, "each order has one winner for each instance", checkThenAct},
		{"a mutex in four of five processes", 4, []experiment.Cell{five}, checkThenAct, "one winner for each instance"},
		{"a mutex in five processes, each with one request for each order", 5, []experiment.Cell{once}, checkThenAct, "one winner for each instance"},
		{"no lock", 2, []experiment.Cell{cell("none", catalog.Unsafe, 500, 100, 100, 12.52)}, checkThenAct, "F1"},
		{"a lock that lets two in", 2, []experiment.Cell{overlapped}, "the lock let in a driver while another was still inside", checkThenAct},
		{"a known mode", 2, []experiment.Cell{known}, "F11: ", checkThenAct},
		{"a fault", 2, []experiment.Cell{paused}, "setnx", checkThenAct},
		{"other settings under a fault", 2, []experiment.Cell{five, paused}, "; in other cells work 5ms, TTL 1s, wait 2s", "unknown settings"},
	} {
		r := run("rush", tt.cells...)
		r.Config.Instances = tt.instances
		var b bytes.Buffer
		if err := errors.Join(report.Text(&b, r), report.HTML(&b, r)); err != nil {
			t.Fatal(err)
		}
		if got := b.String(); !strings.Contains(got, tt.want) || strings.Contains(got, tt.not) {
			t.Errorf("%s: want %q and not %q:\n%s", tt.name, tt.want, tt.not, got)
		}
	}
}
