package order

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"grablab/migrations"

	"github.com/go-sql-driver/mysql"
	gormmysql "gorm.io/driver/mysql"
	"gorm.io/gorm"
)

var mysqlDialect = dialect{
	schema:   migrations.MySQL,
	sessions: true,
	now:      "UTC_TIMESTAMP(6)", // whatever the session's time zone
	version:  "SELECT VERSION()",
	create:   createMySQL,
	begin:    "START TRANSACTION",
}

func openMySQL(dsn string, opts Options) (*SQL, gorm.Dialector, error) {
	cfg, err := mysqlConfig(dsn)
	if err != nil {
		return nil, nil, err
	}
	cfg.Logger = driverLog{opts.Log}
	c, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, nil, errMySQLDSN
	}
	db := pool(opts.Wrap(c), opts.MaxConns)
	// A quarter is left to calls that hold no lock: reads and probes.
	pins := make(chan struct{}, opts.MaxConns-max(opts.MaxConns/4, 1))
	return &SQL{dialect: mysqlDialect, reads: db, writes: db, pins: pins, log: opts.Log},
		gormmysql.New(gormmysql.Config{Conn: db, SkipInitializeWithVersion: true}), nil
}

// errMySQLDSN has no detail: the parser's may be a piece of the password.
var errMySQLDSN = fmt.Errorf("%w: want sqlite:/path/file.db or user:password@tcp(host:port)/name?param=value", ErrBadDSN)

var networks = []string{"tcp", "tcp4", "tcp6", "unix"}

// mysqlConfig parses a DSN and settles what must not be left to it.
func mysqlConfig(dsn string) (*mysql.Config, error) {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil || !slices.Contains(networks, cfg.Net) {
		return nil, errMySQLDSN
	}
	if cfg.DBName == "" {
		return nil, fmt.Errorf("%w: it ends without the name of a database: user:password@tcp(host:port)/name", ErrBadDSN)
	}
	cfg.ParseTime, cfg.Loc = true, time.UTC
	// Rows changed, not rows matched: a write that a guard has let through
	// once must not count again when it is sent again (F33).
	cfg.ClientFoundRows = false
	// One round trip for a statement, where a prepared one that is new to its
	// connection takes three. Measured in BenchmarkGrab.
	cfg.InterpolateParams = true
	cfg.MultiStatements = false
	// A server that has died silently must not block a caller for ever, not even
	// one without a deadline. A server is not dead while a caller waits for a lock.
	cfg.Timeout = cmp.Or(cfg.Timeout, 5*time.Second)
	cfg.ReadTimeout = max(cmp.Or(cfg.ReadTimeout, 3*lockSlice), 2*lockSlice)
	cfg.WriteTimeout = cmp.Or(cfg.WriteTimeout, 10*time.Second)
	return cfg, nil
}

// driverLog hands on what the driver says of broken connections. The errors
// themselves are returned as well.
type driverLog struct{ *slog.Logger }

func (l driverLog) Print(v ...any) { l.Debug("mysql: " + strings.TrimSpace(fmt.Sprint(v...))) }

// createMySQL opens count orders with one INSERT: the rows of a statement that
// says how many they are get consecutive ids from InnoDB in every lock mode,
// those of several statements do not. A cluster that steps its ids by more than
// one is found out by the look at what was written.
func createMySQL(ctx context.Context, tx *sql.Conn, count, units int) (int64, error) {
	columns, value := "created_at", ",(UTC_TIMESTAMP(6))"
	if units > 1 {
		columns, value = "created_at, units, stock", fmt.Sprintf(",(UTC_TIMESTAMP(6),%d,%d)", units, units)
	}
	res, err := tx.ExecContext(ctx, "INSERT INTO orders ("+columns+") VALUES "+strings.Repeat(value, count)[1:])
	if err != nil {
		return 0, err
	}
	first, err := res.LastInsertId() // of several: the first
	if err != nil {
		return 0, err
	}
	// The clock stands still during a statement, so it marks the rows of ours.
	var ours int
	err = tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM orders AS o JOIN orders AS f ON f.id = ? AND o.created_at = f.created_at"+
		" WHERE o.id BETWEEN ? AND ?", first, first, first+int64(count)-1).Scan(&ours)
	if err != nil {
		return 0, err
	}
	if ours != count {
		return 0, fmt.Errorf("the database gave ids that are not consecutive: %d of %d from %d on", ours, count, first)
	}
	return first, nil
}

// ProductOf makes a name and a number of what a server calls its version.
func ProductOf(text string) string {
	// MariaDB once put a number before its own, for clients that knew MySQL only.
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
