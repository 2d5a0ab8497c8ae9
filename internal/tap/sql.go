package tap

import (
	"context"
	"database/sql/driver"
	"errors"
	"sync/atomic"
)

// Connector wraps a database driver so that every query, every statement and every PING goes through t.
// Connector counts all of them except PING in statements. If t is nil, it only counts.
//
// A transaction must send BEGIN, COMMIT and ROLLBACK as statements. The methods of sql.Tx bypass t.
//
// After t has refused a call or lost a reply, the connection is not used again. Its state is unknown,
// as after a network failure. Prepared statements are not supported, so the driver must interpolate
// arguments (interpolateParams).
func Connector(c driver.Connector, t Tap, instance, target string, statements *atomic.Uint64) driver.Connector {
	return &connector{c, t, Op{Instance: instance, Target: target}, statements}
}

type connector struct {
	driver.Connector
	tap        Tap
	op         Op
	statements *atomic.Uint64
}

// Connect opens a connection. This call does not go through the tap.
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	inner, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &conn{fullConn: inner.(fullConn), of: c}, nil
}

// fullConn lists the methods that both drivers' connections have, for MySQL and for SQLite.
type fullConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
}

type conn struct {
	fullConn
	of      *connector
	suspect bool // whether its state is unknown, because the tap refused a call or lost a reply
}

// step makes one database call through the tap. If the reply of a query is lost, it closes the rows.
func step[T any](ctx context.Context, c *conn, send func() (T, error)) (T, error) {
	var (
		none, got T
		err       error
	)
	told := c.of.tap.do(ctx, OpFrom(ctx, c.of.op), func(context.Context) error {
		got, err = send()
		if !errors.Is(err, driver.ErrSkip) {
			c.of.statements.Add(1)
		}
		return err
	})
	if told == nil {
		return got, nil
	}
	if !errors.Is(told, err) {
		c.suspect = true
		if rows, ok := any(got).(driver.Rows); ok && err == nil {
			rows.Close()
		}
	}
	return none, told
}

func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return step(ctx, c, func() (driver.Result, error) { return c.fullConn.ExecContext(ctx, query, args) })
}

func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return step(ctx, c, func() (driver.Rows, error) { return c.fullConn.QueryContext(ctx, query, args) })
}

// PrepareContext always fails, because a prepared statement's calls would bypass the tap.
func (c *conn) PrepareContext(context.Context, string) (driver.Stmt, error) {
	return nil, errors.New("tap: this connection does not support prepared statements: let the driver interpolate the arguments")
}

func (c *conn) Ping(ctx context.Context) error {
	return c.of.tap.do(ctx, OpFrom(ctx, c.of.op), func(ctx context.Context) error { return c.fullConn.Ping(ctx) })
}

// ResetSession prepares the connection for reuse, if the driver supports that.
func (c *conn) ResetSession(ctx context.Context) error {
	if r, ok := c.fullConn.(driver.SessionResetter); ok {
		return r.ResetSession(ctx)
	}
	return nil
}

// IsValid reports whether the connection may return to the pool.
func (c *conn) IsValid() bool {
	if v, ok := c.fullConn.(driver.Validator); ok && !v.IsValid() {
		return false
	}
	return !c.suspect
}

// CheckNamedValue lets the driver convert an argument. If it returns ErrSkip, database/sql converts
// the argument instead.
func (c *conn) CheckNamedValue(v *driver.NamedValue) error {
	if n, ok := c.fullConn.(driver.NamedValueChecker); ok {
		return n.CheckNamedValue(v)
	}
	return driver.ErrSkip
}
