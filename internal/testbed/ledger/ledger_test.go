package ledger_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/order"
	"grablab/internal/testbed/ledger"
	"grablab/internal/testbed/stack/stacktest"
	"grablab/internal/testbed/target"

	_ "github.com/go-sql-driver/mysql"
)

func TestMain(m *testing.M) { stacktest.Main(m) }

const (
	mysqlDSN    = "u:p@tcp(h:1)/d"
	postgresDSN = "postgres://u:p@h:1/d"
	query       = "SELECT order_id, driver_id FROM wins WHERE order_id BETWEEN ? AND ?"
)

func TestCheck(t *testing.T) {
	for _, tc := range []struct{ dsn, query, wrong string }{
		{mysqlDSN, query, ""},
		{mysqlDSN, "", ""},
		{"u:p@tcp(h:1)/", query, ""},
		{postgresDSN, query, ""},
		{"sqlite:/x.db", query, ""},
		{mysqlDSN, "  select o, d from w where o between ? and ? and note != 'a;?' -- why?\n;", ""},
		{mysqlDSN, "WITH w AS (SELECT 1) SELECT o, d FROM w /* ? */ WHERE o >= ? AND o <= ? # ;?", ""},
		{mysqlDSN, `SELECT o, d FROM w WHERE o BETWEEN ? AND ? AND x = 'it\'s ?' AND y = "?" AND z = 'it''s ?'`, ""},
		{postgresDSN, `SELECT o, d FROM w WHERE o BETWEEN $1 AND $2 AND x = $q$ ? ; $q$ AND y ? 'key'`, ""},
		{postgresDSN, `SELECT o, d FROM w WHERE o BETWEEN ? AND ? AND x = '\'`, ""},
		{mysqlDSN, "SELECT o, d FROM w WHERE o IN ({orders}) AND note != '?'", ""},
		{postgresDSN, "SELECT o, d FROM w WHERE o = ANY (ARRAY[{orders}])", ""},
		{mysqlDSN, "SELECT o, d FROM w WHERE o IN ({orders}) AND o > ?", "use the placeholder {orders} once"},
		{mysqlDSN, "SELECT o, d FROM w WHERE o IN ({orders}) /* {orders} */", "use the placeholder {orders} once"},
		{mysqlDSN, "SELECT o, d FROM w WHERE o IN '{orders}'", "the query has 0 placeholders"},
		{"h:1", query, "use user:password@tcp"},
		{"postgres://u:se cret@h:port/d", query, "use user:password@tcp"},
		{mysqlDSN, "UPDATE orders SET status = 0 WHERE id BETWEEN ? AND ?", "begin with SELECT or WITH"},
		{mysqlDSN, "SELECTED ? ?", "begin with SELECT or WITH"},
		{mysqlDSN, "/* SELECT */ DELETE FROM o WHERE id BETWEEN ? AND ?", "begin with SELECT or WITH"},
		{mysqlDSN, "SELECT o, d FROM w", "the query has 0 placeholders"},
		{mysqlDSN, "SELECT o, d FROM w WHERE o = ?", "the query has 1 placeholders"},
		{mysqlDSN, "SELECT o, d FROM w WHERE o BETWEEN '?' AND ?", "the query has 1 placeholders"},
		{mysqlDSN, query + "; DELETE FROM wins", "write only one statement"},
		{mysqlDSN, query + " AND x = 'open", "has no end"},
		{postgresDSN, query + " AND x = $q$ open", "has no end"},
		{postgresDSN, query + " AND z = $1", "placeholders"},
		{postgresDSN, "SELECT o, d FROM w WHERE o BETWEEN $2 AND $2", "the query has 0 placeholders"},

		{mysqlDSN, strings.Replace(query, "SELECT", "SELECT DISTINCT", 1), "DISTINCT can hide"},
		{postgresDSN, query + " AND cancelled IS DISTINCT FROM true", ""},
		{mysqlDSN, strings.Replace(query, "SELECT", "select/**/distinctrow", 1), "DISTINCTROW can hide"},
		{postgresDSN, strings.Replace(query, "SELECT", "SELECT DISTINCT ON (order_id)", 1), "DISTINCT can hide"},
		{mysqlDSN, query + " GROUP BY order_id", "GROUP BY can hide"},
		{mysqlDSN, query + "\ngroup -- by\n by order_id", "GROUP BY can hide"},
		{mysqlDSN, query + " LIMIT 60", "LIMIT can hide"},
		{postgresDSN, query + " FETCH FIRST 60 ROWS ONLY", "FETCH can hide"},
		{postgresDSN, query + " OFFSET 1", "OFFSET can hide"},
		{mysqlDSN, "SELECT order_id, MIN(driver_id) FROM wins WHERE order_id BETWEEN ? AND ?", "MIN() can hide"},
		{mysqlDSN, "SELECT 1, 2 UNION SELECT order_id, driver_id FROM wins WHERE order_id BETWEEN ? AND ?", "UNION can hide"},
		{mysqlDSN, "SELECT o, d FROM (SELECT o, d, ROW_NUMBER() OVER (PARTITION BY o) AS n FROM wins) w WHERE o BETWEEN ? AND ? AND n = 1", "OVER can hide"},
		{mysqlDSN, "SELECT 1, 2 WHERE 1 = 0 UNION ALL " + query, ""},
		{mysqlDSN, query + " AND w.limit > 0 AND note != 'GROUP BY' AND `distinct` = 1 /* LIMIT */ ORDER BY id", ""},
		{mysqlDSN, query + " AND min > 0 AND grouped = 1 AND max_rows = limits", ""},
	} {
		err := ledger.Check(tc.dsn, tc.query)
		if tc.wrong == "" && err != nil || tc.wrong != "" && (err == nil || !strings.Contains(err.Error(), tc.wrong)) {
			t.Errorf("Check: %s, %s: %v; want …%s…", tc.dsn, tc.query, err, tc.wrong)
		}
		if err != nil && strings.Contains(err.Error(), "se cret") {
			t.Errorf("the error contains the password: %v", err)
		}
	}
}

