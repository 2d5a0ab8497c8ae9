// Package sim runs a lock strategy step by step against simulated servers.
//
// The strategies and their clients are real, but the time and the servers are simulated. The gate
// blocks every remote call until the schedule lets the call continue, so the schedule determines
// the order of all calls.
//
// An actor is one attempt by one driver to grab the order. After each step, the oracle checks the
// properties. The reducer leaves out steps that only repeat the result of other schedules. At the
// end, the prober tries further grabs with fresh drivers.
//
// Start reading with New, Cluster.Execute and execution.run.
package sim
