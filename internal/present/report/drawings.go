package report

import (
	"grablab/internal/explore"
	"grablab/internal/measure/experiment"
	"grablab/internal/present/diagram"
)

// Drawings returns all diagrams in the reports of a run and of searches for failing schedules.
func Drawings(run *experiment.Run, explored []explore.Result) (all []diagram.Diagram) {
	add := func(d *diagram.Diagram) {
		if d != nil {
			all = append(all, *d)
		}
	}
	if run != nil {
		for _, c := range newRunData(run).Cells {
			add(c.Drawing)
		}
	}
	e := Exploration{Results: explored, Replay: func(explore.Failure) string { return "" }}
	for _, s := range e.document().Sections {
		add(s.Drawing)
	}
	return all
}
