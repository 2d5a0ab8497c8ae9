// Package sim executes one schedule, which is a sequence of steps, of a lock strategy in a
// simulated world.
//
// The strategies and their clients are real, and they grab an order through the same code as a real
// instance. Only time and the servers are simulated. Time passes only in steps that say so, and the
// servers run in this process (miniredis without a socket, order.Mem).
//
// Every remote call waits at a gate until a step lets it through. The steps therefore decide the
// order of all calls.
//
// The input is a Setting and a search.Task. The output is a search.Trace: the steps that were made,
// the other steps that were possible on the way, and the properties that were violated.
//
// An execution consists of four parts. The world holds the actors and the database, and remote
// calls wait at the gate. The oracle checks the properties, and the reducer leaves out redundant
// steps. Begin reading with New, Cluster.Execute and execution.run.
package sim
