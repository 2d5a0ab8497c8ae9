package search

// Cost counts the preemptions and the faults in a step or a schedule.
type Cost struct{ Preemptions, Faults int8 }

// These are the possible costs of a single step.
var (
	Free      = Cost{}
	Preempted = Cost{Preemptions: 1}
	Faulty    = Cost{Faults: 1}
)

// MaxPreemptions and MaxFaults are the highest limits that a search supports. They are small,
// because a Visit has only 32 bits, one for each possible cost.
const (
	MaxPreemptions = 7
	MaxFaults      = 3
)

// Plus returns the sum of c and d.
func (c Cost) Plus(d Cost) Cost { return Cost{c.Preemptions + d.Preemptions, c.Faults + d.Faults} }

// Minus returns the difference of c and d.
func (c Cost) Minus(d Cost) Cost { return Cost{c.Preemptions - d.Preemptions, c.Faults - d.Faults} }

// Within reports whether neither count of c exceeds that of limit.
func (c Cost) Within(limit Cost) bool {
	return c.Preemptions <= limit.Preemptions && c.Faults <= limit.Faults
}
