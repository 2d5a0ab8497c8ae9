package order

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"
	"gorm.io/gorm/clause"
)

// Begin implements Store.
func (s *SQL) Begin(ctx context.Context) (Tx, error) {
	if s.pins == nil {
		return nil, fmt.Errorf("%w: SQLite has no row locks or named locks, because it locks the whole file: use -stack local", ErrUnsupported)
	}
	select {
	case s.pins <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ErrExhausted, ctx.Err())
	}
	unpin := sync.OnceFunc(func() { <-s.pins })
	x, err := s.session(ctx)
	if err != nil {
		unpin()
		return nil, err
	}
	return &sqlTx{session: x, unpin: unpin}, nil
}

// sqlTx is a MySQL or MariaDB session. Its transaction stays open as long as it keeps a row locked.
type sqlTx struct {
	*session
	unpin    func()   // lets the next session begin
	names    []string // the named locks that the session holds
	waitsSet bool     // whether the session's lock wait timeout differs from the server's
}

func (t *sqlTx) LockRow(ctx context.Context, id int64, wait time.Duration) (bool, error) {
	locking := forUpdate
	if wait <= 0 {
		locking.Options = clause.LockingOptionsNoWait
	}
	first := !t.begun // whether the transaction has locked no row yet
	if err := t.setLockWait(ctx, wait); err != nil {
		return false, err
	}
	if err := t.begin(ctx); err != nil {
		return false, err
	}
	_, err := t.inTx(find(t.db(ctx).Clauses(locking), id))
	if err == nil {
		return true, nil
	}
	if isLockTimeout(err) {
		err = nil
	}
	if first {
		err = errors.Join(err, t.rollback(ctx))
	}
	return false, err
}

// inTx passes on the result of a statement in the transaction. After an unexpected error, it also
// closes the connection, because the server may have released the locks.
func (t *sqlTx) inTx(o Order, err error) (Order, error) {
	if err != nil && !errors.Is(err, ErrNotFound) && !isLockTimeout(err) {
		t.discard(err)
	}
	return o, err
}

// setLockWait sets the session's row lock timeout to wait, rounded up to seconds. If wait is 0, it
// is a no-op.
func (t *sqlTx) setLockWait(ctx context.Context, wait time.Duration) error {
	if wait <= 0 {
		return nil
	}
	t.waitsSet = true
	_, err := t.conn.ExecContext(ctx, fmt.Sprintf("SET SESSION innodb_lock_wait_timeout = %d", seconds(wait)))
	if err != nil {
		return fmt.Errorf("order: cannot set the lock wait timeout: %w", err)
	}
	return nil
}

// isLockTimeout reports whether err means that another session kept the row locked. This is error
// 1205 or, with NOWAIT, 3572.
func isLockTimeout(err error) bool {
	e, ok := errors.AsType[*mysql.MySQLError](err)
	return ok && (e.Number == 1205 || e.Number == 3572)
}

func (t *sqlTx) LockName(ctx context.Context, name string, wait time.Duration) (bool, error) {
	var got sql.NullInt64
	err := t.conn.QueryRowContext(ctx, "SELECT GET_LOCK(?, ?)", name, seconds(wait)).Scan(&got)
	switch {
	case err != nil:
		t.discard(err) // the server may still grant the lock later
		return false, fmt.Errorf("order: lock %q: %w", name, withCause(ctx, err))
	case !got.Valid:
		return false, fmt.Errorf("order: lock %q: the database stopped waiting for the lock", name)
	case got.Int64 == 1:
		t.names = append(t.names, name)
		return true, nil
	default:
		return false, nil
	}
}

// seconds rounds up to whole seconds.
func seconds(d time.Duration) int64 { return int64((max(d, 0) + time.Second - 1) / time.Second) }

func (t *sqlTx) Read(ctx context.Context, id int64, fence uint64) (Order, error) {
	switch {
	case fence != 0:
		return Order{}, errSessionFence
	case t.begun:
		return t.inTx(find(t.db(ctx).Clauses(forUpdate), id))
	default:
		return find(t.db(ctx), id)
	}
}

func (t *sqlTx) Held(ctx context.Context, id, driver int64) (int, error) {
	held, err := rowsOf(t.db(ctx), id, driver)
	if err != nil && t.begun {
		t.discard(err)
	}
	return len(held), err
}

func (t *sqlTx) Close(ctx context.Context) error {
	defer t.unpin()
	defer t.close()
	if err := t.release(ctx); err != nil {
		t.discard(err)
		return fmt.Errorf("order: the session was lost: %w", err)
	}
	return nil
}

// release ends the transaction and releases all locks, so that the connection can return to the
// pool.
func (t *sqlTx) release(ctx context.Context) error {
	if err := t.rollback(ctx); err != nil {
		return err
	}
	for _, name := range t.names {
		var released sql.NullInt64
		if err := t.conn.QueryRowContext(ctx, "SELECT RELEASE_LOCK(?)", name).Scan(&released); err != nil {
			return err
		}
		if released.Int64 != 1 {
			return fmt.Errorf("this session no longer held the lock %q", name)
		}
	}
	if t.waitsSet {
		_, err := t.conn.ExecContext(ctx, "SET SESSION innodb_lock_wait_timeout = DEFAULT")
		return err
	}
	return nil
}
