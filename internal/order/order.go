// Package order stores what the drivers compete for: the orders and the append-only ledger
// of grabs. Only the ledger decides which driver won an order.
//
// Start reading at Store. A grab reads an order and then claims it. A Guard is the condition
// under which the claim writes. Store has three implementations, which pass the same tests:
// MySQL for every figure that you want to rely on, SQLite for the first minute, and Mem for the
// explorer.
package order

import (
	"context"
	"errors"
	"fmt"
	"grablab/internal/catalog"
	"slices"
	"strings"
	"time"
)

// Status of an order.
const (
	Open    = 0
	Grabbed = 1
)

var (
	// ErrNotFound means that the order does not exist.
	ErrNotFound = errors.New("order: not found")
	// ErrTaken means that a claim wrote nothing because a driver already has the order.
	ErrTaken = errors.New("order: taken")
	// ErrLimit is an ErrTaken for a driver who already has as many units of the order as
	// allowed.
	ErrLimit = fmt.Errorf("%w: the driver has as many units as one may have", ErrTaken)
	// ErrStale means that the database has seen a newer fencing token. Nothing was written,
	// so this is a near miss.
	ErrStale = errors.New("order: stale fencing token")
)

// Order is one row of orders.
type Order struct {
	ID     int64 `json:"order_id"`
	Status int   `json:"status"`
	// Driver is the winner that the row names. Under the naive guard that is the last driver
	// who wrote. It is 0 while the order is open.
	Driver int64 `gorm:"column:driver_id" json:"driver_id,omitempty"`
	// Fence is the highest fencing token that the row has seen.
	Fence uint64 `json:"fence"`
	// Units is the number of units with which the order was opened, and Stock the number
	// that is left according to the counter. A negative Stock means that too many were sold.
	// Both are 0 for an order of one unit, where the status says whether the unit is left.
	Units int64 `json:"units,omitempty"`
	Stock int64 `json:"-"`
}

// Left returns how many units are left according to the row.
func (o Order) Left() int64 {
	switch {
	case o.Units > 0:
		return o.Stock
	case o.Status == Open:
		return 1
	default:
		return 0
	}
}

// Grab is one row of the ledger, which stands for one unit of an order. If an order has more rows
// than units, the surplus rows are double-grabs. No unique key prevents them, because the ledger
// must record what really happened.
type Grab struct {
	ID       int64     `json:"grab_id"`
	Order    int64     `gorm:"column:order_id" json:"-"` // omitted, because the enclosing order names it
	Driver   int64     `gorm:"column:driver_id" json:"driver_id"`
	Instance string    `json:"instance"`
	Strategy string    `json:"strategy"`
	Token    string    `json:"token"`
	Fence    uint64    `json:"fence"`
	At       time.Time `gorm:"column:grabbed_at" json:"at"` // the database's clock, UTC
}

// Claim is one attempt to write a winner.
type Claim struct {
	Order    int64
	Driver   int64
	Instance string
	Strategy string
	Token    string // unique to the attempt, so that the claim can recognise its own row
	Fence    uint64 // fencing token of the lease; 0 if the lock has none

	// Stock is the number of units that were left when the order was read, at least 1. It is
	// 0 for an order of one unit. PerDriver is how many units one driver may have; 0 means
	// 1.
	Stock     int64
	PerDriver int
}

// limit returns how many units of the order the driver may have.
func (c Claim) limit() int { return max(c.PerDriver, 1) }

// Guard is the condition under which a claim writes.
type Guard string

// The guards, from the article's to the one that stops a paused holder. For an order of several
// units, a guard that compares only tokens writes the counter that was read, minus one.
const (
	// Naive writes by primary key alone, as in the source article. For an order of several units,
	// it writes the counter that was read, minus one. It may therefore overwrite another driver's
	// update.
	Naive Guard = "naive"
	// Guarded writes only while the order is open. For an order of several units, it decrements the
	// counter if a unit is left.
	Guarded Guard = "guarded"
	// FenceWrite compares the token only at the write. It looks fenced but is not: if the
	// read does not raise the fence, only blind writes are protected.
	FenceWrite Guard = "fence-write"
	// Fenced raises the row's token before the read and compares it at the write.
	Fenced Guard = "fenced"
	// Decrement decrements the counter without any condition, so it loses no update but also
	// refuses none. It does not check how many units the driver has, so it suits strategies that
	// have decided before. For an order of one unit, it equals Naive.
	Decrement Guard = "decrement"
	// Unique inserts the order into a table whose key allows one row for each order. If the
	// key is a duplicate, another driver has the order. It suits orders of one unit only.
	Unique Guard = "unique"
)

