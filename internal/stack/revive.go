package stack

import (
	"context"
	"fmt"
)

// running is a server of the local stack, with what it takes to start it again.
type running struct {
	server
	addr string
}

func (s *Stack) runs(srv server, addr string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.servers == nil {
		s.servers = map[string]running{}
	}
	s.servers[srv.name] = running{srv, addr}
}

// program is what runs as a server of the local stack.
func (s *Stack) program(server string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.servers[server].exe
}

// Kill ends a server, by its name, as a loss of power does. It returns once the
// server is gone and its connections have ended; one that is gone already stays so.
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

// Revive starts a server again, by its name, once it has been killed: at the
// same address and with what it had kept on disk, which is nothing for a Redis.
// It returns once the server is ready.
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
	s.mu.Lock()
	r := s.servers[server]
	s.mu.Unlock()
	_, err = s.serveAt(ctx, r.server, r.addr)
	return err
}

// Restart kills a server and starts it again.
func (s *Stack) Restart(ctx context.Context, server string) error {
	if err := s.Kill(server); err != nil {
		return err
	}
	return s.Revive(ctx, server)
}
