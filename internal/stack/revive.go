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

// Revive starts a server of the local stack again, by its process's name, once
// that process has ended: at the same address and with what it had kept on
// disk. It returns once the server is ready.
func (s *Stack) Revive(ctx context.Context, name string) error {
	s.mu.Lock()
	r, ok := s.servers[name]
	s.mu.Unlock()
	if !ok {
		return fmt.Errorf("%w: the %s stack has started no server %q", ErrRefused, s.Kind, name)
	}
	_, err := s.serveAt(ctx, r.server, r.addr)
	return err
}
