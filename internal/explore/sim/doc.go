// Package sim runs a lock strategy step by step in a simulated world.
//
// The strategies and their clients are real, but time and the servers are simulated. Every remote
// call waits until a step lets it continue, so the steps decide the order of all calls.
//
// Start reading with New, Cluster.Execute and execution.run.
package sim
