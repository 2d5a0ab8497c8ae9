package explore

import (
	"grablab/internal/explore/search"
	"grablab/internal/explore/sim"
)

// Survives is looked at in any case: the strategy neither ends nor hangs its
// process.
const Survives = search.Survives

// The kinds of faults and the properties, as -faults and -property name them.
const (
	Expiry        = sim.Expiry
	Pause         = sim.Pause
	Crash         = sim.Crash
	Cancel        = sim.Cancel
	Restart       = sim.Restart
	Down          = sim.Down
	ClientClock   = sim.ClientClock
	NodeClock     = sim.NodeClock
	LostReply     = sim.LostReply
	LateReply     = sim.LateReply
	OneWinner     = sim.OneWinner
	LiveOverlap   = sim.LiveOverlap
	LateHolder    = sim.LateHolder
	StaleWrite    = sim.StaleWrite
	Fence         = sim.Fence
	Stuck         = sim.Stuck
	Progress      = sim.Progress
	PromptRelease = sim.PromptRelease
	LeftOver      = sim.LeftOver
	Told          = sim.Told
)

// Faults lists every kind of fault; Properties every property that can be chosen,
// the one that matters first.
var (
	Faults     = sim.Faults
	Properties = sim.Properties
)
