package lock

import (
	"grablab/internal/catalog"
	"grablab/internal/order"
)

// zooKeeperFenced is zookeeper whose token the database compares: the node's czxid,
// raised before the read. A's session expires, B locks and reads; A, which has looked
// at its lease a moment before, is refused (cures F29). Work that hangs still keeps
// the session (F15).
//
// The counter needs no raising: a czxid is the number of a transaction in the log of
// the whole ensemble, which a majority has on disk. It falls back only with all
// data of the ensemble, and then the row refuses it: no order is given twice.
var zooKeeperFenced = variant(zooKeeper, Strategy{
	Name:     "zookeeper-fenced",
	Title:    "zookeeper with the czxid as fencing token, raised before the read",
	Source:   "ZooKeeper: recipes and solutions; Kleppmann 2016",
	Guard:    order.Fenced,
	Claims:   catalog.ClaimsOf("consensus").Fenced(),
	InSearch: []SearchClaim{}, // its order is safe under a partition anyway
	Breaks:   []string{"F15"},
})
