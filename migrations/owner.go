package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pressly/goose/v3"
)

// ErrForeign means that the database belongs to another program and was not changed.
var ErrForeign = errors.New("the database belongs to another program")

// recordTable is the table in which goose records which versions it has applied.
const recordTable = goose.DefaultTablename

// firstTables is the version that creates the tables orders and grabs, and grantsTable is the
// version that creates the table grants.
var (
	firstTables = map[Dialect]int64{MySQL: 1, SQLite: 2}
	grantsTable = map[Dialect]int64{MySQL: 3, SQLite: 4}
)

var ourTables = map[string]table{
	"orders": {firstTables, []string{"id", "status", "driver_id", "fence", "created_at", "grabbed_at"}, []string{"units", "stock"}},
	"grabs":  {firstTables, []string{"id", "order_id", "driver_id", "instance", "strategy", "token", "fence", "grabbed_at"}, nil},
	"grants": {grantsTable, []string{"order_id", "driver_id"}, nil},
}

// table describes one of our tables: its columns and the version that creates it. Columns that a
// later version adds are optional.
type table struct {
	since              map[Dialect]int64
	required, optional []string
}

// match reports whether a table with these columns can be ours.
func (s table) match(columns []string) bool {
	required := 0
	for _, c := range columns {
		switch {
		case slices.Contains(s.required, c):
			required++
		case !slices.Contains(s.optional, c):
			return false
		}
	}
	return required == len(s.required)
}

// columnsQuery selects the columns of every table and view.
var columnsQuery = map[Dialect]string{
	MySQL: "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = DATABASE()",
	SQLite: "SELECT m.name, c.name FROM sqlite_master AS m, pragma_table_info(m.name) AS c" +
		" WHERE m.type IN ('table', 'view') AND m.name NOT LIKE 'sqlite\\_%' ESCAPE '\\'",
}

// checkOwner returns ErrForeign if the database contains another program's tables or versions. It
// accepts a database in which an earlier migration by this program was interrupted.
func checkOwner(ctx context.Context, db *sql.DB, d Dialect, known []int64) error {
	tables, err := readColumns(ctx, db, d)
	if err != nil || len(tables) == 0 {
		return err
	}
	names := strings.Join(slices.Sorted(maps.Keys(tables)), ", ")
	refuse := func(why string) error {
		return fmt.Errorf("%w: %s. Nothing was changed: use an empty database", ErrForeign, why)
	}
	if tables[recordTable] == nil {
		return refuse(fmt.Sprintf("it has %s and no migration record of Grab Lab", names))
	}
	applied, err := readVersions(ctx, db)
	if err != nil {
		return refuse(fmt.Sprintf("its migration record cannot be read (%v)", err))
	}
	// Read the columns again, because another instance may have migrated the database in the
	// meantime.
	if tables, err = readColumns(ctx, db, d); err != nil {
		return err
	}
	for _, version := range applied {
		if !slices.Contains(known, version) {
			return refuse(fmt.Sprintf("its migration record has version %d, which this program does not know", version))
		}
	}
	found, missing := 0, false
	for name, ours := range ourTables {
		if tables[name] == nil {
			missing = missing || slices.Contains(applied, ours.since[d])
			continue
		}
		found++
		if !ours.match(tables[name]) {
			return refuse(fmt.Sprintf("its table %s has other columns: %s", name, strings.Join(tables[name], ", ")))
		}
	}
	if created := slices.Contains(applied, firstTables[d]); missing || !created && len(tables) > found+1 {
		return refuse(fmt.Sprintf("its migration record does not match its tables, %s", names))
	}
	return nil
}

func readColumns(ctx context.Context, db *sql.DB, d Dialect) (map[string][]string, error) {
	tables := map[string][]string{}
	err := query(ctx, db, columnsQuery[d], func(rows *sql.Rows) error {
		var table, column string
		err := rows.Scan(&table, &column)
		tables[table] = append(tables[table], column)
		return err
	})
	return tables, err
}

// readVersions returns the applied versions. It omits version 0, which goose records when it
// creates its table.
func readVersions(ctx context.Context, db *sql.DB) (versions []int64, err error) {
	err = query(ctx, db, "SELECT version_id FROM "+recordTable+" WHERE version_id > 0", func(rows *sql.Rows) error {
		var version int64
		err := rows.Scan(&version)
		versions = append(versions, version)
		return err
	})
	return versions, err
}

func query(ctx context.Context, db *sql.DB, text string, read func(*sql.Rows) error) error {
	rows, err := db.QueryContext(ctx, text)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := read(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}
