package lockbench

import "time"

// Case is a way to fight over locks.
type Case struct {
	Name      string
	About     string
	Workers   int
	Processes int           // over which the workers are spread
	Keys      int           // worker n takes the lock of key n modulo Keys
	Held      time.Duration // spun on the clock, for a sleep this short takes a millisecond
	Wave      int           // all arrive at once, each takes the lock so often; then again. 0: they never stop
	Turns     int           // into which a slice is cut, for the machine's moods; 0: one, so that waits can be long
}

// Cases is every case. Where many want one lock, what is compared is how long
// it takes from one holder to the next.
var Cases = []Case{
	{Name: "uncontended", About: "one worker, one key", Workers: 1, Processes: 1, Keys: 1, Turns: 5},
	{Name: "many_keys", About: "64 workers, a key each", Workers: 64, Processes: 2, Keys: 64, Turns: 5},
	{Name: "waves", About: "16 workers in two processes arrive at once, each takes the one lock once; then again", Workers: 16, Processes: 2, Keys: 1, Wave: 1},
	{Name: "closed_loop", About: "the same workers in a loop, holding for 200 µs", Workers: 16, Processes: 2, Keys: 1, Held: 200 * time.Microsecond},
}

// contended says whether workers share a key.
func (c Case) contended() bool { return c.Workers > c.Keys }

// forFloor is the case as the floor plays it. Where many want one lock, one
// worker stands for all of them: what they do one after another, without a
// fight, cannot take less than two round trips each.
func (c Case) forFloor() Case {
	if c.contended() {
		c.Wave *= c.Workers
		c.Workers, c.Processes = 1, 1
	}
	return c
}
