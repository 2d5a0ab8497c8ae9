package order_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"grablab/internal/order"
)

// TestLostCommit loses the reply to a COMMIT in different ways (F33). To learn the outcome, the claim must
// look for its own row. It must not mistake another driver's row, or a row of another order, for its own.
func TestLostCommit(t *testing.T) {
	for _, db := range stores {
		for _, c := range []struct {
			name    string
			commit  commit
			written bool // whether the ledger has the claim at the end
			want    error
		}{
			{"after it was applied", thenLose, true, nil},
			{"before it was applied", loseFirst, false, order.ErrNotWritten},
			{"while it is applied", loseAndGoOn, true, nil},
			{"and the database with it", thenLoseAll, true, errUnknown},
		} {
			for _, guard := range []order.Guard{order.Naive, order.Guarded} {
				t.Run(fmt.Sprintf("%s/%s/%s", db.name, c.name, guard), func(t *testing.T) {
					lossy := &lossy{}
					defer lossy.late.Wait()
					s := connect(t, db.dsn(t), order.Options{Wrap: lossy.wrap})
					id, err := s.Create(t.Context(), 2, 3)
					if err != nil {
						t.Fatal(err)
					}
					for _, c := range []order.Claim{
						{Order: id, Driver: 9, Token: "another's", Stock: 3},
						{Order: id + 1, Driver: 1, Token: "mine", Stock: 3},
					} {
						if err := s.Claim(t.Context(), c, guard); err != nil {
							t.Fatal(err)
						}
					}
					lossy.next.Store(&c.commit)
					err = s.Claim(t.Context(), order.Claim{Order: id, Driver: 1, Token: "mine", Stock: 2}, guard)
					lossy.down.Store(false)

					if c.want == errUnknown {
						if err == nil || errors.Is(err, order.ErrNotWritten) || errors.Is(err, order.ErrTaken) {
							t.Error("want an unknown outcome, not", err)
						}
					} else if !errors.Is(err, c.want) {
						t.Errorf("the claim returned %v, want %v", err, c.want)
					}
					grabs, err := s.Ledger(t.Context(), id, 1)
					if err != nil || (len(grabs) == 2) != c.written {
						t.Errorf("ledger: %v, %v", grabs, err)
					}
					// The lost claim must not block another client.
					if err := s.Claim(t.Context(), order.Claim{Order: id, Driver: 2, Token: "next", Stock: 1}, order.Naive); err != nil {
						t.Error("next claim:", err)
					}
				})
			}
		}
	}
}