// TestCheckRefusesMerging checks that Check refuses each keyword or function that can hide a winner, in
// upper and lower case. It must accept the same word as the name of a column.
func TestCheckRefusesMerging(t *testing.T) {
	for _, dsn := range []string{mysqlDSN, postgresDSN, "sqlite:/x.db"} {
		for _, word := range strings.Fields("DISTINCT DISTINCTROW GROUP HAVING LIMIT FETCH OFFSET TOP INTERSECT EXCEPT MINUS UNION OVER QUALIFY TABLESAMPLE COUNT() MIN() MAX() SUM() AVG() ANY_VALUE() GROUP_CONCAT() STRING_AGG() ARRAY_AGG()") {
			bare, function := strings.CutSuffix(word, "()")
			follows := []string{" 1", " ALL SELECT 1, 2"}
			if function {
				follows = []string{"(d)", " (ALL d)"}
			}
			for _, after := range follows {
				q := "SELECT " + bare + after + ", o, d FROM w WHERE o BETWEEN ? AND ?"
				allowed := bare == "UNION" && strings.HasPrefix(after, " ALL")
				for _, q := range []string{q, strings.ToLower(q)} {
					if err := ledger.Check(dsn, q); (err == nil) != allowed || err != nil && !strings.Contains(err.Error(), bare) {
						t.Errorf("Check: %s, %s: %v", dsn, q, err)
					}
				}
			}
			for _, column := range []string{"w." + bare, "o AS " + bare} {
				if err := ledger.Check(dsn, "SELECT o, d, "+column+" FROM w WHERE o BETWEEN ? AND ?"); err != nil {
					t.Errorf("Check: %s, %s: %v", dsn, column, err)
				}
			}
		}
		for _, column := range []string{"a, offset", "a, top"} {
			if err := ledger.Check(dsn, "SELECT "+column+" FROM w WHERE o BETWEEN ? AND ?"); err != nil {
				t.Errorf("Check: %s, %s: %v", dsn, column, err)
			}
		}
	}
}

