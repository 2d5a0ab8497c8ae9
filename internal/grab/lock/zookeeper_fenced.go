package lock

import (
	"grablab/internal/catalog"
	"grablab/internal/order"
)

// zooKeeperFenced is zookeeper with a fencing token that the database checks. The token is the
// node's czxid. Each read of the order stores the token in the database.
//
// Suppose that A's session expires, and B locks and reads. A checked its lease just before, but the
// database refuses A's write (cures F29). Work that hangs still keeps the session alive (F15).
//
// The strategy never has to raise a counter. A czxid is the number of a transaction in the log of
// the whole ensemble, and a majority of the servers has that log on disk. The czxid decreases only
// if the ensemble loses all its data. The row then refuses the lower token, so no order is granted
// twice.
var zooKeeperFenced = variant(zooKeeper, Strategy{
	Name:     "zookeeper-fenced",
	Title:    "zookeeper with the czxid as fencing token, raised before the read",
	Source:   "ZooKeeper: recipes and solutions; Kleppmann 2016",
	Guard:    order.Fenced,
	Claims:   catalog.ClaimsOf("consensus").Fenced(),
	InSearch: []SearchClaim{}, // none, because in a search the orders are safe under a partition
	Breaks:   []string{"F15"},
})
