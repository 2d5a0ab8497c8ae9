package tap

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
)

// Connector wraps a database driver so that each of its remote steps (BEGIN,
// COMMIT, ROLLBACK, PREPARE, PING, each query and each statement) is one call
// through t, and all but PING are added to statements. A nil t only counts.
//
// A connection on which t refused a step or lost a reply is not used again: its
// state would be unknown, as after a network fault. A driver that answers
// ErrSkip to a statement with arguments, in order to prepare it first, costs an
// additional Before for it: let it interpolate (interpolateParams).
func Connector(c driver.Connector, t Tap, instance, target string, statements *atomic.Uint64) driver.Connector {
	return &connector{c, t, Op{Instance: instance, Target: target}, statements}
}

type connector struct {
	driver.Connector
	tap        Tap
	op         Op
	statements *atomic.Uint64
}

// Connect opens a connection. Opening it is no tapped call.
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	inner, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	full, ok := inner.(fullConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("tap: driver connection %T takes no contexts", inner), inner.Close())
	}
	return &conn{fullConn: full, of: c}, nil
}

// Close closes the wrapped connector, where it can be closed.
func (c *connector) Close() error {
	if closer, ok := c.Connector.(io.Closer); ok {
		return closer.Close()
	}
	return nil
}

// fullConn is what the connections of MySQL's and SQLite's drivers can both do.
type fullConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
}

// conn is a tapped connection. database/sql uses it from one goroutine at a time.
type conn struct {
	fullConn
	of      *connector
	suspect bool // the tap came between the driver and the caller
}

// do makes one remote step. undo takes back what a step has brought whose reply
// is then lost.
func (c *conn) do(ctx context.Context, step func() error, undo func()) error {
	if c.of.tap == nil {
		return c.counted(step)
	}
	op := OpFrom(ctx, c.of.op)
	if err := c.of.tap.Before(ctx, op); err != nil {
		c.suspect = true
		return err
	}
	err := c.counted(step)
	if errors.Is(err, driver.ErrSkip) {
		return err // nothing was sent
	}
	told := c.of.tap.After(ctx, op, err)
	if told != nil && !errors.Is(told, err) {
		c.suspect = true
		if err == nil && undo != nil {
			undo()
		}
	}
	return told
}

func (c *conn) counted(step func() error) error {
	err := step()
	if !errors.Is(err, driver.ErrSkip) {
		c.of.statements.Add(1)
	}
	return err
}

func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (res driver.Result, err error) {
	err = c.do(ctx, func() (err error) {
		res, err = c.fullConn.ExecContext(ctx, query, args)
		return err
	}, nil)
	return res, err
}

func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (rows driver.Rows, err error) {
	err = c.do(ctx, func() (err error) {
		rows, err = c.fullConn.QueryContext(ctx, query, args)
		return err
	}, func() { rows.Close() })
	return rows, err
}

func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	var inner driver.Tx
	err := c.do(ctx, func() (err error) {
		inner, err = c.fullConn.BeginTx(ctx, opts)
		return err
	}, nil) // a transaction whose begin is lost ends with its connection
	if err != nil {
		return nil, err
	}
	return &tx{inner, c, ctx}, nil
}

func (c *conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	var inner driver.Stmt
	err := c.do(ctx, func() (err error) {
		inner, err = c.fullConn.PrepareContext(ctx, query)
		return err
	}, func() { inner.Close() })
	if err != nil {
		return nil, err
	}
	full, ok := inner.(fullStmt)
	if !ok {
		return nil, errors.Join(fmt.Errorf("tap: driver statement %T takes no contexts", inner), inner.Close())
	}
	return &stmt{full, c}, nil
}

func (c *conn) Ping(ctx context.Context) error {
	return Do(ctx, c.of.tap, OpFrom(ctx, c.of.op), func(ctx context.Context) error { return c.fullConn.Ping(ctx) })
}

// ResetSession readies the connection for its next user.
func (c *conn) ResetSession(ctx context.Context) error {
	if r, ok := c.fullConn.(driver.SessionResetter); ok {
		return r.ResetSession(ctx)
	}
	return nil
}

// IsValid says whether the connection may go back to the pool.
func (c *conn) IsValid() bool {
	if v, ok := c.fullConn.(driver.Validator); ok && !v.IsValid() {
		return false
	}
	return !c.suspect
}

// CheckNamedValue lets the driver convert an argument; ErrSkip leaves that to
// database/sql.
func (c *conn) CheckNamedValue(v *driver.NamedValue) error {
	if n, ok := c.fullConn.(driver.NamedValueChecker); ok {
		return n.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

// tx is a tapped transaction. Its end takes no context of its own, so it keeps
// the one it began with.
type tx struct {
	inner driver.Tx
	conn  *conn
	ctx   context.Context
}

func (t *tx) Commit() error { return t.conn.do(t.ctx, t.inner.Commit, nil) }

// Rollback often comes because the context is done, and is made nonetheless.
func (t *tx) Rollback() error {
	return t.conn.do(context.WithoutCancel(t.ctx), t.inner.Rollback, nil)
}

// fullStmt is what the prepared statements of both drivers can do.
type fullStmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

// stmt is a tapped prepared statement. Closing it awaits no reply.
type stmt struct {
	fullStmt
	conn *conn
}

func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (res driver.Result, err error) {
	err = s.conn.do(ctx, func() (err error) {
		res, err = s.fullStmt.ExecContext(ctx, args)
		return err
	}, nil)
	return res, err
}

func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (rows driver.Rows, err error) {
	err = s.conn.do(ctx, func() (err error) {
		rows, err = s.fullStmt.QueryContext(ctx, args)
		return err
	}, func() { rows.Close() })
	return rows, err
}

func (s *stmt) CheckNamedValue(v *driver.NamedValue) error {
	if n, ok := s.fullStmt.(driver.NamedValueChecker); ok {
		return n.CheckNamedValue(v)
	}
	return s.conn.CheckNamedValue(v)
}
