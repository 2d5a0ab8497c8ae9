package search

import (
	"context"

	"grablab/internal/catalog"
	"grablab/internal/explore/schedule"
)

// MaxSteps limits the length of an execution.
const MaxSteps = 300

// Task is a schedule to execute. It contains the first steps and their cost. The execution chooses
// the steps after them.
type Task struct {
	Steps []schedule.Step
	Cost  Cost
}

// Worker executes tasks.
type Worker interface {
	// Execute calls done with the trace of each task, in order, until ctx ends or a task
	// hangs.
	Execute(ctx context.Context, tasks []Task, done func(int, *Trace)) error
	// Update adds states that were newly visited. An execution ends when it reaches a visited state.
	Update(Visited) error
}

// Trace is the record of one execution.
type Trace = TraceOf[schedule.Step]

// Transition is a step with which an execution can continue, and the cost of that step.
type Transition = TransitionOf[schedule.Step]

// BranchPoint is a state from which an execution can continue in several ways.
type BranchPoint = BranchPointOf[schedule.Step]

// Reorder says that the search must also try two steps in the opposite order.
type Reorder = ReorderOf[schedule.Step]

// ReorderOf is a Reorder with steps of type S. The search must also try First before the step at
// index At.
type ReorderOf[S any] struct {
	At    int
	First S
}

// TraceOf is a Trace with steps of type S. Processes exchange traces of StepID.
type TraceOf[S any] struct {
	Steps    []S
	Points   []BranchPointOf[S] // the branch points after the given steps
	Broken   []Violation
	Reorders []ReorderOf[S]
	// Impossible is the index of the first step that was impossible. It is -1 if all steps were
	// possible.
	Impossible int
	Cut        bool // it did not end within MaxSteps
	Hung       bool // it did not end within the allowed real time
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
	ToGo        int // a lower bound on the steps before a property can break
}

// A Violation is a property that an execution has violated, and where.
type Violation struct {
	Property string
	Step     int           // the number of steps up to the violation
	Facts    catalog.Facts // the facts that the schedule had shown up to the violation
	Why      string
	Stack    string // the stack with which the process ended, or empty
}

// ConvertTrace returns a copy of t with its steps converted to another type.
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

// ConvertSteps returns the steps converted to another type.
func ConvertSteps[S, T any](steps []S, step func(S) T) []T {
	converted := make([]T, len(steps))
	for i, s := range steps {
		converted[i] = step(s)
	}
	return converted
}

// StepID is the number of a step in a StepTable.
type StepID uint16

// StepTable gives numbers to steps, so that messages need not repeat the steps. The zero value is
// empty.
//
// Both ends of a connection use the same numbers. Only one of them adds steps at a time. It sends new
// steps with its next message.
type StepTable struct {
	steps []schedule.Step
	ids   map[schedule.Step]StepID
	sent  int // the number of steps that the other end already has
}

// ID returns the number of a step. It adds the step if it is new.
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

// Step returns the step with a number.
func (t *StepTable) Step(id StepID) schedule.Step { return t.steps[id] }

// Unsent returns the steps that the other end does not know yet, and marks them as sent.
func (t *StepTable) Unsent() []schedule.Step {
	news := t.steps[t.sent:]
	t.sent = len(t.steps)
	return news
}

// Receive adds steps that the other end has sent.
func (t *StepTable) Receive(news []schedule.Step) {
	for _, s := range news {
		t.ID(s)
	}
	t.sent = len(t.steps)
}

// Forget marks all steps as unsent, because the other end has restarted.
func (t *StepTable) Forget() { t.sent = 0 }
