package lock

import (
	"grablab/internal/catalog"
	"grablab/internal/order"
)

// setnxFenceWrite is setnx-fenced as it is mostly drawn: the token is compared
// at the write and nowhere else. A reads an open order with token 1 and pauses;
// B reads it, open, with token 2; A writes, 0 < 1; B writes, 1 < 2 (F34,
// internal/explore/testdata/F34.txt). A read that raises nothing does not keep an
// older token from writing after it.
var setnxFenceWrite = variant(setnxFenced, Strategy{
	Name:   "setnx-fence-write",
	Title:  "setnx with a fencing token, compared at the write alone",
	Source: "Kleppmann 2016, as it is mostly retold",
	Guard:  order.FenceWrite,
	// A Redis that forgets the lock forgets the counter, too: the next holder
	// has the same token, and one of the two is refused.
	Claims: catalog.ClaimsOf("setnx"),
	InSearch: []SearchClaim{{
		Faults: []catalog.Fault{catalog.Failover}, As: catalog.NoFault,
		Why: "in a search, the replica lacks only the last token, so the next holder gets the same one and one of the two is refused; a counter that starts again is `redis-restart`",
	}},
	Breaks: []string{"F34"},
})
