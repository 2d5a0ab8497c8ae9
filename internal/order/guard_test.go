package order

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"
)

// TestGuardsInSQLAndInMemory compares the SQL of each guard with its implementation in memory, for many
// combinations of orders and claims. Both must write the same claims, and leave the same row.
func TestGuardsInSQLAndInMemory(t *testing.T) {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tx, err := db.BeginTx(t.Context(), nil) // the table exists only on this connection
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	exec := func(statement string, args ...any) int64 {
		t.Helper()
		result, err := tx.Exec(statement, args...)
		if err != nil {
			t.Fatalf("execute %s %v: %v", statement, args, err)
		}
		n, _ := result.RowsAffected()
		return n
	}
	exec("CREATE TABLE orders (status INT, fence INT, driver_id INT, stock INT)")
	exec("INSERT INTO orders VALUES (0, 0, 0, 0)")
	tried := 0
	for _, units := range []int64{0, 3} {
		for _, status := range []int{Open, Grabbed} {
			for fence := uint64(1); fence <= 3; fence++ {
				for driver := range int64(3) {
					for stock := int64(-1); stock <= 2; stock++ {
						if units == 0 && stock != 0 || units > 0 && status != statusOf(stock) {
							continue
						}
						o := Order{ID: 1, Status: status, Driver: driver, Fence: fence, Units: units, Stock: stock}
						for _, g := range Guards {
							for read := int64(1); read <= 2; read++ { // the number of units that the driver has read
								c := Claim{Order: 1, Driver: 1, Fence: 2}
								if units > 0 {
									c.Stock = read
								}
								exec("UPDATE orders SET status = ?, fence = ?, driver_id = ?, stock = ?", status, fence, driver, stock)
								sold, args := c.sold(g)
								where, more := c.condition(g)
								written := exec("UPDATE orders SET "+sold+" WHERE 1 = 1"+where, append(args, more...)...) == 1
								tried++
								if err := c.judge(o, g); (err == nil) != written {
									t.Errorf("%s: %+v on %+v is written: %v, in memory: %v", g, c, o, written, err)
								}
								if !written {
									continue
								}
								var want Order
								if err := tx.QueryRow("SELECT status, stock FROM orders").Scan(&want.Status, &want.Stock); err != nil {
									t.Fatal(err)
								}
								got := o
								if got.sell(c, g); got.Status != want.Status || got.Stock != want.Stock {
									t.Errorf("%s: %+v on %+v makes status %d and %d left, in memory %d and %d", g, c, o, want.Status, want.Stock, got.Status, got.Stock)
								}
							}
						}
					}
				}
			}
		}
	}
	if tried < 500 {
		t.Errorf("only %d claims were tried", tried)
	}
}

// TestLimitByDefinition checks the limit per driver for 0 to 4 units and limits from 0 to 3. If the claim
// itself is already in the ledger, the error must be ErrTaken and not ErrLimit.
func TestLimitByDefinition(t *testing.T) {
	for limit := range 4 {
		for held := range 5 {
			for own := -1; own < held; own++ { // the index of the row that the claim has written, or -1 if there is none
				c := Claim{Token: "mine", PerDriver: limit}
				var rows []Grab
				for i := range held {
					rows = append(rows, Grab{Token: fmt.Sprint("other-", i)})
				}
				if own >= 0 {
					rows[own].Token = "mine"
				}
				err := c.judgeLimit(rows)
				over := held >= max(limit, 1)
				switch {
				case own >= 0 && (!errors.Is(err, ErrTaken) || errors.Is(err, ErrLimit)), own < 0 && errors.Is(err, ErrLimit) != over, own < 0 && !over && err != nil:
					t.Errorf("limit %d, %d rows, row %d is its own: %v", limit, held, own, err)
				}
			}
		}
	}
}

// TestRestartFreesEverything restarts the database in memory while a session has locked several rows and
// names. A new session must then get every lock, and the old session none.
func TestRestartFreesEverything(t *testing.T) {
	for held := range 4 {
		m := new(Mem)
		first, err := m.Create(t.Context(), 3, 1)
		if err != nil {
			t.Fatal(err)
		}
		old, err := m.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for i := range int64(held) {
			for _, lock := range locksOf(old, first+i) {
				if ok, err := lock(t.Context(), 0); !ok || err != nil {
					t.Fatal(ok, err)
				}
			}
		}
		m.Restart()
		fresh, err := m.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for i := range int64(3) {
			for n, lock := range locksOf(fresh, first+i) {
				if ok, err := lock(t.Context(), 0); !ok || err != nil {
					t.Errorf("%d orders were locked: lock %d of order %d: %v, %v", held, n, i+1, ok, err)
				}
			}
		}
		for n, lock := range locksOf(old, first) {
			if _, err := lock(t.Context(), 0); err == nil {
				t.Errorf("the old session gets lock %d", n)
			}
		}
		if err := fresh.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// locksOf returns functions that lock the row and the name of an order.
func locksOf(x Tx, id int64) []func(context.Context, time.Duration) (bool, error) {
	return []func(context.Context, time.Duration) (bool, error){
		func(ctx context.Context, wait time.Duration) (bool, error) { return x.LockRow(ctx, id, wait) },
		func(ctx context.Context, wait time.Duration) (bool, error) {
			return x.LockName(ctx, fmt.Sprint("name-", id), wait)
		},
	}
}

// TestSecondsByDefinition compares seconds with its definition, the smallest number of seconds that is not
// shorter, near whole seconds.
func TestSecondsByDefinition(t *testing.T) {
	for whole := range 4 {
		for d := time.Duration(whole)*time.Second - 2; d <= time.Duration(whole)*time.Second+2; d++ {
			var want int64
			for time.Duration(want)*time.Second < d {
				want++
			}
			if got := seconds(d); got != want {
				t.Errorf("%v makes %d s, want %d", d, got, want)
			}
		}
	}
}

// TestFailedSessionsFreeTheirPlace begins sessions while the database is closed. Each attempt must fail for
// this reason, and not because earlier attempts have used up the sessions.
func TestFailedSessionsFreeTheirPlace(t *testing.T) {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	s := &SQL{pins: make(chan struct{}, 2), writes: db}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	for n := range 5 {
		if x, err := s.Begin(ctx); x != nil || err == nil || errors.Is(err, ErrExhausted) || len(s.pins) > 0 {
			t.Fatalf("attempt %d: %v, and %d places are taken", n+1, err, len(s.pins))
		}
	}
}
