package ledger_test

import (
	"database/sql"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"grablab/internal/order"
	"grablab/internal/testbed/ledger"
	"grablab/internal/testbed/target"
)

// TestRowsOutOfPlace adds one row before, between or after two valid rows. Ledger must return an error
// if the row's order is outside the requested range, or if the order or the driver is NULL.
func TestRowsOutOfPlace(t *testing.T) {
	dsn, db := databases["sqlite"](t)
	db.SetMaxOpenConns(1)
	execute(t, db, "PRAGMA synchronous = OFF") // no one needs the file after a crash
	execute(t, db, "CREATE TABLE wins (n INTEGER, order_id INTEGER, driver_id INTEGER)")
	d, err := ledger.Open(t.Context(), dsn, "SELECT order_id, driver_id FROM wins WHERE ? <= ? ORDER BY n", nil) // this query returns every row
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	good := []order.Grab{{Order: 3, Driver: 1}, {Order: 5, Driver: 2}}
	for at := range 3 { // the number of valid rows before the added row
		for id := int64(0); id <= 8; id++ { // 0 stands for NULL
			for _, driver := range []int64{0, 7} {
				row := order.Grab{Order: id, Driver: driver}
				want := append(append(append([]order.Grab{}, good[:at]...), row), good[at:]...)
				var values []string
				for n, g := range want {
					values = append(values, fmt.Sprintf("(%d, NULLIF(%d, 0), NULLIF(%d, 0))", n, g.Order, g.Driver))
				}
				execute(t, db, "DELETE FROM wins; INSERT INTO wins VALUES "+strings.Join(values, ", "))
				got, err := d.Ledger(t.Context(), 3, 3)
				wrong := ""
				switch {
				case id == 0:
					wrong = "is NULL: leave out rows without an order"
				case driver == 0:
					wrong = "is NULL: leave out rows without a driver"
				case id < 3 || id > 5:
					wrong = fmt.Sprintf("the query returns order %d, although loadgen asked for 3 to 5", id)
				}
				if (err != nil) != (wrong != "") || err != nil && !strings.Contains(err.Error(), wrong) || err == nil && !reflect.DeepEqual(got, want) {
					t.Errorf("order %d, driver %d after %d rows: %+v, %v; want %q", id, driver, at, got, err, wrong)
				}
			}
		}
	}
}

// TestPaddedValues checks that spaces at the end of a value do not matter. PostgreSQL returns such spaces from a CHAR
// column that is wider than the value.
func TestPaddedValues(t *testing.T) {
	dsn, db := databases["sqlite"](t)
	execute(t, db, "CREATE TABLE wins (order_id TEXT, driver_id TEXT)")
	d, err := ledger.Open(t.Context(), dsn, "SELECT order_id, driver_id FROM wins WHERE ? <= ?", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	execute(t, db, "INSERT INTO wins VALUES ('3   ', 'driver-7  ')")
	got, err := d.Ledger(t.Context(), 3, 1)
	if want := []order.Grab{{Order: 3, Driver: 7}}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("Ledger returned %+v, %v; want %+v", got, err, want)
	}
}

