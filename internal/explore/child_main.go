package explore

import (
	"encoding/gob"
	"errors"
	"io"
	"os"
	"runtime"
	"sync"
	"time"

	"grablab/internal/explore/schedule"
	"grablab/internal/explore/search"
	"grablab/internal/explore/sim"
	"grablab/internal/grab/lock"
	"grablab/internal/testbed/proc"
)

// Work executes the requests of a parent process until there are no more. own contains the
// strategies for Config.Own.
//
// Work does not use standard input or output, because a strategy may print to them.
func Work(bubble sim.Bubble, own ...lock.Strategy) error {
	pipes := proc.Passed(2) // child.connect passes these two pipes
	return work(bubble, pipes[0], pipes[1], own)
}

func work(bubble sim.Bubble, in io.Reader, out io.Writer, own []lock.Strategy) error {
	defer deepStacks()()
	s := &server{in: gob.NewDecoder(in), out: gob.NewEncoder(out)}
	var o opening
	if err := s.in.Decode(&o); err != nil {
		return err
	}
	o.Config.Own = own
	if o.Describe != nil {
		return s.describe(o.Describe)
	}
	s.patience = o.Config.patience()
	if err := s.callTimed(func() error { return s.open(bubble, o) }); err != nil {
		return errors.Join(err, s.send(reply{Err: err.Error()}))
	}
	defer s.local.close()
	err := s.send(reply{Actors: s.local.cluster.Actors})
	for err == nil {
		var r request
		if err = s.in.Decode(&r); err == nil {
			err = s.answer(r)
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// deepStacks makes new goroutines start with large stacks. Otherwise, growing their stacks would
// take a quarter of the search time.
//
// The runtime derives the initial stack size from the average stack at the last garbage collection.
// deepStacks therefore keeps many goroutines with deep stacks alive until the caller calls end.
func deepStacks() (end func()) {
	const many, deep = 200, 11 << 10
	ready, ended := make(chan struct{}), make(chan struct{})
	for range many {
		go func() {
			var room [deep]byte
			ready <- struct{}{}
			<-ended
			runtime.KeepAlive(&room)
		}()
	}
	for range many {
		<-ready
	}
	runtime.GC()
	return func() { close(ended) }
}

// server executes the requests of the parent process.
type server struct {
	local    *local
	patience time.Duration
	in       *gob.Decoder

	mu  sync.Mutex // guards out
	out *gob.Encoder
}

func (s *server) send(r reply) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.Encode(r)
}

// callTimed calls f. If f exceeds the time limit for a schedule, callTimed reports the hang and
// ends the process.
func (s *server) callTimed(f func() error) error {
	defer time.AfterFunc(s.patience, s.hang).Stop()
	return f()
}

func (s *server) hang() {
	stacks := make([]byte, 1<<20)
	h := &hang{Stack: string(stacks[:runtime.Stack(stacks, true)])}
	if s.local != nil {
		h.Steps = s.local.cluster.Begun()
	}
	_ = s.send(reply{Hang: h})
	os.Exit(1)
}

// describe sends the parent process a description of each named strategy.
func (s *server) describe(names []string) error {
	var r reply
	for _, name := range names {
		st, err := lock.Find(name)
		if err != nil {
			r.Err = err.Error()
		}
		r.Strategies = append(r.Strategies, st)
	}
	return s.send(r)
}

func (s *server) open(bubble sim.Bubble, o opening) error {
	set, err := newSetting(o.Config, o.Strategy)
	if err == nil {
		s.local, err = newLocal(bubble, o.Config, set, o.Actors, search.Visited{})
	}
	return err
}

func (s *server) answer(r request) error {
	_ = s.local.Update(r.Visited) // this Update never fails
	switch {
	case r.Replay:
		return s.callTimed(func() error { return s.replay(r.Given) })
	case r.Retrace:
		return s.callTimed(func() error { return s.retrace(r.Tasks[0]) })
	}
	for _, t := range r.Tasks {
		if err := s.callTimed(func() error { return s.execute(t) }); err != nil {
			return err
		}
	}
	return nil
}

func (s *server) execute(task search.Task) error {
	t, err := s.local.cluster.Execute(s.local.limits, task)
	if err != nil {
		return err
	}
	return s.send(reply{Trace: t})
}

// retrace executes a task and sends its trace before each step. Finally, it sends an empty reply.
func (s *server) retrace(task search.Task) error {
	err := s.local.cluster.Retrace(s.local.limits, task, func(t *search.Trace) { _ = s.send(reply{Trace: t}) })
	return errors.Join(err, s.send(reply{}))
}

func (s *server) replay(steps []schedule.Step) error {
	replayed, err := s.local.replay(steps)
	answer := reply{Replayed: replayed}
	if err != nil {
		answer.Err = err.Error()
	}
	return s.send(answer)
}
