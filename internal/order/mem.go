package order

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"grablab/internal/catalog"
)

// Mem is an in-memory Store for the explorer and for tests, which must run many schedules quickly. It
// gives the same answers as a database, and grants locks in order of arrival. The zero value is ready
// to use.
type Mem struct {
	mu       sync.Mutex // never held while waiting
	orders   []*memOrder
	grabs    []Grab
	names    map[string]memLock
	sessions []*memTx
}

type memOrder struct {
	Order
	row     memLock
	granted bool // whether the grants table has a row for the order
}

// Create implements Store.
func (m *Mem) Create(ctx context.Context, count, units int) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	var fresh Order
	if units > 1 {
		fresh.Units, fresh.Stock = int64(units), int64(units)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	first := int64(len(m.orders)) + 1
	for i := range count {
		fresh.ID = first + int64(i)
		m.orders = append(m.orders, &memOrder{Order: fresh, row: newMemLock()})
	}
	return first, nil
}

// Ledger implements Store.
func (m *Mem) Ledger(ctx context.Context, first int64, count int) ([]Grab, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return catalog.Filter(m.grabs, func(g Grab) bool { return g.Order >= first && g.Order < first+int64(count) }), ctx.Err()
}

// Read implements Rows. Raising the fencing token is a write, so it waits until no session locks the row.
func (m *Mem) Read(ctx context.Context, id int64, fence uint64) (Order, error) {
	t := &memTx{m: m}
	if fence == 0 {
		return t.Read(ctx, id, 0)
	}
	if _, err := t.lockRow(ctx, id, nil); err != nil {
		return Order{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	defer t.end()
	o := m.orders[id-1]
	switch {
	case ctx.Err() != nil:
		return Order{}, ctx.Err()
	case o.Fence >= fence:
		return o.Order, ErrStale
	}
	o.Fence = fence
	return o.Order, nil
}

// Claim implements Rows.
func (m *Mem) Claim(ctx context.Context, c Claim, g Guard) error {
	return (&memTx{m: m}).Claim(ctx, c, g)
}

// Held implements Rows.
func (m *Mem) Held(ctx context.Context, id, driver int64) (int, error) {
	return (&memTx{m: m}).Held(ctx, id, driver)
}

// Begin implements Store.
func (m *Mem) Begin(ctx context.Context) (Tx, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	t := &memTx{m: m, lost: make(chan struct{})}
	m.sessions = append(m.sessions, t)
	return t, nil
}

// Sessions returns the number of open sessions.
func (m *Mem) Sessions() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.sessions)
}

// Restart ends every session but keeps the data, like a database server restart.
func (m *Mem) Restart() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.sessions {
		close(t.lost)
		t.release()
	}
	m.sessions = nil
}

func (m *Mem) find(id int64) (*memOrder, error) {
	if id < 1 || id > int64(len(m.orders)) {
		return nil, ErrNotFound
	}
	return m.orders[id-1], nil
}

// memTx simulates a database session. For a single statement outside a session, a memTx needs only
// the field m.
type memTx struct {
	m     *Mem
	lost  chan struct{} // closed when the session ends
	rows  []memLock     // the rows that the open transaction has locked; empty without a transaction
	names []memLock
}

var errMemLost = errors.New("order: the session was lost")

func (t *memTx) LockRow(ctx context.Context, id int64, wait time.Duration) (bool, error) {
	return t.lockRow(ctx, id, timerFor(wait))
}

func (t *memTx) lockRow(ctx context.Context, id int64, timeout <-chan time.Time) (bool, error) {
	t.m.mu.Lock()
	defer t.m.mu.Unlock()
	o, err := t.m.find(id)
	if err != nil {
		return false, err
	}
	return t.take(ctx, &t.rows, o.row, timeout)
}

func (t *memTx) LockName(ctx context.Context, name string, wait time.Duration) (bool, error) {
	t.m.mu.Lock()
	defer t.m.mu.Unlock()
	if t.m.names == nil {
		t.m.names = map[string]memLock{}
	}
	l, ok := t.m.names[name]
	if !ok {
		l = newMemLock()
		t.m.names[name] = l
	}
	return t.take(ctx, &t.names, l, timerFor(wait))
}

