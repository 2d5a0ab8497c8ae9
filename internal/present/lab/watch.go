package lab

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/order"
	"grablab/internal/testbed/wait"
)

// These constants determine how often to read the servers, and how many locks to show.
const (
	lookEvery = 100 * time.Millisecond // how often to read the events and the ledger
	keysEvery = 250 * time.Millisecond
	maxKeys   = 24
)

// watch polls the events, the database and the Redis keys, and updates the state, until ctx is
// done.
func (l *Lab) watch(ctx context.Context) {
	var looking sync.WaitGroup
	defer looking.Wait()
	every := func(d time.Duration, look func(context.Context)) {
		looking.Go(func() {
			for wait.For(ctx, d) {
				look(ctx)
			}
		})
	}
	every(lookEvery, l.lookAtEvents)
	every(lookEvery, l.lookAtLedger)
	every(keysEvery, l.lookAtKeys)
}

func (l *Lab) lookAtEvents(context.Context) {
	l.look.Lock()
	defer l.look.Unlock()
	if l.fleet == nil {
		return
	}
	if err := l.fleet.ReadEvents(l.state.record); err != nil {
		l.state.locked(func() { l.state.lost++ })
	}
}

// lookAtLedger reads the ledger rows of all orders on the page. Even an order that is won can get
// another row.
func (l *Lab) lookAtLedger(ctx context.Context) {
	first, count := l.state.shown()
	if count == 0 {
		return
	}
	rows, err := l.store.Ledger(ctx, first, count)
	if err != nil {
		l.state.fail(ctx, "cannot read the ledger: "+err.Error())
		return
	}
	by := map[int64][]order.Grab{}
	for _, g := range rows {
		by[g.Order] = append(by[g.Order], g)
	}
	for id, rows := range by {
		l.state.recordRows(id, rows)
	}
}

// lookAtKeys looks for locks on the Redis servers.
func (l *Lab) lookAtKeys(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	shown := []Key{}
	for _, s := range l.redis {
		found, _, _ := s.client.Scan(ctx, 0, "grab:*", 10*maxKeys).Result() // nothing if the server does not respond
		slices.Sort(found)
		for _, name := range slices.Compact(found) {
			if strings.HasSuffix(name, ":fence") { // the key is a fencing token counter, which outlives its lock
				continue
			}
			if len(shown) == maxKeys {
				break
			}
			if k, ok := s.look(ctx, name); ok {
				shown = append(shown, k)
			}
		}
	}
	l.state.locked(func() { l.state.keys = shown })
}

// look reads a Redis key's holders and expiry in one transaction, so that they match. It returns
// false if there is no lock under this name, or if the server does not respond.
func (s server) look(ctx context.Context, name string) (k Key, ok bool) {
	all := s.client.TxPipeline()
	ttl, text, fields := all.PTTL(ctx, name), all.Get(ctx, name), all.HKeys(ctx, name) // if the key is a hash, its fields are the owners' tokens
	_, _ = all.Exec(ctx)                                                               // each command stores its own error
	holders := fields.Val()
	if text.Err() == nil {
		holders = []string{text.Val()}
	}
	slices.Sort(holders)
	k = Key{Server: s.name, Name: name, TTL: -1, Value: catalog.Shorten(strings.Join(holders, " "), 60)}
	if ttl.Val() >= 0 {
		k.TTL = ttl.Val().Milliseconds()
	}
	return k, len(holders) > 0
}
