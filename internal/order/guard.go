package order

import (
	"fmt"
	"slices"
)

// condition is what the guard adds to the write's WHERE, with its arguments.
// It decides; judge only names the reason when it let nothing through.
func (c Claim) condition(g Guard) (string, []any) {
	switch g {
	case Guarded:
		if c.Stock > 0 {
			return " AND stock > 0", nil
		}
		return " AND status = 0", nil
	case FenceWrite:
		return " AND fence < ?", []any{c.Fence}
	case Fenced:
		if c.Stock > 0 {
			return " AND fence = ?", []any{c.Fence} // its own row is looked for in the ledger
		}
		// The second half leaves out the row that this very claim has written
		// already: a blind retry must not append to the ledger (F33).
		return " AND fence = ? AND NOT (status = 1 AND driver_id = ?)", []any{c.Fence, c.Driver}
	default:
		return "", nil
	}
}

// sold is what the write sets of an order's status and counter, with its arguments. The
// status comes first: MySQL computes it by the counter as it stands by then.
func (c Claim) sold(g Guard) (string, []any) {
	switch {
	case c.Stock == 0:
		return "status = ?", []any{Grabbed}
	case g.absolute():
		return "status = ?, stock = ?", []any{statusOf(c.Stock - 1), c.Stock - 1}
	default:
		return "status = CASE WHEN stock > 1 THEN 0 ELSE 1 END, stock = stock - 1", nil
	}
}

// statusOf is the status of an order of several units of which so many are left.
func statusOf(stock int64) int {
	if stock > 0 {
		return Open
	}
	return Grabbed
}

// sell is what sold does, to a row in memory.
func (o *Order) sell(c Claim, g Guard) {
	switch {
	case o.Units == 0:
		o.Status = Grabbed
		return
	case g.absolute():
		o.Stock = c.Stock - 1
	default:
		o.Stock--
	}
	o.Status = statusOf(o.Stock)
}

// judge says whether the guard lets the claim write over the order as it
// stands, and if not, why.
func (c Claim) judge(o Order, g Guard) error {
	same := o.Status == Grabbed && o.Fence == c.Fence
	switch {
	case g == Naive, g == Decrement, g == Guarded && o.Left() > 0:
		return nil
	case g == Guarded:
		return ErrTaken
	case g == FenceWrite && o.Fence < c.Fence:
		return nil
	case g == FenceWrite && same:
		return ErrTaken
	case g == Fenced && o.Fence < c.Fence:
		return notWritten(fmt.Errorf("order: no read has raised the fence of order %d to %d", o.ID, c.Fence))
	case g == Fenced && same && o.Driver == c.Driver && c.Stock == 0:
		return ErrTaken
	case g == Fenced && o.Fence == c.Fence:
		return nil
	default:
		return ErrStale
	}
}

// limits says whether the write looks at how many units the driver has.
func (c Claim) limits(g Guard) bool { return c.Stock > 0 && !g.LooksFirst() && g != Decrement }

// judgeLimit says whether the driver may have one more unit, given the ledger's rows of
// his. ErrTaken: one of them is this very claim's, which is a blind retry (F33).
func (c Claim) judgeLimit(his []Grab) error {
	if slices.ContainsFunc(his, func(g Grab) bool { return g.Token == c.Token }) {
		return ErrTaken
	}
	if len(his) >= c.limit() {
		return ErrLimit
	}
	return nil
}

// validate refuses a claim that no guard could judge.
func (c Claim) validate(g Guard) error {
	if _, err := ParseGuard(string(g)); err != nil {
		return notWritten(err)
	}
	if g.NeedsFence() && c.Fence == 0 {
		return notWritten(fmt.Errorf("order: guard %s needs a fencing token", g))
	}
	if len(c.Token) > maxToken {
		return notWritten(fmt.Errorf("order: a token of %d bytes, the ledger takes %d", len(c.Token), maxToken))
	}
	return nil
}

// maxToken is the ledger's column. A server that is not strict would cut a
// longer token short, and then lookAgain could not find it.
const maxToken = 255

// notWritten marks err as that of a claim which surely wrote nothing.
func notWritten(err error) error { return fmt.Errorf("%w: %w", ErrNotWritten, err) }

// MaxCreate is the most orders that one Create opens: one statement must hold
// them, within the 16 MiB that a server takes by default.
const MaxCreate = 500_000

// MaxStock is the most units of one order.
const MaxStock = 1_000_000

func checkCount(count, units int) error {
	if count < 1 || count > MaxCreate {
		return fmt.Errorf("order: cannot open %d orders at once, only 1 to %d", count, MaxCreate)
	}
	if units < 1 || units > MaxStock {
		return fmt.Errorf("order: cannot open an order of %d units, only of 1 to %d", units, MaxStock)
	}
	return nil
}
