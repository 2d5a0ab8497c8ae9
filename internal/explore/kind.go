package explore

import (
	"slices"

	"grablab/internal/catalog"
	"grablab/internal/explore/schedule"
)

// faultOf maps each kind of step to the fault that the step injects.
var faultOf = map[schedule.Kind]catalog.Fault{
	schedule.Paused:       catalog.Pause,
	schedule.Hangs:        catalog.Hang,
	schedule.Dies:         catalog.Crash,
	schedule.InstanceDies: catalog.Crash,
	schedule.Cancelled:    catalog.Cancel,
	schedule.Restarts:     catalog.RedisRestart,
	schedule.FailsOver:    catalog.Failover,
	schedule.Evicts:       catalog.RedisFull,
	schedule.Down:         catalog.RedisDown,
	schedule.CutOff:       catalog.Partition,
	schedule.ClientClock:  catalog.ClientClock,
	schedule.NodeClock:    catalog.NodeClock,
	schedule.ReplyLost:    catalog.ReplyLost,
	schedule.SentTwice:    catalog.SentTwice,
	schedule.ReplyLate:    catalog.Latency,
	schedule.GivenUp:      catalog.Latency,
	schedule.MessageLost:  catalog.MessageLost,
	schedule.MessageTwice: catalog.MessageLost,
	schedule.MessageLate:  catalog.MessageLost,
}

// faultsOfStep returns the faults that can produce a step, or nil for a step without a fault.
// Several faults may produce the same step. For example, a slow database looks like a partition.
func faultsOfStep(s schedule.Step) []catalog.Fault {
	switch {
	case s.Kind == schedule.LeaseEnd:
		return []catalog.Fault{catalog.Slow} // if no call could continue, the step costs nothing and is not a fault
	case s.Kind == schedule.CutOff && s.Target == schedule.DB:
		return []catalog.Fault{catalog.PartitionDB, catalog.SlowDB}
	case s.Kind == schedule.Restarts && s.Target == schedule.DB:
		return []catalog.Fault{catalog.DBRestart}
	case s.Kind == schedule.Restarts:
		return []catalog.Fault{catalog.RedisRestart, catalog.Amnesia}
	case faultOf[s.Kind] != "":
		return []catalog.Fault{faultOf[s.Kind]}
	default:
		return nil
	}
}

// faultsIn returns the enabled faults that can produce any of the steps.
func faultsIn(steps []schedule.Step, enabled []catalog.Fault) (faults []catalog.Fault) {
	for _, s := range steps {
		for _, f := range faultsOfStep(s) {
			if slices.Contains(enabled, f) && !slices.Contains(faults, f) {
				faults = append(faults, f)
			}
		}
	}
	return faults
}
