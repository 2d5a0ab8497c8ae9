package lockbench

import (
	"fmt"
	"slices"

	"grablab/internal/measure/stat"
)

// BoundRow compares a lock's figure with its limit.
type BoundRow struct {
	Case     string   `json:"case"`
	Strategy string   `json:"strategy"`
	What     string   `json:"what"`
	AtMost   *float64 `json:"at_most"` // only one of AtMost and AtLeast is set
	AtLeast  *float64 `json:"at_least"`
	Figure   float64  `json:"figure"` // measured value; Low and High are the ends of its 95 % interval
	Low      float64  `json:"low"`
	High     float64  `json:"high"`
	// Verdict is "kept" if the median is within the limit, and "missed" if the whole 95 % interval is
	// beyond it. Otherwise, it is "open".
	Verdict string `json:"verdict"`
}

// These are the possible values of BoundRow.Verdict.
const (
	Kept   = "kept"
	Missed = "missed"
	Open   = "open"
)

// bounds lists the limits for our own locks. In each entry, a function computes the figure to
// compare.
var bounds = []struct {
	BoundRow
	figure func(r *Result, c Case, strategy string) stat.Interval
}{
	{BoundRow{Case: "uncontended", Strategy: "setnx", What: "acquire and release, of the floor's", AtMost: new(1.30)}, ratioTo(Floor, p50, p50)},
	{BoundRow{Case: "uncontended", Strategy: "handoff", What: "acquire and release, of setnx's", AtMost: new(1.08)}, ratioTo("setnx", p50, p50)},
	{BoundRow{Case: "many_keys", Strategy: "handoff", What: "rate, of the floor's", AtLeast: new(1.6)}, ratioTo(Floor, opsPerS, opsPerS)},
	{BoundRow{Case: "waves", Strategy: "handoff", What: "mean gap, of two round trips", AtMost: new(0.30)}, ratioTo(Floor, gapMean, p50)},
	{BoundRow{Case: "waves", Strategy: "handoff", What: "gap at a change of process, of blpop's", AtMost: new(2.0)}, ratioTo(Handover, gapAcross, gapAcross)},
	{BoundRow{Case: "waves", Strategy: "handoff", What: "rate, of rueidislock-1's", AtLeast: new(5.0)}, ratioTo("rueidislock-1", opsPerS, opsPerS)},
	{BoundRow{Case: "waves", Strategy: "handoff", What: "commands sent per acquisition", AtMost: new(0.6)}, ownFigure(sentPerOp)},
	{BoundRow{Case: "waves-apart", Strategy: "handoff", What: "hand-off gap, of blpop's", AtMost: new(2.0)}, ratioTo(Handover, gapP50, gapP50)},
	{BoundRow{Case: "waves-apart", Strategy: "handoff", What: "rate, of rueidislock-1's", AtLeast: new(1.9)}, ratioTo("rueidislock-1", opsPerS, opsPerS)},
	{BoundRow{Case: "waves-apart", Strategy: "handoff", What: "commands sent per acquisition", AtMost: new(2.3)}, ownFigure(sentPerOp)},
	{BoundRow{Case: "mixed", Strategy: "handoff", What: "Jain's index", AtLeast: new(0.99)}, ownFigure(jainIndex)},
	{BoundRow{Case: "mixed", Strategy: "handoff", What: "mean gap, of two round trips", AtMost: new(1.1)}, ratioTo(Floor, gapMean, p50)},
	{BoundRow{Case: "mixed", Strategy: "handoff", What: "longest wait, turns", AtMost: new(36.0)}, ownFigure(turns)},
	{BoundRow{Case: "closed_loop", Strategy: "handoff", What: "mean gap, of two round trips", AtMost: new(0.45)}, ratioTo(Floor, gapMean, p50)},
	{BoundRow{Case: "closed_loop", Strategy: "handoff", What: "commands sent per acquisition", AtMost: new(0.25)}, ownFigure(sentPerOp)},
	{BoundRow{Case: "closed_loop", Strategy: "handoff", What: "longest wait, turns", AtMost: new(26.0)}, ownFigure(turns)},
	{BoundRow{Case: "uncontended", Strategy: "setnx", What: "the aim: acquire and release, of the floor's", AtMost: new(1.15)}, ratioTo(Floor, p50, p50)},
	{BoundRow{Case: "uncontended", Strategy: "handoff", What: "the aim: acquire and release, of the floor's", AtMost: new(1.15)}, ratioTo(Floor, p50, p50)},
	{BoundRow{Case: "many_keys", Strategy: "setnx", What: "rate, of redislock's", AtLeast: new(1.0)}, ratioTo("redislock", opsPerS, opsPerS)},
	{BoundRow{Case: "many_keys", Strategy: "handoff", What: "rate, of redislock's", AtLeast: new(1.0)}, ratioTo("redislock", opsPerS, opsPerS)},
	{BoundRow{Case: "waves", Strategy: "handoff", What: "rate, of redsync-5ms's", AtLeast: new(10.0)}, ratioTo("redsync-5ms", opsPerS, opsPerS)},
	{BoundRow{Case: "waves", Strategy: "handoff", What: "rate, of redislock-5ms's", AtLeast: new(10.0)}, ratioTo("redislock-5ms", opsPerS, opsPerS)},
	{BoundRow{Case: "closed_loop", Strategy: "handoff", What: "Jain's index", AtLeast: new(0.99)}, ownFigure(jainIndex)},
	{BoundRow{Case: "closed_loop", Strategy: "handoff", What: "p99.9 of the wait, of workers x (held + median gap)", AtMost: new(3.0)}, waitOverRotation},
}

