package order

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"gorm.io/gorm"
)

// session is a database connection that is reserved for one user. Unlike a sql.DB, it never
// switches to another connection.
//
// For transactions, it uses SQL statements instead of sql.Tx, for three reasons. A context can
// interrupt a COMMIT that hangs. The session knows whether it has sent the COMMIT. A row lock can
// outlive the context of the call that acquired it.
type session struct {
	*SQL
	conn  *sql.Conn
	begun bool  // whether a transaction is open
	dead  error // why the connection was closed; nil while the connection is usable
}

func (s *SQL) session(ctx context.Context) (*session, error) {
	conn, err := s.writes.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("order: no connection to the database: %w", withCause(ctx, err))
	}
	return &session{SQL: s, conn: conn}, nil
}

// close returns the connection to the pool.
func (x *session) close() { _ = x.conn.Close() } // fails only if the connection is already closed

// discard closes the connection, so that the server ends its transaction and releases its locks.
func (x *session) discard(why error) {
	x.dead, x.begun = why, false
	_ = x.conn.Raw(func(any) error { return driver.ErrBadConn })
}

// db returns a gorm handle that uses this connection.
func (x *session) db(ctx context.Context) *gorm.DB {
	db := x.gorm.WithContext(ctx)
	db.Statement.ConnPool = x.conn
	return db
}

// errNoAnswer means that no reply to a COMMIT arrived, so its result is unknown.
var errNoAnswer = errors.New("order: the database did not answer the commit")

// transact calls write in a transaction and commits it. After errNoAnswer, the transaction may or
// may not be committed. After any other error, it is not.
func (x *session) transact(ctx context.Context, write func(tx *gorm.DB) error) error {
	if err := x.begin(ctx); err != nil {
		return err
	}
	err := write(x.db(ctx))
	if err == nil {
		err = ctx.Err() // check now, because the outcome becomes uncertain once the COMMIT is sent
	}
	if err != nil {
		_ = x.rollback(ctx) // if the connection is lost, the server rolls back too
		return withCause(ctx, err)
	}
	x.begun = false
	if _, err := x.conn.ExecContext(ctx, "COMMIT"); err != nil {
		x.discard(err)
		return fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	return nil
}

// beginLimit limits how long a transaction waits for a database that another process has locked.
const beginLimit = 10 * time.Second

// begin starts a transaction unless one is running. On SQLite, it repeats the statement while the
// database is busy.
func (x *session) begin(ctx context.Context) error {
	switch {
	case x.dead != nil:
		return fmt.Errorf("order: the session was lost: %w", x.dead)
	case x.begun:
		return nil
	}
	began := time.Now()
	_, err := x.conn.ExecContext(ctx, x.dialect.begin)
	for x.isBusy != nil && x.isBusy(err) && ctx.Err() == nil && time.Since(began) < beginLimit {
		_, err = x.conn.ExecContext(ctx, x.dialect.begin)
	}
	if err == nil && x.isBusy != nil { // the driver for SQLite may skip a statement without an error if the context has ended
		err = ctx.Err()
	}
	if err != nil {
		x.discard(err) // the server may have started a transaction
		return fmt.Errorf("order: begin: %w", withCause(ctx, err))
	}
	x.begun = true
	return nil
}

// undoLimit is the timeout of a rollback. A rollback must work even after the caller's context has
// ended, so it needs its own timeout.
const undoLimit = 5 * time.Second

// rollback rolls back the transaction. If that fails, it closes the connection, so that no open
// transaction returns to the pool.
func (x *session) rollback(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoLimit)
	defer cancel()
	if !x.begun {
		return x.dead
	}
	x.begun = false
	if _, err := x.conn.ExecContext(ctx, "ROLLBACK"); err != nil {
		x.discard(err)
		return err
	}
	return nil
}

// raiseFence stores a fencing token in the order's row and reads the order, in a single transaction. A
// lost reply does no harm, because the next attempt has a higher token.
func (x *session) raiseFence(ctx context.Context, id int64, fence uint64) (o Order, err error) {
	err = x.transact(ctx, func(tx *gorm.DB) error {
		up := tx.Exec("UPDATE orders SET fence = ? WHERE id = ? AND fence < ?", fence, id, fence)
		if up.Error != nil {
			return fmt.Errorf("order: cannot store the fencing token: %w", up.Error)
		}
		if o, err = find(tx.Clauses(forUpdate), id); err == nil && up.RowsAffected == 0 {
			err = ErrStale
		}
		return err
	})
	return o, err
}

