package order_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"grablab/internal/order"

	"github.com/go-sql-driver/mysql"
	"github.com/pressly/goose/v3"
)

func TestConformance(t *testing.T) {
	for _, db := range stores {
		t.Run(db.name, func(t *testing.T) {
			dsn := db.dsn(t)
			conform(t, func(t *testing.T) order.Store { return connect(t, dsn, order.Options{}) })
		})
	}
}

func TestMigrateTogether(t *testing.T) {
	for _, db := range stores {
		t.Run(db.name, func(t *testing.T) {
			for range 20 {
				dsn := db.dsn(t)
				var all sync.WaitGroup
				for range 2 {
					s, err := order.Connect(t.Context(), dsn, order.Options{})
					if err != nil {
						t.Fatal(err)
					}
					defer s.Close()
					all.Go(func() {
						if err := s.Migrate(t.Context()); err != nil {
							t.Error(err)
						}
						if _, err := s.Create(t.Context(), 1, 1); err != nil {
							t.Error(err)
						}
					})
				}
				all.Wait()
			}
		})
	}
}

func TestMigrateDownAndUp(t *testing.T) {
	for _, db := range stores {
		t.Run(db.name, func(t *testing.T) {
			s := connect(t, db.dsn(t), order.Options{})
			dialect := map[string]goose.Dialect{"SQLite": goose.DialectSQLite3, "MariaDB": goose.DialectMySQL}[db.name]
			folder := map[string]string{"SQLite": "sqlite", "MariaDB": "mysql"}[db.name]
			versions, err := goose.NewProvider(dialect, s.DB(), os.DirFS("../../migrations/"+folder), goose.WithDisableGlobalRegistry(true))
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if _, err := versions.DownTo(t.Context(), 0); err != nil {
					t.Fatal(err)
				}
				if _, err := s.Create(t.Context(), 1, 1); err == nil {
					t.Fatal("there is still a table of orders")
				}
				if err := s.Migrate(t.Context()); err != nil {
					t.Fatal(err)
				}
				if _, err := s.Create(t.Context(), 1, 1); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestVersion(t *testing.T) {
	for _, db := range stores {
		t.Run(db.name, func(t *testing.T) {
			s := connect(t, db.dsn(t), order.Options{})
			got, err := s.Version(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var major, minor, patch int
			if _, err := fmt.Sscanf(got, db.name+" %d.%d.%d", &major, &minor, &patch); err != nil {
				t.Errorf("version %q: %v", got, err)
			}
		})
	}
}

func TestCreateManyOrders(t *testing.T) {
	const count = 20_000 // so many that Create needs several statements
	for _, db := range stores {
		t.Run(db.name, func(t *testing.T) {
			s := connect(t, db.dsn(t), order.Options{})
			first, err := s.Create(t.Context(), count, 1)
			if err != nil {
				t.Fatal(err)
			}
			for _, id := range []int64{first, first + count - 1} {
				if _, err := s.Read(t.Context(), id, 0); err != nil {
					t.Errorf("order %d: %v", id, err)
				}
			}
			if _, err := s.Read(t.Context(), first+count, 0); !errors.Is(err, order.ErrNotFound) {
				t.Errorf("one order too many: %v", err)
			}
		})
	}
}

// TestCreateWithGaps checks that ids are consecutive although the server leaves gaps, like the nodes
// of a Galera Cluster.
func TestCreateWithGaps(t *testing.T) {
	s := connect(t, mariaDSN(t)+"?auto_increment_increment=3", order.Options{})
	for range 2 {
		first, err := s.Create(t.Context(), 100, 5)
		if err != nil {
			t.Fatal(err)
		}
		for id := first; id < first+100; id++ {
			if o, err := s.Read(t.Context(), id, 0); err != nil || o.Stock != 5 {
				t.Fatalf("order %d: %+v, %v", id, o, err)
			}
		}
		if _, err := s.Read(t.Context(), first+100, 0); !errors.Is(err, order.ErrNotFound) {
			t.Errorf("the order after the last: %v", err)
		}
	}
}

// TestCreateDoesNotFindItsRows uses a trigger that changes the times of the last 40 rows, so that Create finds only
// 60 of 100 again. The error must give both numbers, and no order must be left.
func TestCreateDoesNotFindItsRows(t *testing.T) {
	dsn := mariaDSN(t)
	s := connect(t, dsn+"?auto_increment_increment=3", order.Options{})
	if _, err := openRaw(t, dsn).ExecContext(t.Context(), "CREATE TRIGGER apart BEFORE INSERT ON orders FOR EACH ROW SET @n = COALESCE(@n, 0) + 1, NEW.created_at = NEW.created_at + INTERVAL IF(@n > 60, 1, 0) DAY"); err != nil {
		t.Fatal(err)
	}
	first, err := s.Create(t.Context(), 100, 1)
	if err == nil || !strings.Contains(err.Error(), "60 of 100 orders were found") {
		t.Errorf("Create: %d, %v", first, err)
	}
	for id := range int64(400) {
		if _, err := s.Read(t.Context(), id, 0); !errors.Is(err, order.ErrNotFound) {
			t.Fatalf("order %d: %v", id, err)
		}
	}
}

// TestTwoPools checks that every order gets exactly one winner if drivers compete through two stores of one
// database, as through two instances.
func TestTwoPools(t *testing.T) {
	const orders, drivers = 100, 4
	for _, db := range stores {
		t.Run(db.name, func(t *testing.T) {
			dsn := db.dsn(t)
			both := []*order.SQL{connect(t, dsn, order.Options{}), connect(t, dsn, order.Options{})}
			first, err := both[0].Create(t.Context(), orders, 1)
			if err != nil {
				t.Fatal(err)
			}
			var all sync.WaitGroup
			for d := range int64(drivers) {
				all.Go(func() {
					for id := first; id < first+orders; id++ {
						c := order.Claim{Order: id, Driver: d, Token: fmt.Sprint(id, d), Instance: "8004", Strategy: "mysql-cas"}
						err := both[d%2].Claim(t.Context(), c, order.Guarded)
						if err != nil && !errors.Is(err, order.ErrTaken) {
							t.Error(err)
						}
					}
				})
			}
			all.Wait()
			grabs, err := both[1].Ledger(t.Context(), first, orders)
			if err != nil || len(grabs) != orders {
				t.Errorf("%d orders left %d grabs, %v", orders, len(grabs), err)
			}
		})
	}
}

// TestReadersDoNotWait checks that SQLite's readers do not wait while a write transaction is open. Another
// writer must get an error at its deadline.
func TestReadersDoNotWait(t *testing.T) {
	dsn := sqliteDSN(t)
	s, other := connect(t, dsn, order.Options{}), connect(t, dsn, order.Options{})
	id, err := s.Create(t.Context(), 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := other.DB().Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	defer conn.ExecContext(context.WithoutCancel(t.Context()), "ROLLBACK")

	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := s.Read(ctx, id, 0); err != nil {
		t.Error("read:", err)
	}
	if _, err := s.Ledger(ctx, id, 1); err != nil {
		t.Error("ledger:", err)
	}
	began := time.Now()
	err = s.Claim(ctx, order.Claim{Order: id, Driver: 1, Token: "t"}, order.Naive)
	if !errors.Is(err, order.ErrNotWritten) || !errors.Is(err, context.DeadlineExceeded) {
		t.Error("claim:", err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the claim took %v to give up", took)
	}
}

func TestSQLiteHasNoSessions(t *testing.T) {
	_, err := connect(t, sqliteDSN(t), order.Options{}).Begin(t.Context())
	if !errors.Is(err, order.ErrUnsupported) || !strings.Contains(err.Error(), "-stack local") {
		t.Error(err)
	}
}

// openSession creates an order and begins a session.
func openSession(t *testing.T, s *order.SQL) (id int64, tx order.Tx) {
	t.Helper()
	id, err := s.Create(t.Context(), 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	if tx, err = s.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	return id, tx
}

// TestSessionLost kills the connection of a session that has a lock. The session's calls must then fail,
// and must not use another connection.
func TestSessionLost(t *testing.T) {
	s := connect(t, mariaDSN(t), order.Options{})
	for name, lock := range map[string]lockFunc{"row": byRow, "name": byName} {
		t.Run(name, func(t *testing.T) {
			id, tx := openSession(t, s)
			if ok, err := lock(t.Context(), tx, id, 0); !ok || err != nil {
				t.Fatal(ok, err)
			}
			killOthers(t, s)

			err := tx.Claim(t.Context(), order.Claim{Order: id, Driver: 1, Token: "t"}, order.Naive)
			if !errors.Is(err, order.ErrNotWritten) {
				t.Error("claim:", err)
			}
			if _, err := tx.Read(t.Context(), id, 0); err == nil {
				t.Error("a read in a lost session succeeds")
			}
			if err := tx.Close(t.Context()); err == nil {
				t.Error("Close does not report the loss of the session")
			}
			if grabs, err := s.Ledger(t.Context(), id, 1); err != nil || len(grabs) > 0 {
				t.Errorf("ledger: %v, %v", grabs, err)
			}
		})
	}
}

// killOthers ends every connection of the store, except for the one that it uses.
func killOthers(t *testing.T, s *order.SQL) {
	t.Helper()
	conn, err := s.DB().Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	rows, err := conn.QueryContext(t.Context(),
		"SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var ids []int64
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	if len(ids) == 0 {
		t.Fatal("no connection to kill")
	}
	for _, id := range ids {
		if _, err := conn.ExecContext(t.Context(), fmt.Sprint("KILL ", id)); err != nil {
			t.Fatal(err)
		}
	}
}

// sessionState selects what a session may have changed about its connection.
const sessionState = "SELECT CONCAT(@@SESSION.innodb_lock_wait_timeout, ' s for a row, in a transaction: ', @@SESSION.in_transaction)"

// TestSessionLeavesNothing checks that a session returns its connection to the pool unchanged, for each kind
// of lock.
func TestSessionLeavesNothing(t *testing.T) {
	s := connect(t, mariaDSN(t), order.Options{MaxConns: 2})
	id, err := s.Create(t.Context(), 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	state := func() (text string) {
		t.Helper()
		if err := s.DB().QueryRowContext(t.Context(), sessionState).Scan(&text); err != nil {
			t.Fatal(err)
		}
		return text
	}
	before := state()
	for name, locks := range map[string][]lockFunc{"a row": {byRow}, "a name": {byName}, "both": {byRow, byName}} {
		for range 4 { // more often than there are connections
			tx, err := s.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, lock := range append(locks, locks...) {
				if ok, err := lock(t.Context(), tx, id, 3*time.Second); !ok || err != nil {
					t.Fatal(ok, err)
				}
			}
			if err := tx.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if after := state(); before != after {
				t.Fatalf("after a session that locked %s, a connection waits %s; want %s", name, after, before)
			}
		}
	}
}

// TestFailedSessionsLeaveNothing makes each statement of a session fail in turn, before it is sent or after
// it took effect. It then closes the session at once or after its other calls. The call must return an
// error, and Close too if the session is lost. Afterwards, no lock may be left, and each connection in the
// pool must be as new. If a call fails in the transaction with the row lock, the server may have ended the
// transaction. In that case, the session must not write.
func TestFailedSessionsLeaveNothing(t *testing.T) {
	dsn, lossy := mariaDSN(t), &lossy{}
	s, other := connect(t, dsn, order.Options{MaxConns: 2, Wrap: lossy.wrap}), connect(t, dsn, order.Options{})
	states := func() (all []string) {
		t.Helper()
		for range 2 { // both connections at once
			conn, err := s.DB().Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			var text string
			if err := conn.QueryRowContext(t.Context(), sessionState).Scan(&text); err != nil {
				t.Fatal(err)
			}
			all = append(all, text)
		}
		return all
	}
	before := states()
	locks := func(want bool) func(bool, error) error {
		return func(ok bool, err error) error {
			if err == nil && ok != want || err != nil && ok {
				t.Errorf("the lock is granted: %v, %v, want %v", ok, err, want)
			}
			return err
		}
	}
	locked := locks(true)
	taken, holder := openSession(t, other)
	if err := locked(byRow(t.Context(), holder, taken, 0)); err != nil {
		t.Fatal(err)
	}
	defer holder.Close(t.Context())
	const row, claimed = 2, 5 // the indexes of two calls
	calls := []func(tx order.Tx, id int64) error{
		func(tx order.Tx, id int64) error { return locks(false)(byRow(t.Context(), tx, taken, 0)) },
		func(tx order.Tx, id int64) error { return locked(byName(t.Context(), tx, id, 0)) },
		func(tx order.Tx, id int64) error { return locked(byRow(t.Context(), tx, id, 2*time.Second)) },
		func(tx order.Tx, id int64) error { _, err := tx.Read(t.Context(), id, 0); return err },
		func(tx order.Tx, id int64) error { _, err := tx.Held(t.Context(), id, 1); return err },
		func(tx order.Tx, id int64) error { return tx.Claim(t.Context(), claim(id, 1, 0), order.Guarded) },
		func(tx order.Tx, id int64) error { return locked(byRow(t.Context(), tx, id, 0)) },
	}
	for _, goesOn := range []bool{false, true} {
		for _, sent := range []bool{false, true} {
			for n, struck := 1, "none"; struck != ""; n++ {
				id, tx := openSession(t, s)
				count := 0
				struck = ""
				strikes := func(query string) error {
					if count++; count != n {
						return nil
					}
					struck = query
					return errLost
				}
				lossy.around = func(ctx context.Context, query string, send func(context.Context) (driver.Result, error)) (driver.Result, error) {
					lost := strikes(query)
					if lost != nil && !sent {
						return nil, lost
					}
					result, err := send(ctx)
					if lost != nil {
						return nil, lost
					}
					return result, err
				}
				if lossy.answer = strikes; sent {
					lossy.answer, lossy.lose = nil, strikes
				}
				errs := make([]error, len(calls))
				for i, call := range calls {
					before := struck
					if errs[i] = call(tx, id); errs[i] == nil && struck != before && i != claimed { // a claim looks for its row
						t.Errorf("call %d does not report that a statement (%s) failed", i+1, struck)
					}
					if errs[i] != nil && !goesOn {
						break
					}
				}
				_, unusable := tx.Read(t.Context(), id, 0)
				inClose := struck == ""
				closed := tx.Close(t.Context())
				lossy.around, lossy.answer, lossy.lose = nil, nil, nil

				what := fmt.Sprintf("statement %d (%s) fails, sent %v, goes on %v", n, struck, sent, goesOn)
				if inClose && struck != "" {
					unusable = errLost
				}
				if (closed == nil) != (unusable == nil) {
					t.Errorf("%s: Close returns %v, but the last read %v", what, closed, unusable)
				}
				if err := errors.Join(errs[row+1 : claimed]...); err != nil && errs[row] == nil && errs[claimed] == nil && goesOn {
					t.Errorf("%s: the session has written, although its lock may be gone: %v", what, err)
				}
				if after := states(); !slices.Equal(after, before) {
					t.Errorf("%s: the connections are %q, want %q", what, after, before)
				}
				next, err := other.Begin(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for kind, lock := range map[string]lockFunc{"row": byRow, "name": byName} {
					if ok, err := lock(t.Context(), next, id, lockWait); !ok || err != nil {
						t.Errorf("%s: the %s is still locked: %v, %v", what, kind, ok, err)
					}
				}
				if err := next.Close(t.Context()); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

// TestLockedRowByEveryCode simulates the error codes with which servers report that another session has
// locked the row. MySQL and MariaDB use different codes for NOWAIT. Any other error must not look like a
// locked row.
func TestLockedRowByEveryCode(t *testing.T) {
	for code, busy := range map[uint16]bool{1205: true, 3572: true, 1213: false} {
		for _, wait := range []time.Duration{0, time.Second} {
			lossy := &lossy{}
			s := connect(t, mariaDSN(t), order.Options{Wrap: lossy.wrap})
			id, tx := openSession(t, s)
			lossy.answer = func(query string) error {
				if strings.Contains(query, "FOR UPDATE") {
					return &mysql.MySQLError{Number: code}
				}
				return nil
			}
			if ok, err := tx.LockRow(t.Context(), id, wait); ok || (err == nil) != busy {
				t.Errorf("code %d, wait %v: %v, %v, want busy: %v", code, wait, ok, err, busy)
			}
			lossy.answer = nil
			if ok, err := tx.LockRow(t.Context(), id, wait); ok != busy || (err == nil) != busy {
				t.Errorf("code %d, wait %v: again: %v, %v, want a usable session: %v", code, wait, ok, err, busy)
			}
			if err := tx.Close(t.Context()); (err == nil) != busy {
				t.Errorf("code %d, wait %v: close: %v", code, wait, err)
			}
		}
	}
}

// TestMemRestart checks that a restart of the database in memory ends its sessions and frees their locks.
func TestMemRestart(t *testing.T) {
	m := new(order.Mem)
	id, err := m.Create(t.Context(), 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	tx, err := m.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := tx.LockRow(t.Context(), id, 0); !ok || err != nil {
		t.Fatal(ok, err)
	}
	m.Restart()
	if err := tx.Claim(t.Context(), order.Claim{Order: id}, order.Naive); !errors.Is(err, order.ErrNotWritten) {
		t.Error("claim over a lost session:", err)
	}
	if err := tx.Close(t.Context()); err == nil {
		t.Error("Close does not report the loss of the session")
	}
	if err := m.Claim(t.Context(), order.Claim{Order: id}, order.Naive); err != nil {
		t.Error("the row is still locked:", err)
	}
}

// TestSilentServer checks that Connect gives up at its deadline if the server accepts the connection but
// never responds.
func TestSilentServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err = order.Connect(ctx, "u:secret@tcp("+l.Addr().String()+")/d", order.Options{})
	if err == nil || time.Since(began) > 4*time.Second {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
	if strings.Contains(fmt.Sprint(err), "secret") {
		t.Error("the error contains the password:", err)
	}
}

func TestBadDSN(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dsn := range []string{
		"", "mysql", "root@tcp(127.0.0.1:3306)", "root:secret@tcp(127.0.0.1:3306)/", "root:secret@tcp(127.0.0.1:3306/d",
		"root:sec/ret@tcp(127.0.0.1:3306)", "secret@secret(secret)/d?secret", "root:secret@tcp(h:1)/d?parseTime=secret",
		"mysql://root:secret@127.0.0.1:3306/d", "root:secret@tcp(h:1)/d?tls=secret",
		"sqlite:", "sqlite::memory:", "sqlite:" + dir, "sqlite:" + dir + "/no/such.db", "sqlite:" + dir + "/file/x.db",
		"sqlite:" + dir + "/x.db?mode=ro",
	} {
		_, err := order.Connect(t.Context(), dsn, order.Options{})
		if !errors.Is(err, order.ErrBadDSN) {
			t.Errorf("Connect(%q): %v", dsn, err)
			continue
		}
		if text := err.Error(); strings.Contains(text, "secret") || strings.Contains(text, "sec/ret") || strings.Contains(text, "\n") {
			t.Errorf("error for %q: %s", dsn, text)
		}
	}
}

// TestOddPaths checks that the path of an SQLite file can contain characters that have a special meaning in
// a URI.
func TestOddPaths(t *testing.T) {
	for _, name := range []string{"a b.db", "50%25.db", "x#y.db", "ü&=.db"} {
		path := filepath.Join(t.TempDir(), name)
		connect(t, "sqlite:"+path, order.Options{})
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
}
