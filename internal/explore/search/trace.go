package search

import (
	"context"

	"grablab/internal/catalog"
	"grablab/internal/explore/schedule"
)

// MaxSteps is more than any grab takes: an execution that needs more is cut off.
const MaxSteps = 300

// Task is a schedule to be executed: the steps in which it departs from those
// before it, and their cost. From there the execution goes on with what is free.
type Task struct {
	Steps []schedule.Step
	Cost  Cost
}

// Worker executes tasks.
type Worker interface {
	// Execute calls done with the trace of each task, in their order, until ctx ends
	// or a task hangs.
	Execute(ctx context.Context, tasks []Task, done func(int, *Trace)) error
	// Update takes in the states that have been visited since the last call:
	// executions end where they come to one of these.
	Update(Visited) error
}

// Trace is the record of one execution.
type Trace = TraceOf[schedule.Step]

// Transition is a step that could come next, and its cost.
type Transition = TransitionOf[schedule.Step]

// BranchPoint is a state of an execution at which one of several steps is chosen.
type BranchPoint = BranchPointOf[schedule.Step]

// Reorder is another order of two steps that has to be explored, too.
type Reorder = ReorderOf[schedule.Step]

// ReorderOf is a Reorder with a step of type S: First comes before the step at At, which
// is executed next.
type ReorderOf[S any] struct {
	At    int
	First S
}

// TraceOf is a Trace whose steps are of type S: between processes, a StepID.
type TraceOf[S any] struct {
	Steps    []S
	Points   []BranchPointOf[S] // from the end of the given steps on
	Broken   []Violation
	Reorders []ReorderOf[S]
	// Impossible is the index of the step that could not be made; -1: there was none.
	Impossible int
	Cut        bool // it did not end within MaxSteps
	Hung       bool // it did not end within the real time that it was given
}

// TransitionOf is a Transition with a step of type S.
type TransitionOf[S any] struct {
	Step S
	Cost Cost
}

// BranchPointOf is a BranchPoint with steps of type S.
type BranchPointOf[S any] struct {
	State       Fingerprint
	Transitions []TransitionOf[S]
	ToGo        int // no property can break in fewer steps than these
}

// Violation is a property that an execution has broken.
type Violation struct {
	Property string
	Step     int           // how many steps had been made by then
	Facts    catalog.Facts // that the schedule has shown by then
	Why      string
	Stack    string // of what ended the process; "": there is none
}

// ConvertTrace returns t with each step as another type.
func ConvertTrace[S, T any](t *TraceOf[S], step func(S) T) *TraceOf[T] {
	c := &TraceOf[T]{Broken: t.Broken, Impossible: t.Impossible, Cut: t.Cut, Hung: t.Hung, Steps: ConvertSteps(t.Steps, step)}
	for _, p := range t.Points {
		point := BranchPointOf[T]{p.State, make([]TransitionOf[T], len(p.Transitions)), p.ToGo}
		for i, tr := range p.Transitions {
			point.Transitions[i] = TransitionOf[T]{step(tr.Step), tr.Cost}
		}
		c.Points = append(c.Points, point)
	}
	for _, r := range t.Reorders {
		c.Reorders = append(c.Reorders, ReorderOf[T]{r.At, step(r.First)})
	}
	return c
}

// ConvertSteps returns each step as another type.
func ConvertSteps[S, T any](steps []S, step func(S) T) []T {
	converted := make([]T, len(steps))
	for i, s := range steps {
		converted[i] = step(s)
	}
	return converted
}

// StepID is the number of a step in a StepTable.
type StepID uint16

// StepTable numbers steps, so that what refers to many of them is small. The
// zero value is empty. Two ends of a connection number them alike: only one of
// them adds to its table at a time, and sends what is new with its next message.
type StepTable struct {
	steps []schedule.Step
	ids   map[schedule.Step]StepID
	sent  int // how many of the steps the other end has
}

// ID is the number of a step, which is added if it is new.
func (t *StepTable) ID(step schedule.Step) StepID {
	id, ok := t.ids[step]
	if !ok {
		if t.ids == nil {
			t.ids = map[schedule.Step]StepID{}
		}
		id = StepID(len(t.steps))
		t.steps = append(t.steps, step)
		t.ids[step] = id
	}
	return id
}

// Step is the step of a number.
func (t *StepTable) Step(id StepID) schedule.Step { return t.steps[id] }

// Unsent lists the steps that the other end does not have, and counts them as sent.
func (t *StepTable) Unsent() []schedule.Step {
	news := t.steps[t.sent:]
	t.sent = len(t.steps)
	return news
}

// Receive adds what the other end has sent.
func (t *StepTable) Receive(news []schedule.Step) {
	for _, s := range news {
		t.ID(s)
	}
	t.sent = len(t.steps)
}

// Forget has another end begin with no steps.
func (t *StepTable) Forget() { t.sent = 0 }
