package bench

import (
	"context"
	"fmt"
	"net/http"
	"syscall"
	"time"

	"grablab/internal/instance"
	"grablab/internal/tap"
)

// player is an instance in a scene: it can be struck, and its grabs be held.
type player struct {
	fleet    *fleet
	n        int // in the fleet
	strategy string
}

func (p player) member() *member { return p.fleet.instances[p.n] }

func (p player) Name() string { return fmt.Sprintf("instance %d", p.n+1) }

func (p player) Signal(sig syscall.Signal) error { return p.member().proc.Signal(sig) }

// Restart implements fault.Instance.
func (p player) Restart(ctx context.Context) error {
	select {
	case <-p.member().proc.Done():
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := p.fleet.start(ctx, p.member()); err != nil {
		return err
	}
	return p.lab(ctx, http.MethodPut, "/strategy", map[string]string{"name": p.strategy}, nil)
}

// SetClock implements fault.Instance.
func (p player) SetClock(ctx context.Context, ahead time.Duration) error {
	return p.lab(ctx, http.MethodPut, "/lab/clock", instance.ClockSetting{AheadMS: millis(ahead)}, nil)
}

// trap sets a trap, in place of one of its name.
func (p player) trap(ctx context.Context, name string, what tap.Trap) error {
	return p.lab(ctx, http.MethodPut, "/lab/traps/"+name, what, nil)
}

// caught is whom a trap has caught once they are n, or once the time is up.
func (p player) caught(ctx context.Context, name string, n int, within time.Duration) ([]tap.Caught, error) {
	var catch instance.Catch
	path := fmt.Sprintf("/lab/traps/%s?n=%d&within=%s", name, n, within)
	err := p.lab(ctx, http.MethodGet, path, nil, &catch)
	return catch.Caught, err
}

// lift lets those go on whom a trap holds.
func (p player) lift(ctx context.Context, name string) error {
	return p.lab(ctx, http.MethodDelete, "/lab/traps/"+name, nil, nil)
}

func (p player) lab(ctx context.Context, method, path string, in, out any) error {
	if err := p.fleet.call(ctx, method, p.member().url+path, in, out); err != nil {
		return fmt.Errorf("bench: %s: %w", p.Name(), err)
	}
	return nil
}
