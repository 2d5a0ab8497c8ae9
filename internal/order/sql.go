package order

import (
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

// SQL is a Store in a database, through gorm.
type SQL struct {
	dialect
	// One pool, but for SQLite: there the connections of writers queue.
	reads, writes *sql.DB
	pins          chan struct{} // one for each session that Begin has given out
	gorm          *gorm.DB
	log           *slog.Logger
}

// dialect is where the databases differ.
type dialect struct {
	schema   migrations.Dialect
	sessions bool   // it has sessions worth pinning
	now      string // the database's clock, UTC
	version  string // query for name and number
	begin    string // statement

	create func(ctx context.Context, tx *sql.Conn, count, units int) (first int64, err error)
}

// Options of Connect. The zero value of a field is its default.
type Options struct {
	// Wrap stands around the driver, and so around every statement. nil: nothing does.
	Wrap func(driver.Connector) driver.Connector
	// MaxConns is how many connections are in use at once. They are kept: at
	// least 2, by default 64, so that two instances fit under the 151 that a
	// server allows by default. Begin pins three quarters of them at the most.
	MaxConns int
	// Log takes what the driver has to say about broken connections, and every
	// commit whose answer was lost. nil: nothing is logged.
	Log *slog.Logger
}

// ErrBadDSN says that the text names no database. Nothing was connected to.
var ErrBadDSN = errors.New("order: bad database address")

// Connect opens the database of dsn: "sqlite:/path/file.db", or what
// go-sql-driver/mysql understands, "user:password@tcp(host:port)/name". An
// address that is none wraps ErrBadDSN. Migrate makes the tables.
func Connect(ctx context.Context, dsn string, opts Options) (*SQL, error) {
	if opts.MaxConns == 0 {
		opts.MaxConns = 64
	}
	opts.MaxConns = max(opts.MaxConns, 2)
	if opts.Wrap == nil {
		opts.Wrap = func(c driver.Connector) driver.Connector { return c }
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
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
		Logger:                 logger.Discard, // every error is returned
		SkipDefaultTransaction: true,
		DisableAutomaticPing:   true,
		QueryFields:            true, // no column but those asked for
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("order: %w", err), s.Close())
	}
	return s, nil
}

// pool opens connections up to size and keeps them: a new one for each grab
// would cost more than the grab.
func pool(c driver.Connector, size int) *sql.DB {
	db := sql.OpenDB(c)
	db.SetMaxOpenConns(size)
	db.SetMaxIdleConns(size)
	return db
}

// Migrate brings the tables to the newest version. Instances that start together may
// all call it: one does the work.
func (s *SQL) Migrate(ctx context.Context) error { return migrations.Up(ctx, s.reads, s.schema) }

// DB is the pool underneath, for statements that are no Store's business.
func (s *SQL) DB() *sql.DB { return s.reads }

// Ping asks the database whether it is there.
func (s *SQL) Ping(ctx context.Context) error {
	if err := s.reads.PingContext(ctx); err != nil {
		return fmt.Errorf("order: no answer from the database: %w", err)
	}
	return nil
}

// Close ends all connections.
func (s *SQL) Close() error {
	if s.reads == s.writes {
		return s.reads.Close()
	}
	return errors.Join(s.reads.Close(), s.writes.Close())
}

// Version is the database's name and number: "MariaDB 10.11.19".
func (s *SQL) Version(ctx context.Context) (string, error) {
	var text string
	if err := s.reads.QueryRowContext(ctx, s.version).Scan(&text); err != nil {
		return "", fmt.Errorf("order: version: %w", err)
	}
	return ProductOf(text), nil
}

// Read implements Rows. Without a fence it is one statement and takes no lock.
func (s *SQL) Read(ctx context.Context, id int64, fence uint64) (Order, error) {
	if fence == 0 {
		return find(s.gorm.WithContext(ctx), id)
	}
	x, err := s.session(ctx)
	if err != nil {
		return Order{}, err
	}
	defer x.close()
	return x.raise(ctx, id, fence)
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
	his, err := rowsOf(s.gorm.WithContext(ctx), id, driver)
	return len(his), err
}

// Create implements Store.
func (s *SQL) Create(ctx context.Context, count int) (first int64, err error) {
	return s.CreateStock(ctx, count, 1)
}

// CreateStock implements Store.
func (s *SQL) CreateStock(ctx context.Context, count, units int) (first int64, err error) {
	if err := checkCount(count, units); err != nil {
		return 0, err
	}
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
		return nil, fmt.Errorf("order: ledger: %w", because(ctx, err))
	}
	return grabs, nil
}

// find reads one order, under the clauses that db carries.
func find(db *gorm.DB, id int64) (Order, error) {
	var o Order
	err := db.Take(&o, id).Error
	if errors.Is(err, gorm.ErrRecordNotFound) {
		return o, ErrNotFound
	}
	if err != nil {
		return o, fmt.Errorf("order: read: %w", because(db.Statement.Context, err))
	}
	return o, nil
}

// rowsOf is what the ledger has of one driver and one order. In the transaction that has
// the order's row locked it is the newest state: InnoDB takes its snapshot with the first
// plain read. A locking read would lock the gap behind the order's rows as well, where
// the claims of its neighbours append: they would block each other for good. TiDB, which
// alone reads what stands in the comment, takes its snapshot earlier and locks no gaps.
func rowsOf(db *gorm.DB, id, driver int64) (his []Grab, err error) {
	err = db.Raw("SELECT id, token FROM grabs WHERE order_id = ? AND driver_id = ? /*T! FOR UPDATE */", id, driver).Scan(&his).Error
	if err != nil {
		return nil, fmt.Errorf("order: the driver's units: %w", because(db.Statement.Context, err))
	}
	return his, nil
}

// forUpdate reads as a transaction must: the newest state, locked. A plain read
// in a transaction may answer from a snapshot, which TiDB takes as early as at
// the beginning. SQLite has the whole file to itself and leaves the clause out.
var forUpdate = clause.Locking{Strength: clause.LockingStrengthUpdate}

// because puts the reason into an error that a cancelled context has caused;
// not every driver tells.
func because(ctx context.Context, err error) error {
	if cause := ctx.Err(); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}
