package order

import "fmt"

// condition is what the guard adds to the write's WHERE, with its arguments.
// It decides; judge only names the reason when it let nothing through.
func (c Claim) condition(g Guard) (string, []any) {
	switch g {
	case Guarded:
		return " AND status = 0", nil
	case FenceWrite:
		return " AND fence < ?", []any{c.Fence}
	case Fenced:
		// The second half leaves out the row that this very claim has written
		// already: a blind retry must not append to the ledger (F33).
		return " AND fence = ? AND NOT (status = 1 AND driver_id = ?)", []any{c.Fence, c.Driver}
	default:
		return "", nil
	}
}

// judge says whether the guard lets the claim write over the order as it
// stands, and if not, why.
func (c Claim) judge(o Order, g Guard) error {
	same := o.Status == Grabbed && o.Fence == c.Fence
	switch {
	case g == Naive, g == Guarded && o.Status == Open:
		return nil
	case g == Guarded:
		return ErrTaken
	case g == FenceWrite && o.Fence < c.Fence:
		return nil
	case g == FenceWrite && same:
		return ErrTaken
	case g == Fenced && o.Fence < c.Fence:
		return notWritten(fmt.Errorf("order: no read has raised the fence of order %d to %d", o.ID, c.Fence))
	case g == Fenced && same && o.Driver == c.Driver:
		return ErrTaken
	case g == Fenced && o.Fence == c.Fence:
		return nil
	default:
		return ErrStale
	}
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

func checkCount(count int) error {
	if count < 1 || count > MaxCreate {
		return fmt.Errorf("order: cannot open %d orders at once, only 1 to %d", count, MaxCreate)
	}
	return nil
}