// Claim implements Rows. It ends the session's transaction, unless the claim is invalid.
func (x *session) Claim(ctx context.Context, c Claim, g Guard) error {
	if err := c.validate(g); err != nil {
		return err
	}
	err := x.transact(ctx, func(tx *gorm.DB) error { return x.write(tx, c, g) })
	switch {
	case errors.Is(err, errNoAnswer):
		return x.lookAgain(ctx, c, err)
	case err == nil, errors.Is(err, ErrTaken), errors.Is(err, ErrStale), errors.Is(err, ErrNotWritten):
		return err
	default:
		return notWritten(err)
	}
}

// write records the winner in the order's row and adds a ledger row. If the UPDATE changes no row,
// the guard has refused the write, so write reads the order to find out why.
func (x *session) write(tx *gorm.DB, c Claim, g Guard) error {
	if g == Unique {
		if err := x.grant(tx, c); err != nil {
			return err
		}
	}
	// The arguments follow the statement: SET, WHERE, and the guard's condition.
	sold, args := c.sold(g)
	set, args := "", append(args, c.Driver)
	if g == FenceWrite {
		set, args = ", fence = ?", append(args, c.Fence)
	}
	where, more := c.condition(g)
	up := tx.Exec("UPDATE orders SET "+sold+", driver_id = ?, grabbed_at = "+x.now+set+" WHERE id = ?"+where,
		append(append(args, c.Order), more...)...)
	if up.Error != nil {
		return fmt.Errorf("order: claim: %w", up.Error)
	}
	if c.checksLimit(g) { // the UPDATE has locked the row, so no other claim can change the driver's units meanwhile
		held, err := rowsOf(tx, c.Order, c.Driver)
		if err == nil {
			err = c.judgeLimit(held)
		}
		if err != nil {
			return err
		}
	}
	if up.RowsAffected == 0 {
		o, err := find(tx.Clauses(forUpdate), c.Order)
		if err == nil {
			err = c.judge(o, g)
		}
		if err == nil && !g.writesAnyway() {
			err = fmt.Errorf("order: guard %s refused the write, but the row of the order does not show why", g)
		}
		if err != nil {
			return err
		}
		// The write may still be correct, because an UPDATE that sets the same values changes no
		// row.
	}
	err := tx.Exec("INSERT INTO grabs (order_id, driver_id, instance, strategy, token, fence, grabbed_at)"+
		" VALUES (?, ?, ?, ?, ?, ?, "+x.now+")",
		c.Order, c.Driver, c.Instance, c.Strategy, c.Token, c.Fence).Error
	if err != nil {
		return fmt.Errorf("order: ledger: %w", err)
	}
	return nil
}

// grant inserts the order into the table grants, whose unique key allows one winner for each order. It
// returns ErrTaken if the order is already there.
func (x *session) grant(tx *gorm.DB, c Claim) error {
	err := tx.Exec("INSERT INTO grants (order_id, driver_id) VALUES (?, ?)", c.Order, c.Driver).Error
	if errors.Is(err, gorm.ErrDuplicatedKey) {
		return ErrTaken
	}
	if err != nil {
		return fmt.Errorf("order: grant: %w", err)
	}
	return nil
}

// LookAgain is how long a claim searches the ledger for its write after an unconfirmed commit.
const LookAgain = 5 * time.Second

// lookAgain finds out whether a write with an unconfirmed commit took effect (failure mode F33). It
// returns nil if the ledger contains the write.
func (s *SQL) lookAgain(ctx context.Context, c Claim, lost error) error {
	if c.Token == "" {
		return fmt.Errorf("order: it is unknown whether the write took effect, because it has no token to find it by: %w", lost)
	}
	rows, err := s.countWritten(ctx, c)
	switch {
	case err != nil:
		// Do not wrap this error, because it could wrap ErrNotWritten. Callers would then wrongly
		// conclude that nothing was written.
		return fmt.Errorf("order: it is unknown whether the write took effect, because the ledger cannot be read (%v): %w", err, lost)
	case rows == 0:
		return notWritten(lost)
	}
	s.log.Warn("the database did not answer a commit, but the ledger shows that the write took effect", "order", c.Order, "token", c.Token, "err", lost)
	return nil
}

// countWritten counts a write's ledger rows. It locks the order's row first, to wait for a commit
// that is still in progress.
func (s *SQL) countWritten(ctx context.Context, c Claim) (int64, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), LookAgain)
	defer cancel()
	x, err := s.session(ctx)
	if err != nil {
		return 0, err
	}
	defer x.close()
	if err := x.begin(ctx); err != nil {
		return 0, err
	}
	defer x.rollback(ctx) // nothing was written, so there is nothing to commit
	if _, err := find(x.db(ctx).Clauses(forUpdate), c.Order); err != nil {
		return 0, err
	}
	var grabs []Grab
	found := x.db(ctx).Clauses(forUpdate).Where("order_id = ? AND token = ?", c.Order, c.Token).Find(&grabs)
	return found.RowsAffected, found.Error
}
