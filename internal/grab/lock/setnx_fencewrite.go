package lock

import (
	"grablab/internal/catalog"
	"grablab/internal/order"
)

// setnxFenceWrite is setnx-fenced as most articles draw it: the token is compared only at
// the write. A reads an open order with token 1 and pauses. B reads it with token 2 while it
// is still open. A writes because 0 < 1, and B writes because 1 < 2 (F34,
// internal/explore/testdata/F34.txt). A read that does not raise the token cannot stop the
// write of an older token.
var setnxFenceWrite = variant(setnxFenced, Strategy{
	Name:   "setnx-fence-write",
	Title:  "setnx with a fencing token, compared at the write alone",
	Source: "Kleppmann 2016, as it is mostly retold",
	Guard:  order.FenceWrite,
	// A Redis that loses the lock loses the counter too. The next holder then
	// has the same token, and the database refuses one of the two.
	Claims: catalog.ClaimsOf("setnx"),
	InSearch: []SearchClaim{{
		Faults: []catalog.Fault{catalog.Failover}, As: catalog.NoFault,
		Why: "in a search, the replica lacks only the last token. The next holder gets the same token, and the database refuses one of the two. A counter that starts again is `redis-restart`",
	}},
	Breaks: []string{"F34"},
})
