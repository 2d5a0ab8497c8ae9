package experiment

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/control"
	"grablab/internal/fault"
	"grablab/internal/grab/lock"
	"grablab/internal/stack"
	"grablab/internal/tap"
)

// sceneOf plays one cell, and checks what no fault may touch: it struck as
// often as it could, it was healed, and who came before and after found an
// order that could be grabbed.
func sceneOf(t *testing.T, l *worker, strategy string, name catalog.Fault) Cell {
	t.Helper()
	s, err := lock.Find(strategy)
	if err != nil {
		t.Fatal(err)
	}
	f, err := fault.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	c := l.inject(t.Context(), s, f)
	if c.Expected == nil || c.Verdict != *c.Expected {
		t.Errorf("verdict %s (%s), expected %v", c.Verdict, c.Reason, c.Expected)
	}
	if !c.AsExpected() {
		t.Errorf("%s, expected %s", c.Said(), c.Claimed())
	}
	for _, p := range c.Points {
		if p.Struck != p.Strikes || p.Strikes == 0 {
			t.Errorf("%s: struck %d of %d times", p.Point, p.Struck, p.Strikes)
		}
	}
	if len(c.Points) == 0 {
		t.Error("no point was struck")
	}
	if l.dirty {
		t.Error("not healed")
	}
	if c.Verdict != catalog.Stuck && (c.OrdersGrabbed == nil || *c.OrdersGrabbed != c.Orders) {
		t.Errorf("orders grabbed %v, want all %d", c.OrdersGrabbed, c.Orders)
	}
	return c
}

// openApart is open for tests that run side by side: the instances take any ports.
func openApart(t *testing.T, cfg Config) *worker {
	t.Helper()
	l := open(t, cfg)
	if err := l.fleet.Stop(); err != nil {
		t.Fatal(err)
	}
	l.fleet = l.newFleet(0)
	if err := l.fleet.Equip(t.Context(), l.cfg.setup()); err != nil {
		t.Fatal(err)
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
			{"setnx", catalog.Slow},
			{"setnx-check", catalog.Pause},
			{"setnx-nottl", catalog.Hang},
			{"setnx-expire", catalog.Crash},
		}},
		{lock.Redis | lock.SQL, []CellName{
			{"setnx", catalog.RedisRestart},
			{"setnx", catalog.Partition},
			{"setnx-fence-write", catalog.PartitionDB},
			{"setnx", catalog.Latency},
			{"setnx-getset", catalog.ClientClock},
			{"setnx", catalog.NodeClock},
		}},
		{lock.RedisQuorum | lock.SQL | lock.SQLLocks, []CellName{
			{"redlock", catalog.RedisRestart},
			{"redlock", catalog.RedisRestartMost},
			{"redlock", catalog.RedisDown},
			{"redlock", catalog.RedisDownMost},
			{"redlock", catalog.Amnesia},
			{"redlock-miswired", catalog.Failover},
			{"mysql-getlock", catalog.DBRestart},
			{"none", catalog.DBRestart},
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
			if c := l.cell(t.Context(), cfg.Strategies[0], cfg.Load); c.Verdict != catalog.Safe {
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
	for _, cell := range []CellName{{"setnx", catalog.Pause}, {"setnx-fenced", catalog.Slow}, {"setnx", catalog.NodeClock}, {"mutex", catalog.Crash}} {
		t.Run(cell.String(), func(t *testing.T) { sceneOf(t, l, cell.Strategy, cell.Fault) })
	}
}

// interrupted are the faults whose scenes are interrupted.
func interrupted() []catalog.Fault {
	if os.Getenv("GRABLAB_PROVE") == "1" {
		return []catalog.Fault{catalog.Pause, catalog.RedisDown, catalog.ClientClock, catalog.Latency}
	}
	return []catalog.Fault{catalog.Pause, catalog.RedisDown}
}

// A scene that is interrupted when its fault has struck leaves nothing of it:
// the next cell of the worker goes well.
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
			f.Prepare = func(ctx context.Context, target fault.Target) (fault.Prepared, error) {
				prepared, err := prepare(ctx, target)
				strike := prepared.Strikes[0].Do
				prepared.Strikes[0].Do = func(ctx context.Context, lease time.Duration) (heal stack.Heal, err error) {
					defer interrupt(errors.New("Ctrl-C"))
					if strike == nil { // it struck before
						return nil, nil
					}
					return strike(ctx, lease)
				}
				return prepared, err
			}
			c := l.inject(ctx, cfg.Strategies[0], f)
			if c.Verdict != catalog.Unknown || c.Reason == "" || l.dirty {
				t.Errorf("verdict %s (%s), dirty %v", c.Verdict, c.Reason, l.dirty)
			}
			if c := l.cell(t.Context(), cfg.Strategies[0], cfg.Load); c.Verdict != catalog.Safe {
				t.Errorf("afterwards: %s (%s)", c.Verdict, c.Reason)
			}
		})
	}
}

// A point that no driver comes to has shown nothing.
func TestFaultThatNeverStrikes(t *testing.T) {
	t.Parallel()
	cfg := small(t, stack.Embedded, "mutex")
	l := openApart(t, cfg)
	f, err := fault.Find(catalog.Slow)
	if err != nil {
		t.Fatal(err)
	}
	l.trails.by["mysql-cas"] = trail{calls: map[fault.Role][]control.Call{fault.Alone: {
		{Phase: tap.Read, N: 1, Target: tap.DB}, {Phase: tap.Claim, N: 1, Target: tap.DB}, {Phase: tap.Release, N: 1000, Target: tap.DB},
	}}}
	cas, err := lock.Find("mysql-cas")
	if err != nil {
		t.Fatal(err)
	}
	c := l.inject(t.Context(), cas, f)
	if c.Verdict != catalog.Unknown || !strings.Contains(c.Reason, "did not strike: before release 1000; after release 1000") || c.Exclusive != nil {
		t.Errorf("%s (%s), exclusive %v", c.Verdict, c.Reason, c.Exclusive)
	}
	for _, p := range c.Points {
		if missing := strings.Contains(p.Point, "release"); missing != (p.Verdict == catalog.Unknown) {
			t.Errorf("%+v", p)
		}
	}
}
