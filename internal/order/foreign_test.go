package order_test

import (
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"grablab/internal/order"
	"grablab/migrations"

	"github.com/go-sql-driver/mysql"
)

const (
	goodOrders = "CREATE TABLE orders (id BIGINT PRIMARY KEY, status INT, driver_id BIGINT, fence BIGINT, created_at DATETIME, grabbed_at DATETIME)"
	goodGrabs  = "CREATE TABLE grabs (id BIGINT PRIMARY KEY, order_id BIGINT, driver_id BIGINT, instance TEXT, strategy TEXT, token TEXT, fence BIGINT, grabbed_at DATETIME)"
	record     = "CREATE TABLE goose_db_version (id INTEGER PRIMARY KEY, version_id BIGINT NOT NULL, is_applied BOOLEAN NOT NULL, tstamp TIMESTAMP NULL DEFAULT CURRENT_TIMESTAMP)"
)

func recorded(version int) string {
	return fmt.Sprintf("INSERT INTO goose_db_version (id, version_id, is_applied) VALUES (%d, %d, TRUE)", version+1, version)
}

// foreignDatabases returns statements that create databases of other programs. Some of these databases
// resemble ours, and others are random.
func foreignDatabases() map[string][]string {
	cases := map[string][]string{
		"orders of its own":            {"CREATE TABLE orders (id BIGINT PRIMARY KEY, customer TEXT)", "INSERT INTO orders VALUES (1, 'x')"},
		"grabs of its own":             {"CREATE TABLE grabs (id BIGINT PRIMARY KEY, claw TEXT)"},
		"our columns, no record":       {goodOrders, goodGrabs},
		"other tables only":            {"CREATE TABLE customers (id BIGINT PRIMARY KEY)"},
		"orders is a view":             {"CREATE TABLE sales (id BIGINT PRIMARY KEY)", "CREATE VIEW orders AS SELECT id FROM sales"},
		"uses goose too":               {record, recorded(0), recorded(1), "CREATE TABLE orders (id BIGINT PRIMARY KEY, customer TEXT)"},
		"uses goose, all our versions": {record, recorded(0), recorded(1), recorded(2), recorded(3), "CREATE TABLE customers (id BIGINT PRIMARY KEY)"},
		"uses goose, newer versions":   {record, recorded(0), recorded(1), recorded(2), recorded(3), recorded(4), recorded(5), goodOrders, goodGrabs},
		"uses goose, no other tables":  {record, recorded(0), recorded(1), recorded(2)},
		"uses goose, no version":       {record, "CREATE TABLE customers (id BIGINT PRIMARY KEY)"},
		"uses goose, one more column":  {record, recorded(0), recorded(1), recorded(2), goodOrders, goodGrabs, "ALTER TABLE orders ADD COLUMN price BIGINT"},
		"uses goose, one column less":  {record, recorded(0), recorded(1), recorded(2), goodOrders, goodGrabs, "ALTER TABLE grabs DROP COLUMN token"},
		"orders without grabs":         {record, recorded(0), recorded(1), recorded(2), goodOrders, "CREATE TABLE customers (id BIGINT PRIMARY KEY)"},
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for n := range 12 {
		var statements []string
		for _, table := range []string{"orders", "grabs", "users"} {
			if table != "orders" && rnd.IntN(2) == 0 {
				continue
			}
			columns := []string{"id BIGINT PRIMARY KEY"}
			for _, name := range []string{"status", "driver_id", "fence", "units", "stock", "customer", "total"} {
				if rnd.IntN(2) == 0 {
					columns = append(columns, name+" BIGINT")
				}
			}
			statements = append(statements, fmt.Sprintf("CREATE TABLE %s (%s)", table, strings.Join(columns, ", ")))
		}
		if rnd.IntN(2) == 0 {
			statements = append(statements, record)
			for v := range rnd.IntN(4) {
				statements = append(statements, recorded(v))
			}
		}
		cases[fmt.Sprintf("random %d", n)] = statements
	}
	return cases
}

// TestMigrateForeign checks that Migrate refuses a database that is not ours and leaves
// its schema and rows as they are.
func TestMigrateForeign(t *testing.T) {
	for _, at := range stores {
		for name, statements := range foreignDatabases() {
			t.Run(at.name+"/"+name, func(t *testing.T) {
				dsn := at.dsn(t)
				raw := openRaw(t, dsn)
				for _, s := range statements {
					if _, err := raw.ExecContext(t.Context(), s); err != nil {
						t.Fatalf("execute %s: %v", s, err)
					}
				}
				before := dump(t, dsn, raw)
				s, err := order.Connect(t.Context(), dsn, order.Options{})
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				err = s.Migrate(t.Context())
				if !errors.Is(err, migrations.ErrForeign) || !strings.Contains(err.Error(), "use an empty database") {
					t.Errorf("got %v, want %v with advice", err, migrations.ErrForeign)
				}
				if after := dump(t, dsn, raw); !slices.Equal(before, after) {
					t.Errorf("the database was\n%s\nand is\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
				}
			})
		}
	}
}

// TestMigrateOurs checks that Migrate continues from every state in which an earlier Migrate can have
// stopped: after each version, and in the middle of one.
func TestMigrateOurs(t *testing.T) {
	const last = "version_id = (SELECT v FROM (SELECT MAX(version_id) AS v FROM goose_db_version) AS x)"
	for _, at := range stores {
		for name, cut := range map[string][]string{
			"complete":                 {},
			"further table":            {"CREATE TABLE notes (id BIGINT PRIMARY KEY)"},
			"before the grants":        {"DELETE FROM goose_db_version WHERE " + last, "DROP TABLE grants"},
			"before the stock columns": {"DELETE FROM goose_db_version WHERE " + last, "DELETE FROM goose_db_version WHERE " + last, "DROP TABLE grants", "ALTER TABLE orders DROP COLUMN units", "ALTER TABLE orders DROP COLUMN stock"},
			"before any table":         {"DELETE FROM goose_db_version WHERE version_id > 0", "DROP TABLE orders", "DROP TABLE grabs", "DROP TABLE grants"},
			"within a version": {"MySQL only", "DELETE FROM goose_db_version WHERE version_id > 0",
				"ALTER TABLE orders DROP COLUMN units, DROP COLUMN stock", "DROP TABLE grabs", "DROP TABLE grants"},
			"before the record of a version": {"MySQL only", "DELETE FROM goose_db_version WHERE version_id > 1"},
		} {
			t.Run(at.name+"/"+name, func(t *testing.T) {
				if len(cut) > 0 && cut[0] == "MySQL only" {
					if cut = cut[1:]; at.name == "SQLite" {
						t.Skip("SQLite migrates in transactions")
					}
				}
				dsn := at.dsn(t)
				s := connect(t, dsn, order.Options{})
				raw := openRaw(t, dsn)
				for _, statement := range cut {
					if _, err := raw.ExecContext(t.Context(), statement); err != nil {
						t.Fatalf("execute %s: %v", statement, err)
					}
				}
				if err := s.Migrate(t.Context()); err != nil {
					t.Fatal(err)
				}
				if _, err := s.Create(t.Context(), 2, 3); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// openRaw opens the database of dsn without the store.
func openRaw(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	driver := "mysql"
	if path, ok := strings.CutPrefix(dsn, "sqlite:"); ok {
		driver, dsn = "sqlite", path
	} else if _, err := mysql.ParseDSN(dsn); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// dump returns the schema of the database and the rows of its tables.
func dump(t *testing.T, dsn string, db *sql.DB) []string {
	t.Helper()
	names, create := "SHOW TABLES", "SHOW CREATE TABLE "
	if strings.HasPrefix(dsn, "sqlite:") {
		names, create = "SELECT name FROM sqlite_master ORDER BY name", "SELECT sql FROM sqlite_master WHERE name = "
	}
	lines := rowsOf(t, db, names)
	for _, name := range lines {
		arg := name
		if strings.HasPrefix(dsn, "sqlite:") {
			arg = "'" + name + "'"
		}
		lines = append(lines, rowsOf(t, db, create+arg)...)
		if !strings.HasPrefix(name, "sqlite_") {
			lines = append(lines, rowsOf(t, db, "SELECT * FROM "+name)...)
		}
	}
	return lines
}

func rowsOf(t *testing.T, db *sql.DB, query string) []string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatalf("QueryContext(%s): %v", query, err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for rows.Next() {
		values, targets := make([]sql.NullString, len(columns)), make([]any, len(columns))
		for i := range values {
			targets[i] = &values[i]
		}
		if err := rows.Scan(targets...); err != nil {
			t.Fatal(err)
		}
		words := make([]string, len(values))
		for i, v := range values {
			words[i] = v.String
		}
		lines = append(lines, strings.Join(words, " "))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return lines
}