// TestFailedRowFailsTheLedger makes the query fail at each of its rows in turn. Ledger must return an
// error, because the rows before the failure could lack a winner.
func TestFailedRowFailsTheLedger(t *testing.T) {
	dsn, db := databases["sqlite"](t)
	db.SetMaxOpenConns(1)
	execute(t, db, "PRAGMA synchronous = OFF") // no one needs the file after a crash
	execute(t, db, "CREATE TABLE wins (order_id INTEGER, driver_id INTEGER)")
	const rows = 5
	for n := range rows {
		execute(t, db, fmt.Sprintf("INSERT INTO wins VALUES (%d, %d)", n+11, n+1))
	}
	for bad := 1; bad <= rows+1; bad++ {
		overflow := fmt.Sprintf("CASE WHEN driver_id = %d THEN abs(-9223372036854775807 - 1) ELSE driver_id END", bad)
		d, err := ledger.Open(t.Context(), dsn, "SELECT order_id, "+overflow+" FROM wins WHERE order_id BETWEEN ? AND ?", nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := d.Ledger(t.Context(), 11, rows)
		if fails := bad <= rows; (err != nil) != fails || fails && !strings.Contains(err.Error(), "overflow") || !fails && len(got) != rows {
			t.Errorf("the query fails at row %d of %d: %d rows, %v", bad, rows, len(got), err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestEachOrderIsReadOnce checks that Ledger returns each winner in a range of orders exactly once,
// even if the range needs several queries.
func TestEachOrderIsReadOnce(t *testing.T) {
	dsn, db := databases["sqlite"](t)
	db.SetMaxOpenConns(1)
	execute(t, db, "PRAGMA synchronous = OFF") // no one needs the file after a crash
	execute(t, db, "CREATE TABLE wins (order_id INTEGER, driver_id INTEGER)")
	execute(t, db, "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1600) INSERT INTO wins SELECT i, i + 7 FROM n")
	for _, where := range []string{"order_id IN ({orders})", "order_id BETWEEN ? AND ?"} {
		d, err := ledger.Open(t.Context(), dsn, "SELECT order_id, driver_id FROM wins WHERE "+where+" ORDER BY order_id", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		for _, first := range []int64{1, 2, 500, 501} {
			for _, count := range []int{0, 1, 2, 499, 500, 501, 999, 1000, 1001} {
				var want []order.Grab
				for i := range int64(count) {
					want = append(want, order.Grab{Order: first + i, Driver: first + i + 7})
				}
				if got, err := d.Ledger(t.Context(), first, count); err != nil || !slices.Equal(got, want) {
					t.Errorf("%s: %d orders, beginning with %d: %d rows, %v", where, count, first, len(got), err)
				}
			}
		}
	}
}

// TestExecIsOneTransaction makes each of three statements fail in turn. The others must then have no
// effect.
func TestExecIsOneTransaction(t *testing.T) {
	dsn, db := databases["sqlite"](t)
	db.SetMaxOpenConns(1)
	execute(t, db, "PRAGMA synchronous = OFF") // no one needs the file after a crash
	execute(t, db, "CREATE TABLE orders (id INTEGER)")
	d, err := ledger.Open(t.Context(), dsn, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for fails := range 4 { // 3 means none
		execute(t, db, "DELETE FROM orders")
		statements := []string{"INSERT INTO orders VALUES (1)", "INSERT INTO orders VALUES (2)", "INSERT INTO orders VALUES (3)"}
		if fails < 3 {
			statements[fails] = "INSERT INTO nosuch VALUES (1)"
		}
		err := d.Exec(t.Context(), statements)
		var ids sql.NullString
		if scan := db.QueryRow("SELECT GROUP_CONCAT(id) FROM orders").Scan(&ids); scan != nil {
			t.Fatal(scan)
		}
		if want := map[bool]string{true: "1,2,3"}[fails == 3]; (err == nil) != (fails == 3) || ids.String != want {
			t.Errorf("statement %d fails: %v, and the table has %q", fails+1, err, ids.String)
		}
	}
}

// TestHintNeedsAList checks when the error for an unknown order explains how to convert a numeric
// column. This hint must not appear for a query without {orders}, because such a query compares no
// numbers with texts.
func TestHintNeedsAList(t *testing.T) {
	shape, _, err := target.Spec{Path: "/{order_uuid}"}.Compile()
	if err != nil {
		t.Fatal(err)
	}
	dsn, db := databases["sqlite"](t)
	execute(t, db, "CREATE TABLE wins (order_id, driver_id INTEGER)")
	for _, id := range []string{"6", "'six'"} {
		execute(t, db, "DELETE FROM wins; INSERT INTO wins VALUES ("+id+", 8)")
		for where, list := range map[string]bool{"1 = 1 OR '' IN ({orders})": true, "? <= ? OR 1 = 1": false} {
			_, err := ledger.Open(t.Context(), dsn, "SELECT order_id, driver_id FROM wins WHERE "+where, shape)
			if err == nil || strings.Contains(err.Error(), "numeric column") != (list && id == "6") {
				t.Errorf("order %s, WHERE %s: %v", id, where, err)
			}
		}
	}
}
