// Package sim executes one schedule of a strategy in a simulated world.
//
// The strategies and their clients are the real ones, called through the function
// that an instance runs. Simulated are the time, which passes only when a step
// lets it, and the servers, which are in this process (miniredis without a
// socket, order.Mem). Every remote call waits at a gate until a step lets it
// through, so the steps decide what happens.
//
// In comes a Setting and a search.Task, out goes a search.Trace: what was done,
// which other steps were enabled on the way, and which properties broke. Begin
// with New, Cluster.Execute and execution.step.
package sim
