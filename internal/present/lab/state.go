package lab

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/present/diagram"
	"grablab/internal/testbed/fleet"
)

// state contains everything that the pages show, such as the orders, the settings and the current
// phase. It is safe for concurrent use. The methods in orders.go record what happens to the orders.
type state struct {
	mutex
	status   Status
	tiles    []*tile // sorted by age, with the oldest first
	totals   totals
	outcomes map[string]int // this run's responses, by kind
	began    time.Time      // when the run began
	started  map[string]int // incarnation of each instance's current process, by instance name
	deaths   []diagram.Death
	keys     []Key
	lost     int  // number of failed attempts to read events
	closed   bool // whether the server is shutting down and accepts no more tasks

	tasks sync.WaitGroup
}

func newState() *state {
	return &state{
		status:   Status{Phase: Starting, Settings: firstSettings, Drivers: noAnswers()},
		outcomes: map[string]int{}, started: map[string]int{},
	}
}

// tick returns the complete state for the pages.
func (s *state) tick() Tick {
	defer s.lock()()
	t := Tick{Status: s.status, Keys: s.keys, Lost: s.lost, Outcomes: maps.Clone(s.outcomes), Began: s.began.UnixMilli()}
	t.Tiles = catalog.Map(s.tiles, func(x *tile) Tile { return x.Tile })
	if s.status.Phase != Starting {
		t.Status.Answer, t.Status.Alarm = summary(s.status.Settings, t.Tiles, s.totals)
	}
	return t
}

// mutex protects the type that embeds it.
type mutex struct{ mu sync.Mutex }

// lock locks the mutex and returns a function that unlocks it, for defer m.lock()().
func (m *mutex) lock() (unlock func()) {
	m.mu.Lock()
	return m.mu.Unlock
}

// locked calls f while holding the mutex.
func (m *mutex) locked(f func()) {
	defer m.lock()()
	f()
}

// say sets the phase and the sentence at the top of the page, and removes any error message.
func (s *state) say(p Phase, answer string) {
	s.locked(func() { s.status.Phase, s.status.Answer, s.status.Error = p, answer, "" })
}

// settle records that no run is active. Unless problem is empty, the page shows it as an error
// message.
func (s *state) settle(next Settings, problem string) {
	defer s.lock()()
	s.status.Phase, s.status.Settings, s.status.Error = Idle, next, problem
}

// fail shows an error message on the page. If ctx is done, it does nothing, because requests are
// expected to fail while a run ends.
func (s *state) fail(ctx interface{ Err() error }, problem string) {
	if ctx.Err() == nil {
		s.locked(func() { s.status.Error = problem })
	}
}

// errBusy means that the server is working on another task, so the user must wait.
var errBusy = errors.New("the lab is busy")

// occupy reserves the server for a task. Only one task can run at a time, because concurrent tasks
// would distort each other's measurements. Other users see the task as what. If another task is
// running, the error wraps errBusy. It is safe to call release more than once.
func (s *state) occupy(what string) (release func(), err error) {
	defer s.lock()()
	switch {
	case s.closed:
		return nil, fmt.Errorf("%w: the lab is shutting down", errBusy)
	case s.status.Busy != "":
		return nil, fmt.Errorf("%w: %s is still running, and a second run would disturb it: stop it or wait, then try again", errBusy, s.status.Busy)
	}
	s.status.Busy = what
	s.tasks.Add(1)
	return sync.OnceFunc(func() {
		defer s.tasks.Done()
		s.locked(func() { s.status.Busy = "" })
	}), nil
}

// endWork rejects new tasks and waits until the current one has ended. The caller must cancel the
// current task first, because it could run for a long time.
func (s *state) endWork() {
	s.locked(func() { s.closed = true })
	s.tasks.Wait()
}

// clear removes the previous run's orders.
func (s *state) clear() {
	defer s.lock()()
	s.status.Watch, s.status.Hand, s.status.Fault, s.status.Drivers = 0, 0, "", noAnswers()
	s.tiles, s.totals = nil, totals{}
	s.started, s.deaths = map[string]int{}, nil
}

// begin records that a run with these settings begins.
func (s *state) begin(next Settings) {
	defer s.lock()()
	s.status.Phase, s.status.Settings, s.status.Error = Running, next, ""
	s.outcomes, s.began = map[string]int{}, time.Now()
}

func (s *state) end() { s.locked(func() { s.status.Phase = Idle }) }

func (s *state) setInstances(f *fleet.Fleet) {
	defer s.lock()()
	s.status.Instances = catalog.Map(f.Instances, func(in *fleet.Instance) string { return in.ID })
}

// setStrike shows the active fault and the order that it hits.
func (s *state) setStrike(text string, id int64) {
	defer s.lock()()
	s.status.Fault = text
	if t := s.find(id); t != nil {
		t.struck = true
		s.status.Watch = id
	}
}

// endStrike removes the fault from the page.
func (s *state) endStrike() { s.locked(func() { s.status.Fault = "" }) }

// openByHand shows a new order in the "By hand" part of the page. Its drivers send requests only
// when the user tells them to.
func (s *state) openByHand(id int64) {
	defer s.lock()()
	s.add(Tile{ID: id, Units: 1, ByHand: true})
	s.status.Watch, s.status.Hand, s.status.Drivers = id, id, noAnswers()
}

// waitingForAnswer is the state of a driver whose request has no response yet.
const waitingForAnswer = "asks"

// startGrab records that a driver has sent a request. It returns false if the driver's previous
// request has no response yet.
func (s *state) startGrab(who string) (ok bool) {
	defer s.lock()()
	if ok = s.status.Drivers[who] != waitingForAnswer; ok {
		s.setDriver(who, waitingForAnswer)
		s.status.Watch = s.status.Hand
	}
	return ok
}

// noAnswers returns the initial states of the two drivers that the user controls: neither has a
// response.
func noAnswers() map[string]string { return map[string]string{"a": "", "b": ""} }

// setAnswer shows the response to a driver, unless the page has moved on to another order.
func (s *state) setAnswer(order int64, who, answer string) {
	defer s.lock()()
	if s.status.Hand == order {
		s.setDriver(who, answer)
	}
}

// setDriver sets a driver's state. It changes a copy of the map, because readers may still use the
// old one.
func (s *state) setDriver(who, state string) {
	s.status.Drivers = maps.Clone(s.status.Drivers)
	s.status.Drivers[who] = state
}
