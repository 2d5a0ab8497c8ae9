package search

// Cost is what a step, or a whole schedule, uses up of the bounds.
type Cost struct{ Preemptions, Faults int8 }

// What one step can cost.
var (
	Free      = Cost{}
	Preempted = Cost{Preemptions: 1}
	Faulty    = Cost{Faults: 1}
)

// The largest bounds of a search: Visit has a bit for each cost within them.
const (
	MaxPreemptions = 7
	MaxFaults      = 3
)

// Plus is c and d together.
func (c Cost) Plus(d Cost) Cost { return Cost{c.Preemptions + d.Preemptions, c.Faults + d.Faults} }

// Minus is what is left of c when d has been spent.
func (c Cost) Minus(d Cost) Cost { return Cost{c.Preemptions - d.Preemptions, c.Faults - d.Faults} }

// Within says whether c uses no more than limit of either.
func (c Cost) Within(limit Cost) bool {
	return c.Preemptions <= limit.Preemptions && c.Faults <= limit.Faults
}
