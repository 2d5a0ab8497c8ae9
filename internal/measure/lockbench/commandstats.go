package lockbench

import (
	"context"
	"fmt"
	"regexp"
	"strconv"

	"grablab/internal/testbed/stack"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// commandStats counts the commands that the Redis servers run, including commands in scripts.
type commandStats []*redis.Client

// newCommandStats connects to a local stack's Redis servers. It counts nothing on external servers,
// because other programs may use them too.
func newCommandStats(st *stack.Stack) (s commandStats) {
	if st.Kind != stack.Local {
		return nil
	}
	for _, addr := range append([]string{st.Redis}, st.Redlock...) {
		if addr != "" {
			s = append(s, redis.NewClient(&redis.Options{
				Addr: addr, Protocol: 2, DisableIdentity: true, // avoid extra commands, because they would be counted
				MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
			}))
		}
	}
	return s
}

// calls returns how many commands the servers have run so far.
func (s commandStats) calls(ctx context.Context) (n uint64, err error) {
	for _, server := range s {
		text, err := server.Info(ctx, "commandstats").Result()
		if err != nil {
			return 0, fmt.Errorf("lockbench: %w", err)
		}
		n += parseCalls(text)
	}
	return n, nil
}

// cmdstat matches lines such as "cmdstat_get:calls=12,usec=34,…" in the INFO reply.
var cmdstat = regexp.MustCompile(`(?m)^cmdstat_(.+?):calls=(\d+)`)

// parseCalls adds up the calls of all commands except INFO, which only the benchmark itself sends.
func parseCalls(text string) (n uint64) {
	for _, line := range cmdstat.FindAllStringSubmatch(text, -1) {
		if c, err := strconv.ParseUint(line[2], 10, 64); err == nil && line[1] != "info" {
			n += c
		}
	}
	return n
}
