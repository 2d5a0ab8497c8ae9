package explore

import (
	"grablab/internal/catalog"
	"grablab/internal/explore/sim"
	"grablab/internal/order"
	"grablab/internal/schedule"
)

// faultOf is the fault that a step of each kind is.
var faultOf = map[schedule.Kind]catalog.Fault{
	schedule.Paused:       catalog.Pause,
	schedule.Dies:         catalog.Crash,
	schedule.InstanceDies: catalog.Crash,
	schedule.Cancelled:    catalog.Cancel,
	schedule.Restarts:     catalog.RedisRestart,
	schedule.Down:         catalog.RedisDown,
	schedule.ClientClock:  catalog.ClientClock,
	schedule.NodeClock:    catalog.NodeClock,
	schedule.ReplyLost:    catalog.ReplyLost,
	schedule.ReplyLate:    catalog.Latency,
	schedule.GivenUp:      catalog.Latency,
}

// modeOf is the failure mode by which steps break a property, "F11"; "": none
// that is known.
func modeOf(property string, set sim.Setting, steps []schedule.Step) string {
	facts := catalog.Facts{Property: property, Known: set.Strategy.Breaks, FenceWrite: set.Guard == order.FenceWrite}
	expired, restarts := false, 0
	for _, s := range steps {
		if facts.Fault == "" {
			facts.Fault = faultOf[s.Kind]
		}
		expired = expired || s.Kind == schedule.LeaseEnd
		if s.Kind == schedule.Restarts {
			restarts++
		}
	}
	switch {
	case restarts > 1:
		facts.Fault, facts.Repeated = catalog.RedisRestart, true
	case facts.Fault == "" && expired:
		facts.Fault = catalog.Slow
	}
	mode, _ := catalog.ModeOf(facts)
	return mode.ID
}
