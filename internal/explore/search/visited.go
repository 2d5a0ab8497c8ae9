package search

// Visited is the set of states that executions have passed through. A state is
// explored again only by a schedule that leaves more of the bounds for what
// follows, or that reaches it in fewer steps.
type Visited map[Fingerprint]Visit

// Visit is at which costs a state has been reached, and in how few steps.
type Visit struct {
	Costs uint32 // a bit for each cost at which it need not be explored again
	Steps uint16
}

// Covers says whether a state that is reached at this cost and after so many
// steps need not be explored again: it was, for no more and in no more steps.
func (v Visited) Covers(state Fingerprint, c Cost, steps int) bool {
	visit, ok := v[state]
	return ok && visit.Costs&bit(c) != 0 && steps >= int(visit.Steps)
}

func bit(c Cost) uint32 { return 1 << (int(c.Preemptions)*(MaxFaults+1) + int(c.Faults)) }

// Add marks a state as explored at this cost, and at all that are no less.
func (v Visited) Add(state Fingerprint, c Cost, steps int) {
	visit, ok := v[state]
	if !ok || steps < int(visit.Steps) {
		visit.Steps = uint16(steps)
	}
	for p := c.Preemptions; p <= MaxPreemptions; p++ {
		for f := c.Faults; f <= MaxFaults; f++ {
			visit.Costs |= bit(Cost{p, f})
		}
	}
	v[state] = visit
}
