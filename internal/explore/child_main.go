package explore

import (
	"encoding/gob"
	"errors"
	"io"
	"runtime"

	"grablab/internal/explore/search"
	"grablab/internal/explore/sim"
)

// Work is the body of a child process: it executes what it is asked for on in,
// and answers on out, until in ends.
func Work(bubble sim.Bubble, in io.Reader, out io.Writer) error {
	defer deepStacks()()
	s := &server{in: gob.NewDecoder(in), out: gob.NewEncoder(out)}
	var o opening
	if err := s.in.Decode(&o); err != nil {
		return err
	}
	if err := s.open(bubble, o); err != nil {
		return errors.Join(err, s.out.Encode(reply{Err: err.Error()}))
	}
	defer s.local.close()
	err := s.out.Encode(reply{Actors: s.local.cluster.Actors})
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

// deepStacks has goroutines begin with stacks as deep as a call needs. An execution
// starts several for each call, and without this a quarter of a search's time goes
// into growing their stacks. With adaptivestackstart, the runtime gives a new
// goroutine what those that a collection finds use on average: here mostly these,
// which do nothing else until end is called.
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

// server is the child's end of a child.
type server struct {
	local *local
	in    *gob.Decoder
	out   *gob.Encoder
	steps search.StepTable
}

func (s *server) open(bubble sim.Bubble, o opening) error {
	set, err := newSetting(o.Config, o.Strategy)
	if err == nil {
		s.local, err = newLocal(bubble, o.Config, set, search.Visited{})
	}
	return err
}

func (s *server) answer(r request) error {
	s.steps.Receive(r.Steps)
	_ = s.local.Update(r.Visited) // never fails
	if r.Replay != nil {
		replayed, err := s.local.replay(r.Replay)
		answer := reply{Replayed: replayed}
		if err != nil {
			answer.Err = err.Error()
		}
		return s.out.Encode(answer)
	}
	tasks := make([]search.Task, len(r.Tasks))
	for i, t := range r.Tasks {
		tasks[i] = search.Task{Steps: search.ConvertSteps(t.Steps, s.steps.Step), Cost: t.Cost}
	}
	var failed error
	err := s.local.Execute(tasks, func(_ int, t *search.Trace) {
		answer := reply{Trace: search.ConvertTrace(t, s.steps.ID)}
		answer.Steps = s.steps.Unsent()
		failed = errors.Join(failed, s.out.Encode(answer))
	})
	return errors.Join(err, failed)
}
