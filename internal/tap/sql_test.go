package tap_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"

	"grablab/internal/tap"

	_ "github.com/glebarez/sqlite"
)

// dsnConnector is a driver.Connector for a driver that can only open connections by DSN.
type dsnConnector struct {
	driver driver.Driver
	dsn    string
}

func (c dsnConnector) Connect(context.Context) (driver.Conn, error) { return c.driver.Open(c.dsn) }
func (c dsnConnector) Driver() driver.Driver                        { return c.driver }

// newDB returns an SQLite database with a table t, and the number of statements that were sent to it. If
// s is not nil, the spy taps all calls.
func newDB(t *testing.T, s *spy) (*sql.DB, *atomic.Uint64) {
	t.Helper()
	plain, err := sql.Open("sqlite", "")
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	var n atomic.Uint64
	var spied tap.Tap
	if s != nil {
		spied = s.tap
	}
	dsn := filepath.Join(t.TempDir(), "t.db")
	db := sql.OpenDB(tap.Connector(dsnConnector{plain.Driver(), dsn}, spied, "8004", "db", &n))
	t.Cleanup(func() { db.Close() })
	if _, err := db.Exec("CREATE TABLE t (v INTEGER)"); err != nil {
		t.Fatal(err)
	}
	return db, &n
}

func rowsOf(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	if err := db.QueryRow("SELECT COUNT(*) FROM t").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestConnectorTapsEachStep(t *testing.T) {
	s := new(spy)
	db, n := newDB(t, s)
	s.ops = nil
	before := n.Load()

	scope := tap.Scope{Order: 7, Driver: 42}
	ctx, end := scope.Enter(t.Context(), tap.Claim)
	defer end()
	conn, err := db.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, statement := range []string{"BEGIN", "INSERT INTO t VALUES (1)", "COMMIT", "BEGIN", "ROLLBACK"} {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			t.Fatal(err)
		}
	}
	var v int
	if err := conn.QueryRowContext(ctx, "SELECT v FROM t WHERE v = ?", 1).Scan(&v); err != nil || v != 1 { // 6
		t.Fatalf("the row has the value %d, error %v", v, err)
	}
	if got := n.Load() - before; got != 6 {
		t.Errorf("%d statements, want 6", got)
	}
	if err := conn.PingContext(ctx); err != nil { // 7, and no statement
		t.Fatal(err)
	}
	if got := n.Load() - before; got != 6 {
		t.Errorf("%d statements after a PING, want 6", got)
	}
	for _, op := range s.ops {
		if op.Instance != "8004" || op.Target != "db" || op.Order != 7 || op.Driver != 42 || op.Phase != tap.Claim {
			t.Errorf("the tap got the call %+v", op)
		}
	}
	if len(s.ops) != 7 {
		t.Errorf("%d calls, want 7", len(s.ops))
	}
}

// TestConnectorPreparesNothing checks that preparing a statement fails, because its executions would not
// be counted.
func TestConnectorPreparesNothing(t *testing.T) {
	db, _ := newDB(t, nil)
	if _, err := db.PrepareContext(t.Context(), "SELECT v FROM t"); err == nil {
		t.Error("a statement was prepared")
	}
}

func TestConnectorWithoutTapCounts(t *testing.T) {
	db, n := newDB(t, nil)
	before := n.Load()
	if rows := rowsOf(t, db); rows != 0 {
		t.Errorf("the table has %d rows, want none", rows)
	}
	if got := n.Load() - before; got != 1 {
		t.Errorf("%d statements, want 1", got)
	}
}

// TestConnectorFaults refuses each of the three steps of a transaction, or loses its reply. The caller
// must get an error. The row must exist only if the COMMIT was executed, and the open transaction must
// not affect the next one.
func TestConnectorFaults(t *testing.T) {
	insert := func(ctx context.Context, db *sql.DB) error {
		conn, err := db.Conn(ctx)
		if err != nil {
			return err
		}
		defer conn.Close()
		for _, statement := range []string{"BEGIN", "INSERT INTO t VALUES (1)", "COMMIT"} {
			if _, err := conn.ExecContext(ctx, statement); err != nil {
				return err
			}
		}
		return nil
	}
	tests := []struct {
		name   string
		refuse bool
		n      int
		rows   int
	}{
		{"begin refused", true, 1, 0},
		{"insert refused", true, 2, 0},
		{"commit refused", true, 3, 0},
		{"begin's reply lost", false, 1, 0},
		{"insert's reply lost", false, 2, 0},
		{"commit's reply lost", false, 3, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := new(spy)
			db, _ := newDB(t, s)
			db.SetMaxOpenConns(1)
			calls := 0
			strike := func(op tap.Op) bool {
				if op.Phase == tap.Claim {
					calls++
				}
				return op.Phase == tap.Claim && calls == tt.n
			}
			if tt.refuse {
				s.refuse = strike
			} else {
				s.lose = strike
			}
			ctx, end := new(tap.Scope).Enter(t.Context(), tap.Claim)
			defer end()
			if err := insert(ctx, db); !errors.Is(err, errFault) {
				t.Errorf("transaction: %v, want the fault", err)
			}
			if got := rowsOf(t, db); got != tt.rows {
				t.Errorf("%d rows, want %d", got, tt.rows)
			}
			if err := insert(t.Context(), db); err != nil {
				t.Errorf("the next transaction: %v", err)
			}
		})
	}
}

// TestConnectorLostQuery checks that a query whose reply is lost leaves no rows open. Otherwise, the next
// query would wait forever, because there is only one connection.
func TestConnectorLostQuery(t *testing.T) {
	s := &spy{lose: func(op tap.Op) bool { return op.Phase == tap.Read }}
	db, _ := newDB(t, s)
	db.SetMaxOpenConns(1)
	ctx, end := new(tap.Scope).Enter(t.Context(), tap.Read)
	defer end()
	if rows, err := db.QueryContext(ctx, "SELECT v FROM t"); !errors.Is(err, errFault) {
		t.Errorf("%v, %v, want the lost reply", rows, err)
	}
	if got := rowsOf(t, db); got != 0 {
		t.Errorf("the table has %d rows, want none", got)
	}
}

// TestConnectorPassesErrors checks that the caller gets an error of the database unchanged, and that the
// connection stays open.
func TestConnectorPassesErrors(t *testing.T) {
	s := new(spy)
	db, _ := newDB(t, s)
	db.SetMaxOpenConns(1)
	if _, err := db.Exec("CREATE TEMP TABLE mine (v INTEGER)"); err != nil {
		t.Fatal(err)
	}
	_, err := db.Exec("INSERT INTO nowhere VALUES (1)")
	if err == nil || !errors.Is(s.errs[len(s.errs)-1], err) {
		t.Errorf("%v, but the tap got %v", err, s.errs[len(s.errs)-1])
	}
	if _, err := db.Exec("INSERT INTO mine VALUES (1)"); err != nil {
		t.Errorf("the temporary table of the connection is gone: %v", err)
	}
}
