package lock

import (
	"context"

	"grablab/internal/catalog"
)

// setnxNoTTL uses SETNX and DEL without an expiry. If A locks and dies, the order can never be
// grabbed (F3, internal/explore/testdata/F3.txt). The same happens if A's work hangs (F15) or if
// A's DEL does not arrive.
//
// A lease never ends, so no holder can outlive its lease. Two clients can hold the lock only if
// Redis loses the key. A's DEL then deletes B's lock (F5). A late grant counts, as in the article.
// Here that is correct, because the lease cannot have ended in the meantime.
var setnxNoTTL = variant(setnx, Strategy{
	Name:     "setnx-nottl",
	Title:    "SETNX without an expiry, released by DEL",
	Source:   "the source articles: SETNX",
	Claims:   catalog.ClaimsOf("nottl"),
	Breaks:   []string{"F3", "F5", "F15"},
	InSearch: endlessIfSentTwice,
	New:      redisKeyLock{set: setForever, unset: del, believesLate: true, endless: true}.New,
})

func setForever(ctx context.Context, l *redisKeyLease) (bool, error) {
	return l.env.Redis.SetNX(ctx, l.key, l.value, 0).Result()
}

// endlessIfSentTwice describes how the explorer judges strategies that create a key without an
// expiry.
var endlessIfSentTwice = []SearchClaim{{
	[]catalog.Fault{catalog.SentTwice}, catalog.Crash,
	"the second request is refused because of the first one, so the lock stays behind without a lifetime",
}}
