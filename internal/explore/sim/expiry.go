package sim

import (
	"sync"
	"time"
)

// expiry ends something that needs renewal, such as a lease of etcd or a session of
// ZooKeeper. Callers of its methods must hold the server's mutex.
type expiry struct {
	ttl   time.Duration
	until time.Time
	timer *time.Timer
	ended bool
}

// tick separates the end of a lease from the timers of its client.
const tick = 11 * time.Nanosecond

// newExpiry returns an expiry that calls end, with mu held, after ttl has passed without a
// renewal.
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
