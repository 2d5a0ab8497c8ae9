package explore

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/explore/schedule"
	"grablab/internal/explore/search"
	"grablab/internal/grab/lock"
	"grablab/internal/testbed/proc"
)

// defaultPatience is how long one schedule may take, in real time. One that takes
// longer hangs, or sleeps outside of the bubble.
const defaultPatience = 5 * time.Second

// grace is how much later a process is ended that does not end by itself.
const grace = 2 * time.Second

// child executes in a process of its own, which a strategy may take down with it.
type child struct {
	command []string
	opening opening
	visited search.Visited // all of it, for a process that is started anew

	cmd     *exec.Cmd
	pipes   [2]*os.File // to the process, and from it
	out     *gob.Encoder
	in      *gob.Decoder
	printed head  // by the strategy, and its stack where the process has ended by itself
	ready   reply // its first
	steps   search.StepTable
}

// opening is the first message to a child.
type opening struct {
	Config   Config
	Strategy string
	Actors   []schedule.Actor // nil: as many as Config says
	Describe []string         // these strategies, and do nothing else; nil: none
}

// request asks a child for the traces of tasks, or for a replay, and has it take in
// which states have been visited.
type request struct {
	Steps   []schedule.Step // new in the table
	Visited search.Visited
	Tasks   []wireTask
	Retrace bool // send the trace of the one task before each of its steps
	Replay  bool // of Given
	Given   []schedule.Step
}

// reply is of one task, or of a replay. The first says that the child is ready.
type reply struct {
	Err        string
	Strategies []lock.Strategy  // described, without their functions
	Actors     []schedule.Actor // ready, and these take part
	Steps      []schedule.Step  // new in the table
	Trace      *wireTrace
	Replayed   *replayed
	Hang       *hang // the process ends
}

// hang is where a process was when its patience was over.
type hang struct {
	Steps []schedule.Step
	Stack string
}

// wireTask and wireTrace have numbers of the table in place of the steps.
type wireTask struct {
	Steps []search.StepID
	Cost  search.Cost
}

type wireTrace = search.TraceOf[search.StepID]

func startChild(command []string, o opening, visited search.Visited) (*child, error) {
	c := &child{command: command, opening: o, visited: visited}
	return c, c.start()
}

// start starts the process, and sends it all that is known so far.
func (c *child) start() error {
	c.printed = head{}
	c.cmd = exec.Command(c.command[0], c.command[1:]...)
	// See deepStacks. With one processor, it collects garbage less often than it could.
	c.cmd.Env = append(os.Environ(), "GODEBUG=adaptivestackstart=1", "GOGC=400", "GOMAXPROCS=1")
	proc.Apart(c.cmd)
	c.cmd.Stdout, c.cmd.Stderr = &c.printed, &c.printed
	if err := c.connect(); err != nil {
		return fmt.Errorf("explore: start a child: %w", err)
	}
	c.steps.Forget()
	if err := c.out.Encode(c.opening); err != nil {
		return c.endedBy(err)
	}
	var err error
	if c.ready, err = c.receive(); err != nil {
		return err
	}
	return c.Update(c.visited)
}

// connect starts the process with pipes beside its standard input and output, which
// are the strategy's: see Work.
func (c *child) connect() error {
	requests, toChild, err := os.Pipe()
	if err != nil {
		return err
	}
	defer requests.Close()
	fromChild, replies, err := os.Pipe()
	if err != nil {
		return errors.Join(err, toChild.Close())
	}
	defer replies.Close()
	c.pipes = [2]*os.File{toChild, fromChild}
	c.out, c.in = gob.NewEncoder(toChild), gob.NewDecoder(fromChild)
	if err = proc.Pass(c.cmd, requests, replies); err == nil {
		err = c.cmd.Start()
	}
	if err != nil {
		c.disconnect()
		return err
	}
	return nil
}

func (c *child) disconnect() {
	for _, p := range c.pipes {
		_ = p.Close()
	}
}

// Update returns at once: the child answers no such request. Where it has ended, the
// next request says so.
func (c *child) Update(news search.Visited) error {
	_ = c.send(request{Visited: news})
	return nil
}

func (c *child) send(r request) error {
	r.Steps = c.steps.Unsent()
	return c.out.Encode(r)
}

