package search

import "slices"

// job is a schedule that waits to be executed: the first n steps of one that
// was, and another step. There are ten times as many jobs as states, so they are
// small.
type job struct {
	base  *prefix // nil: no step is given
	n     uint16
	then  StepID
	least uint16 // no property can break before the schedule has so many steps
}

// prefix is the steps of a schedule that was executed.
type prefix []StepID

func (j job) steps() int {
	if j.base == nil {
		return 0
	}
	return int(j.n) + 1
}

// queue is first in, first out, in chunks: it never moves what it has, and
// keeps nothing of what it has given.
type queue struct {
	chunks [][]job
	taken  int // of the first chunk
	len    int
	least  [MaxSteps + 2]int // how many there are by their least
}

const chunk = 4096

func (q *queue) push(j job) {
	if last := len(q.chunks) - 1; last < 0 || len(q.chunks[last]) == chunk {
		q.chunks = append(q.chunks, make([]job, 0, chunk))
	}
	last := &q.chunks[len(q.chunks)-1]
	*last = append(*last, j)
	q.len++
	q.least[min(int(j.least), len(q.least)-1)]++
}

// shorter says whether a job is there that can break a property within fewer steps.
func (q *queue) shorter(steps int) bool {
	return slices.ContainsFunc(q.least[:min(steps, len(q.least))], func(n int) bool { return n > 0 })
}

// take removes and returns the first jobs, n of them at the most.
func (q *queue) take(n int) []job {
	var jobs []job
	for len(jobs) < n && q.len > 0 {
		first := q.chunks[0][q.taken:]
		first = first[:min(n-len(jobs), len(first))]
		jobs = append(jobs, first...)
		q.len -= len(first)
		if q.taken += len(first); q.taken == len(q.chunks[0]) {
			q.chunks, q.taken = q.chunks[1:], 0
		}
	}
	for _, j := range jobs {
		q.least[min(int(j.least), len(q.least)-1)]--
	}
	return jobs
}