func (t *memTx) Read(ctx context.Context, id int64, fence uint64) (Order, error) {
	if fence != 0 {
		return Order{}, errSessionFence
	}
	t.m.mu.Lock()
	defer t.m.mu.Unlock()
	if err := t.alive(ctx); err != nil {
		return Order{}, err
	}
	o, err := t.m.find(id)
	if err != nil {
		return Order{}, err
	}
	return o.Order, nil
}

func (t *memTx) Held(ctx context.Context, id, driver int64) (int, error) {
	t.m.mu.Lock()
	defer t.m.mu.Unlock()
	return len(t.m.rowsOf(id, driver)), t.alive(ctx)
}

func (m *Mem) rowsOf(id, driver int64) []Grab {
	return catalog.Filter(m.grabs, func(g Grab) bool { return g.Order == id && g.Driver == driver })
}

func (t *memTx) Claim(ctx context.Context, c Claim, g Guard) error {
	if err := c.validate(g); err != nil {
		return err
	}
	if _, err := t.lockRow(ctx, c.Order, nil); err != nil {
		return notWritten(err)
	}
	t.m.mu.Lock()
	defer t.m.mu.Unlock()
	defer t.end()
	if err := t.alive(ctx); err != nil {
		return notWritten(err)
	}

	row := t.m.orders[c.Order-1]
	if c.checksLimit(g) {
		if err := c.judgeLimit(t.m.rowsOf(c.Order, c.Driver)); err != nil {
			return err
		}
	}
	if g == Unique && row.granted {
		return ErrTaken
	}
	if err := c.judge(row.Order, g); err != nil {
		return err
	}
	row.granted = row.granted || g == Unique
	row.sell(c, g)
	row.Driver = c.Driver
	if g == FenceWrite {
		row.Fence = c.Fence
	}
	id := int64(len(t.m.grabs)) + 1
	t.m.grabs = append(t.m.grabs, Grab{
		ID: id, Order: c.Order, Driver: c.Driver, Instance: c.Instance, Strategy: c.Strategy,
		Token: c.Token, Fence: c.Fence, At: time.UnixMicro(id).UTC(),
	})
	return nil
}

func (t *memTx) Close(context.Context) error {
	t.m.mu.Lock()
	defer t.m.mu.Unlock()
	i := slices.Index(t.m.sessions, t)
	if i < 0 {
		return errMemLost
	}
	t.m.sessions = slices.Delete(t.m.sessions, i, i+1)
	close(t.lost) // also wakes a statement of the session that waits
	t.release()
	return nil
}

func (t *memTx) release() {
	t.end()
	for _, l := range t.names {
		<-l
	}
	t.names = nil
}

// end finishes the transaction and releases its locks.
func (t *memTx) end() {
	for _, l := range t.rows {
		<-l
	}
	t.rows = nil
}

func (t *memTx) alive(ctx context.Context) error {
	select {
	case <-t.lost:
		return errMemLost
	default:
		return ctx.Err()
	}
}

// take adds a lock to held, unless held already contains it. It waits for the lock until the timeout,
// or without a limit if timeout is nil. While it waits, it unlocks the store's mutex.
func (t *memTx) take(ctx context.Context, held *[]memLock, l memLock, timeout <-chan time.Time) (got bool, err error) {
	if slices.Contains(*held, l) {
		return true, nil
	}
	select {
	case l <- struct{}{}:
		got = true
	default:
		t.m.mu.Unlock()
		select {
		case l <- struct{}{}:
			got = true
		case <-timeout:
		case <-t.lost:
		case <-ctx.Done():
		}
		t.m.mu.Lock()
	}
	err = t.alive(ctx)
	switch {
	case got && err == nil:
		*held = append(*held, l)
		return true, nil
	case got:
		<-l
	}
	return false, err
}

// timerFor returns a channel that becomes readable after wait, rounded up to whole seconds as in a
// database. If wait is 0, the channel is readable immediately.
func timerFor(wait time.Duration) <-chan time.Time {
	if wait > 0 {
		return time.After(time.Duration(seconds(wait)) * time.Second)
	}
	now := make(chan time.Time)
	close(now)
	return now
}

// memLock is a channel that contains one element while the lock is held. If several goroutines wait to
// send an element, Go serves them in order of arrival.
type memLock chan struct{}

func newMemLock() memLock { return make(memLock, 1) }
