// Package sim executes one schedule of a strategy in a simulated world.
//
// The strategies and their clients are the real ones, called through the function
// that an instance runs. Simulated are the time, which passes only when a step
// lets it, and the servers, which are in this process (miniredis without a
// socket, order.Mem). Every remote call waits at a gate until a step lets it
// through, so the steps decide what happens.
//
// In comes a Setting and a search.Task, out goes a search.Trace: what was done,
// which other steps were enabled on the way, and which properties broke.
//
// An execution has a world, in which the actors and the servers are; a gate, at which
// remote calls wait; an oracle, which judges the properties; and a reducer, which decides
// what steps the search leaves out. Begin
// with New, Cluster.Execute and execution.step.
package sim
