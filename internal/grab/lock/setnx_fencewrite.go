package lock

import (
	"grablab/internal/catalog"
	"grablab/internal/order"
)

// setnxFenceWrite is like setnx-fenced, but checks the fencing token only at the write. If two
// clients have read the order and the one with the older token writes first, both writes succeed.
var setnxFenceWrite = variant(setnxFenced, Strategy{
	Name:   "setnx-fence-write",
	Title:  "setnx with a fencing token, checked only by the write",
	Source: "Kleppmann 2016, as many articles repeat it",
	Guard:  order.FenceWrite,
	// If Redis loses its data, the token counter restarts, so the next holder may get the same
	// token as the last one. In that case, the database refuses one of their two writes.
	Claims: catalog.ClaimsOf("setnx"),
	InSearch: []SearchClaim{{
		Faults: []catalog.Fault{catalog.Failover}, As: catalog.NoFault,
		Why: "in a search, the replica lacks only the last token, so the next holder gets the same token again, and the database refuses one of the two writes. To test a counter that starts again from zero, search with the fault `redis-restart`",
	}},
	Breaks: []string{"F34"},
})
