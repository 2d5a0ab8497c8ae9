package replay

import (
	"context"
	"syscall"

	"grablab/internal/explore/schedule"
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
	t.killed[n] = true
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

func (t *attempt) restartServer(ctx context.Context, m move) (string, error) {
	return "killed, and started again empty", t.stack.Restart(ctx, m.Target)
}
