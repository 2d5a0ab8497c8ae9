package stack

import (
	"context"
	"fmt"
)

// startedServer returns how a server was started, so that it can be started again in the same way.
func (s *Stack) startedServer(name string) server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.servers[name]
}

// Kill kills a server, as a power failure would, and waits until its connections are closed.
func (s *Stack) Kill(server string) error {
	if _, err := s.address(server); err != nil {
		return err
	}
	if mini := s.mini(server); mini != nil {
		mini.Close()
		return nil
	}
	return s.Process(server).Stop(0)
}

// Revive restarts a killed server at its old address and waits until it is ready. A database keeps
// its data on disk, but a Redis server starts empty.
func (s *Stack) Revive(ctx context.Context, server string) error {
	addr, err := s.address(server)
	if err != nil {
		return err
	}
	if s.Kind == Embedded {
		if _, err := s.serveMini(server, addr); err != nil {
			return fmt.Errorf("stack: %s: %w", server, err)
		}
		return nil
	}
	_, err = s.serveAt(ctx, s.startedServer(server), addr)
	return err
}

// Restart kills a server and starts it again.
func (s *Stack) Restart(ctx context.Context, server string) error {
	if err := s.Kill(server); err != nil {
		return err
	}
	return s.Revive(ctx, server)
}
