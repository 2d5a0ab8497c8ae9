package search

import (
	"grablab/internal/catalog"
	"grablab/internal/explore/schedule"
)

// MaxSteps is the maximum number of steps in an execution.
const MaxSteps = 300

// Task is a schedule to execute. It contains only the first steps and their cost; the worker
// chooses the remaining steps.
type Task struct {
	Steps []schedule.Step
	Cost  Cost
}

// Worker executes schedules.
type Worker interface {
	Execute(Task) (*Trace, error)
	// Update tells the worker which states have been visited. An execution ends when it reaches a
	// visited state, because the search already knows what can follow.
	Update(Visited)
}

// Trace is the record of one execution.
type Trace struct {
	Steps  []schedule.Step
	Points []BranchPoint // the branch points after the prescribed steps
	Broken []Violation
	// Impossible is the index of the first step that the worker could not execute. If all were
	// possible, it is -1.
	Impossible int
	Cut        bool // whether the execution was cut off after MaxSteps steps
	Hung       bool // whether the execution exceeded its real-time timeout
}

// Transition is a step that can come next, and its cost.
type Transition struct {
	Step schedule.Step
	Cost Cost
}

// BranchPoint is a state from which the schedule can continue with different steps.
type BranchPoint struct {
	State       Fingerprint
	Transitions []Transition
}

// A Violation records which property an execution violated, and at which step.
type Violation struct {
	Property string
	Step     int           // the number of steps up to and including the violation
	Facts    catalog.Facts // the facts about the schedule that were known at that step
	Why      string
	Stack    string // the stack trace that the process printed when it ended; may be empty
}
