package load

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"grablab/internal/testbed/target"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

// TestAttackSendsNothingTwice checks that the server gets each grab exactly once, even if it closes
// kept-alive connections or redirects the client.
func TestAttackSendsNothingTwice(t *testing.T) {
	const orders, drivers = 10, 4
	for _, spec := range []target.Spec{
		{Method: "GET", Path: "/{order}/{driver}"},
		{Path: "/{order}/{driver}", Headers: []string{"Idempotency-Key: {order}-{driver}"}},
		{Path: "/{order}/{driver}", Headers: []string{"X-Idempotency-Key: {order}"}, Body: new("")},
		{Method: "PUT", Path: "/{order}/{driver}", Headers: []string{"Idempotency-Key: one"}},
		{Path: "/{order}/{driver}"},
	} {
		for _, redirect := range []int{0, 301, 302, 303, 307, 308} {
			shape, _, err := spec.Compile()
			if err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex
			seen := map[string]int{}
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					go func() {
						defer conn.Close()
						r := bufio.NewReader(conn)
						for n := 0; ; n++ {
							req, err := http.ReadRequest(r)
							if err != nil {
								return
							}
							_, _ = io.Copy(io.Discard, req.Body)
							mu.Lock()
							seen[req.URL.Path]++
							mu.Unlock()
							switch {
							case redirect > 0:
								fmt.Fprintf(conn, "HTTP/1.1 %d Go\r\nLocation: %s/again\r\nContent-Length: 0\r\n\r\n", redirect, req.URL.Path)
							case n%2 == 1:
								return // without an answer
							default:
								fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
							}
						}
					}()
				}
			}()
			results := 0
			plan := NewPlan([]string{"http://" + l.Addr().String()}, 1, orders, drivers, 1)
			cfg := Config{Orders: orders, Drivers: drivers, Timeout: 10 * time.Second, MaxWorkers: 2, Shape: shape}
			if err := Attack(t.Context(), plan, cfg, func(*vegeta.Result, time.Time) { results++ }); err != nil {
				t.Fatal(err)
			}
			l.Close()
			mu.Lock()
			if len(seen) != orders*drivers || results != orders*drivers {
				t.Errorf("%+v, redirect %d: %d requests and %d results, want %d", spec, redirect, len(seen), results, orders*drivers)
			}
			for path, n := range seen {
				if n != 1 {
					t.Errorf("%+v, redirect %d: %s was sent %d times", spec, redirect, path, n)
				}
			}
			mu.Unlock()
		}
	}
}
