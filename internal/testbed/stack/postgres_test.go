package stack_test

import (
	"errors"
	"testing"

	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/stack/stacktest"

	"github.com/jackc/pgx/v5"
)

// TestPostgres checks that a PostgreSQL server keeps committed data after a restart, but loses its
// sessions. LockTable must block writes but not reads, and must give up if a transaction uses the table.
func TestPostgres(t *testing.T) {
	s, err := stack.Start(t.Context(), stack.Config{Kind: stack.Local, Postgres: true})
	stacktest.Check(t, err)
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		checkGone(t, s, s.Pids(), []string{s.Of("db")})
	}()
	connect := func() *pgx.Conn {
		conn, err := pgx.Connect(t.Context(), s.DSN)
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	execute := func(conn *pgx.Conn, statement string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Errorf("execute %s: %v", statement, err)
		}
	}
	first := connect()
	execute(first, "CREATE SCHEMA shop")
	execute(first, "CREATE TABLE shop.locked (id INT)")
	execute(first, "INSERT INTO shop.locked VALUES (1)")
	if err := s.Restart(t.Context(), "db"); err != nil {
		t.Fatal(err)
	}
	if _, err := first.Exec(t.Context(), "SELECT 1"); err == nil {
		t.Error("a session has survived the restart")
	}
	if ended := s.Ended(); len(ended) > 0 {
		t.Errorf("ended: %q", ended)
	}
	writer, reader := connect(), connect()
	defer writer.Close(t.Context())
	defer reader.Close(t.Context())
	heal := struck(t)(s.LockTable(t.Context(), "Locked"))
	wrote := make(chan error, 1)
	go func() {
		_, err := writer.Exec(t.Context(), "INSERT INTO shop.locked VALUES (2)")
		wrote <- err
	}()
	count := func(query string) (n int) {
		if err := reader.QueryRow(t.Context(), query).Scan(&n); err != nil {
			t.Error(err)
		}
		return n
	}
	eventually(t, func() bool { return count("SELECT COUNT(*) FROM pg_locks WHERE NOT granted") == 1 }, "no write waits")
	if n := count("SELECT COUNT(*) FROM shop.locked"); n != 1 {
		t.Errorf("%d rows, want 1", n)
	}
	healed(t, heal)
	if err := <-wrote; err != nil {
		t.Error(err)
	}
	if _, err := s.LockTable(t.Context(), "none"); err == nil {
		t.Error("LockTable has locked a table that does not exist")
	}
	execute(writer, "BEGIN")
	execute(writer, "INSERT INTO shop.locked VALUES (3)")
	if _, err := s.LockTable(t.Context(), "Locked"); !errors.Is(err, stack.ErrInUse) {
		t.Errorf("a table in use: %v", err)
	}
}
