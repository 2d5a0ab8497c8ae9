package wire_test

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/testbed/stack/stacktest"
	"grablab/internal/testbed/wire"

	"github.com/go-sql-driver/mysql"
)

// dbProxy returns a proxy to the database and the record of its messages. With the first DSN, a client
// connects through the proxy, and with the second one, directly.
func dbProxy(tb testing.TB) (p *wire.Proxy, said *said, through, straight string) {
	tb.Helper()
	dsn := stacktest.With(tb, lock.Redis).DSN
	_, rest, _ := strings.Cut(dsn, "@tcp(")
	addr, _, _ := strings.Cut(rest, ")")
	p, said = proxyTo(tb, "db", addr, wire.MySQL)
	return p, said, strings.Replace(dsn, addr, p.Addr(), 1), dsn
}

// connTo opens one connection.
func connTo(tb testing.TB, dsn string) *sql.Conn {
	tb.Helper()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { db.Close() })
	conn, err := db.Conn(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { conn.Close() })
	return conn
}

func exec(tb testing.TB, conn *sql.Conn, statements ...string) {
	tb.Helper()
	for _, s := range statements {
		if _, err := conn.ExecContext(tb.Context(), s); err != nil {
			tb.Fatalf("execute %s: %v", s, err)
		}
	}
}

