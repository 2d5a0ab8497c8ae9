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

// session is one pinned connection. Its statements go over that connection or
// fail: database/sql never replaces one that is pinned.
//
// Transactions are begun and ended by statement, not by sql.Tx: a context can
// end a COMMIT that hangs, it is known whether one was sent at all, and a
// row lock can outlive the context under which it was taken.
type session struct {
	*SQL
	conn  *sql.Conn
	begun bool  // a transaction is open
	dead  error // why the connection was given up
}

func (s *SQL) session(ctx context.Context) (*session, error) {
	conn, err := s.writes.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("order: no connection: %w", because(ctx, err))
	}
	return &session{SQL: s, conn: conn}, nil
}

// close gives the connection back to the pool.
func (x *session) close() { _ = x.conn.Close() } // fails only on one that is closed

// discard ends the connection, and on the server whatever hung on it.
func (x *session) discard(why error) {
	x.dead, x.begun = why, false
	_ = x.conn.Raw(func(any) error { return driver.ErrBadConn })
}

// db is gorm over this connection.
func (x *session) db(ctx context.Context) *gorm.DB {
	db := x.gorm.WithContext(ctx)
	db.Statement.ConnPool = x.conn
	return db
}

// errNoAnswer says that a COMMIT was sent and not answered with a yes.
var errNoAnswer = errors.New("order: commit was not answered")

// transact runs write in a transaction, or in the one that is open, and ends
// it. errNoAnswer: it may be committed. Any other error: it surely is not.
func (x *session) transact(ctx context.Context, write func(tx *gorm.DB) error) error {
	if err := x.begin(ctx); err != nil {
		return err
	}
	err := write(x.db(ctx))
	if err == nil {
		err = ctx.Err() // the last moment at which turning back is certain
	}
	if err != nil {
		_ = x.rollback(ctx) // or the connection is gone, which comes to the same
		return because(ctx, err)
	}
	x.begun = false
	if _, err := x.conn.ExecContext(ctx, "COMMIT"); err != nil {
		x.discard(err)
		return fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	return nil
}

func (x *session) begin(ctx context.Context) error {
	switch {
	case x.dead != nil:
		return fmt.Errorf("order: the session was lost: %w", x.dead)
	case x.begun:
		return nil
	}
	if _, err := x.conn.ExecContext(ctx, x.dialect.begin); err != nil {
		x.discard(err) // the BEGIN may have arrived
		return fmt.Errorf("order: begin: %w", because(ctx, err))
	}
	x.begun = true
	return nil
}

// undoLimit bounds what is undone for a caller that has gone.
const undoLimit = 5 * time.Second

// rollback ends the open transaction. A connection on which that fails is
// given up, so that the pool never gets one with a transaction still open.
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

// raise lifts the fence of the order and reads it, in one transaction. A raise
// whose commit was not answered does no harm: the next token is higher.
func (x *session) raise(ctx context.Context, id int64, fence uint64) (o Order, err error) {
	err = x.transact(ctx, func(tx *gorm.DB) error {
		o, err = raise(tx, id, fence)
		return err
	})
	return o, err
}

func raise(tx *gorm.DB, id int64, fence uint64) (Order, error) {
	up := tx.Exec("UPDATE orders SET fence = ? WHERE id = ? AND fence < ?", fence, id, fence)
	if up.Error != nil {
		return Order{}, fmt.Errorf("order: raise the fence: %w", up.Error)
	}
	o, err := find(tx.Clauses(forUpdate), id)
	if err == nil && up.RowsAffected == 0 {
		err = ErrStale
	}
	return o, err
}

// Claim writes and commits. It ends the open transaction, however it goes; a
// claim that no guard could judge leaves it open.
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

// write sets the order's winner and appends to the ledger. Whether the guard
// let it is told by the number of rows; what stood in the way, by a second look.
func (x *session) write(tx *gorm.DB, c Claim, g Guard) error {
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
	if c.limits(g) {
		his, err := rowsOf(tx, c.Order, c.Driver)
		if err == nil {
			err = c.judgeLimit(his)
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
		if err == nil && g != Naive && g != Decrement {
			err = fmt.Errorf("order: guard %s let nothing through, for no reason to be seen", g)
		}
		if err != nil {
			return err
		}
		// A naive write of the values that the row already has changes none,
		// and is a write all the same.
	}
	err := tx.Exec("INSERT INTO grabs (order_id, driver_id, instance, strategy, token, fence, grabbed_at)"+
		" VALUES (?, ?, ?, ?, ?, ?, "+x.now+")",
		c.Order, c.Driver, c.Instance, c.Strategy, c.Token, c.Fence).Error
	if err != nil {
		return fmt.Errorf("order: ledger: %w", err)
	}
	return nil
}

// LookAgain is how long a claim whose commit was not answered is looked for,
// beyond the deadline of its own context.
const LookAgain = 5 * time.Second

// lookAgain finds out what became of a claim whose commit was not answered, by
// the claim's own token (F33). It locks the order's row first, on another
// connection: a commit still under way holds that lock and is waited for.
func (s *SQL) lookAgain(ctx context.Context, c Claim, lost error) error {
	if c.Token == "" {
		return fmt.Errorf("order: claim without a token, cannot be looked for: %w", lost)
	}
	rows, err := s.written(ctx, c)
	switch {
	case err != nil:
		// As text: that the look wrote nothing says nothing about the claim.
		return fmt.Errorf("order: claim, and what became of it cannot be read (%v): %w", err, lost)
	case rows == 0:
		return notWritten(lost)
	}
	s.log.Warn("the answer of a commit was lost; the ledger has the claim", "order", c.Order, "token", c.Token, "err", lost)
	return nil
}

// written counts the ledger's rows of a claim, with the order's row locked.
func (s *SQL) written(ctx context.Context, c Claim) (int64, error) {
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
	defer x.rollback(ctx) // nothing was written
	if _, err := find(x.db(ctx).Clauses(forUpdate), c.Order); err != nil {
		return 0, err
	}
	var grabs []Grab
	found := x.db(ctx).Clauses(forUpdate).Where("order_id = ? AND token = ?", c.Order, c.Token).Find(&grabs)
	return found.RowsAffected, found.Error
}
