package explore

import (
	"slices"

	"grablab/internal/catalog"
	"grablab/internal/explore/schedule"
)

// faultsOfStep returns the faults that can produce a step. It returns an empty name for a step that
// is no fault. Several faults may produce the same step. For example, a slow database looks like a partition.
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
	default:
		return []catalog.Fault{s.Kind.Fault()}
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
