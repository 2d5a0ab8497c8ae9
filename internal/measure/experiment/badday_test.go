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

// open starts the servers and instances of a run, and returns its first worker. It stops them when
// the test ends.
func open(t *testing.T, cfg Config) *worker {
	t.Helper()
	r := newRunner(cfg, func(*Run) error { return nil })
	t.Cleanup(func() { r.close() })
	stacktest.Check(t, r.open(t.Context()))
	return r.workers[0]
}

// TestServerThatDies kills a server in the middle of a cell. The cell must have errors, all its
// requests, and the verdict unknown. The next cell must also be unknown, with the reason.
func TestServerThatDies(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		server string
		next   string // strategy of the next cell
		says   string // part of the next cell's reason
	}{
		{"redis", "setnx", "connection refused"},
		{"db", "none", "not measured"},
	} {
		t.Run(tc.server, func(t *testing.T) {
			if tc.server == "db" && !proving {
				t.Skip("GRABLAB_PROVE is not 1: it takes a while")
			}
			cfg := small(t, stack.Local, "setnx", "none")
			cfg.Timeout, cfg.TTL = 5*time.Second, 3*time.Second
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
				t.Errorf("the verdict after the death of a server is %s (%s), want unknown with a reason", c.Verdict, c.Reason)
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

// TestStoppedInstanceShowsInTheLatency stops an instance for a second. This must increase the
// latency that is measured from the schedule, even if too few workers hide it from the latency
// measured from sending.
func TestStoppedInstanceShowsInTheLatency(t *testing.T) {
	t.Parallel()
	all := []int{2}
	if proving {
		all = append(all, 1000)
	}
	for _, workers := range all {
		cfg := small(t, stack.Embedded, "none")
		cfg.MaxWorkers, cfg.Orders = workers, 20
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
			t.Errorf("the load counts as held with 2 workers: p99 %.0f ms from the schedule, %.0f ms from sending", c.Latency.P99, c.LatencySent.P99)
		}
	}
}

// TestInstanceThatDies checks that an instance that died during a cell is restarted for the next
// cell.
func TestInstanceThatDies(t *testing.T) {
	t.Parallel()
	cfg := small(t, stack.Embedded, "setnx")
	cfg.TTL = 3 * time.Second // how long the orders of the dead instance stay locked
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
