// Package ledger reads from a service's database which driver won which order. It runs the user's
// query in a read-only transaction. Start reading at Open.
package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"strconv"
	"strings"
	"time"

	"grablab/internal/order"
	"grablab/internal/testbed/target"
)

// DB reads the winners of orders from the database of the service under test. It can also execute
// SQL statements there.
type DB struct {
	kind  kind
	dsn   string
	query string
	ids   *target.Shape
	read  *sql.DB
}

// These errors mean that the database address is invalid, the query is unsuitable, or the database
// does not respond. ErrDSN never contains the parser's error, which may include part of the password.
var (
	ErrDSN      = errors.New("ledger: bad database address: use user:password@tcp(host:3306)/name for MySQL or MariaDB, postgres://user:password@host/name, or sqlite:/path/file.db")
	ErrQuery    = errors.New("ledger: bad query")
	ErrNoAnswer = errors.New("ledger: no answer from the database")
)

// Open connects to a database. The DSN has one of these forms:
//
//	user:password@tcp(host:3306)/name
//	postgres://user:password@host:5432/name
//	sqlite:/path/file.db
//
// Open runs the query once to check it. The query has either two placeholders, for the first and
// the last order, or {orders}, which stands for a list of orders. Each result row has an order and
// a driver. ids translates order and driver IDs into numbers. If ids is nil, they are already
// numbers. If the query is empty, only Exec and Version may be called.
func Open(ctx context.Context, dsn, query string, ids *target.Shape) (*DB, error) {
	k, err := kindOf(dsn)
	if err != nil {
		return nil, err
	}
	d := &DB{kind: k, dsn: dsn, ids: ids}
	if query != "" {
		if d.query, err = k.prepare(query); err != nil {
			return nil, err
		}
	}
	if d.read, err = k.open(dsn, false); err != nil {
		return nil, err
	}
	d.read.SetMaxOpenConns(2)
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	if err := d.read.PingContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", ErrNoAnswer, err), d.Close())
	}
	if d.query != "" {
		if _, err := d.Ledger(ctx, 1, 1); err != nil {
			return nil, errors.Join(err, d.Close())
		}
	}
	return d, nil
}

const openTimeout = 10 * time.Second

// Check returns an error if dsn or query is invalid, without connecting to the database. query may
// be empty.
func Check(dsn, query string) error {
	k, err := kindOf(dsn)
	if err == nil && query != "" {
		_, err = k.prepare(query)
	}
	return err
}

// Close closes all connections.
func (d *DB) Close() error { return d.read.Close() }

// Version returns the name and version of the database.
func (d *DB) Version(ctx context.Context) (string, error) {
	var text string
	if err := d.read.QueryRowContext(ctx, d.kind.version).Scan(&text); err != nil {
		return "", fmt.Errorf("ledger: version: %w", err)
	}
	return d.kind.product(text), nil
}

// ClockAhead returns how far this machine's clock is ahead of the database's. It asks several times
// and uses the fastest response, because that is the most precise.
func (d *DB) ClockAhead(ctx context.Context) (ahead time.Duration, err error) {
	for quickest, n := time.Duration(math.MaxInt64), 0; n < 8; n++ {
		var now float64
		asked := time.Now()
		if err := d.read.QueryRowContext(ctx, d.kind.now).Scan(&now); err != nil {
			return 0, fmt.Errorf("ledger: clock: %w", err)
		}
		if took := time.Since(asked); took < quickest {
			quickest = took
			ahead = asked.Add(took / 2).Sub(time.UnixMicro(int64(now * 1e6)))
		}
	}
	return ahead, nil
}

// Ledger returns the winners of count orders with consecutive IDs, beginning with first.
func (d *DB) Ledger(ctx context.Context, first int64, count int) ([]order.Grab, error) {
	tx, err := d.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	defer tx.Rollback() // the transaction only reads
	if !strings.Contains(d.query, orderList) {
		last := first + int64(count) - 1
		return d.rows(ctx, tx, d.query, first, last, first, last)
	}
	var grabs []order.Grab
	for end := first + int64(count); first < end; first += maxListed {
		last := min(first+maxListed, end) - 1
		var marks []string
		var ids []any
		for id := first; id <= last; id++ {
			marks, ids = append(marks, d.kind.mark(len(marks)+1)), append(ids, d.ids.OrderText(id))
		}
		some, err := d.rows(ctx, tx, strings.Replace(d.query, orderList, strings.Join(marks, ", "), 1), first, last, ids...)
		if err != nil {
			return nil, err
		}
		grabs = append(grabs, some...)
	}
	return grabs, nil
}

