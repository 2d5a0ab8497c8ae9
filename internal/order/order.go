// Package order keeps what the drivers compete for: the orders, and the
// append-only ledger of grabs, which alone decides which driver won an order.
//
// Begin with Store. A grab reads an order and then claims it; a Guard is the
// condition under which the claim writes. A Store has three implementations that
// behave alike, as package storetest makes sure: MySQL for every number that is
// to be believed, SQLite for the first minute, and Mem for the explorer.
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
	// ErrNotFound says that no such order exists.
	ErrNotFound = errors.New("order: not found")
	// ErrTaken says that a claim wrote nothing, because a driver has the order.
	ErrTaken = errors.New("order: taken")
	// ErrLimit is an ErrTaken for a driver who has as many units of the order as
	// one may have.
	ErrLimit = fmt.Errorf("%w: the driver has as many units as one may have", ErrTaken)
	// ErrStale says that the database has seen a newer fencing token than the
	// one presented. Nothing was written: a near miss.
	ErrStale = errors.New("order: stale fencing token")
)

// Order is one row of orders.
type Order struct {
	ID     int64 `json:"order_id"`
	Status int   `json:"status"`
	// Driver is the winner that the row names: under the naive guard, the last
	// to write. 0 while the order is open.
	Driver int64 `gorm:"column:driver_id" json:"driver_id,omitempty"`
	// Fence is the highest fencing token that the row has seen.
	Fence uint64 `json:"fence"`
	// Units is how many of the item the order was opened with, and Stock how many are
	// left by its counter: below 0, it was sold too often. Both are 0 of an order of
	// one unit, whose status says whether it is left.
	Units int64 `json:"units,omitempty"`
	Stock int64 `json:"-"`
}

// Left is how many units the row says are left.
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

// Grab is one row of the ledger: one unit of an order. More of them than the order has
// units are double-grabs; no unique key prevents them, so that they are recorded as the
// fact that they are.
type Grab struct {
	ID       int64     `json:"grab_id"`
	Order    int64     `gorm:"column:order_id" json:"-"` // the order that shows it names it
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
	Token    string // unique to the attempt, so that its own row can be told from any other
	Fence    uint64 // fencing token of the lease; 0 where the lock has none

	// Of an order of several units: how many were left when it was read, which is at
	// least 1, and how many of them one driver may have; 0: 1. Of an order of one unit
	// Stock is 0.
	Stock     int64
	PerDriver int
}

// limit is how many units of an order the driver may have.
func (c Claim) limit() int { return max(c.PerDriver, 1) }

// Guard is the condition under which a claim writes.
type Guard string

// The guards, from the article's to the one that stops a paused holder. Of an order of
// several units, those that compare nothing but tokens write what was read less one.
const (
	// Naive writes by primary key alone, as the article does. What was read less one
	// may be what another driver has written meanwhile: a lost update.
	Naive Guard = "naive"
	// Guarded writes only while the order is open: takes one off where there is one.
	Guarded Guard = "guarded"
	// FenceWrite compares the token at the write alone. It looks fenced and is
	// not: a read that raises nothing protects blind writes only.
	FenceWrite Guard = "fence-write"
	// Fenced raises the row's token before the read and compares it at the write.
	Fenced Guard = "fenced"
	// Decrement takes one off the counter, whatever it says: no update is lost, and
	// nothing is refused. It looks at no driver's units either: it is for those who have
	// decided elsewhere. Of an order of one unit it is Naive.
	Decrement Guard = "decrement"
)

// Guards lists every guard.
var Guards = []Guard{Naive, Guarded, FenceWrite, Fenced, Decrement}

// GuardNames lists the names of all guards.
func GuardNames() []string {
	names := make([]string, len(Guards))
	for i, g := range Guards {
		names[i] = string(g)
	}
	return names
}

// ParseGuard finds a guard by its name. Its error lists all of them.
func ParseGuard(name string) (Guard, error) {
	if g := Guard(name); slices.Contains(Guards, g) {
		return g, nil
	}
	return "", fmt.Errorf("order: no guard %q; there are %s", name, strings.Join(GuardNames(), ", "))
}

// NeedsFence says whether the guard is meaningless without a fencing token.
func (g Guard) NeedsFence() bool { return g == FenceWrite || g == Fenced }

// LooksFirst says whether how many units the driver has is looked at when the order is
// read, and not in the transaction that writes: two requests of one driver may then both
// find that he has none.
func (g Guard) LooksFirst() bool { return g == Naive }

// absolute says whether the guard writes what was read less one.
func (g Guard) absolute() bool { return g != Decrement && g != Guarded }

// Shows is what the guard shows of an order that failed under it.
func (g Guard) Shows() catalog.Facts {
	if g == FenceWrite {
		return catalog.FenceAtWrite
	}
	return 0
}

// Rows is what a critical section does to an order.
type Rows interface {
	// Read returns the order as the primary has it now. With a fence other
	// than 0 it raises the row's fence to it and reads, in one transaction, and
	// answers ErrStale, with the order as it is, if the row has seen that token
	// or a newer one. ErrNotFound: no such order.
	Read(ctx context.Context, id int64, fence uint64) (Order, error)

	// Claim writes the winner and its ledger row in one transaction. nil: it
	// is written. ErrTaken and ErrStale: nothing is. Any other error: unknown,
	// unless it wraps ErrNotWritten. A claim whose commit was not answered is
	// looked for in the ledger first, for as long as LookAgain.
	Claim(ctx context.Context, c Claim, g Guard) error

	// Held is how many units of the order the driver has, by the ledger.
	Held(ctx context.Context, id, driver int64) (int, error)
}

// ErrNotWritten marks the error of a claim that surely wrote nothing.
var ErrNotWritten = errors.New("order: not written")

// Store keeps orders and the ledger. It is safe for concurrent use.
type Store interface {
	Rows

	// Create opens count fresh orders of one unit, with consecutive ids, and returns
	// the first.
	Create(ctx context.Context, count int) (first int64, err error)

	// CreateStock is Create for orders of so many units each.
	CreateStock(ctx context.Context, count, units int) (first int64, err error)

	// Ledger returns the ledger rows of count orders from first on, in the
	// order in which they were written.
	Ledger(ctx context.Context, first int64, count int) ([]Grab, error)

	// Begin pins one database session. ErrUnsupported, with a sentence, where
	// the database cannot do that faithfully. ErrExhausted: ctx was done before
	// one of those that may be pinned was free.
	Begin(ctx context.Context) (Tx, error)
}

// ErrUnsupported says that this database cannot do faithfully what is asked.
var ErrUnsupported = errors.New("order: not supported by this database")

// ErrExhausted says that as many sessions as may be were pinned all along.
var ErrExhausted = errors.New("order: every session is in use")

// Tx is one database session, for the locks that live in the database: what
// the session locked, and the read and the claim made over it, share its fate.
type Tx interface {
	Rows

	// LockRow locks the order's row (SELECT … FOR UPDATE) until the next Claim
	// over this session, whose commit lets go of it, or Close. It waits no
	// longer than wait, which databases round up to whole seconds, and answers
	// false if another session had it all along. ErrNotFound: no such order.
	LockRow(ctx context.Context, id int64, wait time.Duration) (bool, error)

	// LockName takes a named lock of the session (GET_LOCK), with the same
	// bound and the same answer as LockRow.
	LockName(ctx context.Context, name string, wait time.Duration) (bool, error)

	// Close releases every lock of the session and ends it. What was claimed
	// over it stays. An error says that the session had been lost, and with it
	// whatever it had locked.
	Close(ctx context.Context) error
}
