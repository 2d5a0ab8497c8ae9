package wire_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"

	"grablab/internal/testbed/stack/stacktest"
	"grablab/internal/testbed/wire"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// postgresProxy returns a proxy to a PostgreSQL server and the record of its messages. With the first DSN,
// a client connects through the proxy, and with the second one, directly.
func postgresProxy(t *testing.T) (p *wire.Proxy, said *said, through, straight string) {
	t.Helper()
	st := stacktest.Postgres(t)
	p, said = proxyTo(t, "db", st.Of("db"), wire.Postgres)
	return p, said, strings.Replace(st.DSN, st.Of("db"), p.Addr(), 1), st.DSN
}

func postgresConn(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func postgresExec(t *testing.T, conn *pgx.Conn, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := conn.Exec(t.Context(), s); err != nil {
			t.Fatalf("execute %s: %v", s, err)
		}
	}
}

// TestPostgres checks that a client gets the same results through the proxy, and that each request
// becomes an event. It uses simple and prepared statements, batches, pipelines, COPY, errors, and rows
// that are larger than the buffer.
func TestPostgres(t *testing.T) {
	p, said, through, straight := postgresProxy(t)
	postgresExec(t, postgresConn(t, straight), "DROP TABLE IF EXISTS wired", "CREATE TABLE wired (id INT PRIMARY KEY, v TEXT NOT NULL)")
	conn := postgresConn(t, through)
	var rec recorder
	p.Use(rec.tap)
	ctx := t.Context()
	postgresExec(t, conn, "INSERT INTO wired VALUES (1, 'a'), (2, 'b'); SELECT 1; SET TIME ZONE 'UTC'")
	tx, err := conn.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range []string{1: "a", 2: "b"} {
		var v string
		if err := tx.QueryRow(ctx, "SELECT v FROM wired WHERE id = $1 FOR UPDATE", id).Scan(&v); id > 0 && (err != nil || v != want) {
			t.Errorf("the row has the value %q, %v", v, err)
		}
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(ctx, "INSERT INTO wired VALUES ($1, 'twice')", 1); err == nil {
		t.Error("a row with a duplicate key was inserted")
	}
	batch := &pgx.Batch{}
	for id := range 3 {
		batch.Queue("UPDATE wired SET v = v || 'c' WHERE id = $1", id)
	}
	if err := conn.SendBatch(ctx, batch).Close(); err != nil {
		t.Error(err)
	}
	if n, err := conn.CopyFrom(ctx, pgx.Identifier{"wired"}, []string{"id", "v"}, pgx.CopyFromRows([][]any{{7, "x"}, {8, "y"}})); n != 2 || err != nil {
		t.Errorf("copied %d rows, %v", n, err)
	}
	large := strings.Repeat("z", 300_000)
	for i, mode := range []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		var got string
		if err := conn.QueryRow(ctx, "INSERT INTO wired VALUES ($1, $2) RETURNING v", mode, 20+i, large).Scan(&got); err != nil || got != large {
			t.Errorf("%v: %d bytes, %v", mode, len(got), err)
		}
	}
	pipe := conn.PgConn().StartPipeline(ctx)
	for _, id := range []string{"1", "1", "2", "2"} { // the second one fails, so the server skips the ones after it
		pipe.SendQueryParams("INSERT INTO wired VALUES (10 + $1, '')", [][]byte{[]byte(id)}, nil, nil, nil)
		pipe.SendFlushRequest()
	}
	if err := pipe.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := pipe.Close(); !isTaken(err) {
		t.Errorf("the pipeline: %v", err)
	}
	postgresExec(t, conn, "DELETE FROM wired WHERE id > 2")

	want := []string{
		"INSERT wired + SELECT + SET TIME ZONE 'UTC'", "BEGIN", "PREPARE SELECT wired FOR UPDATE", "SELECT wired FOR UPDATE", "SELECT wired FOR UPDATE", "SELECT wired FOR UPDATE",
		"COMMIT", "PREPARE INSERT wired", "INSERT wired", "SYNC", "PREPARE UPDATE wired", "UPDATE wired + UPDATE wired + UPDATE wired", "PREPARE SELECT wired", "COPY wired",
		"INSERT wired", "INSERT wired", "INSERT wired", "INSERT wired", "INSERT wired", "INSERT wired", "SYNC", "DELETE wired",
	}
	seen := rec.seen()
	if !slices.Equal(seen, want) {
		t.Errorf("events:\n%q\nwant:\n%q", seen, want)
	}
	failed := rec.failed()
	slices.Sort(failed)
	if len(failed) != 4 || !strings.HasPrefix(failed[0], "INSERT wired: 23505 duplicate key") || failed[2] != "INSERT wired: "+wire.ErrGone.Error() {
		t.Errorf("errors %q", failed)
	}
	if len(said.all()) > 0 {
		t.Errorf("said %q", said.all())
	}
}

func isTaken(err error) bool {
	e := (*pgconn.PgError)(nil)
	return errors.As(err, &e) && e.Code == "23505"
}

