package explore

import (
	"bytes"
	"encoding/gob"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/explore/schedule"
	"grablab/internal/explore/search"
	"grablab/internal/explore/sim"
	"grablab/internal/grab/lock"
	"grablab/internal/testbed/proc"
)

// defaultPatience is the real-time timeout of one schedule. After this time, the search reports a
// hang.
const defaultPatience = 5 * time.Second

// grace is how long a hung process gets to exit before it is killed.
const grace = 2 * time.Second

// child is a worker in its own process, so that a crash of the strategy does not end the search.
type child struct {
	command []string
	opening opening
	visited search.Visited // all states that the search has visited; each new process starts with them

	cmd     *exec.Cmd
	pipes   [2]*os.File // the program writes requests to the first and reads replies from the second
	out     *gob.Encoder
	in      *gob.Decoder
	printed head  // the process's output, such as a panic with its stack
	ready   reply // the process's first reply
}

// opening is the first message to a child process. It contains the search settings.
type opening struct {
	Config   Config
	Strategy string
	Actors   []schedule.Actor // if nil, Config sets their number
	Describe []string         // if not nil, the child only describes these strategies
}

// A request asks a child process to execute a task. It also contains the states that the search has
// visited since the last request.
type request struct {
	Do      action
	Task    search.Task // a replay ignores its cost
	Visited search.Visited
}

// action tells a child process what to do with a task.
type action int

const (
	update  action = iota // remember the visited states, and send no reply
	execute               // execute the task, and send its trace
	retrace               // send the trace before each step, so that the last step is known if the process ends; then send an empty reply
	replay                // replay the steps of the task
)

// A reply contains the result of one task. A new process's first reply contains no result; it only
// signals that the process is ready.
type reply struct {
	Err        string
	Strategies []lock.Strategy  // the requested descriptions, without the strategies' functions
	Actors     []schedule.Actor // the actors that take part; set only in the first reply
	Mistake    string           // what is wrong with the lock without any schedule; set only in the first reply
	Trace      *search.Trace
	Replayed   sim.Record
	Hung       bool   // whether the schedule hangs; the process then exits
	Stack      string // what the process was doing when it hung
}

func startChild(command []string, o opening, visited search.Visited) (*child, error) {
	c := &child{command: command, opening: o, visited: visited}
	err := c.start()
	if ended, ok := errors.AsType[*EndedError](err); ok && ended.Hung { // retry, because on a busy machine the process may just have got no CPU time
		err = c.start()
	}
	return c, err
}

// start launches the child process and sends it the settings and all states that have been visited.
func (c *child) start() error {
	c.printed = head{}
	c.cmd = exec.Command(c.command[0], c.command[1:]...)
	// Each child has only one processor, so GOGC=400 makes garbage collections rare. The function
	// deepStacks needs adaptivestackstart=1.
	c.cmd.Env = append(os.Environ(), "GODEBUG=adaptivestackstart=1", "GOGC=400", "GOMAXPROCS=1")
	proc.NewProcessGroup(c.cmd)
	c.cmd.Stdout, c.cmd.Stderr = &c.printed, &c.printed
	c.cmd.WaitDelay = grace // a process that the lock has started may keep the output open
	if err := c.connect(); err != nil {
		return fmt.Errorf("explore: cannot start a child process: %w", err)
	}
	if err := c.out.Encode(c.opening); err != nil {
		return c.endedBy(err)
	}
	var err error
	c.ready, err = c.receive()
	c.Update(c.visited)
	return err
}

// connect starts the process. The strategy may use standard input and output, so requests and
// replies go through two extra pipes.
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
	c.cmd.ExtraFiles = []*os.File{requests, replies}
	if err := c.cmd.Start(); err != nil {
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

// Update sends newly visited states to the child. It ignores errors, because the next request fails
// anyway if the child has exited.
func (c *child) Update(news search.Visited) { _ = c.out.Encode(request{Visited: news}) }

// ask sends a request to the child process and returns the reply.
func (c *child) ask(r request) (reply, error) {
	if err := c.out.Encode(r); err != nil {
		return reply{}, c.endedBy(err)
	}
	return c.receive()
}

// receive waits for one reply. It returns an *EndedError if the process exits or hangs before it
// has replied.
func (c *child) receive() (reply, error) {
	process := c.cmd.Process
	patience := time.AfterFunc(c.opening.Config.patience()+grace, func() { _ = process.Kill() })
	var r reply
	err := c.in.Decode(&r)
	switch {
	case !patience.Stop():
		return r, c.hungAt("")
	case err != nil:
		return r, c.endedBy(err)
	case r.Hung:
		return r, c.hungAt(r.Stack)
	case r.Err != "":
		return r, &unexplorableError{nil, strings.TrimPrefix(r.Err, "explore: ")}
	}
	return r, nil
}

// Execute runs a task in the child process. If the process exits or hangs, Execute starts a new
// one.
func (c *child) Execute(task search.Task) (*search.Trace, error) {
	r, err := c.ask(request{Do: execute, Task: task})
	if end, ok := errors.AsType[*EndedError](err); ok {
		return c.traceOfCrash(task, end)
	}
	return r.Trace, err
}

// traceOfCrash runs a task again, to find out at which step its process exited or hung. It then
// starts a new process.
func (c *child) traceOfCrash(task search.Task, end *EndedError) (*search.Trace, error) {
	if err := c.start(); err != nil {
		return nil, err
	}
	t := &search.Trace{Steps: task.Steps, Impossible: -1, Hung: end.Hung}
	var last search.Trace
	r, err := c.ask(request{Do: retrace, Task: task})
	for err == nil && r.Trace != nil {
		last = *r.Trace
		r, err = c.receive()
	}
	_ = c.close() // only if the process did not end this time is it still running
	if err != nil && len(last.Steps) >= len(t.Steps) {
		t.Steps, t.Points = last.Steps, last.Points
	}
	t.Broken = []search.Violation{{Property: catalog.Survives, Step: len(t.Steps), Why: end.How, Stack: end.Stack}}
	return t, c.start()
}

func (c *child) replay(steps []schedule.Step) (sim.Record, error) {
	r, err := c.ask(request{Do: replay, Task: search.Task{Steps: steps}})
	return r.Replayed, err
}

func (c *child) actors() []schedule.Actor { return c.ready.Actors }

func (c *child) knownMistake() string { return c.ready.Mistake }

func (c *child) close() error {
	c.disconnect()
	kill := time.AfterFunc(grace, func() { _ = c.cmd.Process.Kill() })
	defer kill.Stop()
	return c.cmd.Wait()
}

// Describe describes strategies that this process does not know, by asking a child process. It
// returns an [EndedError] if the child ends first.
func Describe(command []string, names []string) ([]lock.Strategy, error) {
	c, err := startChild(command, opening{Describe: names}, nil)
	if ended := c.close(); err == nil {
		err = ended
	}
	return c.ready.Strategies, err
}

// head is a writer that keeps only the beginning of its input. That is enough, because a panic's
// first stack is the most useful one.
type head struct{ b bytes.Buffer }

const maxHead = 512 << 10

func (h *head) Write(b []byte) (int, error) {
	h.b.Write(b[:min(len(b), maxHead-h.b.Len())])
	return len(b), nil
}
