package lock

import (
	"grablab/internal/catalog"
	"grablab/internal/order"
)

// etcdFenced is the etcd lock with a fencing token that the database checks. The token is the
// create revision of the client's key. Each read of an order stores the token in the order's row.
//
// If A's lease expires just after A has checked it, B locks and reads with a higher token. The
// database then refuses A's write. If the work hangs, the lease is still renewed forever.
//
// The tokens decrease only if the etcd cluster loses all its data. The database then refuses the
// lower tokens, so no order is granted twice.
var etcdFenced = variant(etcd, Strategy{
	Name:   "etcd-fenced",
	Title:  "etcd with the create revision as fencing token, stored before the read",
	Source: "etcd: client/v3/concurrency; Kleppmann 2016",
	Guard:  order.Fenced,
	Claims: catalog.ClaimsOf("consensus").Fenced(),
	Breaks: []string{"F15"},
})
