package order

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"

	gosqlite "github.com/glebarez/go-sqlite"
)

// writerQueue lets the writers of this process take turns. Without it, SQLite would make waiting
// writers sleep and retry.
type writerQueue struct {
	driver.Connector
	turn chan struct{} // has one entry while a writer has its turn
}

func (q writerQueue) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := q.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &queuedConn{sqliteDriverConn: conn.(sqliteDriverConn), turn: q.turn}, nil
}

// sqliteDriverConn is an interface to the driver's connections, because their type is unexported.
type sqliteDriverConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
}

type queuedConn struct {
	sqliteDriverConn
	turn chan struct{}
	mine bool
}

func (c *queuedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if query == beginWriting {
		return c.begin(ctx)
	}
	res, err := c.sqliteDriverConn.ExecContext(ctx, query, args)
	if err == nil && (query == "COMMIT" || query == "ROLLBACK") {
		c.pass()
	}
	return res, err
}

func (c *queuedConn) begin(ctx context.Context) (driver.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, sqliteWait)
	defer cancel()
	select {
	case c.turn <- struct{}{}:
		c.mine = true
	case <-ctx.Done():
		return nil, fmt.Errorf("another writer of this process has locked the file: %w", ctx.Err())
	}
	for {
		res, err := c.sqliteDriverConn.ExecContext(ctx, beginWriting, nil)
		switch {
		case err == nil:
			return res, nil
		case !isBusy(err):
			c.pass()
			return nil, err
		case ctx.Err() != nil:
			c.pass()
			return nil, fmt.Errorf("another process has locked the file: %w", ctx.Err())
		}
	}
}

func isBusy(err error) bool {
	const busy, primary = 5, 0xff // the error code SQLITE_BUSY, and the mask for the primary part of a code
	e, ok := errors.AsType[*gosqlite.Error](err)
	return ok && e.Code()&primary == busy
}

func (c *queuedConn) pass() {
	if c.mine {
		c.mine = false
		<-c.turn
	}
}

// Close ends the transaction, so that another connection can write.
func (c *queuedConn) Close() error {
	defer c.pass()
	return c.sqliteDriverConn.Close()
}
