package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"grablab/internal/explore/schedule"
	"grablab/internal/order"
)

// storeOf returns a database client for one instance. Each of its calls blocks until the simulation
// releases it.
func (w *world) storeOf(inst *instance) order.Store {
	return order.Intercept(reachable{w.db, inst}, func(ctx context.Context, c *order.Call, send func(context.Context) error) error {
		text := func() string { return textOfCall(c) }
		err := w.gate.through(ctx, inst, &call{target: schedule.DB, text: text}, func(ctx context.Context) error {
			if c.Over != nil && !slices.Contains(inst.sessions, c.Over) {
				inst.sessions = append(inst.sessions, c.Over)
			}
			if c.Kind == order.ClaimCall {
				ctx = context.WithoutCancel(ctx) // a real database executes a received request even if the caller gives up
			}
			return send(ctx)
		})
		if c.Over != nil && err != nil && (ctx.Err() != nil || !errors.Is(err, c.Err)) {
			_ = c.Over.Close(context.WithoutCancel(ctx)) // like a real client, close a connection whose state is unknown
		}
		return err
	})
}

// textOfCall describes a database call and its result, for the reports.
func textOfCall(c *order.Call) string {
	switch c.Kind {
	case order.ReadCall:
		status := "open"
		if c.Order.Status != order.Open {
			status = fmt.Sprintf("grabbed by driver %d", c.Order.Driver)
		}
		if c.Order.Units > 0 {
			status = fmt.Sprintf("%d of %d left", c.Order.Stock, c.Order.Units)
		}
		return "read the order" + withFence(c.Fence) + ": " + status + withFence(c.Order.Fence) + refused(c.Err)
	case order.ClaimCall:
		what := fmt.Sprintf("write driver %d as the winner, %s", c.Claim.Driver, c.Guard)
		if c.Claim.Stock > 0 {
			what = fmt.Sprintf("sell a unit to driver %d, %s", c.Claim.Driver, c.Guard)
		}
		return what + withFence(c.Claim.Fence) + refused(c.Err)
	case order.HeldCall:
		return fmt.Sprintf("counts the units that the driver has: %d", c.Held) + refused(c.Err)
	case order.LockRowCall:
		return fmt.Sprintf("lock the row: %t", c.Locked)
	case order.LockNameCall:
		return fmt.Sprintf("lock the name %s: %t", c.Name, c.Locked)
	default:
		return "end the session"
	}
}

func withFence(fence uint64) string {
	if fence == 0 {
		return ""
	}
	return fmt.Sprintf(", fence %d", fence)
}

func refused(err error) string {
	if err == nil {
		return ""
	}
	return ": refused, " + strings.TrimPrefix(err.Error(), "order: ")
}

// reachable is a database that refuses new sessions while an instance is cut off from it.
type reachable struct {
	order.Store
	from *instance
}

func (r reachable) Begin(ctx context.Context) (order.Tx, error) {
	if r.from.cut[schedule.DB] && !r.from.world.gate.passes() {
		return nil, errDown
	}
	return r.Store.Begin(ctx)
}