// ratioTo returns a function that divides one lock's figure by another lock's figure from the same
// round.
func ratioTo(other string, mine, theirs figure) func(*Result, Case, string) stat.Interval {
	return func(r *Result, c Case, strategy string) stat.Interval {
		return stat.Ratio(pairedValues(r.series(strategy, c.Name), r.series(other, c.Name), mine, theirs))
	}
}

func ownFigure(f figure) func(*Result, Case, string) stat.Interval {
	return func(r *Result, c Case, strategy string) stat.Interval { return median(r.series(strategy, c.Name), f) }
}

// waitOverRotation returns the p99.9 of the wait, divided by the time in which every worker can
// have the lock once. If the lock is fair, the result is close to 1.
func waitOverRotation(r *Result, c Case, strategy string) stat.Interval {
	return median(r.series(strategy, c.Name), func(s Slice) *float64 {
		if s.GapP50US == nil {
			return nil
		}
		return new(s.WaitP999MS * 1000 / (float64(c.Workers) * (us(c.Held) + *s.GapP50US)))
	})
}

// bounds judges each bound against the measured figures. It leaves out bounds whose case or figure
// was not measured.
func (r *Result) bounds() []BoundRow {
	rows := []BoundRow{}
	for _, b := range bounds {
		i := slices.IndexFunc(r.cases, func(c Case) bool { return c.Name == b.Case })
		if i < 0 {
			continue
		}
		x := b.figure(r, r.cases[i], b.Strategy)
		if median, _, _ := knownInterval(x); median == nil {
			continue
		}
		row := b.BoundRow
		row.Figure, row.Low, row.High, row.Verdict = x.Median, x.Low, x.High, Open
		switch {
		case row.keeps(x.Median):
			row.Verdict = Kept
		case !row.keeps(x.Low) && !row.keeps(x.High):
			row.Verdict = Missed
		}
		rows = append(rows, row)
	}
	return rows
}

func (b BoundRow) keeps(figure float64) bool {
	if b.AtMost != nil {
		return figure <= *b.AtMost
	}
	return figure >= *b.AtLeast
}

func (b BoundRow) limit() string {
	if b.AtMost != nil {
		return fmt.Sprintf("at most %g", *b.AtMost)
	}
	return fmt.Sprintf("at least %g", *b.AtLeast)
}
