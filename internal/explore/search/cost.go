package search

// Cost is how much of the bounds a step or a schedule uses.
type Cost struct{ Preemptions, Faults int8 }

// One step has one of these costs.
var (
	Free      = Cost{}
	Preempted = Cost{Preemptions: 1}
	Faulty    = Cost{Faults: 1}
)

// These are the largest bounds of a search, because Visit has a bit for each cost within them.
const (
	MaxPreemptions = 7
	MaxFaults      = 3
)

// Plus returns the sum of c and d.
func (c Cost) Plus(d Cost) Cost { return Cost{c.Preemptions + d.Preemptions, c.Faults + d.Faults} }

// Minus returns what is left of c after d was spent.
func (c Cost) Minus(d Cost) Cost { return Cost{c.Preemptions - d.Preemptions, c.Faults - d.Faults} }

// Within reports whether neither part of c exceeds limit.
func (c Cost) Within(limit Cost) bool {
	return c.Preemptions <= limit.Preemptions && c.Faults <= limit.Faults
}
