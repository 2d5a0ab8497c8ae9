package check

import (
	"fmt"
	"slices"
)

var nothingStuck = Checker{
	Name:  "nothing-stuck",
	About: "after the load, every order still answers a fresh driver",
	Check: named("nothing-stuck", func(e Evidence) Verdict {
		switch {
		case len(e.Stuck) > 0: // also where some probes could not tell
			return fail(fmt.Sprintf("%s no fresh driver an answer, order %d among them",
				plural(len(e.Stuck), "order gives", "orders give"), slices.Min(e.Stuck)))
		case e.NoProbe != nil:
			return unknown(fmt.Sprintf("the orders could not be probed: %v", e.NoProbe))
		default:
			return pass("every order answered a fresh driver")
		}
	}),
}
