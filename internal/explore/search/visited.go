package search

// Visited contains the states that executions have reached. The search explores a visited state
// again only if it reaches the state at a lower cost or in fewer steps.
type Visited map[Fingerprint]Visit

// Visit records the costs at which executions reached a state, and the smallest number of steps.
type Visit struct {
	Costs uint32 // one bit for each cost at which the search need not explore the state again
	Steps uint16
}

// Covers reports whether an execution has already reached a state at no higher cost and in no more
// steps.
func (v Visited) Covers(state Fingerprint, c Cost, steps int) bool {
	visit, ok := v[state]
	return ok && visit.Costs&bit(c) != 0 && steps >= int(visit.Steps)
}

func bit(c Cost) uint32 { return 1 << (int(c.Preemptions)*(MaxFaults+1) + int(c.Faults)) }

// Add records that executions have explored a state at this cost. The state then also counts as
// explored at every higher cost.
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
