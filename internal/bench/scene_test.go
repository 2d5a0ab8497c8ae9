package bench

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"grablab/internal/fault"
	"grablab/internal/grab/lock"
	"grablab/internal/stack"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

// sceneOf plays one cell, and checks what no fault may touch: it struck as
// often as it could, it was healed, and who came before and after found an
// order that could be grabbed.
func sceneOf(t *testing.T, l *lane, strategy string, name lock.Fault) Cell {
	t.Helper()
	s, err := lock.Find(strategy)
	if err != nil {
		t.Fatal(err)
	}
	f, err := fault.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	c := l.scene(t.Context(), s, f)
	if c.Expected == nil || c.Verdict != *c.Expected {
		t.Errorf("verdict %s (%s), expected %v", c.Verdict, c.Reason, c.Expected)
	}
	if c.Struck == nil || *c.Struck != struckOrders {
		t.Errorf("struck %v, want %d", c.Struck, struckOrders)
	}
	if l.spoiled {
		t.Error("not healed")
	}
	if c.Verdict != lock.Stuck && (c.OrdersGrabbed == nil || *c.OrdersGrabbed != sceneOrders) {
		t.Errorf("orders grabbed %v, want all %d", c.OrdersGrabbed, sceneOrders)
	}
	return c
}

// openApart is open for tests that run side by side: the instances take any ports.
func openApart(t *testing.T, cfg Config) *lane {
	t.Helper()
	l := open(t, cfg)
	for _, in := range l.fleet.instances {
		in.port = 0
	}
	return l
}

// Every fault strikes and is healed: one cell each, of a strategy that it breaks
// if it breaks any that is as cheap. Afterwards an ordinary cell goes well.
func TestFaults(t *testing.T) {
	for _, tt := range []struct {
		needs lock.Backend
		cells []CellName
	}{
		{lock.Redis | lock.SQL, []CellName{
			{"setnx", lock.Slow},
			{"setnx-check", lock.Pause},
			{"setnx-nottl", lock.Hang},
			{"setnx-expire", lock.Crash},
		}},
		{lock.Redis | lock.SQL, []CellName{
			{"setnx", lock.RedisRestart},
			{"setnx", lock.Partition},
			{"setnx-fence-write", lock.PartitionDB},
			{"setnx", lock.Latency},
			{"setnx-getset", lock.ClientClock},
			{"setnx", lock.NodeClock},
		}},
		{lock.RedisQuorum | lock.SQL | lock.SQLLocks, []CellName{
			{"redlock", lock.RedisRestart},
			{"redlock", lock.RedisRestartMost},
			{"redlock", lock.RedisDown},
			{"redlock", lock.RedisDownMost},
			{"redlock", lock.Amnesia},
			{"redlock-miswired", lock.Failover},
			{"mysql-getlock", lock.DBRestart},
			{"none", lock.DBRestart},
		}},
	} {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			cfg := small(t, stack.Local, tt.cells[0].Strategy)
			cfg.Stack.Needs = tt.needs
			l := openApart(t, cfg)
			for _, cell := range tt.cells {
				t.Run(cell.String(), func(t *testing.T) { sceneOf(t, l, cell.Strategy, cell.Fault) })
			}
			if c := l.cell(t.Context(), cfg.Strategies[0], cfg.Load); c.Verdict != lock.Safe {
				t.Errorf("afterwards: %s (%s)", c.Verdict, c.Reason)
			}
		})
	}
}

// The embedded stack shows the same of what it can.
func TestFaultsOnTheEmbeddedStack(t *testing.T) {
	t.Parallel()
	cfg := small(t, stack.Embedded, "setnx")
	l := openApart(t, cfg)
	for _, cell := range []CellName{{"setnx", lock.Pause}, {"setnx-fenced", lock.Slow}, {"setnx", lock.NodeClock}, {"mutex", lock.Crash}} {
		t.Run(cell.String(), func(t *testing.T) { sceneOf(t, l, cell.Strategy, cell.Fault) })
	}
}

