package lockbench

import "time"

// Case is a workload: how many workers compete for how many keys, and when they start.
type Case struct {
	Name      string
	About     string
	Workers   int
	Processes int           // number of processes, over which the workers are spread evenly unless Spread is set
	Spread    []int         // number of workers in each process
	Keys      int           // number of keys; worker n takes the lock of key n modulo Keys
	Held      time.Duration // how long each lock is held; the worker spins, because the shortest sleep takes a millisecond
	Wave      int           // acquisitions per worker in a wave, which all workers start at once; 0 means that workers loop until the slice ends
	Parts     int           // number of parts of a time slice; several parts average out changes in machine speed; 0 means one part, which allows long waits
}

// Cases lists every workload of the benchmark.
var Cases = []Case{
	{Name: "uncontended", About: "one worker, one key", Workers: 1, Processes: 1, Keys: 1, Parts: 5},
	{Name: "many_keys", About: "64 workers in two processes, each with a key of its own", Workers: 64, Processes: 2, Keys: 64, Parts: 5},
	{Name: "waves", About: "16 workers in two processes arrive at once, each takes the lock once, and then the next wave arrives", Workers: 16, Processes: 2, Keys: 1, Wave: 1},
	{Name: "closed_loop", About: "16 workers in two processes take the lock in a loop, and each holds it for 200 µs", Workers: 16, Processes: 2, Keys: 1, Held: 200 * time.Microsecond},
	{Name: "waves-apart", About: "like waves, but with each worker in a process of its own", Workers: 16, Processes: 16, Keys: 1, Wave: 1},
	{Name: "mixed", About: "like closed_loop, but with 24 workers in two processes of eight and eight processes of one", Workers: 24, Processes: 10,
		Spread: []int{8, 8, 1, 1, 1, 1, 1, 1, 1, 1}, Keys: 1, Held: 200 * time.Microsecond},
}

// workersOf returns the ith process's number of workers, and the number of its first worker.
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

func (c Case) processOf(worker int) int {
	for i := range c.Processes {
		if workers, first := c.workersOf(i); worker < first+workers {
			return i
		}
	}
	return c.Processes
}

func (c Case) contended() bool { return c.Workers > c.Keys }

// forFloor returns the case in which the floor runs for comparison with c. Workers that share a lock make
// their round trips one after another. If c has such workers, the floor therefore has a single worker.
func (c Case) forFloor() Case {
	if c.contended() {
		c.Wave *= c.Workers
		c.Workers, c.Processes, c.Spread = 1, 1, nil
	}
	return c
}
