package report

import (
	"grablab/internal/explore"
	"grablab/internal/measure/experiment"
	"grablab/internal/present/diagram"
)

// Drawings returns all diagrams of a run or of explorations: one for each timeline, failure or
// replay.
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