// interrupted are the faults whose scenes are interrupted.
func interrupted() []lock.Fault {
	if os.Getenv("GRABLAB_PROVE") == "1" {
		return []lock.Fault{lock.Pause, lock.RedisDown, lock.ClientClock, lock.Latency}
	}
	return []lock.Fault{lock.Pause, lock.RedisDown}
}

// A scene that is interrupted when its fault has struck leaves nothing of it:
// the next cell of the lane goes well.
func TestInterruptedScene(t *testing.T) {
	t.Parallel()
	cfg := small(t, stack.Embedded, "setnx")
	l := openApart(t, cfg)
	for _, name := range interrupted() {
		t.Run(string(name), func(t *testing.T) {
			ctx, interrupt := context.WithCancelCause(t.Context())
			f, err := fault.Find(name)
			if err != nil {
				t.Fatal(err)
			}
			prepare := f.Prepare
			f.Prepare = func(ctx context.Context, target fault.Target) (fault.Stage, error) {
				stage, err := prepare(ctx, target)
				strike := stage.Acts[0].Strike
				stage.Acts[0].Strike = func(ctx context.Context, lease time.Duration) (heal stack.Heal, err error) {
					defer interrupt(errors.New("Ctrl-C"))
					if strike == nil { // it struck before
						return nil, nil
					}
					return strike(ctx, lease)
				}
				return stage, err
			}
			c := l.scene(ctx, cfg.Strategies[0], f)
			if c.Verdict != lock.Unknown || c.Reason == "" || l.spoiled {
				t.Errorf("verdict %s (%s), spoiled %v", c.Verdict, c.Reason, l.spoiled)
			}
			if c := l.cell(t.Context(), cfg.Strategies[0], cfg.Load); c.Verdict != lock.Safe {
				t.Errorf("afterwards: %s (%s)", c.Verdict, c.Reason)
			}
		})
	}
}

// A fault that finds nobody where it would strike has shown nothing.
func TestFaultThatNeverStrikes(t *testing.T) {
	if os.Getenv("GRABLAB_PROVE") != "1" {
		t.Skip("GRABLAB_PROVE is not 1: it takes a while")
	}
	t.Parallel()
	cfg := small(t, stack.Embedded, "mutex")
	l := openApart(t, cfg)
	f, err := fault.Find(lock.Slow)
	if err != nil {
		t.Fatal(err)
	}
	f.Aim.N = 1000
	c := l.scene(t.Context(), cfg.Strategies[0], f)
	if *c.Struck != 0 || c.Verdict == lock.Safe {
		t.Errorf("struck %d: %s (%s)", *c.Struck, c.Verdict, c.Reason)
	}
}

// Each wave is sent when it is let go, and is due from then on.
func TestWaves(t *testing.T) {
	w := newWaves()
	pace := w.schedule(t.Context(), Load{}, nil)
	first, second := shot{"a", 1, 1}, shot{"b", 2, 2}
	w.send([]shot{first})
	if wait, stop := pace.Pace(0, 0); wait != 0 || stop {
		t.Errorf("first: %v, %v", wait, stop)
	}
	var waiting sync.WaitGroup
	waiting.Go(func() {
		if wait, stop := pace.Pace(0, 1); wait != 0 || stop {
			t.Errorf("second: %v, %v", wait, stop)
		}
	})
	if s, ok := w.shoot(); !ok || s != first {
		t.Errorf("shot %+v, %v", s, ok)
	}
	if s, ok := w.shoot(); ok {
		t.Errorf("shot %+v before it was let go", s)
	}
	w.send([]shot{second})
	waiting.Wait()
	var target vegeta.Target
	if err := targeter(w)(&target); err != nil || target.URL != "b/orders/2/grab#2" {
		t.Errorf("%q, %v", target.URL, err)
	}
	if pace.due(1) < pace.due(0) || w.requests() != 2 {
		t.Errorf("due %v and %v of %d", pace.due(0), pace.due(1), w.requests())
	}
	w.end()
	if _, stop := pace.Pace(0, 2); !stop {
		t.Error("it does not end")
	}
}