// TestMySQL checks that a client gets the same results through the proxy, and that each request becomes
// an event. It uses plain and prepared statements, transactions, errors, and several results at once.
func TestMySQL(t *testing.T) {
	p, said, through, straight := dbProxy(t)
	var rec recorder
	conn := connTo(t, through+"?multiStatements=true")
	exec(t, connTo(t, straight), "DROP TABLE IF EXISTS wired", "CREATE TABLE wired (id INT PRIMARY KEY, v VARCHAR(20) NOT NULL)")
	p.Use(rec.tap)
	ctx := t.Context()
	exec(t, conn, "INSERT INTO wired VALUES (1, 'a'), (2, 'b')")
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[int]string{1: "a", 2: "b"} {
		var v string
		if err := tx.QueryRowContext(ctx, "SELECT v FROM wired WHERE id = ?", id).Scan(&v); err != nil || v != want {
			t.Errorf("the row has the value %q, %v", v, err)
		}
	}
	stmt, err := tx.PrepareContext(ctx, "UPDATE wired SET v = ? WHERE id = ?")
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []int{1, 2, 3} {
		res, err := stmt.ExecContext(ctx, "c", id)
		if err != nil {
			t.Fatal(err)
		}
		if n, _ := res.RowsAffected(); n != min(1, int64(3-id)) {
			t.Errorf("%d rows", n)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.ExecContext(ctx, "INSERT INTO wired VALUES (1, 'twice')"); err == nil {
		t.Error("a row with a duplicate key was inserted")
	}
	rows, err := conn.QueryContext(ctx, "SELECT id FROM wired; SELECT v FROM wired WHERE id = 9; SELECT 7")
	if err != nil {
		t.Fatal(err)
	}
	var results [][]string
	for more := true; more; more = rows.NextResultSet() {
		var got []string
		for rows.Next() {
			var v string
			if err := rows.Scan(&v); err != nil {
				t.Fatal(err)
			}
			got = append(got, v)
		}
		results = append(results, got)
	}
	if err := rows.Close(); err != nil || fmt.Sprint(results) != "[[1 2] [] [7]]" {
		t.Errorf("results are %v, %v", results, err)
	}
	exec(t, conn, "SET autocommit = 1")

	want := []string{
		"INSERT wired", "START TRANSACTION", "PREPARE SELECT wired", "SELECT wired", "PREPARE SELECT wired", "SELECT wired",
		"PREPARE UPDATE wired", "UPDATE wired", "UPDATE wired", "UPDATE wired", "COMMIT", "INSERT wired", "SELECT wired + SELECT wired + SELECT", "SET autocommit=1",
	}
	seen := rec.seen()
	if len(seen) > 1 && seen[1] == "BEGIN" {
		seen[1] = "START TRANSACTION"
	}
	if !slices.Equal(seen, want) {
		t.Errorf("events:\n%q\nwant:\n%q", seen, want)
	}
	if len(rec.failed()) != 1 || !strings.HasPrefix(rec.failed()[0], "INSERT wired: 1062 ") {
		t.Errorf("errors %q", rec.failed())
	}
	if len(said.all()) > 0 {
		t.Errorf("said %q", said.all())
	}
}

// TestLargeRows checks that statements and rows of about 16 MB pass. This is the maximum size of a
// packet, so some of the rows need several packets.
func TestLargeRows(t *testing.T) {
	p, said, through, straight := dbProxy(t)
	exec(t, connTo(t, straight), "DROP TABLE IF EXISTS large", "CREATE TABLE large (id INT PRIMARY KEY, v LONGBLOB NOT NULL)")
	var rec recorder
	p.Use(rec.tap)
	conn := connTo(t, through+"?maxAllowedPacket=67108864")
	const maxPacket = 1<<24 - 1
	const insert = "INSERT INTO large VALUES (1, '%s')"
	stored := maxPacket - 1 - (len(insert) - len("%s"))
	exec(t, conn, fmt.Sprintf(insert, strings.Repeat("a", stored)))
	for _, tt := range []struct {
		n     int // the size of each column in bytes
		where string
		args  []any
	}{
		{maxPacket - 4 - 1, "1", nil}, // together with its length, one byte less than a full packet
		{maxPacket - 4, "1", nil},
		{maxPacket - 4, "id = ?", []any{1}},
		{maxPacket - 3, "id = ?", []any{1}},
	} {
		for columns := 1; columns <= 2; columns++ {
			column := fmt.Sprintf("CONCAT(v, REPEAT('b', %d))", tt.n-stored)
			query := "SELECT " + strings.Join(slices.Repeat([]string{column}, columns), ", ") + " FROM large WHERE " + tt.where
			got := make([][]byte, 2)
			if err := conn.QueryRowContext(t.Context(), query, tt.args...).Scan([]any{&got[0], &got[1]}[:columns]...); err != nil {
				t.Fatal(err)
			}
			for _, v := range got[:columns] {
				if len(v) != tt.n || v[0] != 'a' || v[tt.n-1] != 'b' {
					t.Errorf("%d of %d bytes", len(v), tt.n)
				}
			}
			exec(t, conn, "DO 1")
		}
	}
	want := append([]string{"INSERT large"}, slices.Repeat([]string{"SELECT large", "DO"}, 4)...)
	want = append(want, slices.Repeat([]string{"PREPARE SELECT large", "SELECT large", "DO"}, 4)...)
	if seen := rec.seen(); !slices.Equal(seen, want) {
		t.Errorf("events %q, want %q", seen, want)
	}
	if len(said.all()) > 0 {
		t.Errorf("said %q", said.all())
	}
	exec(t, connTo(t, straight), "DROP TABLE large")
}

// TestHoldCommit checks that a COMMIT has no effect while it is held before the proxy sends it. While
// its reply is held, it must have its effect. Another connection must work meanwhile.
func TestHoldCommit(t *testing.T) {
	p, _, through, straight := dbProxy(t)
	exec(t, connTo(t, straight), "DROP TABLE IF EXISTS held", "CREATE TABLE held (id INT PRIMARY KEY)")
	other := connTo(t, through)
	rows := func() (n int) {
		t.Helper()
		if err := other.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM held").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for i, tt := range []struct {
		after bool
		as    error
		fails bool
	}{{after: false}, {after: true}, {after: true, as: net.ErrClosed, fails: true}} {
		var rec recorder
		p.Use(rec.tap)
		g := newGate(tt.after)
		g.as = tt.as
		rec.hold("COMMIT", g)
		conn := connTo(t, through)
		tx, err := conn.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(fmt.Sprintf("INSERT INTO held VALUES (%d)", i)); err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			if err := tx.Commit(); (err != nil) != tt.fails {
				t.Errorf("COMMIT: %v", err)
			}
		}()
		await(t, "held", g.held)
		want := i
		if tt.after {
			want++
		}
		if n := rows(); n != want {
			t.Errorf("%+v: %d rows, want %d", tt, n, want)
		}
		close(g.let)
		await(t, "answer", done)
		if n := rows(); n != i+1 {
			t.Errorf("%+v: %d rows at the end, want %d", tt, n, i+1)
		}
	}
}

// TestTLS checks that a client that only prefers TLS or compression connects without them. A client that
// requires TLS must not be readable, and the user must learn why.
func TestTLS(t *testing.T) {
	p, said, through, _ := dbProxy(t)
	conn := connTo(t, through+"?tls=preferred&compress=true")
	exec(t, conn, "DO 1")
	db, err := sql.Open("mysql", through+"?tls=skip-verify")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.PingContext(t.Context()); err == nil || !strings.Contains(err.Error(), mysql.ErrNoTLS.Error()) {
		t.Errorf("a client that requires TLS: %v", err)
	}

	raw, r := dial(t, p.Addr())
	if caps := offeredBy(t, r); caps&(1<<5|1<<11) != 0 {
		t.Errorf("the greeting offers %#x", caps)
	}
	request := make([]byte, 36)
	copy(request, []byte{32, 0, 0, 1, 0x05, 0xae, 0x03, 0})
	if _, err := raw.Write(request); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return len(said.all()) == 1 && strings.Contains(said.all()[0], "requires TLS") },
		func() string { return fmt.Sprintf("said %q", said.all()) })
}

