package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/gofrs/flock"
)

const (
	lockWait    = 60 * time.Second // how long to wait for another instance's migration
	lockPoll    = 10 * time.Millisecond
	unlockLimit = 5 * time.Second
)

// lock makes other migrations on the same database wait, even in other processes. The lock is also
// released if this process dies.
func lock(ctx context.Context, db *sql.DB, d Dialect) (unlock func() error, err error) {
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	if d == SQLite {
		return lockFile(ctx, db)
	}
	return lockName(ctx, db)
}

// lockFile locks a file next to the database. The file is never removed, because otherwise two
// instances could lock different files with the same name.
func lockFile(ctx context.Context, db *sql.DB) (func() error, error) {
	var path string
	err := db.QueryRowContext(ctx, "SELECT file FROM pragma_database_list WHERE name = 'main'").Scan(&path)
	if err != nil {
		return nil, err
	}
	file := flock.New(path + ".migrate.lock")
	if _, err := file.TryLockContext(ctx, lockPoll); err != nil {
		return nil, err
	}
	return file.Close, nil
}

// lockName acquires a named lock on the server. Lock names are global to the server, so the lock's
// name contains a hash of the database name. The hash keeps the name within the limit of 64
// characters.
func lockName(ctx context.Context, db *sql.DB) (func() error, error) {
	const name = "CONCAT('migrate ', MD5(DATABASE()))"
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	var got sql.NullInt64
	// Wait only a second in each attempt, so that the connection does not time out.
	for got.Int64 != 1 {
		if err := conn.QueryRowContext(ctx, "SELECT GET_LOCK("+name+", 1)").Scan(&got); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
	}
	return func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unlockLimit)
		defer cancel()
		err := conn.QueryRowContext(ctx, "SELECT RELEASE_LOCK("+name+")").Scan(&got)
		if err == nil && got.Int64 != 1 {
			err = fmt.Errorf("migrations: the database session lost its lock during the migration: run the migration again")
		}
		return errors.Join(err, conn.Close())
	}, nil
}
