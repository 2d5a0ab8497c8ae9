package explore

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/explore/schedule"
	"grablab/internal/explore/sim"
)

// ErrEnded says that a strategy has ended its process, or hangs it, before there was
// a schedule to blame. The error tells how; StackOf has the stack.
var ErrEnded = errors.New("explore: the process of the strategy has ended")

// endedError is how a strategy took its process down. It is an ErrEnded.
type endedError struct {
	how   string // in words
	stack string // "": there is none
	hung  bool
	steps []schedule.Step // that were made before it hung
}

func (e *endedError) Error() string { return e.how }
func (e *endedError) Unwrap() error { return ErrEnded }

// StackOf is the stack of the goroutines that an ErrEnded is about; "": there is none.
func StackOf(err error) string {
	var end *endedError
	if errors.As(err, &end) {
		return end.stack
	}
	return ""
}

// endedBy waits until the process has ended, and says how it has.
func (c *child) endedBy(cause error) error {
	_ = c.close() // what it ended with, the process says
	printed := c.printed.b.String()
	end := &endedError{stack: tidyStack(panicIn(printed))}
	message, _, _ := strings.Cut(end.stack, "\n")
	switch {
	case strings.Contains(message, "deadlock"):
		end.how = "a deadlock: goroutines wait for what no step and no timer brings"
	case message != "":
		end.how = "the process ended: " + message
	case c.cmd.ProcessState == nil:
		end.how = fmt.Sprintf("the process ended: %v", cause)
	default:
		end.how = fmt.Sprintf("the process ended by itself, with %s, as os.Exit ends it", c.cmd.ProcessState)
	}
	return end
}

// hungAt is for a process that has told where it hung and ends, or, with nil, was
// told to end.
func (c *child) hungAt(h *hang) error {
	_ = c.close()
	end := &endedError{hung: true, how: fmt.Sprintf(
		"nothing happened for %s of real time: a loop without end, or a wait that is not for virtual time, as for a sync.Mutex or a socket",
		c.opening.Config.patience())}
	if h == nil {
		h = &hang{Stack: c.printed.b.String()}
	}
	end.steps, end.stack = h.Steps, tidyStack(bubbled(h.Stack))
	return end
}

func (c Config) patience() time.Duration {
	if c.Patience == 0 {
		return defaultPatience
	}
	return c.Patience
}

// panicIn is what the runtime printed of a panic or a fatal error, without what the
// strategy printed before; "": nothing.
func panicIn(printed string) string {
	if at := regexp.MustCompile(`(?m)^(panic|fatal error): `).FindStringIndex(printed); at != nil {
		return printed[at[0]:]
	}
	return ""
}

var waits = regexp.MustCompile(`(?m)^(testing/synctest\.Wait|testing/synctest\.testingSynctestTest|internal/synctest\.Run)\(`)

// bubbled leaves of the stacks of all goroutines those of the schedule, but for what
// makes its steps, and waits.
func bubbled(stacks string) string {
	var kept []string
	for s := range strings.SplitSeq(strings.TrimSpace(stacks), "\n\n") {
		header, _, _ := strings.Cut(s, "\n")
		if strings.Contains(header, "synctest bubble") && !waits.MatchString(s) {
			kept = append(kept, s)
		}
	}
	if kept == nil {
		return stacks // of a process that has not begun
	}
	return strings.Join(kept, "\n\n")
}

// volatile is what differs between two stacks of one place: numbers of goroutines,
// addresses, and how long a goroutine has waited.
var volatile = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`(?m)^goroutine \d+ (gp=\S+ m=\S+ (mp=\S+ )?)?\[([^],]*).*\]:$`), "goroutine [$3]:"},
	{regexp.MustCompile(`(?m)^(\S.*)\([^()]*0x[^()]*\)$`), "$1(...)"},
	{regexp.MustCompile(`(?m) \+0x[0-9a-f]+( fp=0x\S+ sp=0x\S+ pc=0x\S+)?$`), ""},
	{regexp.MustCompile(`(?m) in goroutine \d+$`), ""},
	{regexp.MustCompile(` \[recovered.*\]`), ""},
}

// maxStack is how many lines of a stack are of use.
const maxStack = 200

func tidyStack(stack string) string {
	for _, v := range volatile {
		stack = v.pattern.ReplaceAllString(stack, v.with)
	}
	lines := strings.Split(strings.TrimSpace(stack), "\n")
	return strings.Join(lines[:min(len(lines), maxStack)], "\n")
}

// endedAlone is the result of a strategy that took its process down before there was a
// schedule: while one driver took the lock and released it.
func endedAlone(r Result, set sim.Setting, end *endedError) Result {
	sched := set.Schedule()
	sched.Property = catalog.Survives
	r.Verdict, r.Reason = catalog.Unsafe, "there was no schedule: one driver alone was given the lock"
	r.Failures = []Failure{{Property: catalog.Survives, Why: end.how, Schedule: sched, Stack: end.stack, Shortest: true}}
	return r
}

// momentsOf are steps of which no more is known.
func momentsOf(steps []schedule.Step) []Moment {
	moments := make([]Moment, len(steps))
	for i, s := range steps {
		moments[i] = Moment{Step: s, Made: i + 1}
	}
	return moments
}
