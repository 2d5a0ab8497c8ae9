package search

import (
	"context"

	"grablab/internal/catalog"
	"grablab/internal/explore/schedule"
)

// MaxSteps limits the length of an execution.
const MaxSteps = 300

// Task is a schedule to execute. It contains only the first steps and their cost. The execution
// then chooses the remaining steps.
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
type Trace struct {
	Steps    []schedule.Step
	Points   []BranchPoint // the branch points after the given steps
	Broken   []Violation
	Reorders []Reorder
	// Impossible is the index of the first step that was impossible. It is -1 if all steps were
	// possible.
	Impossible int
	Cut        bool // whether the execution was cut off after MaxSteps steps
	Hung       bool // whether the execution took longer than the allowed real time
}

// Transition is a step with which an execution can continue, and the cost of that step.
type Transition struct {
	Step schedule.Step
	Cost Cost
}

// BranchPoint is a state from which an execution can continue in several ways.
type BranchPoint struct {
	State       Fingerprint
	Transitions []Transition
	ToGo        int // a lower bound on the steps before a property can break
}

// Reorder says that the search must also try First before the step at index At.
type Reorder struct {
	At    int
	First schedule.Step
}

// A Violation says which property an execution has violated, and at which step.
type Violation struct {
	Property string
	Step     int           // the number of steps up to the violation
	Facts    catalog.Facts // the facts that the schedule had shown up to the violation
	Why      string
	Stack    string // the stack with which the process ended, or empty
}
