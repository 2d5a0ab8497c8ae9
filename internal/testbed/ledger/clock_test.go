package ledger

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// clock is a database that only returns the time. Its clock is an hour behind. It reads the clock first
// and then delays the response.
type clock struct {
	delays []time.Duration // the delay of each response
	asked  int
}

func (c *clock) Connect(context.Context) (driver.Conn, error) { return c, nil }
func (c *clock) Driver() driver.Driver                        { return nil }
func (c *clock) Prepare(string) (driver.Stmt, error)          { return nil, errors.ErrUnsupported }
func (c *clock) Begin() (driver.Tx, error)                    { return nil, errors.ErrUnsupported }
func (c *clock) Close() error                                 { return nil }

func (c *clock) QueryContext(context.Context, string, []driver.NamedValue) (driver.Rows, error) {
	now := time.Now().Add(-time.Hour)
	time.Sleep(c.delays[c.asked%len(c.delays)])
	c.asked++
	return &reading{at: float64(now.UnixMicro()) / 1e6}, nil
}

type reading struct {
	at   float64
	read bool
}

func (r *reading) Columns() []string { return []string{"now"} }
func (r *reading) Close() error      { return nil }

func (r *reading) Next(row []driver.Value) error {
	if r.read {
		return io.EOF
	}
	r.read, row[0] = true, r.at
	return nil
}

// TestClockAhead checks that ClockAhead uses the fastest of eight readings, at any position. A reading
// is wrong by half of its delay, so the fastest one is the most precise.
func TestClockAhead(t *testing.T) {
	for fastest := range 8 {
		synctest.Test(t, func(t *testing.T) {
			c := new(clock)
			for i := range 8 {
				c.delays = append(c.delays, time.Duration(100+10*(i*5%8))*time.Millisecond)
			}
			c.delays[fastest] = 10 * time.Millisecond
			db := sql.OpenDB(c)
			defer db.Close()
			ahead, err := (&DB{read: db}).ClockAhead(t.Context())
			if off := ahead - time.Hour - 5*time.Millisecond; err != nil || off.Abs() > 10*time.Microsecond {
				t.Errorf("the fastest is reading %d: ahead by %v, %v", fastest, ahead, err)
			}
			if c.asked != 8 {
				t.Errorf("%d readings", c.asked)
			}
		})
	}
}
