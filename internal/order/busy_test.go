package order

import (
	"database/sql"
	"errors"
	"path/filepath"
	"testing"

	gosqlite "github.com/glebarez/go-sqlite"
)

// TestIsBusy makes SQLite refuse a write for different reasons. An error must count as busy if another
// connection has locked the file, even if the error has an extended code. No other error must count.
func TestIsBusy(t *testing.T) {
	db := sql.OpenDB(sqliteConnector(filepath.Join(t.TempDir(), "busy.db"), 0))
	defer db.Close()
	conns := map[string]*sql.Conn{}
	for _, name := range []string{"a", "b"} {
		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conns[name] = conn
	}
	codes := map[int]bool{}
	for _, step := range []struct {
		conn, statement string
		refused, busy   bool
	}{
		{conn: "a", statement: "PRAGMA journal_mode = WAL"},
		{conn: "a", statement: "CREATE TABLE t (x INT UNIQUE)"},
		{conn: "a", statement: "CREATE TABLE t (x INT)", refused: true},
		{conn: "a", statement: "INSERT INTO t VALUES (1)"},
		{conn: "a", statement: "INSERT INTO t VALUES (1)", refused: true},
		{conn: "a", statement: sqliteDialect.begin},
		{conn: "b", statement: sqliteDialect.begin, refused: true, busy: true},
		{conn: "a", statement: "ROLLBACK"},
		{conn: "b", statement: "BEGIN"},
		{conn: "b", statement: "SELECT COUNT(*) FROM t"}, // from here on, b sees the database in this state
		{conn: "a", statement: "INSERT INTO t VALUES (3)"},
		{conn: "b", statement: "INSERT INTO t VALUES (4)", refused: true, busy: true},
	} {
		_, err := conns[step.conn].ExecContext(t.Context(), step.statement)
		if (err != nil) != step.refused || isBusy(err) != step.busy {
			t.Errorf("%s: %s: %v, busy: %v, want %v", step.conn, step.statement, err, isBusy(err), step.busy)
		}
		var e *gosqlite.Error
		if errors.As(err, &e) && step.busy {
			codes[e.Code()] = true
		}
	}
	if len(codes) < 2 {
		t.Errorf("SQLite was busy with the codes %v, want a primary and an extended one", codes)
	}
}
