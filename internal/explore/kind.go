package explore

import (
	"grablab/internal/catalog"
	"grablab/internal/explore/schedule"
)

// faultOf maps each kind of step to the fault that it represents.
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
	schedule.ReplyLate:    catalog.Latency,
	schedule.GivenUp:      catalog.Latency,
	schedule.MessageLost:  catalog.MessageLost,
	schedule.MessageTwice: catalog.MessageLost,
	schedule.MessageLate:  catalog.MessageLost,
}