// offeredBy returns the lower capabilities in a greeting.
func offeredBy(t *testing.T, r io.Reader) int {
	t.Helper()
	head := make([]byte, 4)
	if _, err := io.ReadFull(r, head); err != nil {
		t.Fatal(err)
	}
	greeting := make([]byte, int(head[0])|int(head[1])<<8)
	if _, err := io.ReadFull(r, greeting); err != nil {
		t.Fatal(err)
	}
	at := bytes.IndexByte(greeting, 0) + 1 + 4 + 8 + 1
	return int(greeting[at]) | int(greeting[at+1])<<8
}

// TestInFile checks that the proxy forwards a file that a client sends after LOAD DATA LOCAL INFILE.
func TestInFile(t *testing.T) {
	p, said, through, straight := dbProxy(t)
	exec(t, connTo(t, straight), "DROP TABLE IF EXISTS filed", "CREATE TABLE filed (id INT PRIMARY KEY, v TEXT NOT NULL)")
	var rec recorder
	p.Use(rec.tap)
	const n = 40_000 // more than 255 packets
	mysql.RegisterReaderHandler("wire", func() io.Reader {
		var text strings.Builder
		for i := range n {
			fmt.Fprintf(&text, "%d\t%s\n", i, strings.Repeat("x", 300))
		}
		return io.LimitReader(strings.NewReader(text.String()), int64(text.Len()))
	})
	conn := connTo(t, through+"?maxAllowedPacket=16384")
	exec(t, conn, "LOAD DATA LOCAL INFILE 'Reader::wire' INTO TABLE filed")
	var got int
	if err := conn.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM filed").Scan(&got); err != nil || got != n {
		t.Errorf("%d rows, %v", got, err)
	}
	if seen := rec.seen(); !slices.Equal(seen[max(0, len(seen)-2):], []string{"LOAD DATA", "SELECT filed"}) {
		t.Errorf("events %q", seen)
	}
	if len(said.all()) > 0 {
		t.Errorf("said %q", said.all())
	}
	exec(t, connTo(t, straight), "DROP TABLE filed")
}

// TestServerGone checks that the proxy accepts new connections after a client has cancelled a statement
// and HangUp has reset all connections.
func TestServerGone(t *testing.T) {
	p, said, through, _ := dbProxy(t)
	var rec recorder
	p.Use(rec.tap)
	conn := connTo(t, through)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := conn.ExecContext(ctx, "DO SLEEP(5)"); err == nil {
		t.Error("the statement was not cancelled")
	}
	p.HangUp()
	if len(said.all()) > 0 {
		t.Errorf("said %q", said.all())
	}
	exec(t, connTo(t, through), "DO 1")
}
