package sim

import (
	"sync"

	"grablab/internal/grab"
	"grablab/internal/order"
)

// world holds everything that can change during a schedule, such as the database, the instances and
// the actors.
type world struct {
	cluster *Cluster
	gate    *gate
	leases  *leaseBook

	db       *order.Mem
	actors   []*actor
	probe    *actor          // the actor for the prober's grabs at the end
	services []*grab.Service // all services started so far, to be closed at the end
	running  sync.WaitGroup  // counts the running grabs
	ended    chan struct{}   // closed when the schedule is over
	events   []event         // the history events of the last step; gate.mu guards them
}
