package explore

import (
	"encoding/gob"
	"errors"
	"io"
	"runtime"

	"grablab/internal/schedule"
)

// Work is what a child does: it plays what it is asked for on in, and answers on
// out, until in ends.
func Work(bubble Bubble, in io.Reader, out io.Writer) error {
	defer deepStacks()()
	w := &work{in: gob.NewDecoder(in), out: gob.NewEncoder(out), number: map[schedule.Step]uint16{}}
	var o opening
	if err := w.in.Decode(&o); err != nil {
		return err
	}
	if err := w.open(bubble, o); err != nil {
		return errors.Join(err, w.out.Encode(reply{Err: err.Error()}))
	}
	defer w.local.close()
	for first := true; ; first = false {
		var r request
		err := w.in.Decode(&r)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil && first {
			err = w.out.Encode(reply{Twice: w.local.stage.borrowed})
		}
		if err == nil {
			err = w.do(r)
		}
		if err != nil {
			return err
		}
	}
}

// deepStacks has goroutines begin with stacks as deep as a call goes. A search
// starts some for each call, and a third of its time went into growing their
// stacks, step by step. With adaptivestackstart, the runtime gives a new one
// what those that it meets at a collection use on average: here, mostly these,
// which do nothing else, until enough is called.
func deepStacks() (enough func()) {
	const many, deep = 200, 11 << 10
	ready, end := make(chan struct{}), make(chan struct{})
	for range many {
		go func() {
			var room [deep]byte
			ready <- struct{}{}
			<-end
			runtime.KeepAlive(&room)
		}()
	}
	for range many {
		<-ready
	}
	runtime.GC()
	return func() { close(end) }
}

// work is the child's end of a child.
type work struct {
	local  *local
	in     *gob.Decoder
	out    *gob.Encoder
	steps  []schedule.Step // by the parent's numbers
	number map[schedule.Step]uint16
	fresh  []schedule.Step // numbered, and not told yet
}

func (w *work) open(bubble Bubble, o opening) error {
	set, err := newSetting(o.Config, o.Strategy)
	if err == nil {
		w.local, err = openLocal(bubble, o.Config, set, sightings{})
	}
	return err
}

func (w *work) do(r request) error {
	w.steps = append(w.steps, r.Steps...)
	if err := w.local.know(r.Seen); err != nil {
		return err
	}
	if r.Replay != nil {
		story, err := w.local.replay(r.Replay)
		answer := reply{Retold: story}
		if err != nil {
			answer.Err = err.Error()
		}
		return w.out.Encode(answer)
	}
	tasks := make([]task, len(r.Tasks))
	for i, t := range r.Tasks {
		tasks[i].cost = cost{t.Preemptions, t.Faults}
		for _, n := range t.Steps {
			tasks[i].steps = append(tasks[i].steps, w.steps[n])
		}
	}
	var failed error
	err := w.local.play(tasks, func(_ int, p *played) {
		answer := reply{Played: w.wire(p)}
		answer.Steps, w.fresh = w.fresh, nil
		failed = errors.Join(failed, w.out.Encode(answer))
	})
	return errors.Join(err, failed)
}

func (w *work) wire(p *played) *wirePlayed {
	wired := &wirePlayed{Broken: p.broken, Wrong: p.wrong, Cut: p.cut}
	for _, s := range p.steps {
		wired.Steps = append(wired.Steps, w.numberOf(s))
	}
	for _, pt := range p.points {
		wp := wirePoint{State: uint64(pt.state), ToGo: pt.toGo}
		for _, m := range pt.moves {
			wp.Moves = append(wp.Moves, wireMove{w.numberOf(m.Step), m.cost.preemptions, m.cost.faults})
		}
		wired.Points = append(wired.Points, wp)
	}
	return wired
}

func (w *work) numberOf(s schedule.Step) uint16 {
	n, ok := w.number[s]
	if !ok {
		n = uint16(len(w.number))
		w.number[s] = n
		w.fresh = append(w.fresh, s)
	}
	return n
}
