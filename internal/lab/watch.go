package lab

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"grablab/internal/order"

	"github.com/redis/go-redis/v9"
)

// How often the lab looks at what it shows.
const (
	lookEvery = 100 * time.Millisecond // events and the ledger
	keysEvery = 250 * time.Millisecond
	mostKeys  = 24
)

// watch looks at events, ledger and keys, and tells the pages, until ctx is done.
func (l *Lab) watch(ctx context.Context) {
	var looking sync.WaitGroup
	defer looking.Wait()
	every := func(d time.Duration, look func(context.Context)) {
		looking.Go(func() {
			for t := time.NewTicker(d); ; {
				select {
				case <-t.C:
					look(ctx)
				case <-ctx.Done():
					t.Stop()
					return
				}
			}
		})
	}
	every(lookEvery, l.lookAtEvents)
	every(lookEvery, func(ctx context.Context) { l.lookAtLedger(ctx) })
	every(keysEvery, l.lookAtKeys)
	every(tickEvery, func(context.Context) { l.hub.tick() })
}

func (l *Lab) lookAtEvents(context.Context) {
	l.look.Lock()
	defer l.look.Unlock()
	if l.fleet == nil {
		return
	}
	if err := l.fleet.ReadEvents(l.hub.record); err != nil {
		l.hub.locked(func() { l.hub.lost++ })
	}
}

// lookAtLedger is false if it cannot be read.
func (l *Lab) lookAtLedger(ctx context.Context) bool {
	id, count := l.hub.unsettled()
	if count == 0 {
		return true
	}
	rows, err := l.store.Ledger(ctx, id, count)
	if err != nil {
		l.hub.fail(ctx, "the ledger cannot be read: "+err.Error())
		return false
	}
	by := map[int64][]order.Grab{}
	for _, g := range rows {
		by[g.Order] = append(by[g.Order], g)
	}
	for id, rows := range by {
		l.hub.ledger(id, rows)
	}
	return true
}

// lookAtKeys reads what the Redis servers have of the locks.
func (l *Lab) lookAtKeys(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	keys := []Key{}
	for _, s := range l.redis {
		found, _, err := s.client.Scan(ctx, 0, "grab:*", 10*mostKeys).Result()
		if err != nil {
			continue // it is being restarted, or gone: what it has is not known
		}
		slices.Sort(found)
		for _, name := range found {
			if strings.HasSuffix(name, ":fence") { // a counter, which outlives its lock
				continue
			}
			if k, ok := s.look(ctx, name); ok && len(keys) < mostKeys {
				keys = append(keys, k)
			}
		}
	}
	l.hub.locked(func() { l.hub.keys = keys })
}

// look reads one key; false: it has gone, or is no lock.
func (s server) look(ctx context.Context, name string) (k Key, ok bool) {
	ttl, err := s.client.PTTL(ctx, name).Result()
	if err != nil || ttl == -2 {
		return k, false
	}
	k = Key{Server: s.name, Name: name, TTL: -1}
	if ttl > 0 {
		k.TTL = ttl.Milliseconds()
	}
	text, err := s.client.Get(ctx, name).Result()
	switch {
	case err == nil:
		k.Value = text
	case err == redis.Nil:
		return k, false
	default: // of another type: the fields of a hash are the owners
		fields, err := s.client.HKeys(ctx, name).Result()
		if err != nil {
			return k, false
		}
		slices.Sort(fields)
		k.Value = strings.Join(fields, " ")
	}
	if len(k.Value) > 60 {
		k.Value = k.Value[:60] + "…"
	}
	return k, true
}
