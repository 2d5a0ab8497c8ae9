package lockbench

import "time"

// Case says how many workers want how many locks, and how they come for them.
type Case struct {
	Name      string
	About     string
	Workers   int
	Processes int           // over which the workers are spread evenly
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
}

// contended says whether workers share a key.
func (c Case) contended() bool { return c.Workers > c.Keys }

// forFloor is the case as the floor plays it. Where workers share a key, one
// worker makes the round trips of all of them: holders come one after another, so
// a lock cannot take less than two round trips for each.
func (c Case) forFloor() Case {
	if c.contended() {
		c.Wave *= c.Workers
		c.Workers, c.Processes = 1, 1
	}
	return c
}
