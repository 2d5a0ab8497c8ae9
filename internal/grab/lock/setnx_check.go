package lock

import (
	"context"

	"grablab/internal/catalog"
)

// setnxCheck asks Redis once more, immediately before the write, whether the
// lock is still its own. The answer is yes; the lease runs out; B locks, reads
// and writes; A writes (F37, internal/explore/testdata/F37.txt). The window is that
// of F11, narrower, and a pause, or a late answer, may be longer than any window.
//
// The article leaves all to that question, and asks nothing of a grant that comes
// late: two are inside then (F12), of whom the question keeps one from writing.
var setnxCheck = variant(setnx, Strategy{
	Name:   "setnx-check",
	Title:  "setnx, and asks once more before the write",
	Source: "the source articles: CHECK",
	// What comes before the last question is found by it: work that outlasts the
	// lease, a Redis that cannot be asked. A pause is aimed behind it.
	Claims: catalog.ClaimsOf("check"),
	Breaks: []string{"F12", "F37"},
	New: func(env Env) (Locker, error) {
		l, err := redisKeyLock{set: setPX, unset: compareAndDelete, believesLate: true}.locker(env)
		return checkLocker{l}, err
	},
})

type checkLocker struct{ *redisKeyLocker }

func (l checkLocker) Acquire(ctx context.Context, key string) (Lease, error) {
	lease, err := l.acquire(ctx, key)
	if err != nil {
		return nil, err
	}
	return checkLease{lease}, nil
}

type checkLease struct{ *redisKeyLease }

func (l checkLease) Check(ctx context.Context) error {
	return orLost(holds(ctx, l.env.Redis, l.redisKeyLease))
}
