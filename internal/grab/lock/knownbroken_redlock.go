package lock

import "github.com/go-redsync/redsync/v4"

// redlockSetOnExtend sets the key again where an extension does not find it. A's
// keys expire; B locks, works, unlocks; A's extension takes the lock anew and
// says that it was never lost (F24, internal/explore/testdata/F24.txt).
var redlockSetOnExtend = variant(redlock, Strategy{
	Name:   "redlock-set-on-extend",
	Title:  "redlock, setting the key again on extension",
	Breaks: []string{"F24"},
	New: func(env Env) (Locker, error) {
		return newRedlock(env, env.Redlock, redsync.WithSetNXOnExtend())
	},
})
