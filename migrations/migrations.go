// Package migrations contains the database schema as SQL files, with a folder for each kind of
// database. Up creates or updates the tables.
package migrations

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"
)

// Dialect is a kind of database. It is also the name of the folder with its SQL files.
type Dialect string

// These are the supported kinds of databases. MySQL includes all servers that use its protocol.
const (
	MySQL  Dialect = "mysql"
	SQLite Dialect = "sqlite"
)

//go:embed mysql/*.sql sqlite/*.sql
var files embed.FS

// Up migrates the database to the newest version. Several instances may call it at the same time:
// one migrates, and the others wait. db must allow two connections at once.
//
// If the database has another program's tables, Up changes nothing and returns ErrForeign.
//
// Up locks the database before it calls goose. It does not use goose's own locks, because goose
// takes them only after it has looked for new versions and created its table.
func Up(ctx context.Context, db *sql.DB, d Dialect) (err error) {
	p, err := provider(db, d)
	if err != nil {
		return fmt.Errorf("migrations: %w", err)
	}
	sources := p.ListSources()
	newest := sources[len(sources)-1].Version
	// Check the owner before taking the lock, because the lock creates a file next to a database
	// that may not be ours.
	if d == SQLite {
		if err := checkOwner(ctx, db, d, newest); err != nil {
			return err
		}
	}
	unlock, err := lock(ctx, db, d)
	if err != nil {
		return fmt.Errorf("migrations: cannot get the lock on the database: %w", err)
	}
	defer func() { err = errors.Join(err, unlock()) }()

	if err := checkOwner(ctx, db, d, newest); err != nil {
		return err
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("migrations: %w", err)
	}
	return nil
}

func provider(db *sql.DB, d Dialect) (*goose.Provider, error) {
	folder, err := fs.Sub(files, string(d))
	if err != nil {
		return nil, err
	}
	dialects := map[Dialect]goose.Dialect{MySQL: goose.DialectMySQL, SQLite: goose.DialectSQLite3}
	return goose.NewProvider(dialects[d], db, folder, goose.WithDisableGlobalRegistry(true))
}
