package lockbench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"grablab/internal/stack"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// commandStats asks the Redis servers how many commands they have run. Those
// that a script runs inside count there, and nowhere else.
type commandStats struct{ servers []*redis.Client }

// newCommandStats asks nobody where others may use the servers too.
func newCommandStats(st *stack.Stack) *commandStats {
	s := new(commandStats)
	if st.Kind != stack.Local {
		return s
	}
	for _, addr := range append([]string{st.Redis}, st.Redlock...) {
		if addr == "" {
			continue
		}
		s.servers = append(s.servers, redis.NewClient(&redis.Options{
			Addr: addr, Protocol: 2, DisableIdentity: true, // nothing that would count
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		}))
	}
	return s
}

// begin returns a function that tells how many commands have been run since. nil: nobody knows.
func (s *commandStats) begin(ctx context.Context) (func(context.Context) (*uint64, error), error) {
	before, err := s.calls(ctx)
	return func(ctx context.Context) (*uint64, error) {
		after, err := s.calls(ctx)
		if err != nil || len(s.servers) == 0 {
			return nil, err
		}
		return new(after - before), nil
	}, err
}

// calls sums up what the servers have run, our own questions apart.
func (s *commandStats) calls(ctx context.Context) (n uint64, err error) {
	for _, server := range s.servers {
		text, err := server.Info(ctx, "commandstats").Result()
		if err != nil {
			return 0, fmt.Errorf("lockbench: %w", err)
		}
		n += parseCalls(text)
	}
	return n, nil
}

// parseCalls adds up lines such as cmdstat_get:calls=12,usec=34,….
func parseCalls(text string) (n uint64) {
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, "cmdstat_")
		if !ok || strings.HasPrefix(rest, "info") {
			continue
		}
		_, calls, _ := strings.Cut(rest, "calls=")
		calls, _, _ = strings.Cut(calls, ",")
		c, _ := strconv.ParseUint(calls, 10, 64)
		n += c
	}
	return n
}

func (s *commandStats) close() error {
	var errs []error
	for _, server := range s.servers {
		errs = append(errs, server.Close())
	}
	return errors.Join(errs...)
}
