package check

import "slices"

func stuckOrder(e Evidence) Verdict {
	switch {
	case len(e.Stuck) > 0: // this decides the verdict even if other probes were inconclusive
		return fail("%s a new driver no answer; order %d is an example",
			Plural(len(e.Stuck), "order gives", "orders give"), slices.Min(e.Stuck))
	case e.NoProbe != nil:
		return unknown("the orders could not be probed: %v", e.NoProbe)
	default:
		return pass("every order gave a new driver an answer")
	}
}
