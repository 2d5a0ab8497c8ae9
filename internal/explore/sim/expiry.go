package sim

import (
	"sync"
	"time"
)

// expiry is a timer that calls a function when an etcd lease or a ZooKeeper session expires.
// Callers of its methods must hold the server's mutex.
type expiry struct {
	id    int64
	ttl   time.Duration
	until time.Time
	timer *time.Timer
	ended bool
}

// tick is a short delay after the end of a lease. It keeps the server's timer from firing at the
// same time as a client's timer.
const tick = 11 * time.Nanosecond

// newExpiry starts a lease timer. If the lease is not renewed within ttl, the timer locks mu and
// calls end.
func newExpiry(id int64, ttl time.Duration, mu sync.Locker, end func(*expiry)) *expiry {
	e := &expiry{id: id, ttl: ttl}
	e.timer = time.AfterFunc(ttl+tick, func() {
		mu.Lock()
		defer mu.Unlock()
		if !e.ended && !time.Now().Before(e.until) {
			end(e)
		}
	})
	e.renew()
	return e
}

func (e *expiry) renew() {
	e.until = time.Now().Add(e.ttl)
	e.timer.Reset(e.ttl + tick)
}

// shorten makes the lease end earlier by d. It returns true if the lease is over.
func (e *expiry) shorten(d time.Duration) bool {
	e.until = e.until.Add(-d)
	e.timer.Reset(time.Until(e.until) + tick)
	return !e.until.After(time.Now())
}

func (e *expiry) stop() {
	e.ended = true
	e.timer.Stop()
}
