package catalog

import "slices"

// Facts are what is known of a failure.
type Facts struct {
	Property string   // that is broken: a name of [Properties]
	Fault    Fault    // that struck first; [NoFault] or "": none did
	Repeated bool     // a lock server was restarted more than once
	Known    []string // the modes that the strategy is known to break by
	// FenceWrite: the winner was written under the guard that compares a fencing
	// token at the write alone.
	FenceWrite bool
	// FreedAnother: a release freed the lock of another holder.
	FreedAnother bool
}

// inference is one line of the table that goes from facts to a failure mode. It
// fits where all that it names does.
type inference struct {
	properties   []string // one of them is broken; nil: any
	faults       []Fault  // one of them struck; nil: any, or none
	repeated     bool
	freedAnother bool

	known     []string // the first of these that the strategy is known to break by
	otherwise string   // the mode if none of them is; "": go on to the next line
}

// Groups that stand in many lines.
var (
	exclusion = []string{OneWinner, HoldersExclusive}
	exclusive = []string{OneWinner, HoldersExclusive, LeaseExclusive}
	pauses    = []Fault{Slow, Pause, Hang} // they stop a renewal too
	cutOff    = []Fault{Partition, PartitionDB}
	restarts  = []Fault{RedisRestart, RedisRestartMost, Failover}
)

// inferences are gone through in order; the first that fits and has an answer decides.
var inferences = []inference{
	{freedAnother: true, known: []string{"F5", "F6", "F35", "F36"}},
	// Without a lock that reaches across processes, no fault is needed.
	{properties: exclusion, known: []string{"F1", "F2"}},
	{properties: exclusion, faults: []Fault{DBRestart}, known: []string{"F32", "F33"}},
	{properties: exclusion, known: []string{"F31"}}, // two drivers of one process are enough
	{properties: []string{OneWinner}, faults: []Fault{Cancel}, known: []string{"F5", "F6", "F35", "F36"}, otherwise: "F5"},
	{properties: []string{OneWinner}, faults: []Fault{ReplyLost}, otherwise: "F33"},
	{properties: exclusive, faults: []Fault{LateRelease}, known: []string{"F5", "F6", "F35", "F36"}, otherwise: "F11"},
	{properties: exclusion, faults: []Fault{NodeClock}, known: []string{"F34", "F37"}},
	{properties: exclusion, faults: pauses, known: []string{"F34", "F37", "F26", "F29"}, otherwise: "F11"},
	{properties: exclusion, faults: cutOff, known: []string{"F34", "F37", "F26", "F29", "F13"}, otherwise: "F11"},
	{properties: exclusion, faults: []Fault{SlowDB}, known: []string{"F34", "F37", "F26"}, otherwise: "F40"},
	// Who asks once more is stopped after a late grant, and not by a late answer.
	{properties: []string{OneWinner, WriteAfterExpiry}, faults: []Fault{Latency}, known: []string{"F37"}},
	{properties: []string{OneWinner, HoldersExclusive, WriteAfterExpiry}, faults: []Fault{Latency}, otherwise: "F12"},
	{properties: exclusion, faults: []Fault{Amnesia}, otherwise: "F18"},
	{properties: []string{LeaseExclusive}, faults: []Fault{Slow, Pause}, known: []string{"F5", "F6", "F7", "F35", "F36"}, otherwise: "F5"},
	{properties: []string{LeaseExclusive}, faults: []Fault{Crash}, otherwise: "F7"},
	{properties: exclusive, faults: []Fault{ClientClock}, otherwise: "F9"},
	{properties: exclusive, faults: []Fault{NodeClock}, otherwise: "F19"},
	{properties: exclusive, faults: restarts, repeated: true, known: []string{"F21", "F17", "F24"}, otherwise: "F21"},
	{properties: exclusive, faults: restarts, known: []string{"F20", "F18", "F24"}, otherwise: "F17"},
	{properties: exclusive, faults: []Fault{RedisFull}, known: []string{"F20"}, otherwise: "F38"},
	{properties: exclusive, faults: []Fault{FailoverSplit}, known: []string{"F20"}, otherwise: "F39"},
	{properties: []string{WriteAfterExpiry}, faults: []Fault{Slow, Pause}, known: []string{"F34", "F37"}, otherwise: "F11"},
	{properties: []string{StaleWrite}, faults: []Fault{Slow, Pause}, otherwise: "F11"},
	{properties: []string{FenceMonotone}, faults: []Fault{Slow, Pause}, otherwise: "F26"},
	{properties: []string{FenceMonotone}, faults: []Fault{RedisRestart}, otherwise: "F27"},
	{properties: []string{StuckOrder}, faults: []Fault{Hang}, otherwise: "F15"},
	{properties: []string{StuckOrder}, faults: []Fault{ReplyLost}, otherwise: "F25"},
	{properties: []string{StuckOrder}, faults: []Fault{Cancel}, known: []string{"F14"}, otherwise: "F22"},
	{properties: []string{StuckOrder}, known: []string{"F3", "F4", "F31"}},
	{properties: []string{StuckOrder}, faults: []Fault{Latency}, known: []string{"F14"}},
	{properties: []string{NoLostWakeup}, faults: []Fault{NoFault}, otherwise: "F16"},
	{properties: []string{ReleaseEffective}, faults: []Fault{Slow, Pause, Crash}, otherwise: "F10"},
	{properties: []string{NoResidue}, faults: []Fault{Cancel}, otherwise: "F22"},
	{properties: []string{NoResidue}, faults: []Fault{ReplyLost}, otherwise: "F25"},
	{properties: []string{NoResidue}, faults: []Fault{Slow, Pause, Crash}, otherwise: "F8"},
	{properties: []string{LossNotified}, faults: []Fault{Slow}, otherwise: "F13"},
	{properties: []string{LossNotified}, faults: []Fault{RedisRestart}, known: []string{"F24"}, otherwise: "F17"},
}

// ModeOf infers the failure mode that explains the facts; false where none of
// those that are known does.
func ModeOf(f Facts) (Mode, bool) {
	if f.Fault == "" {
		f.Fault = NoFault
	}
	for _, line := range inferences {
		if line.fits(f) {
			if m, ok := FindMode(line.answer(f)); ok {
				return m, true
			}
		}
	}
	return Mode{}, false
}

func (i inference) fits(f Facts) bool {
	return (i.properties == nil || slices.Contains(i.properties, f.Property)) &&
		(i.faults == nil || slices.Contains(i.faults, f.Fault)) &&
		(f.Repeated || !i.repeated) && (f.FreedAnother || !i.freedAnother)
}

// answer is the mode that the line infers; "": none. The guard alone makes a
// strategy one that breaks by F34.
func (i inference) answer(f Facts) string {
	for _, id := range i.known {
		if slices.Contains(f.Known, id) || id == "F34" && f.FenceWrite {
			return id
		}
	}
	return i.otherwise
}
