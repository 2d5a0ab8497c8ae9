// Package sim runs a lock strategy step by step against simulated servers.
//
// The strategies and their clients are real, but the time and the servers are simulated. Every remote
// call stops until the schedule lets it continue. Therefore the schedule decides the order of all
// calls.
//
// Start reading with New, Cluster.Execute and execution.run.
package sim
