package lock

import (
	"grablab/internal/catalog"
	"grablab/internal/order"
)

// zooKeeperFenced is the ZooKeeper lock with a fencing token that the database checks. The token is
// the node's czxid, the number of the transaction that created it. Each read of an order stores the
// token in the order's row.
//
// If A's session expires just after A has checked it, B locks and reads with a higher token. The
// database then refuses A's write. If the work hangs, the session stays alive.
//
// The tokens decrease only if the ZooKeeper servers lose all their data. The database then refuses
// the lower tokens, so no order is granted twice.
var zooKeeperFenced = variant(zooKeeper, Strategy{
	Name:     "zookeeper-fenced",
	Title:    "zookeeper with the czxid as fencing token, stored before the read",
	Source:   "ZooKeeper: recipes and solutions; Kleppmann 2016",
	Guard:    order.Fenced,
	Claims:   catalog.ClaimsOf("consensus").Fenced(),
	InSearch: []SearchClaim{}, // drops the claim of zookeeper, because fencing tokens keep the orders safe
	Breaks:   []string{"F15"},
})
