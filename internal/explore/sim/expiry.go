package sim

import (
	"sync"
	"time"
)

// expiry ends what lives as long as it is renewed: a lease of etcd, a session of
// ZooKeeper. Its methods need the server's mutex.
type expiry struct {
	ttl   time.Duration
	until time.Time
	timer *time.Timer
	ended bool
}

// tick keeps the end of a lease apart from its client's timers.
const tick = 11 * time.Nanosecond

// newExpiry has end called, with mu held, when ttl has passed without a renewal.
func newExpiry(ttl time.Duration, mu sync.Locker, end func()) *expiry {
	e := &expiry{ttl: ttl}
	e.timer = time.AfterFunc(ttl+tick, func() {
		mu.Lock()
		defer mu.Unlock()
		if !e.ended && !time.Now().Before(e.until) {
			end()
		}
	})
	e.renew()
	return e
}

func (e *expiry) renew() {
	e.until = time.Now().Add(e.ttl)
	e.timer.Reset(e.ttl + tick)
}

func (e *expiry) stop() {
	e.ended = true
	e.timer.Stop()
}