// maxListed limits how many orders a query lists, because databases limit the number of
// parameters.
const maxListed = 500

// rows runs the query and returns the winners that it finds. If a row's order is outside first to
// last, it returns ErrQuery.
func (d *DB) rows(ctx context.Context, tx *sql.Tx, query string, first, last int64, args ...any) ([]order.Grab, error) {
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, d.failed(err)
	}
	defer rows.Close()
	if columns, err := rows.Columns(); err != nil || len(columns) != 2 {
		return nil, errors.Join(err, fmt.Errorf("%w: the query returns the columns %s: select exactly two, the order and the driver", ErrQuery, strings.Join(columns, ", ")))
	}
	var grabs []order.Grab
	for rows.Next() {
		var id, driver sql.Null[string]
		if err := rows.Scan(&id, &driver); err != nil {
			return nil, fmt.Errorf("%w: the columns for order and driver must contain numbers or texts: %w", ErrQuery, err)
		}
		id.V, driver.V = strings.TrimRight(id.V, " "), strings.TrimRight(driver.V, " ") // PostgreSQL pads the values of CHAR columns
		number, isOrder := d.ids.NumberOf(id.V)
		of, isDriver := target.DriverOf(driver.V)
		_, swapped := d.ids.NumberOf(driver.V)
		switch {
		case d.ids.NamesOrders() && swapped && !isOrder:
			return nil, fmt.Errorf("%w: the query returns the order %.60q and the driver %.60q, which is an order: select the order first, and then the driver", ErrQuery, id.V, driver.V)
		case !id.Valid:
			return nil, fmt.Errorf("%w: the order of a row is NULL: leave out rows without an order, with AND order_id IS NOT NULL", ErrQuery)
		case !driver.Valid:
			return nil, fmt.Errorf("%w: the driver of order %s is NULL: leave out rows without a driver, with AND driver IS NOT NULL", ErrQuery, id.V)
		case !isDriver:
			return nil, fmt.Errorf("%w: the query returns the driver %.60q: select whole numbers, or the text of {driver_uuid} or {driver_name}", ErrQuery, driver.V)
		case !isOrder:
			return nil, fmt.Errorf("%w: the query returns the order %.60q: select whole numbers or, with {order_uuid}, the ids that the service chose%s", ErrQuery, id.V, d.numericHint(id.V))
		case number < first || number > last:
			return nil, fmt.Errorf("%w: the query returns order %s, although loadgen asked for %d to %d: add WHERE order_id BETWEEN ? AND ?", ErrQuery, id.V, first, last)
		}
		grabs = append(grabs, order.Grab{Order: number, Driver: of})
	}
	if err := rows.Err(); err != nil {
		return nil, d.failed(err)
	}
	return grabs, nil
}

// failed describes a query error. It adds a hint if PostgreSQL refused to compare a number with a
// text.
func (d *DB) failed(err error) error {
	hint := ""
	if strings.Contains(err.Error(), "invalid input syntax for type") {
		hint = d.numericHint("0")
	}
	return fmt.Errorf("ledger: the query failed: %w%s", err, hint)
}

// numericHint returns a hint if the query compares {orders} with a numeric column, which it
// recognizes by one of the column's values. MySQL converts a text to a number by its first digits,
// so such a query may return wrong orders.
func (d *DB) numericHint(id string) string {
	if _, err := strconv.ParseInt(id, 10, 64); err != nil || !strings.Contains(d.query, orderList) {
		return ""
	}
	return fmt.Sprintf(". {orders} is a list of texts: for a numeric column, write %s IN ({orders})", d.kind.idAsText)
}

// Exec runs the user's SQL statements in one transaction, for example to open orders.
func (d *DB) Exec(ctx context.Context, statements []string) (err error) {
	db, err := d.kind.open(d.dsn, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	for _, s := range statements {
		if _, err := tx.ExecContext(ctx, s); err != nil {
			_ = tx.Rollback()
			return fmt.Errorf("ledger: %.200s: %w", s, err)
		}
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("ledger: commit: %w", err)
	}
	return nil
}

// silent discards a driver's log messages, because the driver also returns them as errors.
var silent = log.New(io.Discard, "", 0)