// TestLostCommitWithoutToken checks that the outcome of a lost COMMIT stays unknown if the claim has no
// token, because the store cannot look for its row.
func TestLostCommitWithoutToken(t *testing.T) {
	lossy := &lossy{}
	s := connect(t, sqliteDSN(t), order.Options{Wrap: lossy.wrap})
	id, err := s.Create(t.Context(), 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	c := loseFirst
	lossy.next.Store(&c)
	err = s.Claim(t.Context(), order.Claim{Order: id, Driver: 1}, order.Naive)
	if err == nil || errors.Is(err, order.ErrNotWritten) {
		t.Error("want an unknown outcome, not", err)
	}
}

// TestConnectFails checks that Connect returns the error of its first query and leaves no connection open.
func TestConnectFails(t *testing.T) {
	lossy := &lossy{answer: func(string) error { return errLost }}
	s, err := order.Connect(t.Context(), sqliteDSN(t), order.Options{Wrap: lossy.wrap})
	if s != nil || !errors.Is(err, errLost) {
		t.Errorf("connect returned %v, want the error of the query", err)
	}
	if n := lossy.open.Load(); n > 0 {
		t.Errorf("%d connections are open", n)
	}
}

// TestRefusedStatement checks that a claim that fails before its COMMIT returns ErrNotWritten, and that it
// has written nothing.
func TestRefusedStatement(t *testing.T) {
	for _, db := range stores {
		for _, refused := range []string{"BEGIN", "UPDATE", "INSERT"} {
			t.Run(db.name+"/"+refused, func(t *testing.T) {
				lossy := &lossy{}
				s := connect(t, db.dsn(t), order.Options{Wrap: lossy.wrap})
				id, err := s.Create(t.Context(), 1, 1)
				if err != nil {
					t.Fatal(err)
				}
				lossy.refuse.Store(&refused)
				err = s.Claim(t.Context(), order.Claim{Order: id, Driver: 1, Token: "mine"}, order.Naive)
				lossy.refuse.Store(nil)
				if !errors.Is(err, order.ErrNotWritten) || !errors.Is(err, errLost) {
					t.Error(err)
				}
				if grabs, err := s.Ledger(t.Context(), id, 1); err != nil || len(grabs) > 0 {
					t.Errorf("ledger: %v, %v", grabs, err)
				}
				if o, err := s.Read(t.Context(), id, 0); err != nil || o.Status != order.Open {
					t.Errorf("order: %+v, %v", o, err)
				}
			})
		}
	}
}

// TestCancelledBeforeCommit ends the context of a claim after its last write. The claim is rolled
// back, so no one needs to look for its outcome.
func TestCancelledBeforeCommit(t *testing.T) {
	for _, db := range stores {
		t.Run(db.name, func(t *testing.T) {
			lossy := &lossy{}
			s := connect(t, db.dsn(t), order.Options{Wrap: lossy.wrap})
			id, err := s.Create(t.Context(), 1, 1)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var sent []string
			lossy.after = func(query string) {
				if sent = append(sent, strings.Fields(query)[0]); sent[len(sent)-1] == "INSERT" {
					cancel()
				}
			}
			err = s.Claim(ctx, order.Claim{Order: id, Driver: 1, Token: "mine"}, order.Naive)
			lossy.after = nil
			if !errors.Is(err, context.Canceled) || !errors.Is(err, order.ErrNotWritten) {
				t.Error(err)
			}
			if n := len(sent); n < 2 || sent[n-2] != "INSERT" || sent[n-1] != "ROLLBACK" {
				t.Errorf("sent %q; the ROLLBACK must come right after the INSERT and end the claim", sent)
			}
			if grabs, err := s.Ledger(t.Context(), id, 1); err != nil || len(grabs) > 0 {
				t.Errorf("ledger: %v, %v", grabs, err)
			}
		})
	}
}

// TestHeldWriter checks that a writer that is held before its first statement does not block another one.
// In SQLite, it does block others, because the writers of a process share one connection.
func TestHeldWriter(t *testing.T) {
	for _, db := range stores {
		t.Run(db.name, func(t *testing.T) {
			if db.name == "SQLite" {
				t.SkipNow()
			}
			lossy := &lossy{}
			s := connect(t, db.dsn(t), order.Options{Wrap: lossy.wrap})
			id, err := s.Create(t.Context(), 1, 1)
			if err != nil {
				t.Fatal(err)
			}
			held, letGo := make(chan struct{}), make(chan struct{})
			lossy.hold.Store(&hold{held, letGo})
			first := make(chan error)
			go func() {
				first <- s.Claim(t.Context(), order.Claim{Order: id, Driver: 1, Token: "first"}, order.Naive)
			}()
			<-held
			if err := s.Claim(t.Context(), order.Claim{Order: id, Driver: 2, Token: "second"}, order.Naive); err != nil {
				t.Error(err)
			}
			close(letGo)
			if err := <-first; err != nil {
				t.Error(err)
			}
			grabs, err := s.Ledger(t.Context(), id, 1)
			if err != nil || len(grabs) != 2 || grabs[0].Driver != 2 || grabs[1].Driver != 1 {
				t.Errorf("ledger: %v, %v", grabs, err)
			}
		})
	}
}

var (
	errLost    = fmt.Errorf("the wire was cut: %w", io.ErrUnexpectedEOF)
	errUnknown = errors.New("unknown")
)

// commit determines what happens to the next COMMIT.
type commit string

const (
	thenLose    commit = "applied, then the answer is lost"
	loseFirst   commit = "never sent"
	loseAndGoOn commit = "lost at once, applied a little later"
	thenLoseAll commit = "applied, then no connection is to be had"
)

// lossy cuts the connections of a driver at chosen statements.
type lossy struct {
	next   atomic.Pointer[commit]   // what happens to the next COMMIT; nil means nothing special
	refuse atomic.Pointer[string]   // statements with this prefix are not sent; may be nil
	down   atomic.Bool              // whether all statements and new connections fail
	hold   atomic.Pointer[hold]     // delays the next BEGIN; may be nil
	open   atomic.Int64             // the number of open connections
	late   sync.WaitGroup           // goroutines that end delayed COMMITs and close their connections
	after  func(query string)       // called after each statement without a result set; may be nil
	around around                   // called instead of each statement without a result set; may be nil
	answer func(query string) error // called before each query; its error replaces the result; may be nil
	lose   func(query string) error // called after each query; its error replaces the result; may be nil
}

// around can send a statement and change its result.
type around func(ctx context.Context, query string, send func(context.Context) (driver.Result, error)) (driver.Result, error)

// hold delays a statement until letGo is closed.
type hold struct{ held, letGo chan struct{} }

func (l *lossy) wrap(c driver.Connector) driver.Connector { return lossyConnector{c, l} }

type lossyConnector struct {
	driver.Connector
	l *lossy
}

func (c lossyConnector) Connect(ctx context.Context) (driver.Conn, error) {
	if c.l.down.Load() {
		return nil, errLost
	}
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	c.l.open.Add(1)
	return &lossyConn{Conn: conn, l: c.l}, nil
}

type lossyConn struct {
	driver.Conn
	l    *lossy
	late chan struct{} // closes when a delayed COMMIT has ended; nil if there is none
}

func (c *lossyConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	exec := func(ctx context.Context) (driver.Result, error) {
		if c.l.after != nil {
			defer c.l.after(query)
		}
		return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
	}
	if c.l.down.Load() || c.l.refuses(query) {
		return nil, errLost
	}
	if h := c.l.hold.Load(); h != nil && isBegin(query) && c.l.hold.CompareAndSwap(h, nil) {
		close(h.held)
		<-h.letGo
	}
	if c.l.around != nil {
		return c.l.around(ctx, query, exec)
	}
	if query != "COMMIT" {
		return exec(ctx)
	}
	next := c.l.next.Swap(nil)
	if next == nil {
		return exec(ctx)
	}
	switch *next {
	case thenLose:
		if _, err := exec(ctx); err != nil {
			return nil, err
		}
	case thenLoseAll:
		if _, err := exec(ctx); err != nil {
			return nil, err
		}
		c.l.down.Store(true)
	case loseAndGoOn:
		c.late = make(chan struct{})
		c.l.late.Go(func() {
			defer close(c.late)
			time.Sleep(100 * time.Millisecond) // simulates a slow network
			_, _ = exec(context.WithoutCancel(ctx))
		})
	}
	return nil, errLost
}

// refuses reports whether the query must not be sent.
func (l *lossy) refuses(query string) bool {
	kind := l.refuse.Load()
	return kind != nil && (strings.HasPrefix(query, *kind) || *kind == "BEGIN" && isBegin(query))
}

func isBegin(query string) bool { return query == "START TRANSACTION" || query == "BEGIN IMMEDIATE" }

// Close closes the connection, but only after a delayed COMMIT has ended.
func (c *lossyConn) Close() error {
	c.l.open.Add(-1)
	if c.late == nil {
		return c.Conn.Close()
	}
	c.l.late.Go(func() {
		<-c.late
		_ = c.Conn.Close()
	})
	return nil
}

func (c *lossyConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if c.l.answer != nil {
		if err := c.l.answer(query); err != nil {
			return nil, err
		}
	}
	rows, err := c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
	if c.l.lose != nil && err == nil {
		if err := c.l.lose(query); err != nil {
			return nil, errors.Join(err, rows.Close())
		}
	}
	return rows, err
}

func (c *lossyConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	return c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
}

func (c *lossyConn) Ping(ctx context.Context) error { return c.Conn.(driver.Pinger).Ping(ctx) }
