package lock

import (
	"context"

	"grablab/internal/catalog"
)

// setnxNoTTL uses SETNX and DEL without an expiry. If a client dies, its work hangs or a DEL gets
// lost, the order stays locked forever.
//
// A lease never ends, so a late grant is valid. Two clients can hold the lock only if Redis loses
// the key. In that case, the first client's DEL also deletes the second client's lock.
var setnxNoTTL = variant(setnx, Strategy{
	Name:     "setnx-nottl",
	Title:    "SETNX without an expiry, released by DEL",
	Source:   "the source articles: SETNX",
	Claims:   catalog.ClaimsOf("nottl"),
	Breaks:   []string{"F3", "F5", "F15"},
	InSearch: endlessIfSentTwice,
	New:      redisKeyLock{set: setForever, unset: del, acceptsLate: true, endless: true}.New,
})

func setForever(ctx context.Context, l *redisKeyLease) (bool, error) {
	return l.env.Redis.SetNX(ctx, l.key, l.value, 0).Result()
}

// endlessIfSentTwice says what the explorer expects of a lock without an expiry if a request is
// sent twice.
var endlessIfSentTwice = []SearchClaim{{
	Faults: []catalog.Fault{catalog.SentTwice}, As: catalog.Crash,
	Why: "Redis refuses the second request because the first one has set the key, so the client gives up and the lock stays behind without an expiry",
}}
