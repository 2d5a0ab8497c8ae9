// Package sim runs a lock strategy step by step against simulated servers.
//
// The strategies and their clients are real, but time and servers are simulated. The gate blocks
// every remote call until the schedule releases the call, so the schedule determines the order of
// all calls.
//
// An actor is one attempt by one driver to grab the order. After each step, the oracle checks the
// properties. The reducer skips steps that only repeat other schedules' results. At the end, the
// prober tries more grabs with fresh drivers.
//
// Start reading at New, Cluster.Execute and execution.run.
package sim
