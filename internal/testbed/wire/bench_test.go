package wire_test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/measure/stat"
	"grablab/internal/testbed/stack/stacktest"
)

// bareProxy starts a proxy that only copies bytes, and returns its address. On Linux, io.Copy makes the
// kernel copy the bytes.
func bareProxy(tb testing.TB, addr string) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", addr)
			if err != nil {
				client.Close()
				continue
			}
			copyTo := func(to, from net.Conn) { _, _ = io.Copy(to, from); to.Close() }
			go copyTo(server, client)
			go copyTo(client, server)
		}
	}()
	return l.Addr().String()
}

// BenchmarkProxy compares the time that the proxy adds to a round trip with the time that a bare proxy
// adds. Each round measures a direct connection and both proxies. The benchmark reports the median
// ratio, and fails if the whole 95 % interval of the ratio is above 1.3.
//
//	go test ./internal/testbed/wire -run '^$' -bench Proxy -benchtime 1x
func BenchmarkProxy(b *testing.B) {
	redis := stacktest.With(b, lock.Redis).Redis
	resp, _ := redisProxy(b)
	ask := func(addr string) func(n int) time.Duration {
		c := redisAt(b, addr, 3)
		return timed(b, func() error { return c.Echo(b.Context(), "x").Err() })
	}
	b.Run("RESP", func(b *testing.B) { compareCosts(b, ask(redis), ask(bareProxy(b, redis)), ask(resp.Addr())) })

	_, _, through, straight := dbProxy(b)
	_, rest, _ := strings.Cut(straight, "@tcp(")
	addr, _, _ := strings.Cut(rest, ")")
	query := func(dsn string) func(n int) time.Duration {
		conn := connTo(b, dsn)
		return timed(b, func() error {
			_, err := conn.ExecContext(b.Context(), "DO 1")
			return err
		})
	}
	b.Run("MySQL", func(b *testing.B) {
		compareCosts(b, query(straight), query(strings.Replace(straight, addr, bareProxy(b, addr), 1)), query(through))
	})
}

func timed(tb testing.TB, once func() error) func(n int) time.Duration {
	return func(n int) time.Duration {
		began := time.Now()
		for range n {
			if err := once(); err != nil {
				tb.Fatal(err)
			}
		}
		return time.Since(began) / time.Duration(n)
	}
}

func compareCosts(b *testing.B, straight, bare, ours func(n int) time.Duration) {
	const rounds, each = 41, 300
	for b.Loop() {
		var added, copied []float64
		for round := range rounds + 1 { // the first round is a warm-up
			none, copying, knowing := straight(each), bare(each), ours(each)
			if round > 0 {
				added = append(added, float64(knowing-none))
				copied = append(copied, float64(copying-none))
			}
		}
		ratio := stat.Ratio(added, copied)
		b.ReportMetric(stat.Median(added).Median/1000, "added-µs")
		b.ReportMetric(stat.Median(copied).Median/1000, "bare-µs")
		b.ReportMetric(ratio.Median, "ratio")
		b.Logf("added/added by a bare proxy: %v", ratio)
		if ratio.Low > 1.3 {
			b.Errorf("the proxy adds more than 1.3 times as much time as a bare proxy")
		}
	}
}

// BenchmarkPipeline measures 10,000 commands sent at once, directly and through each proxy.
func BenchmarkPipeline(b *testing.B) {
	redis := stacktest.With(b, lock.Redis).Redis
	resp, _ := redisProxy(b)
	for _, way := range []struct{ name, addr string }{{"straight", redis}, {"bare", bareProxy(b, redis)}, {"wire", resp.Addr()}} {
		b.Run(way.name, func(b *testing.B) {
			c := redisAt(b, way.addr, 3)
			for b.Loop() {
				pipe := c.Pipeline()
				for i := range 10_000 {
					pipe.Echo(b.Context(), fmt.Sprint(i))
				}
				if _, err := pipe.Exec(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
