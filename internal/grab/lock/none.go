package lock

import (
	"context"

	"grablab/internal/order"
)

// none is no lock at all: everybody is let in (F1). It is the control that
// every oracle must catch.
var none = Strategy{
	Name:       "none",
	Title:      "no lock: check, then act",
	Family:     "none",
	Source:     "the bug that all the others are about",
	Guard:      order.Naive,
	FixedGuard: true,
	Expect:     everywhere(Unsafe),
	Excludes:   Nobody,
	Breaks:     []string{"F1"},
	New:        func(env Env) (Locker, error) { return open{env.Token}, nil },
}

// mysqlCAS is no lock either, and the other control: UPDATE … WHERE id = ? AND
// status = 0, and the number of rows that it changed is the answer. A commit
// whose answer is lost would make the winner read "taken" when he asks again;
// the store looks for the claim by its token instead (F33).
var mysqlCAS = Strategy{
	Name:       "mysql-cas",
	Title:      "no lock: one guarded UPDATE decides",
	Family:     "database",
	Source:     "compare and set, by WHERE and affected rows",
	Needs:      SQL,
	Guard:      order.Guarded,
	FixedGuard: true,
	Excludes:   Nobody,
	Breaks:     []string{"F33"},
	New: func(env Env) (Locker, error) {
		if env.Orders == nil {
			return nil, errNoDatabase
		}
		return open{env.Token}, nil
	},
}

// everywhere expects v with and without every fault.
func everywhere(v Verdict) map[Fault]Verdict {
	all := make(map[Fault]Verdict, len(Faults))
	for _, f := range Faults {
		all[f] = v
	}
	return all
}

// open is a door without a lock. Its leases name the attempt and nothing more.
type open struct{ token func() string }

func (o open) Acquire(ctx context.Context, _ string) (Lease, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return pass(o.token()), nil
}

func (open) Close() error { return nil }

type pass string

func (p pass) Token() string               { return string(p) }
func (pass) Fence() uint64                 { return 0 }
func (pass) Lost() <-chan struct{}         { return nil }
func (pass) Release(context.Context) error { return nil }
