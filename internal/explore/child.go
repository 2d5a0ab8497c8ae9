package explore

import (
	"bytes"
	"encoding/gob"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"grablab/internal/schedule"
)

// patience is how long one schedule may take, in real time. One that takes
// longer hangs, or sleeps outside of the bubble.
const patience = 5 * time.Second

// child plays in a process of its own, which a strategy may take down with it.
type child struct {
	command []string
	opening opening
	known   sightings // all of them, for a process that begins anew

	cmd    *exec.Cmd
	stdin  io.Closer
	out    *gob.Encoder
	in     *gob.Decoder
	errors *tail
	twice  bool            // the driver of the first actor tries twice
	told   int             // how many of steps the process knows
	steps  []schedule.Step // by the number that the process knows them by
	number map[schedule.Step]uint16
	heard  []schedule.Step // by the number that the process tells them by
}

// opening is what a child is told first.
type opening struct {
	Config   Config
	Strategy string
}

// request is what a child is asked for, next to taking in what is new.
type request struct {
	Steps  []schedule.Step // new ones
	Seen   []sighting
	Tasks  []wireTask
	Replay []schedule.Step
}

// reply is of one task, or of a replay.
type reply struct {
	Err    string
	Twice  bool            // ready, and the driver of the first actor tries twice
	Steps  []schedule.Step // new ones
	Played *wirePlayed
	Retold *retold
}

type wireTask struct {
	Steps               []uint16
	Preemptions, Faults int8
}

type wirePlayed struct {
	Steps  []uint16
	Points []wirePoint
	Broken []violation
	Wrong  int
	Cut    bool
}

type wirePoint struct {
	State uint64
	ToGo  int
	Moves []wireMove
}

type wireMove struct {
	Step                uint16
	Preemptions, Faults int8
}

func openChild(command []string, o opening, known sightings) (*child, error) {
	c := &child{command: command, opening: o, known: known, number: map[schedule.Step]uint16{}}
	return c, c.start()
}

// start starts the process, and tells it everything so far.
func (c *child) start() error {
	c.cmd = exec.Command(c.command[0], c.command[1:]...)
	// See deepStacks. Its garbage is what the memory is for.
	c.cmd.Env = append(os.Environ(), "GODEBUG=adaptivestackstart=1", "GOGC=200", "GOMAXPROCS=1")
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.errors = &tail{}
	c.cmd.Stderr = c.errors
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.cmd.Start(); err != nil {
		return fmt.Errorf("explore: start a player: %w", err)
	}
	c.stdin, c.out, c.in = stdin, gob.NewEncoder(stdin), gob.NewDecoder(stdout)
	c.told, c.heard = 0, nil
	if err := c.out.Encode(c.opening); err != nil {
		return c.explain(err)
	}
	all := make([]sighting, 0, len(c.known))
	for state, v := range c.known {
		all = append(all, sighting{state, v})
	}
	if err := c.send(request{Seen: all}); err != nil {
		return err
	}
	r, err := c.receive()
	if err == nil && r.Err != "" {
		err = fmt.Errorf("explore: %s", r.Err)
	}
	c.twice = r.Twice
	return err
}

func (c *child) send(r request) error {
	r.Steps = c.steps[c.told:]
	c.told = len(c.steps)
	return c.explain(c.out.Encode(r))
}

// receive waits for one reply, for as long as one schedule may take.
func (c *child) receive() (reply, error) {
	hung := time.AfterFunc(patience, c.interrupt)
	defer hung.Stop()
	var r reply
	if err := c.in.Decode(&r); err != nil {
		return r, c.explain(err)
	}
	c.heard = append(c.heard, r.Steps...)
	return r, nil
}

// interrupt has the process say where it is, and end.
func (c *child) interrupt() {
	c.errors.interrupted()
	_ = c.cmd.Process.Signal(syscall.SIGQUIT)
	time.AfterFunc(time.Second, func() { _ = c.cmd.Process.Kill() })
}

func (c *child) explain(err error) error {
	if err != nil {
		err = fmt.Errorf("explore: a player is gone: %w", err)
	}
	return err
}

func (c *child) play(tasks []task, done func(int, *played)) error {
	for next := 0; next < len(tasks); {
		if err := c.send(request{Tasks: c.wire(tasks[next:])}); err == nil {
			next, err = c.results(tasks, next, done)
			if err == nil {
				continue
			}
		}
		// The process has ended, with the task that was under way.
		if err := c.again(); err != nil {
			return err
		}
		done(next, crashed(tasks[next], c.errors.hung, c.errors.last))
		next++
	}
	return nil
}

// results takes replies for the tasks from next on. It returns the first that
// has none.
func (c *child) results(tasks []task, next int, done func(int, *played)) (int, error) {
	for ; next < len(tasks); next++ {
		r, err := c.receive()
		if err != nil {
			return next, err
		}
		done(next, c.played(r.Played))
	}
	return next, nil
}

// again starts another process in place of one that has ended.
func (c *child) again() error {
	_ = c.stdin.Close()
	_ = c.cmd.Wait() // how it ended is told by its stack
	hung, last := c.errors.hung, c.errors.String()
	err := c.start()
	c.errors.hung, c.errors.last = hung, last
	return err
}

func (c *child) wire(tasks []task) []wireTask {
	wired := make([]wireTask, len(tasks))
	for i, t := range tasks {
		steps := make([]uint16, len(t.steps))
		for j, s := range t.steps {
			n, ok := c.number[s]
			if !ok {
				n = uint16(len(c.steps))
				c.number[s] = n
				c.steps = append(c.steps, s)
			}
			steps[j] = n
		}
		wired[i] = wireTask{steps, t.cost.preemptions, t.cost.faults}
	}
	return wired
}

func (c *child) played(w *wirePlayed) *played {
	p := &played{broken: w.Broken, wrong: w.Wrong, cut: w.Cut}
	for _, n := range w.Steps {
		p.steps = append(p.steps, c.heard[n])
	}
	for _, wp := range w.Points {
		pt := point{state: sum(wp.State), toGo: wp.ToGo, moves: make([]move, len(wp.Moves))}
		for i, m := range wp.Moves {
			pt.moves[i] = move{c.heard[m.Step], cost{m.Preemptions, m.Faults}}
		}
		p.points = append(p.points, pt)
	}
	return p
}

func (c *child) replay(steps []schedule.Step) (*retold, error) {
	if err := c.send(request{Replay: steps}); err != nil {
		return nil, err
	}
	r, err := c.receive()
	if err != nil {
		return nil, err
	}
	if r.Err != "" {
		return nil, fmt.Errorf("explore: %s", r.Err)
	}
	return r.Retold, nil
}

func (c *child) know(news []sighting) error { return c.send(request{Seen: news}) }

func (c *child) close() error {
	_ = c.stdin.Close()
	time.AfterFunc(patience, func() { _ = c.cmd.Process.Kill() })
	return c.cmd.Wait()
}

// tail keeps the beginning of what a process says when it ends: the stack that
// matters comes first.
type tail struct {
	mu   sync.Mutex
	b    bytes.Buffer
	hung bool
	last string // what the process before this one said
}

const maxTail = 64 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b.Write(b[:min(len(b), maxTail-t.b.Len())])
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.String()
}

func (t *tail) interrupted() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hung = true
}
