package bench

import (
	_ "embed"
	"fmt"

	"grablab/internal/grab"
)

// RunSchema is the JSON Schema (draft 2020-12) of run.json.
//
//go:embed run.schema.json
var RunSchema string

// Disagreements says which sums of the cell do not come out, one sentence
// each. What could not be counted is not summed. A cell that has any is a
// mistake of the harness.
func (c Cell) Disagreements() []string {
	var wrong []string
	answered := 0
	for _, n := range c.Outcomes {
		answered += n
	}
	if answered != c.Requests {
		wrong = append(wrong, fmt.Sprintf("%d requests have %d outcomes", c.Requests, answered))
	}
	if c.Grabs != nil && c.PhantomGrabs != nil && c.UnacknowledgedGrabs != nil {
		told := c.Outcomes[grab.Grabbed]
		if told+*c.UnacknowledgedGrabs-*c.PhantomGrabs != *c.Grabs {
			wrong = append(wrong, fmt.Sprintf("%d grabbed + %d unacknowledged - %d phantom are not %d ledger rows",
				told, *c.UnacknowledgedGrabs, *c.PhantomGrabs, *c.Grabs))
		}
	}
	if c.Grabs != nil && c.OrdersGrabbed != nil && c.DoubleGrabs != nil && *c.OrdersGrabbed+*c.DoubleGrabs != *c.Grabs {
		wrong = append(wrong, fmt.Sprintf("%d orders grabbed + %d double-grabs are not %d ledger rows",
			*c.OrdersGrabbed, *c.DoubleGrabs, *c.Grabs))
	}
	return wrong
}
