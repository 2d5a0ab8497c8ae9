package search

import (
	"slices"

	"grablab/internal/catalog"
	"grablab/internal/explore/schedule"
)

// job is a schedule to execute. It begins with the first n steps of the schedule base. The next step is
// then, and the worker chooses the remaining steps.
type job struct {
	base *prefix // nil for the first schedule, which has no given steps
	n    uint16
	then stepID
}

// prefix lists the steps of an executed schedule. Several jobs may share a prefix, because each job
// repeats only its first n steps.
type prefix []stepID

// stepID is the index of a step in a stepTable.
type stepID uint16

// stepTable numbers the distinct steps, so that jobs need little memory.
type stepTable struct {
	steps []schedule.Step
	ids   map[schedule.Step]stepID
}

// id returns a step's number. It adds new steps to the table.
func (t *stepTable) id(step schedule.Step) stepID {
	id, ok := t.ids[step]
	if !ok {
		id = stepID(len(t.steps))
		t.steps = append(t.steps, step)
		t.ids[step] = id
	}
	return id
}

func (t *stepTable) prefix(steps []schedule.Step) prefix { return catalog.Map(steps, t.id) }

func (j job) steps() int {
	if j.base == nil {
		return 0
	}
	return int(j.n) + 1
}

type queue struct {
	jobs   []job
	counts [MaxSteps + 2]int // counts the queued jobs by their number of steps; the last count includes all longer jobs
}

// count returns a pointer to the element of counts for jobs with as many steps as j.
func (q *queue) count(j job) *int { return &q.counts[min(j.steps(), len(q.counts)-1)] }

func (q *queue) push(j job) {
	q.jobs = append(q.jobs, j)
	*q.count(j)++
}

// shorter reports whether a queued job could lead to a failure after fewer than the given number of
// steps.
func (q *queue) shorter(steps int) bool {
	return slices.ContainsFunc(q.counts[:min(steps, len(q.counts))], func(n int) bool { return n > 0 })
}

// take removes and returns up to n jobs from the front of the queue.
func (q *queue) take(n int) []job {
	n = min(n, len(q.jobs))
	jobs := q.jobs[:n:n]
	q.jobs = q.jobs[n:]
	for _, j := range jobs {
		*q.count(j)--
	}
	return jobs
}
