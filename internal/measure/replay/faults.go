package replay

import (
	"context"
	"fmt"
	"slices"
	"syscall"

	"grablab/internal/explore/schedule"
	"grablab/internal/service/control"
	"grablab/internal/tap"
	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/wait"
)

// pause stops an actor's process. If other actors need the process, it stops only the actor's
// calls.
func (t *attempt) pause(_ context.Context, m move) (string, error) {
	p := m.actor
	for _, s := range t.Schedule.Steps[m.index+1:] {
		if s.Kind == schedule.Resumes && s.Actor == p.Actor.Name {
			break
		}
		if other := t.actors.named(s.Actor); other != nil && other != p && other.Instance == p.Instance || s.Instance == p.Instance {
			return "its calls stay blocked, because other actors continue in its process", nil
		}
	}
	p.stopped = true
	return "SIGSTOP", p.in.Signal(syscall.SIGSTOP)
}

func (t *attempt) resume(_ context.Context, m move) (string, error) {
	if !m.actor.stopped {
		return "", nil
	}
	m.actor.stopped = false
	return "SIGCONT", m.actor.in.Signal(syscall.SIGCONT)
}

// cancel closes the actor's client connection, and waits until the instance has noticed.
func (t *attempt) cancel(ctx context.Context, m move) (string, error) {
	p := m.actor
	p.hangUp()
	knows, err := wait.Until(ctx, pollInterval, arrivalTimeout, func() (bool, error) {
		held, err := t.held(ctx, p)
		return !slices.ContainsFunc(held, func(c control.Held) bool { // writes and releases always complete
			return c.Driver == p.driver && !c.Cancelled && (c.Phase == tap.Acquire || c.Phase == tap.Read)
		}), err
	})
	if err == nil && !knows {
		err = fmt.Errorf("%w: the instance did not notice that %s's client hung up", ErrTooSlow, p.Actor.Name)
	}
	return "its client hung up", err
}

// kill kills an instance's process, and with it all of its actors. If the step names an actor, but
// the process has another active actor, kill returns an error.
func (t *attempt) kill(_ context.Context, m move) (string, error) {
	n := m.Instance
	if m.actor != nil {
		n = m.actor.Instance
	}
	here := t.actors.on(n)
	for _, p := range here {
		if p.begun && !p.hasEnded() {
			if m.actor != nil && p != m.actor {
				return "", t.cannot(m.index, "%s is in progress in the same process", p.Actor.Name)
			}
			p.dead = true
		}
	}
	if err := here[0].in.Signal(syscall.SIGKILL); err != nil {
		return "", err
	}
	t.ahead[n], t.killed[n] = 0, true
	return "SIGKILL", nil
}

// restart starts instance n again if it was killed. Call it when a step needs the instance.
func (t *attempt) restart(ctx context.Context, n int) error {
	if !t.killed[n] {
		return nil
	}
	delete(t.killed, n)
	if err := t.fleet.Instances[n-1].Restart(ctx); err != nil {
		return err
	}
	return t.hold(ctx, n)
}

// takeDown makes a server unreachable for all clients, but keeps its data.
func (t *attempt) takeDown(_ context.Context, m move) (string, error) {
	if t.down[m.Target] != nil {
		return "was down already", nil
	}
	heal, err := t.routes[m.Target].Each((*stack.Route).Refuse)
	if err != nil {
		return "", err
	}
	t.down[m.Target] = heal
	return "no client can reach it", nil
}

func (t *attempt) bringUp(_ context.Context, m move) (string, error) {
	heal := t.down[m.Target]
	delete(t.down, m.Target)
	if heal == nil {
		return "was up already", nil
	}
	return "clients can reach it again", heal()
}

// setClock changes the wall clock that an instance's strategies see.
func (t *attempt) setClock(ctx context.Context, m move) (string, error) {
	if err := t.restart(ctx, m.Instance); err != nil {
		return "", err
	}
	t.ahead[m.Instance] += m.Duration
	return "as its strategies see it", t.fleet.Instances[m.Instance-1].SetClock(ctx, t.ahead[m.Instance])
}

func (t *attempt) restartServer(ctx context.Context, m move) (string, error) {
	return "killed, and started again empty", t.stack.Restart(ctx, m.Target)
}

// jump changes a server's clock.
func (t *attempt) jump(ctx context.Context, m move) (string, error) {
	t.leases.moveExpiries(m.Target, m.Duration, t.clock())
	return "all expiries on this server have moved", t.stack.Jump(ctx, m.Target, m.Duration)
}
