package lock

import (
	"grablab/internal/catalog"
	"grablab/internal/order"
)

// setnxFenceWrite works like setnx-fenced, but compares the fencing token only at the write.
// Suppose that two clients read before either of them writes. If the client with the older token
// writes first, both writes succeed (F34, internal/explore/testdata/F34.txt).
var setnxFenceWrite = variant(setnxFenced, Strategy{
	Name:   "setnx-fence-write",
	Title:  "setnx with a fencing token, compared only at the write",
	Source: "Kleppmann 2016, as many articles retell it",
	Guard:  order.FenceWrite,
	// If Redis loses the lock, it also loses the counter of fencing tokens. The next holder then
	// gets the same token, so the database refuses one of the two writes.
	Claims: catalog.ClaimsOf("setnx"),
	InSearch: []SearchClaim{{
		Faults: []catalog.Fault{catalog.Failover}, As: catalog.NoFault,
		Why: "in a search, the replica lacks only the last token. The next holder gets the same token, and the database refuses one of the two. A counter that starts again is `redis-restart`",
	}},
	Breaks: []string{"F34"},
})
