package explore

import (
	"bytes"
	"encoding/gob"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"time"

	"grablab/internal/explore/search"
	"grablab/internal/schedule"
)

// patience is how long one schedule may take, in real time. One that takes longer
// hangs, or sleeps outside of the bubble.
const patience = 5 * time.Second

// child executes in a process of its own, which a strategy may take down with it.
type child struct {
	command []string
	opening opening
	visited search.Visited // all of it, for a process that is started anew

	cmd    *exec.Cmd
	stdin  io.Closer
	out    *gob.Encoder
	in     *gob.Decoder
	stderr head        // holds a stack where the process has ended by itself
	hung   atomic.Bool // it was interrupted
	ready  reply       // its first
	steps  search.StepTable
}

// opening is the first message to a child.
type opening struct {
	Config   Config
	Strategy string
}

// request asks a child for a replay, or for traces of tasks, and has it take in
// which states have been visited.
type request struct {
	Steps   []schedule.Step // new in the table
	Visited search.Visited
	Tasks   []wireTask
	Replay  []schedule.Step
}

// reply is of one task, or of a replay. The first says that the child is ready.
type reply struct {
	Err      string
	Actors   []schedule.Actor // ready, and these take part
	Steps    []schedule.Step  // new in the table
	Trace    *wireTrace
	Replayed *replayed
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
	c.cmd = exec.Command(c.command[0], c.command[1:]...)
	// See deepStacks. With one processor, it collects garbage less often than it could.
	c.cmd.Env = append(os.Environ(), "GODEBUG=adaptivestackstart=1", "GOGC=200", "GOMAXPROCS=1")
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.stderr = head{}
	c.hung.Store(false)
	c.cmd.Stderr = &c.stderr
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.cmd.Start(); err != nil {
		return fmt.Errorf("explore: start a child: %w", err)
	}
	c.stdin, c.out, c.in = stdin, gob.NewEncoder(stdin), gob.NewDecoder(stdout)
	c.steps.Forget()
	if err := c.out.Encode(c.opening); err != nil {
		return gone(err)
	}
	if c.ready, err = c.receive(); err != nil {
		return err
	}
	return c.Update(c.visited)
}

// Update returns at once: the child answers no such request.
func (c *child) Update(news search.Visited) error { return c.send(request{Visited: news}) }

func (c *child) send(r request) error {
	r.Steps = c.steps.Unsent()
	return gone(c.out.Encode(r))
}

// receive waits for one reply, for as long as one schedule may take.
func (c *child) receive() (reply, error) {
	hung := time.AfterFunc(patience, c.interrupt)
	defer hung.Stop()
	var r reply
	if err := c.in.Decode(&r); err != nil {
		return r, gone(err)
	}
	if r.Err != "" {
		return r, fmt.Errorf("explore: %s", r.Err)
	}
	c.steps.Receive(r.Steps)
	return r, nil
}

func gone(err error) error {
	if err != nil {
		err = fmt.Errorf("explore: a child process has ended: %w", err)
	}
	return err
}

// interrupt has the process print its stacks, and end.
func (c *child) interrupt() {
	c.hung.Store(true)
	process := c.cmd.Process // another may have taken its place in a second
	_ = process.Signal(syscall.SIGQUIT)
	time.AfterFunc(time.Second, func() { _ = process.Kill() })
}

// Execute goes on in another process where a strategy ends or hangs this one,
// which costs the task that was under way.
func (c *child) Execute(tasks []search.Task, done func(int, *search.Trace)) error {
	for next := 0; next < len(tasks); {
		if err := c.send(request{Tasks: c.wire(tasks[next:])}); err == nil {
			next, err = c.results(tasks, next, done)
			if err == nil {
				continue
			}
		}
		hung, stack, err := c.restart()
		if err != nil {
			return err
		}
		done(next, crashed(tasks[next], hung, stack))
		next++
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

// restart starts another process in place of one that has ended, and returns how
// that did.
func (c *child) restart() (hung bool, stack string, err error) {
	_ = c.stdin.Close()
	_ = c.cmd.Wait() // its stack says how it ended
	hung, stack = c.hung.Load(), c.stderr.b.String()
	return hung, stack, c.start()
}

// head keeps the first of what is written. Of the stacks of a panic, the first is
// the one that matters; of a hang, those of deepStacks come before it.
type head struct{ b bytes.Buffer }

const maxHead = 512 << 10

func (h *head) Write(b []byte) (int, error) {
	h.b.Write(b[:min(len(b), maxHead-h.b.Len())])
	return len(b), nil
}

func (c *child) wire(tasks []search.Task) []wireTask {
	wired := make([]wireTask, len(tasks))
	for i, t := range tasks {
		wired[i] = wireTask{search.ConvertSteps(t.Steps, c.steps.ID), t.Cost}
	}
	return wired
}

func (c *child) replay(steps []schedule.Step) (*replayed, error) {
	if err := c.send(request{Replay: steps}); err != nil {
		return nil, err
	}
	r, err := c.receive()
	return r.Replayed, err
}

func (c *child) close() error {
	_ = c.stdin.Close()
	time.AfterFunc(patience, func() { _ = c.cmd.Process.Kill() })
	return c.cmd.Wait()
}
