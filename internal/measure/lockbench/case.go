package lockbench

import "time"

// Case defines how many workers compete for how many locks, and when they arrive.
type Case struct {
	Name      string
	About     string
	Workers   int
	Processes int           // the workers are spread evenly over them, unless Spread is set
	Spread    []int         // the number of workers of each process
	Keys      int           // worker n takes the lock of key n modulo Keys
	Held      time.Duration // spent in a busy loop, because such a short sleep would take a millisecond
	Wave      int           // acquisitions per worker in a wave, in which all arrive at once; if 0, workers loop until the slice ends
	Parts     int           // parts of a slice, spread over the round to average out changes of the machine; 0 means one, which allows long waits
}

// Cases lists every case. If workers share a key, the comparison uses the time from one
// holder to the next.
var Cases = []Case{
	{Name: "uncontended", About: "one worker, one key", Workers: 1, Processes: 1, Keys: 1, Parts: 5},
	{Name: "many_keys", About: "64 workers, a key each", Workers: 64, Processes: 2, Keys: 64, Parts: 5},
	{Name: "waves", About: "16 workers in two processes arrive at once, each takes the one lock once; then again", Workers: 16, Processes: 2, Keys: 1, Wave: 1},
	{Name: "closed_loop", About: "the same workers in a loop, holding for 200 µs", Workers: 16, Processes: 2, Keys: 1, Held: 200 * time.Microsecond},
	{Name: "waves-apart", About: "as waves, with each worker in a process of its own", Workers: 16, Processes: 16, Keys: 1, Wave: 1},
	{Name: "mixed", About: "as closed_loop, with 24 workers in two processes of 8 and eight of one", Workers: 24, Processes: 10,
		Spread: []int{8, 8, 1, 1, 1, 1, 1, 1, 1, 1}, Keys: 1, Held: 200 * time.Microsecond},
}

// workersOf returns the number of workers of process i, and the number of its first worker.
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

// processOf returns the process of a worker.
func (c Case) processOf(worker int) int {
	for i := range c.Processes {
		if workers, first := c.workersOf(i); worker < first+workers {
			return i
		}
	}
	return c.Processes
}

// contended reports whether workers share a key.
func (c Case) contended() bool { return c.Workers > c.Keys }

// forFloor returns the case for the floor. If workers share a key, one worker makes the
// round trips of all of them. Holders follow one another, so a lock needs at least two round
// trips for each.
func (c Case) forFloor() Case {
	if c.contended() {
		c.Wave *= c.Workers
		c.Workers, c.Processes, c.Spread = 1, 1, nil
	}
	return c
}
