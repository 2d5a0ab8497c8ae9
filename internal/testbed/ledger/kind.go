package ledger

import (
	"cmp"
	"database/sql"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"grablab/internal/order"

	_ "github.com/glebarez/go-sqlite" // registers the driver
	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// kind describes what is specific to one kind of database.
type kind struct {
	version string // query for the database version
	now     string // query for the number of seconds since 1970
	product func(version string) string
	// open returns a connection pool. If write is false, the caller only reads.
	open func(dsn string, write bool) (*sql.DB, error)

	idAsText string         // expression that converts a numeric order_id column to text
	tokens   *regexp.Regexp // matches the first token of a query
	hash     bool           // whether a # starts a comment
	dollar   bool           // whether $ quotes strings and starts placeholders
}

var (
	mysqlKind = kind{
		version: "SELECT VERSION()", now: "SELECT UNIX_TIMESTAMP(NOW(6))", open: openMySQL, tokens: tokens(escapeStrings, hashComment), hash: true,
		product: order.ProductOf, idAsText: "CAST(order_id AS CHAR)",
	}
	postgresKind = kind{
		version: "SHOW server_version", now: "SELECT EXTRACT(EPOCH FROM clock_timestamp())", open: openPostgres, tokens: tokens(plainStrings, dollarWord), dollar: true,
		product: func(v string) string { number, _, _ := strings.Cut(v, " "); return "PostgreSQL " + number }, idAsText: "order_id::text",
	}
	sqliteKind = kind{
		version: "SELECT sqlite_version()", now: "SELECT (julianday('now') - 2440587.5) * 86400", open: openSQLite, tokens: tokens(plainStrings),
		product: func(v string) string { return "SQLite " + v }, idAsText: "CAST(order_id AS TEXT)",
	}
)

const sqlitePrefix = "sqlite:"

func kindOf(dsn string) (kind, error) {
	switch {
	case strings.HasPrefix(dsn, sqlitePrefix):
		return sqliteKind, nil
	case strings.HasPrefix(dsn, "postgres://"), strings.HasPrefix(dsn, "postgresql://"):
		if _, err := pgx.ParseConfig(dsn); err != nil {
			return kind{}, ErrDSN
		}
		return postgresKind, nil
	}
	if _, err := mysql.ParseDSN(dsn); err != nil {
		return kind{}, ErrDSN
	}
	return mysqlKind, nil
}

func openMySQL(dsn string, _ bool) (*sql.DB, error) {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, ErrDSN
	}
	cfg.MultiStatements, cfg.AllowAllFiles, cfg.Logger = false, false, silent
	cfg.Timeout = cmp.Or(cfg.Timeout, 5*time.Second)
	c, err := mysql.NewConnector(cfg)
	if err != nil { // ParseDSN has checked cfg
		return nil, ErrDSN
	}
	return sql.OpenDB(c), nil
}

func openPostgres(dsn string, _ bool) (*sql.DB, error) {
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, ErrDSN
	}
	if cfg.DefaultQueryExecMode == pgx.QueryExecModeSimpleProtocol { // this mode would allow several statements in one query
		cfg.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	return stdlib.OpenDB(*cfg), nil
}

// openSQLite opens a connection pool. If write is false, the whole pool is read-only, because
// SQLite has no read-only transactions.
func openSQLite(dsn string, write bool) (*sql.DB, error) {
	path, err := filepath.Abs(strings.TrimPrefix(dsn, sqlitePrefix))
	if err != nil {
		return nil, ErrDSN
	}
	mode := "ro"
	if write {
		mode = "rw"
	}
	u := url.URL{Scheme: "file", Path: filepath.ToSlash(path), RawQuery: "mode=" + mode + "&_pragma=busy_timeout(5000)"}
	return sql.Open("sqlite", u.String())
}
