package lock

import (
	"grablab/internal/catalog"
	"grablab/internal/order"
)

// etcdFenced is etcd with a fencing token that the database checks. The token is the key's create
// revision. Each read of the order stores the token in the database.
//
// Suppose that A's lease expires, and B locks and reads. A checked its lease just before, but the
// database refuses A's write (cures F29). The lease is still renewed forever if the work hangs
// (F15).
//
// The strategy never has to raise a counter. A revision belongs to the whole store. A majority of
// the servers has the revision on disk, and a compaction keeps it. The revision decreases only if
// the cluster loses all its data. The row then refuses the lower token, so no order is granted
// twice.
var etcdFenced = variant(etcd, Strategy{
	Name:   "etcd-fenced",
	Title:  "etcd with the create revision as fencing token, raised before the read",
	Source: "etcd: client/v3/concurrency; Kleppmann 2016",
	Guard:  order.Fenced,
	Claims: catalog.ClaimsOf("consensus").Fenced(),
	Breaks: []string{"F15"},
})