// TestPostgresHold checks that an INSERT has no effect while it is held before the proxy sends it. While
// its reply is held, it must have its effect.
func TestPostgresHold(t *testing.T) {
	p, _, through, straight := postgresProxy(t)
	direct := postgresConn(t, straight)
	postgresExec(t, direct, "DROP TABLE IF EXISTS held", "CREATE TABLE held (id INT PRIMARY KEY)")
	for i, tt := range []struct {
		after bool
		as    error
	}{{after: false}, {after: true}, {after: true, as: net.ErrClosed}} {
		var rec recorder
		p.Use(rec.tap)
		g := newGate(tt.after)
		g.as = tt.as
		rec.hold("INSERT held", g)
		conn := postgresConn(t, through)
		done := make(chan struct{})
		go func() {
			defer close(done)
			if _, err := conn.Exec(t.Context(), "INSERT INTO held VALUES ($1)", pgx.QueryExecModeExec, i); (err != nil) != (tt.as != nil) {
				t.Errorf("INSERT: %v", err)
			}
		}()
		await(t, "held", g.held)
		var n int
		want := map[bool]int{false: i, true: i + 1}[tt.after]
		if err := direct.QueryRow(t.Context(), "SELECT COUNT(*) FROM held").Scan(&n); err != nil || n != want {
			t.Errorf("%+v: %d rows, want %d, %v", tt, n, want, err)
		}
		close(g.let)
		await(t, "answer", done)
	}
}

// TestPostgresUnreadable checks the reasons that the proxy gives for clients that it cannot read. A
// client that only prefers TLS must connect without it, and a client that requires it must fail.
func TestPostgresUnreadable(t *testing.T) {
	message := func(kind string, body string) string {
		return kind + string(binary.BigEndian.AppendUint32(nil, uint32(len(body)+4))) + body
	}
	hello := message("", "\x00\x03\x00\x00user\x00grablab\x00database\x00postgres\x00\x00")
	for _, tt := range []struct{ name, sent, why string }{
		{"TLS at once", "\x16\x03\x01\x00\x05\x01\x00\x00", "uses TLS"},
		{"an old protocol", message("", "\x00\x02\x00\x00"), "version 2.0"},
		{"HTTP", "GET / HTTP/1.1\r\n\r\n", "the first message has"},
		{"an unknown message", hello + message("Y", "\x00\x00\x00\x00"), `messages of type 'Y'`},
		{"COPY in the extended protocol", hello + message("P", "\x00COPY wired FROM STDIN\x00\x00\x00") + message("B", "\x00\x00\x00\x00\x00\x00\x00\x00") + message("E", "\x00\x00\x00\x00\x00") + message("S", ""), "COPY FROM STDIN"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, said, _, straight := postgresProxy(t)
			postgresExec(t, postgresConn(t, straight), "CREATE TABLE IF NOT EXISTS wired (id INT PRIMARY KEY, v TEXT NOT NULL)")
			conn, _ := dial(t, p.Addr())
			if _, err := io.WriteString(conn, tt.sent); err != nil {
				t.Fatal(err)
			}
			eventually(t, func() bool { return strings.Contains(p.Unreadable(), tt.why) }, func() string { return fmt.Sprint(said.all()) })
		})
	}
	p, _, through, _ := postgresProxy(t)
	postgresExec(t, postgresConn(t, strings.Replace(through, "disable", "prefer", 1)), "SELECT 1")
	if p.Unreadable() != "" {
		t.Errorf("sslmode=prefer: %s", p.Unreadable())
	}
	if _, err := pgx.Connect(t.Context(), strings.Replace(through, "disable", "require", 1)); err == nil {
		t.Error("a client that requires TLS can connect")
	}
}

// TestPostgresSkipsRequests makes each request of a pipeline fail in turn. The server skips the requests
// after it, so their taps must get ErrGone. The request after the pipeline must get its own reply.
func TestPostgresSkipsRequests(t *testing.T) {
	p, _, through, straight := postgresProxy(t)
	direct := postgresConn(t, straight)
	postgresExec(t, direct, "DROP TABLE IF EXISTS skipped", "CREATE TABLE skipped (id INT PRIMARY KEY)")
	conn := postgresConn(t, through)
	for requests := 1; requests <= 3; requests++ {
		for fails := range requests + 1 { // with requests, none of them fails
			postgresExec(t, direct, "DELETE FROM skipped", "INSERT INTO skipped VALUES (0)")
			var rec recorder
			p.Use(rec.tap)
			pipe := conn.PgConn().StartPipeline(t.Context())
			for n := range requests {
				id := n + 1
				if n == fails {
					id = 0 // it exists already
				}
				pipe.SendQueryParams("INSERT INTO skipped VALUES ($1)", [][]byte{fmt.Append(nil, id)}, nil, nil, nil)
				pipe.SendFlushRequest()
			}
			if err := pipe.Sync(); err != nil {
				t.Fatal(err)
			}
			if err := pipe.Close(); isTaken(err) != (fails < requests) {
				t.Errorf("request %d of %d fails: %v", fails+1, requests, err)
			}
			g := rec.hold("DELETE skipped", newGate(true))
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, _ = conn.Exec(t.Context(), "DELETE FROM skipped")
			}()
			await(t, fmt.Sprintf("the reply to the request after a pipeline of %d in which request %d fails", requests, fails+1), g.held)
			var left int
			if err := direct.QueryRow(t.Context(), "SELECT COUNT(*) FROM skipped").Scan(&left); err != nil || left != 0 {
				t.Errorf("after its reply, the DELETE has left %d rows, %v", left, err)
			}
			close(g.let)
			<-done
			var want []string
			if fails < requests {
				want = append([]string{"INSERT skipped: 23505"}, slices.Repeat([]string{"INSERT skipped: " + wire.ErrGone.Error()}, requests-fails-1)...)
			}
			eventually(t, func() bool {
				failed := rec.failed()
				slices.Sort(failed)
				return slices.EqualFunc(failed, want, strings.HasPrefix)
			}, func() string {
				return fmt.Sprintf("request %d of %d fails: the taps get %q, want %q", fails+1, requests, rec.failed(), want)
			})
		}
	}
}
