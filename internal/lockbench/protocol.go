package lockbench

import (
	"time"

	"grablab/internal/stack"
)

// What the worker processes and the one that leads them say to each other, as
// gobs over a Unix socket. All times are CLOCK_MONOTONIC.

// servers is the first message to a worker: what there is to connect to.
type servers struct {
	Node string
	stack.Addresses
}

// job is every further message.
type job struct {
	Contestant string
	// Workers of 0: nothing is done, but counted what has been sent so far.
	Workers int
	First   int // number of the first of these workers among those of all processes
	Keys    []string
	Held    time.Duration
	At      time.Duration // when to begin
	// A worker takes the lock so often; 0: again and again before Until.
	Times int
	Until time.Duration
}

// report answers a job.
type report struct {
	Holds []Hold
	Sent  uint64 // commands and statements, since the contestant was opened
	Err   string // the contestant failed
}

// Hold is one acquisition.
type Hold struct {
	Worker, Key int
	GaveUp      int           // how often the lock gave up before, and was called again
	Asked       time.Duration // when the worker began to want it
	Acquired    time.Duration // when the acquire had returned
	Released    time.Duration // when the release was called
	Done        time.Duration // when the release had returned
}
