package lab

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"grablab/internal/tap/redishook"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// TestKeysFollowTheServers changes the locks on two servers at random while some reads fail. After a round
// without failed reads, the page must show exactly the locks that the servers store. After a round with failed
// reads, it may lack some of them.
func TestKeysFollowTheServers(t *testing.T) {
	errRead := errors.New("told to fail")
	for seed := range uint64(12) {
		r := rand.New(rand.NewPCG(seed, 31))
		l := &Lab{state: labOf(3)}
		var servers []*miniredis.Miniredis
		fails := map[string]func(cmds []redis.Cmder) bool{}
		for _, name := range []string{"redis", "redlock-1"} {
			redisServer := miniredis.RunT(t)
			client := redis.NewClient(&redis.Options{Addr: redisServer.Addr(), Protocol: 2, DisableIdentity: true, MaxRetries: -1})
			t.Cleanup(func() { _ = client.Close() })
			client.AddHook(redishook.Hook(func(ctx context.Context, cmds []redis.Cmder, send func(context.Context) error) error {
				if f := fails[name]; f != nil && f(cmds) {
					return errRead
				}
				return send(ctx)
			}))
			servers = append(servers, redisServer)
			l.redis = append(l.redis, server{name: name, client: client})
		}
		for round := range 40 {
			stored := map[string]string{} // maps the server and name of each lock to its holder
			for i, server := range servers {
				for order := range 3 {
					name := fmt.Sprintf("grab:setnx:{%d}", order+1)
					switch r.IntN(6) {
					case 0:
						server.Del(name)
					case 1:
						server.Del(name)
						_ = server.Set(name, fmt.Sprint("token-", r.IntN(3)))
					case 2:
						server.Del(name)
						server.HSet(name, fmt.Sprint("token-", r.IntN(3)), "1")
					case 3:
						_ = server.Set(name+":fence", "7") // not a lock
					}
					if value, err := server.Get(name); err == nil {
						stored[l.redis[i].name+" "+name] = value
					} else if fields, err := server.HKeys(name); err == nil {
						stored[l.redis[i].name+" "+name] = fields[0]
					}
				}
			}
			anyFails := false
			for _, of := range l.redis {
				how := r.IntN(6)
				anyFails = anyFails || how < 4
				fails[of.name] = map[int]func([]redis.Cmder) bool{
					0: func([]redis.Cmder) bool { return true },
					1: func(cmds []redis.Cmder) bool { return cmds[0].Name() == "scan" },
					2: func(cmds []redis.Cmder) bool { return cmds[0].Name() != "scan" },
					3: func(cmds []redis.Cmder) bool { return cmds[0].Name() != "scan" && r.IntN(2) == 0 },
				}[how]
			}
			l.lookAtKeys(t.Context())
			if !anyFails && len(l.state.keys) != len(stored) {
				t.Fatalf("seed %d, round %d: the page lists %v, want %v", seed, round, l.state.keys, stored)
			}
			for _, k := range l.state.keys {
				if holder := stored[k.Server+" "+k.Name]; k.Value != holder {
					t.Fatalf("seed %d, round %d, failing reads %v: %+v, want the holder %q", seed, round, anyFails, k, holder)
				}
			}
		}
	}
}