// Guards lists all guards.
var Guards = []Guard{Naive, Guarded, FenceWrite, Fenced, Decrement, Unique}

// GuardNames returns the names of all guards.
func GuardNames() []string {
	names := make([]string, len(Guards))
	for i, g := range Guards {
		names[i] = string(g)
	}
	return names
}

// ParseGuard finds a guard by its name. The error lists all names.
func ParseGuard(name string) (Guard, error) {
	if g := Guard(name); slices.Contains(Guards, g) {
		return g, nil
	}
	return "", fmt.Errorf("order: unknown guard %q: use one of %s", name, strings.Join(GuardNames(), ", "))
}

// NeedsFence reports whether the guard works only with a fencing token.
func (g Guard) NeedsFence() bool { return g == FenceWrite || g == Fenced }

// RefusesUnits says why the guard cannot sell an order of that many units, or returns "" if it can.
// Unique would need a key of order and unit, but one statement cannot know which unit is free.
func (g Guard) RefusesUnits(units int) string {
	if g != Unique || units <= 1 {
		return ""
	}
	return "the guard unique allows one row for each order, so it cannot sell several units"
}

// LooksFirst reports whether the driver's units are counted when the order is read instead of in
// the transaction that writes. Two requests of one driver may then both count no units.
func (g Guard) LooksFirst() bool { return g == Naive }

// absolute reports whether the guard writes the counter that was read, minus one.
func (g Guard) absolute() bool { return g != Decrement && g != Guarded }

// Shows returns the facts that follow from the guard if an order failed under it.
func (g Guard) Shows() catalog.Facts {
	if g == FenceWrite {
		return catalog.FenceAtWrite
	}
	return 0
}

// Rows are the operations of a critical section on an order.
type Rows interface {
	// Read returns the present order from the primary. If fence is not 0, Read raises the
	// row's fence and reads in one transaction. It returns ErrStale together with the order
	// if the row has seen this token or a newer one, and ErrNotFound if the order does not
	// exist.
	Read(ctx context.Context, id int64, fence uint64) (Order, error)

	// Claim writes the winner and its ledger row in one transaction. If it returns nil, the
	// claim is written. ErrTaken, ErrStale and errors that wrap ErrNotWritten mean that
	// nothing is. After any other error the outcome is unknown. If the answer to the commit
	// is lost, Claim first looks for its row in the ledger, for at most LookAgain.
	Claim(ctx context.Context, c Claim, g Guard) error

	// Held returns how many units of the order the driver has according to the ledger.
	Held(ctx context.Context, id, driver int64) (int, error)
}

// ErrNotWritten marks the error of a claim that certainly wrote nothing.
var ErrNotWritten = errors.New("order: not written")

// Store holds the orders and the ledger. It is safe for concurrent use.
type Store interface {
	Rows

	// Create opens count orders of one unit with consecutive ids, and returns the first id.
	Create(ctx context.Context, count int) (first int64, err error)

	// CreateStock opens count orders of the given number of units each, like Create.
	CreateStock(ctx context.Context, count, units int) (first int64, err error)

	// Ledger returns the ledger rows of count orders, starting with first, in the order in
	// which they were written.
	Ledger(ctx context.Context, first int64, count int) ([]Grab, error)

	// Begin reserves one database session. It returns ErrUnsupported if the database cannot
	// do so faithfully, and ErrExhausted if ctx ended before a session was free.
	Begin(ctx context.Context) (Tx, error)
}

// ErrUnsupported means that this database cannot do faithfully what was asked.
var ErrUnsupported = errors.New("order: not supported by this database")

// ErrExhausted means that all sessions were reserved for the whole wait.
var ErrExhausted = errors.New("order: every session is in use")

// Tx is one database session, for locks that live in the database. The locks of the session
// and the reads and claims made through it end together.
type Tx interface {
	Rows

	// LockRow locks the order's row (SELECT … FOR UPDATE) until the next Claim through this
	// session commits, or until Close. It waits at most wait, which databases round up to
	// whole seconds, and returns false if another session held the lock for that time. It
	// returns ErrNotFound if the order does not exist.
	LockRow(ctx context.Context, id int64, wait time.Duration) (bool, error)

	// LockName takes a named lock for the session (GET_LOCK). The wait and the result are as
	// for LockRow.
	LockName(ctx context.Context, name string, wait time.Duration) (bool, error)

	// Close releases all locks of the session and ends it. Committed claims remain. An error
	// means that the session, and every lock in it, was lost earlier.
	Close(ctx context.Context) error
}
