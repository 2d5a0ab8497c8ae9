// Package sim executes one schedule of a strategy in a simulated world.
//
// The strategies and their clients are real, and grab through the same function as a real
// instance. Only the time and the servers are simulated. Time passes only when a step lets
// it. The servers run in this process (miniredis without a socket, order.Mem).
//
// Every remote call waits at a gate until a step lets it through. The steps therefore decide
// what happens.
//
// The input is a Setting and a search.Task. The output is a search.Trace: the steps made,
// the other steps that were enabled on the way, and the properties that broke.
//
// An execution consists of four parts. The world holds the actors and the database, and
// remote calls wait at the gate. The oracle judges the properties, and the reducer leaves
// out redundant steps. Begin reading with New, Cluster.Execute and execution.run.
package sim
