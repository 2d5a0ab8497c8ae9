package experiment

import (
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

// checkShards returns an error if a shard would run more than one cell. Shards do not coordinate,
// so they would not change to the next cell at the same time.
func (r *runner) checkShards() error {
	if (r.cfg.Shard != nil || r.cfg.Merge != nil) && len(r.specs) != 1 {
		return fmt.Errorf("%w: a shard runs one strategy, and these are %d: name one with -strategies", fleet.ErrRefused, len(r.specs))
	}
	return nil
}

// sendShare waits for the start time that all shards share, and then sends this shard's part of
// the load.
func (w *worker) sendShare(ctx context.Context, c *Cell, p *load.Plan, size Load) (*accounting, error) {
	s := w.cfg.Shard
	ahead, err := w.theirs.ClockAhead(ctx)
	if err != nil {
		return nil, err
	}
	left := time.Until(s.Start)
	if left < 0 {
		return nil, fmt.Errorf("the common start was %v ago: choose a later -shard-start for all shards", -left.Round(time.Millisecond))
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

// leaveToMerge records that a single shard cannot judge the cell, so its verdict must wait for the
// merge.
func (c *Cell) leaveToMerge(m *measured, s *shard.Shard) {
	c.answers(m.accounting)
	c.ContendedOrders, c.Sale = nil, nil
	if m.invalid == "" {
		m.invalid = fmt.Sprintf("shard %d of %d; loadgen merge judges all of them", s.Index, s.Count)
	}
}

// replay accounts for the answers that all shards have recorded. If the answers of a shard cannot
// be read, it records that shard as lost.
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

// lasted records how long the load took.
func (c *Cell) lasted(a *accounting) {
	if a.requests > 0 {
		c.DurationS = new(a.lastEnd.Sub(a.began).Seconds())
	}
}

// withhold removes the figures that a merge cannot know, because a shard is lost or clocks differ
// too much. It keeps the figures of the ledger, which contains the grabs of all shards.
func (c *Cell) withhold(reasons *invalidReasons) {
	if c.Merged == nil {
		return
	}
	if len(c.Merged.Lost) > 0 {
		reasons.first = "incomplete: " + strings.Join(c.Merged.Lost, "; ")
		c.UnacknowledgedGrabs, c.Checks = nil, nil
	}
	apart := c.Merged.Apart()
	if apart != "" {
		reasons.add(errors.New(apart), "times cannot be compared")
		c.Latency, c.LatencySent, c.LoadHeld, c.OverTime = nil, nil, nil, nil
		c.CompletedRPS, c.DurationS, c.ContendedOrders = nil, nil, nil
	}
	if c.Sale != nil && reasons.first != "" {
		c.Sale.Undersold, c.Sale.SoldOutMS, c.Sale.InOrder, c.Sale.OverTime = nil, nil, nil, nil
	}
}
