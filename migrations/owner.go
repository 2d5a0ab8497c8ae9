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

// ourTables describes the tables that the migrations create.
var ourTables = map[string]table{
	"orders": {[]string{"id", "status", "driver_id", "fence", "created_at", "grabbed_at"}, []string{"units", "stock"}},
	"grabs":  {[]string{"id", "order_id", "driver_id", "instance", "strategy", "token", "fence", "grabbed_at"}, nil},
	"grants": {[]string{"order_id", "driver_id"}, nil},
}

// table lists the columns of one of our tables. Columns that a later version adds are optional.
type table struct{ required, optional []string }

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

// checkOwner returns ErrForeign if the database belongs to another program. Our database has a
// migration record with no version above newest. Each of our tables that exists must have our columns.
// Some of them may be missing, because an earlier migration may have been interrupted. If there are
// tables with other names, or the version is above 1, both orders and grabs must exist.
func checkOwner(ctx context.Context, db *sql.DB, d Dialect, newest int64) error {
	tables, err := readColumns(ctx, db, d)
	if err != nil || len(tables) == 0 {
		return err
	}
	refuse := func(why string) error {
		return fmt.Errorf("%w: %s. Nothing was changed: use an empty database", ErrForeign, why)
	}
	names := strings.Join(slices.Sorted(maps.Keys(tables)), ", ")
	if tables[recordTable] == nil {
		return refuse(fmt.Sprintf("it has %s and no migration record of Grab Lab", names))
	}
	var version int64
	if err := db.QueryRowContext(ctx, "SELECT COALESCE(MAX(version_id), 0) FROM "+recordTable).Scan(&version); err != nil {
		return refuse(fmt.Sprintf("its migration record cannot be read (%v)", err))
	}
	if version > newest {
		return refuse(fmt.Sprintf("its migration record has version %d, which this program does not know", version))
	}
	// Read the columns again, because another instance may have migrated the database in the meantime.
	if tables, err = readColumns(ctx, db, d); err != nil {
		return err
	}
	both := version > 1 // whether orders and grabs must exist; in SQLite, version 1 creates no table
	for name, columns := range tables {
		ours, ok := ourTables[name]
		if ok && !ours.match(columns) {
			return refuse(fmt.Sprintf("its table %s has other columns: %s", name, strings.Join(columns, ", ")))
		}
		both = both || !ok && name != recordTable
	}
	if both && (tables["orders"] == nil || tables["grabs"] == nil) {
		return refuse(fmt.Sprintf("its migration record does not match its tables, %s", names))
	}
	return nil
}

// readColumns returns the columns of each table and view.
func readColumns(ctx context.Context, db *sql.DB, d Dialect) (map[string][]string, error) {
	rows, err := db.QueryContext(ctx, columnsQuery[d])
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	tables := map[string][]string{}
	for rows.Next() {
		var table, column string
		if err := rows.Scan(&table, &column); err != nil {
			return nil, err
		}
		tables[table] = append(tables[table], column)
	}
	return tables, rows.Err()
}
