package lab

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"grablab/internal/check"
	"grablab/internal/explore/schedule"
	"grablab/internal/measure/replay"
	"grablab/internal/present/diagram"
)

// Forced is the result of a schedule that was forced on real servers.
type Forced struct {
	Config replay.Config
	Result replay.Result
	Says   []string // the result in sentences
}

// forcedView is a Forced as the page shows it.
type forcedView struct {
	Violated bool            `json:"violated"`
	Says     []string        `json:"says"`
	Drawing  diagram.Diagram `json:"drawing"`
}

// Replay is the request to force a schedule, with the text of its file.
type Replay struct {
	Schedule string `json:"schedule"`
}

func (l *Lab) replay(ctx context.Context, r Replay) (any, error) {
	if l.cfg.Replay == nil {
		return nil, fmt.Errorf("%w: this lab forces no schedule", errBad)
	}
	release, err := l.occupy("a schedule on real servers (view Schedules)")
	if err != nil {
		return nil, err
	}
	defer release()
	l.doing("starting real servers: redis-server, and mariadbd or mysqld")
	forced, err := l.cfg.Replay(ctx, r.Schedule, lines(l.doing))
	if err != nil {
		return nil, err
	}
	return forcedView{forced.Result.Violated, forced.Says, forced.drawing()}, nil
}

// drawing returns the diagram of the forced schedule, with its steps and its actors in the
// order of their instances.
func (f Forced) drawing() diagram.Diagram {
	r := diagram.Run{
		Title:    fmt.Sprintf("%s on real servers", f.Config.Strategy.Name),
		Excludes: f.Config.Strategy.Excludes, Property: f.Config.Schedule.Property,
		Events: f.Result.Events, Rows: f.Result.Rows, Units: f.Config.Schedule.Stock, Until: f.Result.Until,
	}
	slices.SortStableFunc(f.Result.Actors, func(a, b replay.Actor) int { return a.Instance - b.Instance })
	for _, a := range f.Result.Actors {
		r.Actors = append(r.Actors, diagram.Actor{Name: a.Name, Lane: fmt.Sprintf("instance %d", a.Instance), Instance: a.ID, Driver: a.Driver})
	}
	r.Outlives = f.Config.Strategy.OutlivesHolder()
	for _, s := range f.Result.Steps {
		i := slices.IndexFunc(f.Result.Actors, func(a replay.Actor) bool {
			return s.Kind == schedule.Dies && a.Name == s.Actor || s.Kind == schedule.InstanceDies && a.Instance == s.Instance
		})
		if i >= 0 {
			r.Deaths = append(r.Deaths, diagram.Death{Instance: f.Result.Actors[i].ID, At: s.At, Killed: true})
		}
	}
	if len(f.Result.Steps) > 0 {
		r.Begins = f.Result.Steps[0].At
	}
	for _, s := range f.Result.Steps {
		text := s.String()
		if s.Seen != "" {
			text += ": " + s.Seen
		}
		r.Steps = append(r.Steps, check.Step{TMS: float64((s.At - r.Begins).Microseconds()) / 1000, Event: text})
	}
	d := diagram.OfRun(r)
	f.bands(&d)
	d.FindCause()
	if last := len(f.Result.Steps) - 1; last >= 0 {
		d.Notes = append(d.Notes, fmt.Sprintf("from the first step to the last: %v", (f.Result.Steps[last].At-r.Begins).Round(time.Millisecond)))
	}
	return d
}

// bands adds the effects of steps on processes and servers, because the instances do not
// record them.
func (f Forced) bands(d *diagram.Diagram) {
	for i, s := range f.Result.Steps {
		ends, lasts := map[schedule.Kind]schedule.Kind{schedule.Paused: schedule.Resumes, schedule.Down: schedule.Up, schedule.Restarts: schedule.Restarts}[s.Kind]
		if !lasts {
			continue
		}
		band := diagram.Span{Kind: diagram.Fault, From: d.Steps[i].At, To: d.End, Open: true, Text: d.Steps[i].Text}
		to := slices.IndexFunc(f.Result.Steps[i:], func(o replay.Step) bool { return o.Kind == ends && o.Actor == s.Actor && o.Target == s.Target })
		if to >= 0 {
			band.To, band.Open = d.Steps[i+to].At, false
		}
		if s.Actor == "" {
			d.Bands = append(d.Bands, band)
			continue
		}
		for _, lane := range d.Lanes {
			for n := range lane.Rows {
				if lane.Rows[n].Name == s.Actor {
					lane.Rows[n].Spans = append(lane.Rows[n].Spans, band)
				}
			}
		}
	}
}

// lines is an io.Writer that passes each line to a function.
type lines func(string)

func (l lines) Write(b []byte) (int, error) {
	for line := range strings.Lines(string(b)) {
		if line = strings.TrimSpace(line); line != "" {
			l(line)
		}
	}
	return len(b), nil
}

var _ io.Writer = lines(nil)