// receive waits for one reply, for as long as one schedule may take. *endedError
// says that the process has ended instead.
func (c *child) receive() (reply, error) {
	process, hung := c.cmd.Process, make(chan struct{})
	patience := time.AfterFunc(c.opening.Config.patience()+grace, func() {
		close(hung)
		_ = process.Signal(syscall.SIGQUIT) // it has not said so itself
		time.AfterFunc(grace, func() { _ = process.Kill() })
	})
	var r reply
	err := c.in.Decode(&r)
	if !patience.Stop() {
		<-hung
		return r, c.hungAt(nil)
	}
	switch {
	case err != nil:
		return r, c.endedBy(err)
	case r.Hang != nil:
		return r, c.hungAt(r.Hang)
	case r.Err != "":
		return r, &unexplorableError{nil, strings.TrimPrefix(r.Err, "explore: ")}
	}
	c.steps.Receive(r.Steps)
	return r, nil
}

// Execute goes on in another process where a strategy ends this one, and no further
// where it hangs: each such schedule would cost the patience with one.
func (c *child) Execute(ctx context.Context, tasks []search.Task, done func(int, *search.Trace)) error {
	for next := 0; next < len(tasks) && ctx.Err() == nil; {
		err := c.send(request{Tasks: c.wire(tasks[next:])})
		if err != nil {
			err = c.endedBy(err)
		} else {
			next, err = c.results(tasks, next, done)
		}
		var end *endedError
		switch {
		case err == nil:
			continue
		case !errors.As(err, &end):
			return err
		}
		t, err := c.crashed(tasks[next], end)
		if err != nil {
			return err
		}
		done(next, t)
		if next++; t.Hung {
			return nil
		}
	}
	return nil
}

// results takes replies for the tasks from next on. It returns the first that
// has none.
func (c *child) results(tasks []search.Task, next int, done func(int, *search.Trace)) (int, error) {
	for ; next < len(tasks); next++ {
		r, err := c.receive()
		if err != nil {
			return next, err
		}
		done(next, search.ConvertTrace(r.Trace, c.steps.Step))
	}
	return next, nil
}

// crashed is the trace of a task that has ended the process. It starts another.
func (c *child) crashed(task search.Task, end *endedError) (*search.Trace, error) {
	t := &search.Trace{Steps: task.Steps, Impossible: -1}
	if end.hung {
		t.Hung, t.Steps = true, longer(end.steps, task.Steps)
	} else if err := c.retrace(task, t); err != nil {
		return nil, err
	}
	t.Broken = []search.Violation{{Property: catalog.Survives, Step: len(t.Steps), Why: end.how, Stack: end.stack}}
	return t, c.start()
}

func longer[T any](a, b []T) []T {
	if len(a) < len(b) {
		return b
	}
	return a
}

// retrace executes a task once more, for its trace up to the step that ends the
// process: a process that ends has no time to tell.
func (c *child) retrace(task search.Task, t *search.Trace) error {
	if err := c.start(); err != nil {
		return err
	}
	var last *search.Trace
	err := c.send(request{Tasks: c.wire([]search.Task{task}), Retrace: true})
	for err == nil {
		var r reply
		if r, err = c.receive(); err == nil {
			if r.Trace == nil { // this time it did not end
				return c.close()
			}
			last = search.ConvertTrace(r.Trace, c.steps.Step)
		}
	}
	if last != nil && len(last.Steps) >= len(t.Steps) {
		t.Steps, t.Points = last.Steps, last.Points
	}
	return nil
}

func (c *child) wire(tasks []search.Task) []wireTask {
	wired := make([]wireTask, len(tasks))
	for i, t := range tasks {
		wired[i] = wireTask{search.ConvertSteps(t.Steps, c.steps.ID), t.Cost}
	}
	return wired
}

func (c *child) replay(steps []schedule.Step) (*replayed, error) {
	if err := c.send(request{Replay: true, Given: steps}); err != nil {
		return nil, c.endedBy(err)
	}
	r, err := c.receive()
	return r.Replayed, err
}

func (c *child) close() error {
	c.disconnect()
	kill := time.AfterFunc(grace, func() { _ = c.cmd.Process.Kill() })
	defer kill.Stop()
	return c.cmd.Wait()
}

// Describe asks a child what the strategies of these names are like. What it returns
// is without their functions, which run in children alone. [ErrEnded] says that the
// process has ended before it could answer.
func Describe(command []string, names []string) ([]lock.Strategy, error) {
	c, err := startChild(command, opening{Describe: names}, nil)
	if err != nil {
		return nil, err
	}
	return c.ready.Strategies, c.close()
}

// head keeps the first of what is written: of the stacks of a panic, the first is
// the one that matters.
type head struct{ b bytes.Buffer }

const maxHead = 512 << 10

func (h *head) Write(b []byte) (int, error) {
	h.b.Write(b[:min(len(b), maxHead-h.b.Len())])
	return len(b), nil
}
