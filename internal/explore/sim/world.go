package sim

import (
	"sync"

	"grablab/internal/explore/search"
	"grablab/internal/grab"
	"grablab/internal/order"
)

// world holds everything that a schedule acts on: the database, the instances and their
// actors. The lock servers belong to the cluster, because they outlive the bubble.
type world struct {
	cluster *Cluster
	gate    *gate
	leases  *leaseBook

	db       *order.Mem
	dbState  search.Fingerprint // the fingerprint of db, or 0 if db has changed since
	actors   []*actor
	probe    *actor          // the driver of the prober
	services []*grab.Service // the services of all instances that were ever started
	running  sync.WaitGroup  // counts the grabs that run
	ended    chan struct{}   // closed when the schedule is over
	events   []event         // what the instances recorded in the last step, guarded by gate.mu
}
