package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"grablab/internal/measure/shard"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/load"
	"grablab/internal/testbed/wait"
)

// checkShards returns an error if a run that is split into shards has more than one test. The shards
// could not start the second test at the same time.
func (r *runner) checkShards() error {
	if (r.cfg.Shard != nil || r.cfg.Merge != nil) && len(r.specs) != 1 {
		return fmt.Errorf("%w: a shard runs only one strategy, but -strategies names %d: name one", fleet.ErrRefused, len(r.specs))
	}
	return nil
}

// sendShare waits for the start time that all shards have agreed on, and then sends this process's
// share of the load.
func (w *worker) sendShare(ctx context.Context, c *Cell, p *load.Plan, size Load) (*accounting, error) {
	s := w.cfg.Shard
	ahead, err := w.theirs.ClockAhead(ctx)
	if err != nil {
		return nil, err
	}
	left := time.Until(s.Start)
	if left < 0 {
		return nil, fmt.Errorf("the start time of the shards was %v ago: choose a later -shard-start, and use the same one for all shards", -left.Round(time.Millisecond))
	}
	w.progress.say("shard %d of %d begins in %v", s.Index, s.Count, left.Round(time.Millisecond))
	if !wait.For(ctx, left) {
		return nil, context.Cause(ctx)
	}
	p.Split(s.Share)
	a, err := w.send(ctx, c, p, size, nil)
	if a != nil && a.requests > 0 {
		began := a.lastDue.Add(-p.Due(size, a.lastSeq))
		c.Shard = &shard.Record{Index: s.Index, Count: s.Count, BeganAt: began.UTC(), ClockMS: millis(ahead)}
	}
	return a, err
}

// leaveToMerge records that this share of the load gets no verdict of its own, because loadgen
// merge judges all shares together.
func (c *Cell) leaveToMerge(m *measured, s *shard.Shard) {
	c.answers(m.accounting)
	c.ContendedOrders, c.Sale = nil, nil
	m.invalid = cmp.Or(m.invalid, fmt.Sprintf("shard %d of %d; loadgen merge judges all of them", s.Index, s.Count))
}

// replay counts the responses that several processes have recorded. If a file cannot be read, that
// share of the load is recorded as lost.
func (w *worker) replay(c *Cell, p func() *load.Plan, size Load) *accounting {
	merge := w.cfg.Merge
	c.Merged = &merge.Merged
	a := newAccounting(size.Drivers, w.fleet.IDs(), w.fleet.Shape)
	a.units, a.began = w.cfg.units(), merge.Began()
	if err := merge.Replay(size, p, a.add); err != nil {
		merge.Lost = append(merge.Lost, err.Error())
	}
	a.finish()
	c.lasted(a)
	return a
}

func (c *Cell) lasted(a *accounting) {
	if a.requests > 0 {
		c.DurationS = new(a.lastEnd.Sub(a.began).Seconds())
	}
}

// withhold removes figures from a merged result if one machine's result is missing, or if the
// machines' clocks differ too much. Database figures remain, because they are complete.
func (c *Cell) withhold(m *measured) {
	if c.Merged == nil {
		return
	}
	if len(c.Merged.Lost) > 0 {
		m.invalid = "incomplete: " + strings.Join(c.Merged.Lost, "; ")
		c.UnacknowledgedGrabs, c.Checks = nil, nil
	}
	if apart := c.Merged.Apart(); apart != "" {
		m.invalidate(errors.New(apart), "times cannot be compared")
		c.Latency, c.LatencySent, c.LoadHeld, c.OverTime = nil, nil, nil, nil
		c.CompletedRPS, c.DurationS, c.ContendedOrders = nil, nil, nil
	}
	if c.Sale != nil && m.invalid != "" {
		c.Sale.Undersold, c.Sale.SoldOutMS, c.Sale.InOrder, c.Sale.OverTime = nil, nil, nil, nil
	}
}
