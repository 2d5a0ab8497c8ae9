package lock_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/measure/stat"
	"grablab/internal/testbed/conformtest"

	"github.com/redis/go-redis/v9"
)

// BenchmarkClaims measures the figures for the claims about commands and scripts in
// docs/which-lock.md. It has no limit to pass.
func BenchmarkClaims(b *testing.B) {
	const rounds, ops = 41, 500
	client := conformtest.NewClient(conformtest.RedisServer(b))
	defer client.Close()
	env := conformtest.EnvOf(client)
	env.TTL = 30 * time.Second
	lease, err := start(b, "setnx-check", env).Acquire(b.Context(), "bench:{}")
	if err != nil {
		b.Fatal(err)
	}
	protected := strings.ReplaceAll(releaseLua, "redis.call", "redis.pcall")
	if protected == releaseLua {
		b.Fatal("the script has no redis.call")
	}
	release := func(run func(context.Context, string, []string, ...any) *redis.Cmd, script string) func(context.Context) error {
		return func(ctx context.Context) error { return run(ctx, script, []string{"free:{}"}, "a token").Err() }
	}
	load := func(script string) string {
		hash, err := client.ScriptLoad(b.Context(), script).Result()
		if err != nil {
			b.Fatal(err)
		}
		return hash
	}
	const ping, check, evalsha, eval, pcall = 0, 1, 2, 3, 4
	ways := []func(context.Context) error{
		ping:    func(ctx context.Context) error { return client.Ping(ctx).Err() },
		check:   lease.(lock.Checker).Check,
		evalsha: release(client.EvalSha, load(releaseLua)),
		eval:    release(client.Eval, releaseLua),
		pcall:   release(client.EvalSha, load(protected)),
	}
	for b.Loop() {
		took := make([][]float64, len(ways)) // µs
		for round := range rounds + 1 {      // the first round is a warm-up
			for _, w := range rand.Perm(len(ways)) {
				began := time.Now()
				for range ops {
					if err := ways[w](b.Context()); err != nil {
						b.Fatal(err)
					}
				}
				if round > 0 {
					took[w] = append(took[w], micros(time.Since(began))/ops)
				}
			}
		}
		b.Logf("CHECK: %.1f µs, in round trips %.3f over %d rounds of %d", stat.Median(took[check]).Median, stat.Ratio(took[check], took[ping]), rounds, ops)
		b.Logf("EVAL/EVALSHA: %.3f", stat.Ratio(took[eval], took[evalsha]))
		b.Logf("pcall/call: %.3f", stat.Ratio(took[pcall], took[evalsha]))
	}
}
