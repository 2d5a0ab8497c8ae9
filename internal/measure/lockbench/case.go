package lockbench

import "time"

// Case says how many workers want how many locks, and how they come for them.
type Case struct {
	Name      string
	About     string
	Workers   int
	Processes int           // over which the workers are spread evenly, unless Spread says how
	Spread    []int         // how many workers each process has
	Keys      int           // worker n takes the lock of key n modulo Keys
	Held      time.Duration // spent looking at the clock, for a sleep this short takes a millisecond
	Wave      int           // all arrive at once and each takes the lock so often; then the next wave. 0: workers loop until the slice is over
	Parts     int           // a slice is cut into so many, spread over the round, to even out the machine's moods; 0: one, so that waits can be long
}

// Cases is every case. Where workers share a key, subjects are compared by how
// long the lock takes from one holder to the next.
var Cases = []Case{
	{Name: "uncontended", About: "one worker, one key", Workers: 1, Processes: 1, Keys: 1, Parts: 5},
	{Name: "many_keys", About: "64 workers, a key each", Workers: 64, Processes: 2, Keys: 64, Parts: 5},
	{Name: "waves", About: "16 workers in two processes arrive at once, each takes the one lock once; then again", Workers: 16, Processes: 2, Keys: 1, Wave: 1},
	{Name: "closed_loop", About: "the same workers in a loop, holding for 200 µs", Workers: 16, Processes: 2, Keys: 1, Held: 200 * time.Microsecond},
	{Name: "waves-apart", About: "as waves, with each worker in a process of its own", Workers: 16, Processes: 16, Keys: 1, Wave: 1},
	{Name: "mixed", About: "as closed_loop, with 24 workers in two processes of 8 and eight of one", Workers: 24, Processes: 10,
		Spread: []int{8, 8, 1, 1, 1, 1, 1, 1, 1, 1}, Keys: 1, Held: 200 * time.Microsecond},
}

// workersOf is how many workers process i has, and the number of the first.
func (c Case) workersOf(i int) (workers, first int) {
	if c.Spread == nil {
		each := c.Workers / c.Processes
		return each, i * each
	}
	for _, n := range c.Spread[:i] {
		first += n
	}
	return c.Spread[i], first
}

// processOf is the process of a worker.
func (c Case) processOf(worker int) int {
	for i := range c.Processes {
		if workers, first := c.workersOf(i); worker < first+workers {
			return i
		}
	}
	return c.Processes
}

// contended says whether workers share a key.
func (c Case) contended() bool { return c.Workers > c.Keys }

// forFloor is the case as the floor plays it. Where workers share a key, one
// worker makes the round trips of all of them: holders come one after another, so
// a lock cannot take less than two round trips for each.
func (c Case) forFloor() Case {
	if c.contended() {
		c.Wave *= c.Workers
		c.Workers, c.Processes, c.Spread = 1, 1, nil
	}
	return c
}
