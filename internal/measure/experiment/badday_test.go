package experiment

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab"
	"grablab/internal/testbed/load"
	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/stack/stacktest"
)

// open starts what a run needs, and ends it with the test.
func open(t *testing.T, cfg Config) *worker {
	t.Helper()
	r := newRunner(cfg, func(*Run) error { return nil })
	t.Cleanup(func() { r.close() })
	stacktest.Check(t, r.open(t.Context()))
	return r.workers[0]
}

// A dependency that dies in the middle of a cell ends in errors by kind and a
// verdict that does not pretend; the next cell is not measured, and says so.
func TestServerThatDies(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		server string
		next   string // a strategy for the cell after
		says   string // of the cell after
	}{
		{"redis", "setnx", "connection refused"},
		{"db", "none", "not measured"},
	} {
		t.Run(tc.server, func(t *testing.T) {
			if tc.server == "db" && !proving {
				t.Skip("GRABLAB_PROVE=1 kills it")
			}
			cfg := small(t, stack.Local, "setnx", "none")
			cfg.Timeout, cfg.TTL = 5*time.Second, 300*time.Millisecond
			l := openApart(t, cfg)
			kill := time.AfterFunc(700*time.Millisecond, func() {
				if err := l.stack.Process(tc.server).Signal(syscall.SIGKILL); err != nil {
					t.Error(err)
				}
			})
			defer kill.Stop()
			c := l.cell(t.Context(), cfg.Strategies[0], cfg.Load)
			if c.Requests != cfg.Orders*cfg.Drivers || c.Outcomes[grab.Failed]+c.Outcomes[grab.Timeout] == 0 {
				t.Errorf("%d requests: %v %v", c.Requests, c.Outcomes, c.Errors)
			}
			if c.Verdict != catalog.Unknown || c.Reason == "" {
				t.Errorf("verdict %s (%s)", c.Verdict, c.Reason)
			}
			for _, s := range cfg.Strategies {
				if s.Name != tc.next {
					continue
				}
				if c := l.cell(t.Context(), s, cfg.Load); c.Verdict != catalog.Unknown || !strings.Contains(c.Reason, tc.says) {
					t.Errorf("afterwards %s: %s (%s)", s.Name, c.Verdict, c.Reason)
				}
			}
		})
	}
}

// An instance that is stopped for a second shows in the latency from the
// schedule, also when few workers hide it from the latency from sending.
func TestStoppedInstanceShowsInTheLatency(t *testing.T) {
	t.Parallel()
	all := []int{2}
	if proving {
		all = append(all, 1000)
	}
	for _, workers := range all {
		cfg := small(t, stack.Embedded, "none")
		cfg.MaxWorkers, cfg.Orders = workers, 40
		l := openApart(t, cfg)
		still := l.fleet.Instances[1].Process()
		stop := time.AfterFunc(500*time.Millisecond, func() {
			err := still.Signal(syscall.SIGSTOP)
			time.Sleep(time.Second)
			if err := errors.Join(err, still.Signal(syscall.SIGCONT)); err != nil {
				t.Error(err)
			}
		})
		c := l.cell(t.Context(), cfg.Strategies[0], cfg.Load)
		stop.Stop()
		if c.Latency.P99 < 900 {
			t.Errorf("%d workers: p99 from the schedule is %.0f ms", workers, c.Latency.P99)
		}
		if workers == 2 && *c.LoadHeld {
			t.Errorf("2 workers held the load: p99 %.0f ms from the schedule, %.0f ms from sending", c.Latency.P99, c.LatencySent.P99)
		}
	}
}

// An instance that has died is started again for the next cell.
func TestInstanceThatDies(t *testing.T) {
	t.Parallel()
	cfg := small(t, stack.Embedded, "setnx")
	cfg.TTL = 3 * time.Second // for so long the dead one's orders are stuck
	l := open(t, cfg)
	time.AfterFunc(500*time.Millisecond, func() { l.fleet.Instances[0].Signal(syscall.SIGKILL) })
	c := l.cell(t.Context(), cfg.Strategies[0], cfg.Load)
	if c.Errors[load.Refused] == 0 || c.RedisCommands != nil {
		t.Errorf("with a dead instance: %v, redis commands %v", c.Errors, c.RedisCommands)
	}
	checkSums(t, c)
	if c := l.cell(t.Context(), cfg.Strategies[0], cfg.Load); c.Verdict != catalog.Safe {
		t.Errorf("afterwards: %s (%s)", c.Verdict, c.Reason)
	}
}