// TestCheckReadsBackslashes checks where a text with backslashes ends. Only MySQL has backslash escapes, and only in
// texts, not in the names of columns.
func TestCheckReadsBackslashes(t *testing.T) {
	for _, dsn := range []string{mysqlDSN, postgresDSN, "sqlite:/x.db"} {
		for _, quote := range []string{"'", `"`, "`"} {
			escapes := dsn == mysqlDSN && quote != "`"
			for text, ends := range map[string]bool{`\`: !escapes, `\\`: true, `\q`: escapes, `a\b`: true, `\\q`: false} {
				q := "SELECT o, d FROM w WHERE x = " + quote + strings.ReplaceAll(text, "q", quote) + quote + " AND o BETWEEN ? AND ?"
				if err := ledger.Check(dsn, q); (err == nil) != ends {
					t.Errorf("Check: %s, %s: %v", dsn, q, err)
				}
			}
		}
	}
}

// TestCheckReadsTexts checks that placeholders, semicolons and keywords inside quotes do not count, even
// if the quoted text contains doubled quotes.
func TestCheckReadsTexts(t *testing.T) {
	for _, dsn := range []string{mysqlDSN, postgresDSN, "sqlite:/x.db"} {
		for _, quote := range []string{"'", `"`, "`"} {
			for _, text := range []string{"", "a", "?", ";", "qq", "qqa", "aqq", "qqqq", "?qq;", "qq?", "LIMIT"} {
				text = quote + strings.ReplaceAll(text, "q", quote) + quote
				for _, q := range []string{
					"SELECT o, d FROM w WHERE x = " + text + " AND o BETWEEN ? AND ?",
					"SELECT o, d FROM w WHERE o BETWEEN ? AND ? AND x = " + text,
				} {
					if err := ledger.Check(dsn, q); err != nil {
						t.Errorf("Check: %s, %s: %v", dsn, q, err)
					}
				}
				if err := ledger.Check(dsn, "SELECT o, d FROM w WHERE o BETWEEN ? AND ? AND x = "+text+" AND y = ?"); err == nil {
					t.Errorf("%s: a placeholder after %s does not count", dsn, text)
				}
			}
		}
	}
}

// TestCheckIgnoresComments puts each kind of comment between any two words of a query, and around it. Placeholders,
// semicolons and keywords in a comment do not count, so Check must accept the query.
func TestCheckIgnoresComments(t *testing.T) {
	comments := []string{"-- ? ; LIMIT 1 'a\n", "/* ? ; LIMIT 1 'a */"}
	for dsn, comments := range map[string][]string{mysqlDSN: append(comments, "# ? ; LIMIT 1 'a\n"), postgresDSN: comments, "sqlite:/x.db": comments} {
		for _, comment := range comments {
			words := strings.Fields(query + " ;")
			for i := range len(words) + 1 {
				q := strings.Join(words[:i], " ") + " " + comment + " " + strings.Join(words[i:], " ")
				if err := ledger.Check(dsn, q); err != nil {
					t.Errorf("Check: %s, %s: %v", dsn, q, err)
				}
			}
			if err := ledger.Check(dsn, comment+" DELETE FROM wins WHERE o BETWEEN ? AND ?"); err == nil {
				t.Errorf("Check accepts DELETE after %q", comment)
			}
		}
	}
}

func FuzzCheck(f *testing.F) {
	for _, q := range []string{query, "SELECT 'a''b\\' ? ?", "SELECT $$ ? $$ $1 $2", "WITH /* */ -- \n ? ? ;", "select `?` \"?\" # ?"} {
		f.Add(q)
	}
	f.Fuzz(func(t *testing.T, q string) {
		for _, dsn := range []string{mysqlDSN, postgresDSN, "sqlite:x"} {
			if err := ledger.Check(dsn, q); err != nil && !errors.Is(err, ledger.ErrQuery) && q != "" {
				t.Errorf("Check: %s, %q: %v", dsn, q, err)
			}
		}
	})
}

// databases has a function for each kind of database. The function returns a database without the
// tables that the tests create.
var databases = map[string]func(t *testing.T) (dsn string, db *sql.DB){
	"sqlite": func(t *testing.T) (string, *sql.DB) {
		path := filepath.Join(t.TempDir(), "shop.db")
		return "sqlite:" + path, open(t, "sqlite", path)
	},
	"mariadb": func(t *testing.T) (string, *sql.DB) {
		st := stacktest.With(t, lock.SQL)
		db := open(t, "mysql", st.DSN)
		for _, table := range []string{"wins", "orders", "made"} {
			execute(t, db, "DROP TABLE IF EXISTS "+table)
		}
		return st.DSN, db
	},
	"postgresql": func(t *testing.T) (string, *sql.DB) {
		st := stacktest.Postgres(t)
		db := open(t, "pgx", st.DSN)
		execute(t, db, "DROP TABLE IF EXISTS wins, orders, made")
		return st.DSN, db
	},
}

func open(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func execute(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.Exec(statement); err != nil {
		t.Fatalf("execute %s: %v", statement, err)
	}
}

func TestLedger(t *testing.T) {
	for name, fresh := range databases {
		t.Run(name, func(t *testing.T) {
			dsn, db := fresh(t)
			execute(t, db, "CREATE TABLE wins (order_id BIGINT, driver_id BIGINT, note VARCHAR(20))")
			execute(t, db, "INSERT INTO wins (order_id, driver_id, note) VALUES (4, 1, ''), (5, 7, 'a'), (5, 8, 'b'), (6, 9, ''), (9, 1, 'x')")
			before := tables(t, name, db)

			d, err := ledger.Open(t.Context(), dsn, "SELECT order_id, driver_id FROM wins WHERE order_id BETWEEN ? AND ? ORDER BY driver_id;", nil)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			got, err := d.Ledger(t.Context(), 5, 2)
			want := []order.Grab{{Order: 5, Driver: 7}, {Order: 5, Driver: 8}, {Order: 6, Driver: 9}}
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("Ledger returned %+v, %v; want %+v", got, err, want)
			}
			if ahead, err := d.ClockAhead(t.Context()); err != nil || ahead.Abs() > time.Second/2 {
				t.Errorf("the clock is %v ahead of a database on this machine, %v", ahead, err)
			}
			if v, err := d.Version(t.Context()); err != nil || v == "" {
				t.Errorf("version %q, %v", v, err)
			}
			if after := tables(t, name, db); !reflect.DeepEqual(after, before) {
				t.Errorf("the database had the tables %q and has %q", before, after)
			}
			execute(t, db, "DELETE FROM wins") // an open transaction would block this
		})
	}
}

// TestLedgerOfTexts checks a ledger whose orders are UUIDs, and whose drivers are numbers, names or
// UUIDs.
func TestLedgerOfTexts(t *testing.T) {
	for name, fresh := range databases {
		t.Run(name, func(t *testing.T) {
			dsn, db := fresh(t)
			kind := "VARCHAR(36)"
			if name == "postgresql" {
				kind = "UUID"
			}
			execute(t, db, "CREATE TABLE wins (order_id "+kind+", driver_id VARCHAR(40))")
			shape, _, err := target.Spec{Path: "/{order_uuid}"}.Compile()
			if err != nil {
				t.Fatal(err)
			}
			var ids []string
			for n := range 1200 {
				ids = append(ids, fmt.Sprintf("6b4e03c2-1d8b-4c3e-9f00-%012d", n))
			}
			if _, err := shape.IDs.Add(ids); err != nil {
				t.Fatal(err)
			}
			execute(t, db, "INSERT INTO wins VALUES ('"+ids[0]+"', '3'), ('"+ids[699]+"', 'driver-8'), ('"+ids[1199]+"', '64726976-6572-4000-8000-00000000000b')")
			d, err := ledger.Open(t.Context(), dsn, "SELECT order_id, driver_id FROM wins WHERE order_id IN ({orders})", shape)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			got, err := d.Ledger(t.Context(), 1, 1200)
			want := []order.Grab{{Order: 1, Driver: 3}, {Order: 700, Driver: 8}, {Order: 1200, Driver: 11}}
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("Ledger returned %+v, %v; want %+v", got, err, want)
			}
			if got, err := d.Ledger(t.Context(), 2, 500); err != nil || len(got) > 0 {
				t.Errorf("%+v, %v; want none", got, err)
			}
			all, err := ledger.Open(t.Context(), dsn, "SELECT order_id, driver_id FROM wins WHERE CAST(order_id AS CHAR(36)) <> 'x' OR CAST(order_id AS CHAR(36)) IN ({orders})", shape)
			if err == nil {
				all.Close()
			}
			if err == nil || !strings.Contains(err.Error(), "the query returns order "+ids[699]+", although loadgen asked for 1 to 1") {
				t.Errorf("%v; want an error that names an order outside the range", err)
			}
			execute(t, db, "DELETE FROM wins") // an open transaction would block this
		})
	}
}

// tables returns the names of the database's tables. A comparison shows whether a table was created.
func tables(t *testing.T, kind string, db *sql.DB) []string {
	t.Helper()
	rows, err := db.Query(map[string]string{
		"sqlite":     "SELECT name FROM sqlite_schema ORDER BY name",
		"mariadb":    "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() ORDER BY 1",
		"postgresql": "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1",
	}[kind])
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var names []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	return names
}

// TestBadLedgers checks that the database refuses a query that writes. It also checks the errors for
// failing queries and invalid results.
func TestBadLedgers(t *testing.T) {
	writes := map[string]string{ // a query that writes; the other databases have none that begins with SELECT or WITH
		"postgresql": "WITH w AS (INSERT INTO wins (order_id, driver_id) VALUES (?, ?) RETURNING order_id, driver_id) SELECT * FROM w",
	}
	for name, fresh := range databases {
		t.Run(name, func(t *testing.T) {
			dsn, db := fresh(t)
			execute(t, db, "CREATE TABLE wins (order_id BIGINT, driver_id BIGINT, note VARCHAR(20))")
			execute(t, db, "INSERT INTO wins (order_id, driver_id, note) VALUES (1, NULL, 'me'), (2, 2, 'x')")
			for q, want := range map[string]string{
				"SELECT order_id, driver_id FROM nosuch WHERE order_id BETWEEN ? AND ?":                                   "the query failed",
				"SELECT order_id FROM wins WHERE order_id BETWEEN ? AND ?":                                                "select exactly two, the order and the driver",
				"SELECT order_id, note FROM wins WHERE order_id BETWEEN ? AND ?":                                          "select whole numbers",
				"SELECT order_id, driver_id FROM wins WHERE order_id BETWEEN ? AND ?":                                     "leave out rows without a driver",
				"SELECT order_id, driver_id FROM wins WHERE driver_id = 2 AND (order_id = 2 OR order_id BETWEEN ? AND ?)": "the query returns order 2, although loadgen asked for 1 to 1",
				writes[name]: "read-only",
			} {
				if q == "" {
					continue
				}
				d, err := ledger.Open(t.Context(), dsn, q, nil)
				if err == nil {
					d.Close()
				}
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("query %s: error %v; want …%s…", q, err, want)
				}
			}
			var n int
			if err := db.QueryRow("SELECT COUNT(*) FROM wins").Scan(&n); err != nil || n != 2 {
				t.Errorf("%d rows, %v; want 2, as before", n, err)
			}
		})
	}
}

// TestNumbersAsIDs checks the error for a query that compares a numeric column with {orders}, which is
// a list of texts. The error must explain how to convert the column. Another error must tell the user
// if the columns are swapped.
func TestNumbersAsIDs(t *testing.T) {
	shape, _, err := target.Spec{Path: "/{order_uuid}"}.Compile()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := shape.IDs.Add([]string{"101"}); err != nil {
		t.Fatal(err)
	}
	for name, fresh := range databases {
		t.Run(name, func(t *testing.T) {
			dsn, db := fresh(t)
			execute(t, db, "CREATE TABLE wins (order_id BIGINT, driver_id BIGINT)")
			execute(t, db, "INSERT INTO wins (order_id, driver_id) VALUES (101, 7), (6, 8)")
			column := map[string]string{"postgresql": "order_id::text", "mariadb": "CAST(order_id AS CHAR)", "sqlite": "CAST(order_id AS TEXT)"}[name]
			hint := map[bool]string{true: "", false: "for a numeric column, write " + column + " IN ({orders})"}[name == "sqlite"]
			for q, want := range map[string]string{
				"SELECT order_id, driver_id FROM wins WHERE order_id IN ({orders})":       hint,
				"SELECT order_id, driver_id FROM wins WHERE " + column + " IN ({orders})": "",
				"SELECT driver_id, order_id FROM wins WHERE " + column + " IN ({orders})": "select the order first",
			} {
				d, err := ledger.Open(t.Context(), dsn, q, shape)
				var rows []order.Grab
				if err == nil {
					rows, err = d.Ledger(t.Context(), 1, 2)
					d.Close()
				}
				switch {
				case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
					t.Errorf("query %s: error %v; want …%s…", q, err, want)
				case want == "" && (err != nil || len(rows) != 1 || rows[0].Order != 1):
					t.Errorf("query %s: rows %v, error %v", q, rows, err)
				}
			}
		})
	}
}

func TestExec(t *testing.T) {
	for name, fresh := range databases {
		t.Run(name, func(t *testing.T) {
			dsn, db := fresh(t)
			execute(t, db, "CREATE TABLE orders (id BIGINT PRIMARY KEY, status INT)")
			d, err := ledger.Open(t.Context(), dsn, "", nil)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			if err := d.Exec(t.Context(), []string{"INSERT INTO orders VALUES (1, 1)", "INSERT INTO orders VALUES (2, 1)", "UPDATE orders SET status = 0 WHERE id BETWEEN 1 AND 2"}); err != nil {
				t.Fatal(err)
			}
			opened := stacktest.OpenFiles(t)
			// If one statement fails, the others must have no effect.
			if err := d.Exec(t.Context(), []string{"INSERT INTO orders VALUES (3, 0)", "INSERT INTO nosuch VALUES (3)"}); err == nil || !strings.Contains(err.Error(), "nosuch") {
				t.Errorf("Exec with a wrong statement: error %v", err)
			}
			var n int
			if err := db.QueryRow("SELECT COUNT(*) FROM orders WHERE status = 0").Scan(&n); err != nil || n != 2 {
				t.Errorf("%d open orders, %v; want 2", n, err)
			}
			for range 20 {
				if err := d.Exec(t.Context(), []string{"UPDATE orders SET status = 1"}); err != nil {
					t.Fatal(err)
				}
			}
			if now := stacktest.OpenFiles(t); now > opened+10 {
				t.Errorf("20 calls of Exec left %d connections open", now-opened)
			}
		})
	}
}

// TestOpenMakesNothing checks that Open does not create a missing database, and that its error does not
// contain the password.
func TestOpenMakesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none.db")
	if d, err := ledger.Open(context.Background(), "sqlite:"+path, query, nil); err == nil {
		t.Errorf("Open: %v", d)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("Open created the file %s: %v", path, err)
	}
	if _, err := ledger.Open(context.Background(), "u:hidden@tcp(127.0.0.1:1)/d", query, nil); err == nil || strings.Contains(fmt.Sprint(err), "hidden") {
		t.Errorf("Open: %v", err)
	}
}
