package lock

import (
	"context"

	"grablab/internal/catalog"
)

// setnxNoTTL is SETNX and DEL. A locks and dies; the order cannot be grabbed any
// more (F3, internal/explore/testdata/F3.txt), nor when A's work hangs (F15), nor
// when its DEL does not arrive. Where nothing runs out, nothing outlives its lease:
// only a Redis that forgets the key lets two in, and then A's DEL frees B's lock (F5).
// A grant is good however late it comes, as in the article: there is no lease that
// could be over by then, so that this is no mistake here.
var setnxNoTTL = variant(setnx, Strategy{
	Name:   "setnx-nottl",
	Title:  "SETNX, no expiry, released by DEL",
	Source: "the source articles: SETNX",
	Claims: catalog.ClaimsOf("nottl"),
	Breaks: []string{"F3", "F5", "F15"},
	New:    redisKeyLock{set: setForever, unset: del, believesLate: true, endless: true}.New,
})

func setForever(ctx context.Context, l *redisKeyLease) (bool, error) {
	return l.env.Redis.SetNX(ctx, l.key, l.value, 0).Result()
}
