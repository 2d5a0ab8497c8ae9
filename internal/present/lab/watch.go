package lab

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/order"
	"grablab/internal/testbed/wait"

	"github.com/redis/go-redis/v9"
)

// These constants determine how often to read the servers, and how many locks to show.
const (
	lookEvery = 100 * time.Millisecond // how often to read the events and the ledger
	keysEvery = 250 * time.Millisecond
	maxKeys   = 24
)

// watch polls the events, the database and the Redis keys, and updates the pages, until ctx is
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
	every(tickEvery, func(context.Context) { l.pages.tick() })
}

func (l *Lab) lookAtEvents(context.Context) {
	l.look.Lock()
	defer l.look.Unlock()
	if l.fleet == nil {
		return
	}
	if err := l.fleet.ReadEvents(l.state.orders.record); err != nil {
		l.state.locked(func() { l.state.lost++ })
	}
}

// lookAtLedger reads all orders' ledger rows. It settles an order only if all responses had arrived
// before the read. Otherwise, rows could be missing.
func (l *Lab) lookAtLedger(ctx context.Context) {
	id, count, answered := l.state.orders.unsettledOrders()
	if count == 0 {
		return
	}
	rows, err := l.store.Ledger(ctx, id, count)
	if err != nil {
		l.state.fail(ctx, "cannot read the ledger: "+err.Error())
		return
	}
	by := map[int64][]order.Grab{}
	for _, g := range rows {
		by[g.Order] = append(by[g.Order], g)
	}
	for id, rows := range by {
		l.state.orders.recordRows(id, rows)
	}
	l.state.orders.settle(answered)
}

// lookAtKeys looks for locks on the Redis servers. It polls every known lock until the lock has
// disappeared.
func (l *Lab) lookAtKeys(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	shown := []Key{}
	for i := range l.redis {
		s := &l.redis[i]
		found, _, err := s.client.Scan(ctx, 0, "grab:*", 10*maxKeys).Result()
		if err != nil {
			continue // the server does not respond, so its keys are unknown
		}
		found = append(found, s.seen...)
		slices.Sort(found)
		s.seen = s.seen[:0]
		for _, name := range slices.Compact(found) {
			if strings.HasSuffix(name, ":fence") { // the key is a fencing token counter, which outlives its lock
				continue
			}
			at := l.state.orders.clock()
			k, err := s.look(ctx, name)
			switch {
			case err == nil:
				l.state.orders.recordKey(k, at)
				s.seen = append(s.seen, name)
				k.Value = catalog.Shorten(strings.Join(k.holders, " "), 60)
				if len(shown) < maxKeys {
					shown = append(shown, k)
				}
			case errors.Is(err, errNoLock):
				l.state.orders.removeKey(s.name, name, l.state.orders.clock())
			default: // the state is unknown, so look again
				s.seen = append(s.seen, name)
			}
		}
	}
	l.state.locked(func() { l.state.keys = shown })
}

var errNoLock = errors.New("there is no such lock")

// look reads a Redis key's holders and expiry in one transaction, so that they match. It returns
// errNoLock if there is no lock under this name.
func (s *server) look(ctx context.Context, name string) (k Key, err error) {
	all := s.client.TxPipeline()
	ttl, text, fields := all.PTTL(ctx, name), all.Get(ctx, name), all.HKeys(ctx, name) // if the key is a hash, its fields are the owners' tokens
	_, _ = all.Exec(ctx)                                                               // each command stores its own error
	other := func(err error) bool { return redis.HasErrorPrefix(err, "WRONGTYPE") }
	k = Key{Server: s.name, Name: name, TTL: -1}
	switch {
	case ttl.Err() != nil:
		return k, ttl.Err()
	case ttl.Val() == -2, other(text.Err()) && other(fields.Err()): // the key does not exist, or is a queue instead of a lock
		return k, errNoLock
	case text.Err() == nil:
		k.holders = []string{text.Val()}
	case other(text.Err()) && fields.Err() == nil:
		k.holders = slices.Sorted(slices.Values(fields.Val()))
	default:
		return k, errors.Join(text.Err(), fields.Err())
	}
	if ttl.Val() >= 0 {
		k.TTL = ttl.Val().Milliseconds()
	}
	return k, nil
}
