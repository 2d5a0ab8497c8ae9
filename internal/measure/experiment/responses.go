package experiment

import (
	"sync"
	"time"

	"grablab/internal/grab"
	"grablab/internal/testbed/load"
)

// responses records the drivers' responses while a fault is injected. It is safe for concurrent
// use.
type responses struct {
	mu     sync.Mutex
	got    map[load.Request]response
	paused map[load.Request]bool // requests that are stopped at a breakpoint
	// callsAfterAnswer is how long a request may make calls after its response. Until then, the
	// request does not count as answered.
	callsAfterAnswer time.Duration
}

type response struct {
	outcome     grab.Outcome
	sent, ended time.Time
}

func newResponses() *responses {
	return &responses{got: map[load.Request]response{}, paused: map[load.Request]bool{}}
}

func (rs *responses) add(r load.Request, a response) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.got[r] = a
}

// of returns the response to a request. ok is false if there is none yet.
func (rs *responses) of(r load.Request) (a response, ok bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	a, ok = rs.got[r]
	return a, ok
}

// setPaused records whether a request is stopped. A stopped request counts as unanswered, even if
// its client already has the response.
func (rs *responses) setPaused(r load.Request, paused bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if a, ok := rs.got[r]; rs.paused[r] && ok {
		a.ended = time.Now()
		rs.got[r] = a
	}
	rs.paused[r] = paused
}

func (rs *responses) isAnswered(r load.Request) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	a, ok := rs.got[r]
	return ok && !rs.paused[r] && time.Since(a.ended) >= rs.callsAfterAnswer
}

func (rs *responses) isPending(r load.Request) bool { return !rs.isAnswered(r) }
