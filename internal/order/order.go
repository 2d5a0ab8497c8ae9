// Package order stores the orders, for which drivers compete, and the append-only ledger, which
// records their grabs. Only the ledger decides which driver has won an order.
//
// Start reading at Store. A grab first reads an order, and then writes the winner. This write is
// called a claim, and a Guard is the condition under which the database accepts it.
//
// Store has three implementations, which pass the same tests. Use SQLite for a quick start, but
// MySQL for every figure that you want to rely on. Mem is for the explorer.
package order

import (
	"context"
	"errors"
	"fmt"
	"grablab/internal/catalog"
	"slices"
	"time"
)

// These are the possible statuses of an order.
const (
	Open    = 0
	Grabbed = 1
)

var (
	// ErrNotFound means that the order does not exist.
	ErrNotFound = errors.New("order: not found")
	// ErrTaken means that another driver already has the order.
	ErrTaken = errors.New("order: taken")
	// ErrLimit is a kind of ErrTaken. It means that the driver already has the maximum number of
	// units per driver.
	ErrLimit = fmt.Errorf("%w: the driver already has the maximum number of units", ErrTaken)
	// ErrStale means that the database refused the write, because it has already seen a newer
	// fencing token.
	ErrStale = errors.New("order: stale fencing token")
)

// Order is a row of the orders table. Drivers compete to grab it.
type Order struct {
	ID     int64 `json:"order_id"`
	Status int   `json:"status"`
	// Driver is the winner according to the row, or 0 if there is none. With the Naive guard, later
	// writers replace earlier ones.
	Driver int64 `gorm:"column:driver_id" json:"driver_id,omitempty"`
	// Fence is the highest fencing token that the row has seen.
	Fence uint64 `json:"fence"`
	// Units is the initial number of units, and Stock is how many are left by the counter. Stock is
	// negative if too many were sold. For an order with one unit, both are 0.
	Units int64 `json:"units,omitempty"`
	Stock int64 `json:"-"`
}

// Left returns how many units are left. If the order has only one unit, this depends on the status,
// and otherwise on the counter.
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

// Grab is a ledger row, which records the sale of one unit. If there are more rows than units, the
// excess rows are double-grabs. The ledger must record what really happened, so no unique key
// prevents double-grabs.
type Grab struct {
	ID       int64     `json:"grab_id"`
	Order    int64     `gorm:"column:order_id" json:"-"` // omitted, because the enclosing order has the ID
	Driver   int64     `gorm:"column:driver_id" json:"driver_id"`
	Instance string    `json:"instance"`
	Strategy string    `json:"strategy"`
	Token    string    `json:"token"`
	Fence    uint64    `json:"fence"`
	At       time.Time `gorm:"column:grabbed_at" json:"at"` // UTC, by the database's clock
}

// Claim is a driver's attempt to be recorded as an order's winner.
type Claim struct {
	Order    int64
	Driver   int64
	Instance string
	Strategy string
	Token    string // unique per attempt, so that the claim recognizes its own row
	Fence    uint64 // the lease's fencing token; 0 if the lock has none

	// Stock is how many units were left when the driver read the order, or 0 for an order with one
	// unit. PerDriver is the maximum number of units per driver, where 0 means 1.
	Stock     int64
	PerDriver int
}

func (c Claim) limit() int { return max(c.PerDriver, 1) }

// Guard selects how the database checks the write of a winner, so that it refuses a wrong one.
type Guard string

// These are the guards. If an order has several units, Naive, FenceWrite and Fenced set the counter
// to the value that the driver read, minus one. The other guards decrement it.
const (
	// Naive checks nothing, so the last writer wins. If an order has several units, one driver's
	// update may overwrite another's.
	Naive Guard = "naive"
	// Guarded allows a write only if the order is open, or if it has units left.
	Guarded Guard = "guarded"
	// FenceWrite compares the fencing token only at the write. This is unsafe, because a read with
	// a newer token does not stop a later write with an older token.
	FenceWrite Guard = "fence-write"
	// Fenced stores the fencing token at the read, and compares it at the write.
	Fenced Guard = "fenced"
	// Decrement decrements the counter unconditionally, and does not check the limit per driver
	// either. Use it for strategies that decide before the write which driver gets a unit. If
	// there is only one unit, it works like Naive.
	Decrement Guard = "decrement"
	// Unique inserts the order into a table with a unique key, so that only the first insert
	// succeeds. It supports only orders with one unit.
	Unique Guard = "unique"
)

