package explore

import (
	"encoding/gob"
	"errors"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"grablab/internal/explore/search"
	"grablab/internal/explore/sim"
	"grablab/internal/grab/lock"
	"grablab/internal/testbed/proc"
)

// Work executes a parent process's requests until the parent closes the pipe. It adds the user's
// strategies in own to the Config that it receives. bubble runs a function in virtual time. The hidden
// worker command of loadgen and the child processes of package locktest call Work.
//
// Work does not use standard input or output, because a strategy may print to them.
func Work(bubble sim.Bubble, own ...lock.Strategy) error {
	deepStacks()
	runtime.MemProfileRate = 0 // no one reads the profile
	pipes := proc.Passed(2)    // child.connect passes these two pipes
	in, s := gob.NewDecoder(pipes[0]), &server{out: gob.NewEncoder(pipes[1])}
	var o opening
	if err := in.Decode(&o); err != nil {
		return err
	}
	o.Config.Own, o.Config.Added = own, nil // in this process, the registry has the added strategies
	if o.Describe != nil {
		return s.describe(o.Describe)
	}
	s.patience = o.Config.patience()
	if err := s.callTimed(func() error { return s.open(bubble, o) }); err != nil {
		return errors.Join(err, s.send(reply{Err: err.Error()}))
	}
	defer s.local.close()
	err := s.send(reply{Actors: s.local.actors(), Mistake: s.local.knownMistake()})
	for err == nil {
		var r request
		if err = in.Decode(&r); err == nil {
			err = s.answer(r)
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// deepStacks makes new goroutines start with large stacks. Otherwise, growing small stacks would
// take a quarter of the search time.
//
// The runtime chooses the initial stack size from the average stack size at the last garbage
// collection. To raise this average, deepStacks starts many goroutines with deep stacks and runs
// the garbage collector. The goroutines stay alive until the process ends.
func deepStacks() {
	const many, deep = 200, 11 << 10
	ready := make(chan struct{})
	for range many {
		go func() {
			var room [deep]byte
			ready <- struct{}{}
			<-make(chan struct{})
			runtime.KeepAlive(&room)
		}()
	}
	for range many {
		<-ready
	}
	runtime.GC()
}

// recycleEvery is the number of schedules after which a search with ZooKeeper returns unused memory to
// the operating system.
//
// The ZooKeeper client allocates 1.5 MiB for each session, but uses only the first page. If it gets
// recycled memory, the runtime first clears all of it, which would take more than half of the search
// time. Memory that comes from the operating system needs no clearing. For the same reason, such a
// search turns off the usual garbage collection.
const recycleEvery = 64

// server executes the parent process's requests in a child process.
type server struct {
	local    *local
	patience time.Duration
	recycles bool // whether to return memory after every recycleEvery schedules
	executed int

	mu  sync.Mutex // guards out
	out *gob.Encoder
}

func (s *server) send(r reply) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.Encode(r)
}

// callTimed calls f with the timeout of a schedule. If f times out, callTimed reports the hang and
// ends the process.
func (s *server) callTimed(f func() error) error {
	defer time.AfterFunc(s.patience, s.hang).Stop()
	return f()
}

func (s *server) hang() {
	stacks := make([]byte, 1<<20)
	_ = s.send(reply{Hung: true, Stack: string(stacks[:runtime.Stack(stacks, true)])})
	os.Exit(1)
}

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
	if s.recycles = set.Strategy.Needs&lock.ZooKeeper != 0; s.recycles {
		debug.SetGCPercent(-1)
	}
	return err
}

// answer executes a request and sends the reply. A request that only passes on visited states gets
// no reply.
func (s *server) answer(r request) error {
	s.local.Update(r.Visited)
	if r.Do == update {
		return nil
	}
	var answer reply
	err := s.callTimed(func() (err error) {
		switch r.Do {
		case execute:
			answer.Trace, err = s.local.Execute(r.Task)
		case retrace:
			limits := *s.local.limits
			limits.Before = func(t *search.Trace) { _ = s.send(reply{Trace: t}) }
			_, err = s.local.cluster.Execute(&limits, r.Task)
		case replay:
			answer.Replayed, err = s.local.replay(r.Task.Steps)
		}
		return err
	})
	if s.executed++; s.recycles && s.executed%recycleEvery == 0 {
		debug.FreeOSMemory()
	}
	if err != nil {
		answer.Err = err.Error()
	}
	return s.send(answer)
}
