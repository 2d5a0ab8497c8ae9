package order

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"grablab/migrations"

	"github.com/go-sql-driver/mysql"
	gormmysql "gorm.io/driver/mysql"
	"gorm.io/gorm"
)

var mysqlDialect = dialect{
	schema:  migrations.MySQL,
	now:     "UTC_TIMESTAMP(6)", // UTC, even if the session has another time zone
	version: "SELECT VERSION()",
	create:  createMySQL,
	begin:   "START TRANSACTION",
}

func openMySQL(dsn string, opts Options) (*SQL, gorm.Dialector, error) {
	cfg, err := mysqlConfig(dsn)
	if err != nil {
		return nil, nil, err
	}
	cfg.Logger = new(mysql.NopLogger) // callers get the same information as errors
	c, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, nil, errMySQLDSN
	}
	db := pool(opts.Wrap(c), opts.MaxConns)
	// Sessions may use only three quarters of the connections, so that calls without a lock always
	// find a free connection.
	pins := make(chan struct{}, opts.MaxConns-max(opts.MaxConns/4, 1))
	return &SQL{dialect: mysqlDialect, reads: db, writes: db, pins: pins, log: opts.Log},
		gormmysql.New(gormmysql.Config{Conn: db, SkipInitializeWithVersion: true}), nil
}

// errMySQLDSN omits the parser's message, which may contain part of the password.
var errMySQLDSN = fmt.Errorf("%w: use sqlite:/path/file.db or user:password@tcp(host:port)/name?param=value", ErrBadDSN)

var networks = []string{"tcp", "tcp4", "tcp6", "unix"}

// minReadTimeout is twice as long as a statement may wait for a lock.
const minReadTimeout = 20 * time.Second

// mysqlConfig parses a DSN and sets the options that the store needs.
func mysqlConfig(dsn string) (*mysql.Config, error) {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil || !slices.Contains(networks, cfg.Net) {
		return nil, errMySQLDSN
	}
	if cfg.DBName == "" {
		return nil, fmt.Errorf("%w: the name of the database is missing: use user:password@tcp(host:port)/name", ErrBadDSN)
	}
	cfg.ParseTime, cfg.Loc = true, time.UTC
	// With this setting, the server counts only rows that a statement really changes. A repeated
	// write changes 0 rows, so the program recognizes it (failure mode F33).
	cfg.ClientFoundRows = false
	// Interpolate the arguments into the statement, which saves up to two round trips.
	cfg.InterpolateParams = true
	cfg.MultiStatements = false
	// Without these timeouts, a dead server would block callers forever. ReadTimeout must be longer
	// than a statement may wait for a lock. Otherwise, such a wait would look like a dead server.
	cfg.Timeout = cmp.Or(cfg.Timeout, 5*time.Second)
	cfg.ReadTimeout = max(cmp.Or(cfg.ReadTimeout, 30*time.Second), minReadTimeout)
	cfg.WriteTimeout = cmp.Or(cfg.WriteTimeout, 10*time.Second)
	return cfg, nil
}

// createMySQL inserts count orders with one statement. In every lock mode, InnoDB assigns consecutive
// IDs within one such statement, but not across several statements.
//
// Galera Cluster and MySQL group replication leave gaps between IDs. In that case, createMySQL
// replaces the rows with rows that have explicit IDs, from the range that the first statement has
// reserved.
func createMySQL(ctx context.Context, tx *sql.Conn, count, units int) (int64, error) {
	columns, value := "created_at", "UTC_TIMESTAMP(6))"
	if units > 1 {
		columns, value = "created_at, units, stock", fmt.Sprintf("UTC_TIMESTAMP(6),%d,%d)", units, units)
	}
	res, err := tx.ExecContext(ctx, "INSERT INTO orders ("+columns+") VALUES "+strings.Repeat(",("+value, count)[1:])
	if err != nil {
		return 0, err
	}
	first, err := res.LastInsertId() // the first row's ID
	if err != nil {
		return 0, err
	}
	// All rows of one INSERT have the same timestamp, which therefore identifies this call's rows.
	const ours = "FROM orders AS o JOIN orders AS f ON f.id = ? AND o.created_at = f.created_at WHERE o.id >= ?"
	var consecutive int
	err = tx.QueryRowContext(ctx, "SELECT COUNT(*) "+ours+" AND o.id < ?", first, first, first+int64(count)).Scan(&consecutive)
	if err != nil || consecutive == count {
		return first, err
	}
	if res, err = tx.ExecContext(ctx, "DELETE o "+ours, first, first); err != nil {
		return 0, err
	}
	if deleted, err := res.RowsAffected(); err != nil || deleted != int64(count) {
		return 0, cmp.Or(err, fmt.Errorf("the database left gaps between the new ids, so only %d of %d orders were found: open the orders again", deleted, count))
	}
	rows := make([]string, count)
	for i := range rows {
		rows[i] = fmt.Sprintf("(%d,%s", first+int64(i), value)
	}
	_, err = tx.ExecContext(ctx, "INSERT INTO orders (id, "+columns+") VALUES "+strings.Join(rows, ","))
	return first, err
}

// ProductOf extracts the database's name and version from the server's version string.
func ProductOf(text string) string {
	// Older MariaDB versions put a MySQL version number before their own.
	number, _, _ := strings.Cut(strings.TrimPrefix(text, "5.5.5-"), "-")
	switch {
	case strings.HasPrefix(text, "SQLite "):
		return text
	case strings.Contains(text, "TiDB-v"):
		_, number, _ = strings.Cut(text, "TiDB-v")
		number, _, _ = strings.Cut(number, "-")
		return "TiDB " + number
	case strings.Contains(text, "MariaDB"):
		return "MariaDB " + number
	case strings.Contains(text, "Vitess"):
		return "Vitess, as MySQL " + number
	default:
		return "MySQL " + number
	}
}
