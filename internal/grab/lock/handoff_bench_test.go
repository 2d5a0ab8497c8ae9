package lock_test

import (
	"cmp"
	"context"
	crand "crypto/rand"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/grab/lock/conformtest"

	"github.com/redis/go-redis/v9"
)

// rounds of a comparison. The ratios within each round are what is reported:
// their median, and an interval that holds the true median with 95 %.
const benchRounds = 21

// ratios reports the median of rs as unit, with its interval: for 21 values
// the 6th and the 16th, by the binomial distribution.
func ratios(b *testing.B, unit string, rs []float64) {
	slices.Sort(rs)
	n := len(rs)
	d := int(math.Ceil(0.98 * math.Sqrt(float64(n))))
	b.ReportMetric(rs[n/2], unit)
	b.ReportMetric(rs[max(n/2-d, 0)], unit+"-low")
	b.ReportMetric(rs[min(n/2+d, n-1)], unit+"-high")
}

func median[T cmp.Ordered](xs []T) T {
	slices.Sort(xs)
	return xs[len(xs)/2]
}

var rawRelease = redis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)

// BenchmarkHandoffUncontended compares an acquire and its release with the two
// commands of setnx, and with two PINGs, all on the same client.
func BenchmarkHandoffUncontended(b *testing.B) {
	addr := conformtest.RedisServer(b)
	client := newClient(addr)
	defer client.Close()
	l := newHandoffOn(b, client, 30*time.Second, 10*time.Second)
	defer l.Close()
	ctx := context.Background()
	st := must(lock.Find("setnx"))
	plain := must(st.New(lock.Env{Redis: client, TTL: 30 * time.Second, Rand: rand.Float64, Token: crand.Text}))
	defer plain.Close()
	const key = "grab:handoff:{1}"

	one := map[string]func(){
		"pings": func() {
			_, _ = client.Ping(ctx).Result()
			_, _ = client.Ping(ctx).Result()
		},
		"setnx": func() {
			lease, err := plain.Acquire(ctx, "grab:setnx:{1}")
			if err != nil {
				b.Fatal(err)
			}
			if err := lease.Release(ctx); err != nil {
				b.Fatal(err)
			}
		},
		"raw": func() {
			_ = client.SetNX(ctx, "raw", "550e8400-e29b-41d4-a716-446655440000", 30*time.Second).Err()
			_ = rawRelease.Run(ctx, client, []string{"raw"}, "550e8400-e29b-41d4-a716-446655440000").Err()
		},
		"handoff": func() {
			lease, err := l.Acquire(ctx, key)
			if err != nil {
				b.Fatal(err)
			}
			if err := lease.Release(ctx); err != nil {
				b.Fatal(err)
			}
		},
	}
	names := []string{"pings", "raw", "setnx", "handoff"}
	for _, name := range names {
		for range 200 {
			one[name]()
		}
	}
	var toSetnx, toPings, setnxToPings, setnxToRaw, us []float64
	const each = 50
	for range benchRounds * 3 {
		took := map[string]time.Duration{}
		for range 10 { // short turns, for the machine's mood changes
			rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
			for _, name := range names {
				began := time.Now()
				for range each {
					one[name]()
				}
				took[name] += time.Since(began)
			}
		}
		us = append(us, float64(took["pings"].Nanoseconds())/1000/(10*each))
		toSetnx = append(toSetnx, float64(took["handoff"])/float64(took["setnx"]))
		toPings = append(toPings, float64(took["handoff"])/float64(took["pings"]))
		setnxToRaw = append(setnxToRaw, float64(took["setnx"])/float64(took["raw"]))
		setnxToPings = append(setnxToPings, float64(took["setnx"])/float64(took["pings"]))
	}
	ratios(b, "x-setnx", toSetnx)
	ratios(b, "x-pings", toPings)
	ratios(b, "setnx-x-pings", setnxToPings)
	ratios(b, "setnx-x-raw", setnxToRaw)
	b.ReportMetric(median(us), "pings-us")
}

// BenchmarkHandoffWaves has 16 workers in two processes arrive at once, and
// compares the gap between a release and the next acquire with two PINGs.
func BenchmarkHandoffWaves(b *testing.B) {
	addr := conformtest.RedisServer(b)
	client := newClient(addr)
	defer client.Close()
	ctx := context.Background()
	setup := childSetup{Addr: addr, TTL: 30 * time.Second, Wait: 30 * time.Second}
	children := []*child{startChild(b, setup), startChild(b, setup)}
	wave := func() (holds []childHold) {
		for _, c := range children {
			c.tell(b, childOrder{Do: "wave", Key: "grab:handoff:{w}", Workers: 8})
		}
		for _, c := range children {
			holds = append(holds, c.hear(b)...)
		}
		slices.SortFunc(holds, func(x, y childHold) int { return cmp.Compare(x.Acquired, y.Acquired) })
		return holds
	}
	for range 20 {
		wave()
	}
	var rs, perOp []float64
	var all []int64
	for range benchRounds {
		var pings, gaps []int64
		var span int64
		for range 20 {
			for range 20 {
				t := hostClock()
				_, _ = client.Ping(ctx).Result()
				_, _ = client.Ping(ctx).Result()
				pings = append(pings, hostClock()-t)
			}
			holds := wave()
			for i, h := range holds {
				if h.Error != "" {
					b.Fatal(h.Error)
				}
				if i > 0 {
					if h.Acquired < holds[i-1].Freed {
						b.Fatal("overlap")
					}
					gaps = append(gaps, h.Acquired-holds[i-1].Freed)
				}
			}
			span += holds[len(holds)-1].Freed - holds[0].Asked
		}
		all = append(all, gaps...)
		rs = append(rs, float64(median(gaps))/float64(median(pings)))
		perOp = append(perOp, float64(span)/float64(20*16)/1000)
	}
	ratios(b, "gap-x-pings", rs)
	b.ReportMetric(float64(median(all))/1000, "gap-us")
	b.ReportMetric(float64(all[len(all)*99/100])/1000, "gap-p99-us")
	b.ReportMetric(median(perOp), "us/acquisition")
}
