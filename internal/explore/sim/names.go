package sim

// Fault kinds, as -faults names them.
const (
	Expiry      = "expiry"       // a lease runs out while its holder's calls take their time
	Pause       = "pause"        // a process stops for as long as it likes
	Crash       = "crash"        // a process ends
	Cancel      = "cancel"       // a client hangs up
	Restart     = "restart"      // a lock server comes back empty
	Down        = "down"         // a lock server cannot be reached for a while
	ClientClock = "client-clock" // an instance's wall clock is off
	NodeClock   = "node-clock"   // a lock server's clock jumps
	LostReply   = "lost-reply"   // a call is carried out and its caller told of an error
	LateReply   = "late-reply"   // a call's reply, or the call itself, is late
)

// Faults lists every kind of fault.
var Faults = []string{Expiry, Pause, Crash, Cancel, Restart, Down, ClientClock, NodeClock, LostReply, LateReply}

// The properties, as -property names them.
const (
	OneWinner     = "one-winner"     // the ledger has one row at most
	LiveOverlap   = "live-overlap"   // no lease is granted while another runs that nobody has released
	LateHolder    = "late-holder"    // nobody writes after his lease while another is inside
	StaleWrite    = "stale-write"    // no write has an older token than one before it
	Fence         = "fence"          // tokens only grow
	Stuck         = "stuck"          // when all leases have run out, a fresh grab is answered
	Progress      = "progress"       // whoever waits for a lock that is free gets it soon
	PromptRelease = "prompt-release" // a lock that was released can be had at once
	LeftOver      = "left-over"      // nothing stays of a grab that has ended
	Told          = "told"           // a holder knows of his loss before another holds
)

// Properties lists every property that can be chosen, the one that matters first.
var Properties = []string{
	OneWinner, LiveOverlap, LateHolder, StaleWrite, Fence, Stuck, Progress, PromptRelease, LeftOver, Told,
}
