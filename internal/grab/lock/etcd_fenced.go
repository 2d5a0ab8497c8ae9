package lock

import (
	"grablab/internal/catalog"
	"grablab/internal/order"
)

// etcdFenced is etcd whose token the database compares: the key's create revision,
// raised before the read. A's lease runs out, B locks and reads; A, which has looked
// at its lease a moment before, is refused (cures F29). Work that hangs is still
// renewed for ever (F15).
//
// The counter needs no raising: a revision is that of the whole store, which a
// majority has on disk and a compaction keeps. It falls back only with all data
// of the cluster, and then the row refuses it: no order is given twice.
var etcdFenced = variant(etcd, Strategy{
	Name:   "etcd-fenced",
	Title:  "etcd with the create revision as fencing token, raised before the read",
	Source: "etcd: client/v3/concurrency; Kleppmann 2016",
	Guard:  order.Fenced,
	Claims: catalog.ClaimsOf("consensus").Fenced(),
	Breaks: []string{"F15"},
})
