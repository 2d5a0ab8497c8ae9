package lock

import (
	"context"
	"sync"
	"time"
)

// doors let one at a time through for each key, inside one process. The memory
// is that of the keys in use and not of all keys ever seen.
type doors struct {
	mu    sync.Mutex
	byKey map[string]*door // of the keys that somebody is inside of or waits for
}

// door is a mutex as a channel of one slot: whoever fills the slot is inside.
// Unlike a sync.Mutex it can be given up while waiting, and those who wait come
// in by their turn.
type door struct {
	slot  chan struct{}
	users int // inside or waiting; guarded by doors.mu
}

// enter waits for at most wait, then returns ErrBusy. Who is let in must call
// exit once.
func (ds *doors) enter(ctx context.Context, key string, wait time.Duration) (exit func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	d := ds.approach(key)
	if err := d.enter(ctx, wait); err != nil {
		ds.leave(key, d)
		return nil, err
	}
	return func() {
		<-d.slot
		ds.leave(key, d)
	}, nil
}

func (d *door) enter(ctx context.Context, wait time.Duration) error {
	select {
	case d.slot <- struct{}{}:
		return nil
	default:
	}
	if wait <= 0 {
		return ErrBusy
	}
	patience := time.NewTimer(wait)
	defer patience.Stop()
	select {
	case d.slot <- struct{}{}:
		return nil
	case <-patience.C:
		return ErrBusy
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (ds *doors) approach(key string) *door {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	d, ok := ds.byKey[key]
	if !ok {
		d = &door{slot: make(chan struct{}, 1)}
		if ds.byKey == nil {
			ds.byKey = map[string]*door{}
		}
		ds.byKey[key] = d
	}
	d.users++
	return d
}

func (ds *doors) leave(key string, d *door) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	if d.users--; d.users == 0 {
		delete(ds.byKey, key)
	}
}
