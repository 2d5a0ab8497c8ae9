package explore

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/explore/schedule"
	"grablab/internal/explore/sim"
)

// ErrEnded means that the strategy's process exited or hung before any schedule could run. StackOf
// returns the stack at that time.
var ErrEnded = errors.New("explore: the process of the strategy ended unexpectedly")

// endedError describes how a strategy ended its process.
type endedError struct {
	how   string // a description for the user
	stack string // empty if unknown
	hung  bool
}

func (e *endedError) Error() string { return e.how }
func (e *endedError) Unwrap() error { return ErrEnded }

// StackOf returns the goroutine stacks of a process that ended or hung, or "" if they are unknown.
// err must wrap ErrEnded.
func StackOf(err error) string {
	if end, ok := errors.AsType[*endedError](err); ok {
		return end.stack
	}
	return ""
}

// endedBy waits for the process to exit, and returns an error with the reason. If the process left
// no message, the error contains cause.
func (c *child) endedBy(cause error) error {
	_ = c.close() // the exit status is in ProcessState
	end := &endedError{stack: tidyStack(panicText.FindString(c.printed.b.String()))}
	message, _, _ := strings.Cut(end.stack, "\n")
	switch {
	case strings.Contains(message, "deadlock"):
		end.how = "a deadlock: all goroutines wait, and no step or timer can wake them"
	case message != "":
		end.how = "the process ended: " + message
	case c.cmd.ProcessState == nil:
		end.how = fmt.Sprintf("the process ended: %v", cause)
	default:
		end.how = fmt.Sprintf("the process ended with %s, for example by calling os.Exit", c.cmd.ProcessState)
	}
	return end
}

// hungAt returns the error for a hung process. stack is empty if the process could not report it.
func (c *child) hungAt(stack string) error {
	_ = c.close()
	return &endedError{hung: true, stack: tidyStack(scheduleStacks(stack)), how: fmt.Sprintf(
		"nothing happened for %s of real time: look for an endless loop, or for a wait that virtual time cannot end, such as a sync.Mutex or a socket",
		c.opening.Config.patience())}
}

func (c Config) patience() time.Duration { return cmp.Or(c.Patience, defaultPatience) }

// panicText matches the message of a panic or a fatal error, and all output that follows it.
var panicText = regexp.MustCompile(`(?ms)^(panic|fatal error): .*`)

var waits = regexp.MustCompile(`(?m)^(testing/synctest\.Wait|testing/synctest\.testingSynctestTest|internal/synctest\.Run)\(`)

// scheduleStacks keeps the stacks of goroutines that run the strategy, and drops the search's own
// stacks.
func scheduleStacks(stacks string) string {
	var kept []string
	for s := range strings.SplitSeq(strings.TrimSpace(stacks), "\n\n") {
		header, _, _ := strings.Cut(s, "\n")
		if strings.Contains(header, "synctest bubble") && !waits.MatchString(s) {
			kept = append(kept, s)
		}
	}
	if kept == nil {
		return stacks // the process ended before it began a schedule
	}
	return strings.Join(kept, "\n\n")
}

// volatile matches the parts of a stack that differ between runs, such as addresses, so that
// tidyStack can replace them.
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

// maxStack is the maximum length of a reported stack in lines.
const maxStack = 200

func tidyStack(stack string) string {
	for _, v := range volatile {
		stack = v.pattern.ReplaceAllString(stack, v.with)
	}
	lines := strings.Split(strings.TrimSpace(stack), "\n")
	return strings.Join(lines[:min(len(lines), maxStack)], "\n")
}

// endedAlone returns the result for a strategy whose process exits or hangs even if only one driver
// uses the lock.
func endedAlone(r Result, set sim.Setting, end *endedError) Result {
	sched := set.Schedule()
	sched.Property = catalog.Survives
	r.Verdict, r.Reason = catalog.Unsafe, "its process ended before the search, when only one driver used the lock"
	r.Failures = []Failure{{Property: catalog.Survives, Why: end.how, Schedule: sched, Stack: end.stack, Shortest: true}}
	return r
}

// momentsOf converts steps to moments without a state, because the process that knew the state has
// ended.
func momentsOf(steps []schedule.Step) []Moment {
	moments := make([]Moment, len(steps))
	for i, s := range steps {
		moments[i] = Moment{Step: s, Made: i + 1}
	}
	return moments
}