// Guards lists all guards.
var Guards = []Guard{Naive, Guarded, FenceWrite, Fenced, Decrement, Unique}

// ParseGuard returns the guard with the given name, or an error that lists all names.
func ParseGuard(name string) (Guard, error) {
	if g := Guard(name); slices.Contains(Guards, g) {
		return g, nil
	}
	return "", fmt.Errorf("order: unknown guard %q: use one of %s", name, catalog.Join(Guards, ", ", func(g Guard) string { return string(g) }))
}

// NeedsFence reports whether the guard needs a fencing token.
func (g Guard) NeedsFence() bool { return g == FenceWrite || g == Fenced }

// RefusesUnits explains why the guard cannot sell this many units, or returns "" if it can.
func (g Guard) RefusesUnits(units int) string {
	if g != Unique || units <= 1 {
		return ""
	}
	return "the guard unique allows one row for each order, so it cannot sell several units"
}

// LooksFirst reports whether the grab checks the limit per driver after its read, because the write does
// not check it. If so, a driver's simultaneous requests can both pass the check.
func (g Guard) LooksFirst() bool { return g == Naive }

// setsCounter reports whether a write sets the unit counter to the value that was read, minus one.
// Otherwise, the database decrements the current value.
func (g Guard) setsCounter() bool { return g != Decrement && g != Guarded }

// Shows returns a fact that helps to find the cause of a failure, or 0 if the guard suggests none.
func (g Guard) Shows() catalog.Facts {
	if g == FenceWrite {
		return catalog.FenceAtWrite
	}
	return 0
}

// Rows contains the database operations that a driver needs while it holds an order's lock.
type Rows interface {
	// Read returns the order from the primary database. If fence is not 0, Read also stores this
	// token in the row. If the row has already seen this or a newer token, Read returns both the
	// order and ErrStale.
	Read(ctx context.Context, id int64, fence uint64) (Order, error)

	// Claim records the winner and adds a ledger row in one transaction. ErrTaken, ErrStale and
	// ErrNotWritten mean that nothing was written. After any other error, the result is unknown. If
	// the commit's reply is lost, Claim searches the ledger for its row for up to LookAgain.
	Claim(ctx context.Context, c Claim, g Guard) error

	// Held returns how many of the order's units the driver has.
	Held(ctx context.Context, id, driver int64) (int, error)
}

// ErrNotWritten means that a claim wrote nothing.
var ErrNotWritten = errors.New("order: not written")

// Store stores the orders and the ledger. It is safe for concurrent use.
type Store interface {
	Rows

	// Create inserts count orders with consecutive IDs and the given number of units each. It
	// returns the first ID. count must be from 1 to MaxCreate, and units from 1 to MaxStock.
	Create(ctx context.Context, count, units int) (first int64, err error)

	// Ledger returns the ledger rows of count orders, beginning with the order whose ID is first,
	// in the order in which the rows were written.
	Ledger(ctx context.Context, first int64, count int) ([]Grab, error)

	// Begin reserves a database session. It returns ErrUnsupported if the database has no sessions,
	// and ErrExhausted if none becomes free in time.
	Begin(ctx context.Context) (Tx, error)
}

// ErrUnsupported means that this database does not support the operation.
var ErrUnsupported = errors.New("order: this database does not support the operation")

// ErrExhausted means that no session became free in time.
var ErrExhausted = errors.New("order: all database sessions are in use")

// errSessionFence means that a session cannot store a fencing token.
var errSessionFence = fmt.Errorf("%w: locks in the database have no fencing tokens", ErrUnsupported)

// Tx is a database session for locks in the database. When the session ends, so do its locks, its
// reads and its uncommitted writes. These locks have no fencing tokens, so Read returns ErrUnsupported if
// fence is not 0.
type Tx interface {
	Rows

	// LockRow locks an order's row (SELECT … FOR UPDATE) until a Claim commits or the session is
	// closed. If the row is still locked by another session after wait, LockRow returns false.
	// Databases round wait up to whole seconds. Because a server that does not reply looks dead, wait
	// must be at most 10 s.
	LockRow(ctx context.Context, id int64, wait time.Duration) (bool, error)

	// LockName acquires a named lock (GET_LOCK). wait and the result are the same as for LockRow.
	LockName(ctx context.Context, name string, wait time.Duration) (bool, error)

	// Close ends the session and releases its locks. Committed claims stay. An error means that the
	// session was already lost.
	Close(ctx context.Context) error
}
