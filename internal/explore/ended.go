package explore

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/explore/schedule"
	"grablab/internal/explore/sim"
)

// EndedError means that the strategy's process exited or hung.
type EndedError struct {
	How   string // a description for the user
	Stack string // the goroutine stacks at that time; empty if unknown
	Hung  bool
}

// Error returns the description for the user.
func (e *EndedError) Error() string { return e.How }

// endedBy waits for the process to exit, and returns an error with the reason. If the process left
// no message, the error contains cause.
func (c *child) endedBy(cause error) error {
	_ = c.close() // the exit status is in ProcessState
	end := &EndedError{Stack: tidyStack(panicText.FindString(c.printed.b.String()))}
	message, _, _ := strings.Cut(end.Stack, "\n")
	switch {
	case strings.Contains(message, "deadlock"):
		end.How = "a deadlock: all goroutines wait, and no step or timer can wake them"
	case message != "":
		end.How = "the process ended: " + message
	case c.cmd.ProcessState == nil:
		end.How = fmt.Sprintf("the process ended: %v", cause)
	default:
		end.How = fmt.Sprintf("the process ended with %s, for example by calling os.Exit", c.cmd.ProcessState)
	}
	return end
}

// hungAt returns the error for a hung process. stack is empty if the process could not report it.
func (c *child) hungAt(stack string) error {
	_ = c.close()
	return &EndedError{Hung: true, Stack: tidyStack(scheduleStacks(stack)), How: fmt.Sprintf(
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
func endedAlone(r Result, set sim.Setting, end *EndedError) Result {
	sched := set.Schedule()
	sched.Property = catalog.Survives
	r.Verdict, r.Reason = catalog.Unsafe, "its process ended before the search, when only one driver used the lock"
	r.Failures = []Failure{{Property: catalog.Survives, Why: end.How, Schedule: sched, Stack: end.Stack, Shortest: true}}
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
