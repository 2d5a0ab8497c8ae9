package catalog

import _ "embed"

// Mode is a failure mode: one way in which a lock lets two drivers win, or no driver at all.
type Mode struct {
	ID   string // such as F1
	Name string // a short description
	Cure string
	In   string // a strategy that avoids the failure

	// Steps is the shortest example of the failure, in which the drivers A, B and C want the same
	// order.
	Steps string
	// ShownBy lists what can reveal the failure: load, faults, the explorer or a conformance test.
	ShownBy string
	Source  string // where the failure is described; empty if it follows from the algorithm
}

// Modes lists the failure modes of all strategies, including strategies that are broken on purpose.
var Modes = Parse[[]Mode](modesJSON)

//go:embed modes.json
var modesJSON string

// FindMode looks up a failure mode by its ID, such as F1.
func FindMode(id string) (m Mode, ok bool) {
	m = First(Modes, func(m Mode) bool { return m.ID == id })
	return m, m.ID != ""
}
