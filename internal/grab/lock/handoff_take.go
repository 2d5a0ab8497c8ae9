package lock

import (
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// recents are keys that were used of late: a cache in which each key has one
// slot, so that a newer one may take it from an older one.
type recents [256]recent

// recent is what a locker knows of a key.
type recent struct {
	key  string
	keys []any // in Redis
	idle bool  // it was released here, when nobody waited
}

// of returns what is known of a key. The slot is its hash, FNV-1a: one with a seed
// would make runs differ.
func (r *recents) of(key string) *recent {
	hash := uint32(2166136261)
	for i := range len(key) {
		hash = (hash ^ uint32(key[i])) * 16777619
	}
	slot := &r[hash%uint32(len(r))]
	if slot.key != key {
		*slot = recent{key: key, keys: handoffKeys(key)}
	}
	return slot
}

// expectsFree says whether the lock is probably free, and its counter there.
// Where much is under way, scripts that share a request are better still.
func (p *place) expectsFree() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.recents.of(p.key)
	idle := r.idle
	r.idle = false
	return idle && len(p.places) <= handoffDirect
}

// leftFree takes in that nobody has the lock, or waits for it.
func (p *place) leftFree() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.recents.of(p.key).idle = true
}

// take tries for the lease with two plain commands, which cost less than one
// script. done: it has an answer; else there may be something of it in Redis.
//
// They are not one step, but one comes after the other: on a Cluster they go to the
// node itself, for its client sends on by itself each that is to go elsewhere. If
// the lease ran out between them, others may have had it before the number was
// drawn; but then the answer comes too late to be believed.
func (p *place) take() (a answer, done bool) {
	p.traces, p.again = true, true
	set := redis.NewStatusCmd(p.ctx, "set", p.keys[0], p.name, "px", p.ttl, "nx")
	incr := redis.NewIntCmd(p.ctx, "incr", p.keys[3])
	pipe := p.line.redis.Pipeline()
	_ = pipe.BatchProcess(p.ctx, set, incr)
	a.sent = time.Now()
	_, _ = pipe.Exec(p.ctx) // each has its own error
	if errors.Is(set.Err(), redis.Nil) {
		return a, false
	}
	a.n, a.err = incr.Val(), errors.Join(set.Err(), incr.Err())
	return a, a.err != nil || a.n > handoffFirst
}
