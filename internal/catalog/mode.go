package catalog

import (
	_ "embed"
	"slices"
)

// Mode is a failure mode: one way in which a lock lets two drivers win, or none.
type Mode struct {
	ID   string // such as F1
	Name string // a short description
	Cure string
	In   string // a strategy that has the cure

	// Steps is the shortest example of the failure. In it, the drivers A, B and C want the same
	// order.
	Steps string
	// ShownBy lists what can show the failure: a load, faults, the explorer or a conformance test.
	ShownBy string
	Source  string // where it is described; empty if it follows from the algorithm
}

// Modes lists the failure modes of all strategies, including strategies that are broken on purpose.
var Modes = parse[[]Mode](modesJSON)

//go:embed modes.json
var modesJSON string

// FindMode finds a failure mode by its id, such as F1.
func FindMode(id string) (Mode, bool) {
	i := slices.IndexFunc(Modes, func(m Mode) bool { return m.ID == id })
	if i < 0 {
		return Mode{}, false
	}
	return Modes[i], true
}
