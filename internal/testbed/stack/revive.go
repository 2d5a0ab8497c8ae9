package stack

import (
	"context"
	"fmt"
)

// started returns the description of a server of the local stack, which is needed to start the
// server again.
func (s *Stack) started(name string) server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.servers[name]
}

// Kill ends the named server as a loss of power would. It returns once the server has ended and
// its connections are closed. It does nothing if the server has already ended.
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

// Revive starts the named server again after Kill. The server gets the same address and the data
// that it had on disk, which is none for a Redis. Revive returns once the server is ready.
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
	_, err = s.serveAt(ctx, s.started(server), addr)
	return err
}

// Restart kills a server and starts it again.
func (s *Stack) Restart(ctx context.Context, server string) error {
	if err := s.Kill(server); err != nil {
		return err
	}
	return s.Revive(ctx, server)
}
