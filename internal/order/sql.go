package order

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"grablab/migrations"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/logger"
)

// SQL is a Store in an SQL database such as MySQL or SQLite. It uses gorm.
type SQL struct {
	dialect
	// reads and writes are the same connection pool. The exception is SQLite, because its writers
	// must queue.
	reads, writes *sql.DB
	pins          chan struct{} // one entry for each session that Begin has reserved; nil if the database has no sessions
	gorm          *gorm.DB
	log           *slog.Logger
}

// dialect describes what is special about one kind of database.
type dialect struct {
	schema  migrations.Dialect
	now     string           // an SQL expression for the current time in UTC
	version string           // a query for the name and version of the database
	begin   string           // the statement that begins a transaction
	isBusy  func(error) bool // reports whether begin may be repeated after this error; may be nil

	create func(ctx context.Context, tx *sql.Conn, count, units int) (first int64, err error)
}

// Options configures Connect. The zero value of each field selects its default.
type Options struct {
	// Wrap may wrap the database driver, for example to observe every statement. It may be nil.
	Wrap func(driver.Connector) driver.Connector
	// MaxConns is the maximum number of open connections, at least 2. With the default of 64, two
	// instances stay below the usual server limit of 151. Sessions use at most three quarters of
	// the connections.
	MaxConns int
	// Log receives messages about unconfirmed commits. It may be nil.
	Log *slog.Logger
}

// ErrBadDSN means that the database address is invalid.
var ErrBadDSN = errors.New("order: bad database address")

// LedgerQuery selects the order and driver of each grab in a range of order IDs.
const LedgerQuery = "SELECT order_id, driver_id FROM grabs WHERE order_id BETWEEN ? AND ? ORDER BY id"

// Connect opens the database at dsn, such as "sqlite:/path/file.db" or
// "user:password@tcp(host:port)/name", without creating tables. If dsn is invalid, the error wraps
// ErrBadDSN.
func Connect(ctx context.Context, dsn string, opts Options) (*SQL, error) {
	opts.MaxConns = max(cmp.Or(opts.MaxConns, 64), 2)
	opts.Log = cmp.Or(opts.Log, slog.New(slog.DiscardHandler))
	if opts.Wrap == nil {
		opts.Wrap = func(c driver.Connector) driver.Connector { return c }
	}
	open := openMySQL
	if path, ok := strings.CutPrefix(dsn, "sqlite:"); ok {
		dsn, open = path, openSQLite
	}
	s, dialector, err := open(dsn, opts)
	if err != nil {
		return nil, err
	}
	if err := s.Ping(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.gorm, err = gorm.Open(dialector, &gorm.Config{
		Logger:                 logger.Discard, // callers return every error, so gorm need not log
		SkipDefaultTransaction: true,
		DisableAutomaticPing:   true,
		QueryFields:            true, // select only the columns of the struct
		TranslateError:         true, // return gorm.ErrDuplicatedKey for a duplicate key
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("order: %w", err), s.Close())
	}
	return s, nil
}

// pool opens up to size connections. It keeps them open, because opening a connection takes longer
// than a typical request.
func pool(c driver.Connector, size int) *sql.DB {
	db := sql.OpenDB(c)
	db.SetMaxOpenConns(size)
	db.SetMaxIdleConns(size)
	return db
}

// Migrate creates or updates the tables. Several instances may call it at the same time.
func (s *SQL) Migrate(ctx context.Context) error { return migrations.Up(ctx, s.reads, s.schema) }

// DB returns the connection pool.
func (s *SQL) DB() *sql.DB { return s.reads }

// Ping checks that the database responds.
func (s *SQL) Ping(ctx context.Context) error {
	if err := s.reads.PingContext(ctx); err != nil {
		return fmt.Errorf("order: no answer from the database: %w", err)
	}
	return nil
}

// Close closes all connections.
func (s *SQL) Close() error { return errors.Join(s.reads.Close(), s.writes.Close()) }

// Version returns the name and version of the database, such as "MariaDB 10.11.19".
func (s *SQL) Version(ctx context.Context) (string, error) {
	var text string
	if err := s.reads.QueryRowContext(ctx, s.version).Scan(&text); err != nil {
		return "", fmt.Errorf("order: version: %w", err)
	}
	return ProductOf(text), nil
}

// Read implements Rows. If fence is 0, it sends only a single statement and takes no lock.
func (s *SQL) Read(ctx context.Context, id int64, fence uint64) (Order, error) {
	if fence == 0 {
		return find(s.gorm.WithContext(ctx), id)
	}
	x, err := s.session(ctx)
	if err != nil {
		return Order{}, err
	}
	defer x.close()
	return x.raiseFence(ctx, id, fence)
}

// Claim implements Rows.
func (s *SQL) Claim(ctx context.Context, c Claim, g Guard) error {
	x, err := s.session(ctx)
	if err != nil {
		return notWritten(err)
	}
	defer x.close()
	return x.Claim(ctx, c, g)
}

// Held implements Rows.
func (s *SQL) Held(ctx context.Context, id, driver int64) (int, error) {
	held, err := rowsOf(s.gorm.WithContext(ctx), id, driver)
	return len(held), err
}

// Create implements Store.
func (s *SQL) Create(ctx context.Context, count, units int) (first int64, err error) {
	x, err := s.session(ctx)
	if err != nil {
		return 0, err
	}
	defer x.close()
	err = x.transact(ctx, func(*gorm.DB) error {
		first, err = s.create(ctx, x.conn, count, units)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("order: create: %w", err)
	}
	return first, nil
}

// Ledger implements Store.
func (s *SQL) Ledger(ctx context.Context, first int64, count int) ([]Grab, error) {
	var grabs []Grab
	err := s.gorm.WithContext(ctx).
		Where("order_id BETWEEN ? AND ?", first, first+int64(count)-1).
		Order("id").Find(&grabs).Error
	if err != nil {
		return nil, fmt.Errorf("order: ledger: %w", withCause(ctx, err))
	}
	return grabs, nil
}

// find reads the order with this ID. db may already contain SQL clauses, such as FOR UPDATE.
func find(db *gorm.DB, id int64) (Order, error) {
	var o Order
	err := db.Take(&o, id).Error
	if errors.Is(err, gorm.ErrRecordNotFound) {
		return o, ErrNotFound
	}
	if err != nil {
		return o, fmt.Errorf("order: read: %w", withCause(db.Statement.Context, err))
	}
	return o, nil
}

// rowsOf returns a driver's ledger rows for an order. Only TiDB reads the clause in the SQL comment
// and locks these rows. In other databases, the lock could deadlock with writes to neighboring
// orders.
func rowsOf(db *gorm.DB, id, driver int64) (held []Grab, err error) {
	err = db.Raw("SELECT id, token FROM grabs WHERE order_id = ? AND driver_id = ? /*T! FOR UPDATE */", id, driver).Scan(&held).Error
	if err != nil {
		return nil, fmt.Errorf("order: the driver's units: %w", withCause(db.Statement.Context, err))
	}
	return held, nil
}

// forUpdate makes a statement lock the row that it reads and return the newest state. A plain read
// in a transaction may return an older state. SQLite ignores this clause.
var forUpdate = clause.Locking{Strength: clause.LockingStrengthUpdate}

// withCause adds the context's error to err, because some drivers leave the context's error out.
func withCause(ctx context.Context, err error) error {
	if cause := ctx.Err(); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}
