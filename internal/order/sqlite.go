package order

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"grablab/migrations"

	gosqlite "github.com/glebarez/go-sqlite"
	gormsqlite "github.com/glebarez/sqlite"
	"gorm.io/gorm"
)

var sqliteDialect = dialect{
	schema:  migrations.SQLite,
	now:     sqliteNow,
	version: "SELECT 'SQLite ' || sqlite_version()",
	// Take the write lock at the beginning. Otherwise, a transaction that begins with a read could
	// fail later because of another transaction's write.
	begin:  "BEGIN IMMEDIATE",
	isBusy: isBusy,
	create: createSQLite,
}

// sqliteNow is an SQL expression for the current time in UTC, with milliseconds.
const sqliteNow = "strftime('%Y-%m-%d %H:%M:%f', 'now')"

// These are the timeouts of a statement that waits until another process unlocks the database file. A
// writer waits only briefly each time, so that it can check its context in between.
const (
	readerBusy = 5 * time.Second
	writerBusy = 100 * time.Millisecond
)

func openSQLite(path string, opts Options) (*SQL, gorm.Dialector, error) {
	path, err := sqlitePath(path)
	if err != nil {
		return nil, nil, err
	}
	s := &SQL{
		dialect: sqliteDialect,
		reads:   pool(opts.Wrap(sqliteConnector(path, readerBusy)), opts.MaxConns),
		writes:  pool(opts.Wrap(sqliteConnector(path, writerBusy)), 1), // the writers queue, because SQLite would make them sleep and retry
		log:     opts.Log,
	}
	return s, &gormsqlite.Dialector{Conn: s.reads}, nil
}

// sqlitePath returns a SQLite file's absolute path. path is the part of the address after
// "sqlite:".
func sqlitePath(path string) (string, error) {
	switch {
	case path == "" || strings.HasPrefix(path, ":memory:"):
		return "", fmt.Errorf("%w: SQLite needs a file that all instances can open: use sqlite:/path/file.db", ErrBadDSN)
	case strings.Contains(filepath.Base(path), "?") || strings.Contains(path, "\x00"):
		return "", fmt.Errorf("%w: a SQLite address must contain only a path: use sqlite:/path/file.db", ErrBadDSN)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrBadDSN, err)
	}
	if dir, err := os.Stat(filepath.Dir(path)); err != nil || !dir.IsDir() {
		return "", fmt.Errorf("%w: the folder %s does not exist: create it", ErrBadDSN, filepath.Dir(path))
	}
	if file, err := os.Stat(path); err == nil && file.IsDir() {
		return "", fmt.Errorf("%w: %s is a folder: give the path of a file", ErrBadDSN, path)
	}
	return path, nil
}

// sqliteConn opens connections to a SQLite file. It is needed because package sql wants a
// connector, but the driver only accepts a DSN.
type sqliteConn string

// sqliteConnector returns a connector that does not sync the file at each commit. Committed data
// therefore survives a process crash, but not a power failure.
func sqliteConnector(path string, busy time.Duration) driver.Connector {
	file := url.URL{Scheme: "file", Path: filepath.ToSlash(path), OmitHost: true, RawQuery: url.Values{"_pragma": {
		fmt.Sprintf("busy_timeout(%d)", busy.Milliseconds()), "synchronous(NORMAL)",
	}}.Encode()}
	return sqliteConn(file.String())
}

func (c sqliteConn) Driver() driver.Driver { return &gosqlite.Driver{} }

func (c sqliteConn) Connect(ctx context.Context) (driver.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return c.Driver().Open(string(c))
}

// isBusy reports whether another process has locked the database file.
func isBusy(err error) bool {
	const busy, primary = 5, 0xff // the error code SQLITE_BUSY, and the mask for the primary part of a code
	e, ok := errors.AsType[*gosqlite.Error](err)
	return ok && e.Code()&primary == busy
}

// IsFileFailure reports whether SQLite could not read or write its file, for example because the disk is full.
// The statement itself may be right.
func IsFileFailure(err error) bool {
	// These are the primary codes SQLITE_BUSY, SQLITE_NOMEM, SQLITE_READONLY, SQLITE_IOERR, SQLITE_CORRUPT, SQLITE_FULL,
	// SQLITE_CANTOPEN and SQLITE_NOTADB.
	failures := []int{5, 7, 8, 10, 11, 13, 14, 26}
	e, ok := errors.AsType[*gosqlite.Error](err)
	return ok && slices.Contains(failures, e.Code()&0xff)
}

// createSQLite inserts count orders. Their IDs are consecutive, because there is only one writer.
func createSQLite(ctx context.Context, tx *sql.Conn, count, units int) (int64, error) {
	stock := sql.NullInt64{Int64: int64(units), Valid: units > 1}
	res, err := tx.ExecContext(ctx, "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)"+
		" INSERT INTO orders (created_at, units, stock) SELECT "+sqliteNow+", ?, ? FROM n", count, stock, stock)
	if err != nil {
		return 0, err
	}
	last, err := res.LastInsertId() // the last row's ID
	return last - int64(count) + 1, err
}
