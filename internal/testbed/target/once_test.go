package target

import (
	"bufio"
	"context"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// rawServer answers the first request on each connection. On the second request, it calls ending and
// closes the connection. It counts the requests by path.
type rawServer struct {
	ending func(net.Conn)
	mu     sync.Mutex
	seen   map[string]int
	heads  []http.Header
}

func (s *rawServer) serve(t *testing.T) (base string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go s.answer(conn)
		}
	}()
	return "http://" + l.Addr().String()
}

func (s *rawServer) answer(conn net.Conn) {
	defer conn.Close()
	r := bufio.NewReader(conn)
	for n := 0; ; n++ {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, req.Body)
		s.mu.Lock()
		s.seen[req.URL.Path]++
		s.heads = append(s.heads, req.Header)
		s.mu.Unlock()
		if n > 0 {
			s.ending(conn)
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	}
}

// TestSendOnce checks that the client never sends a request twice when the server ends a kept-alive
// connection. It tries several ways to end it, and different methods, headers and bodies.
func TestSendOnce(t *testing.T) {
	endings := map[string]func(net.Conn){
		"closes": func(net.Conn) {},
		"resets": func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0) },
		"times out": func(c net.Conn) {
			_, _ = io.WriteString(c, "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n")
		},
		"half a line": func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.") },
	}
	for _, ending := range slices.Sorted(maps.Keys(endings)) {
		for _, method := range []string{"GET", "HEAD", "OPTIONS", "TRACE", "DELETE", "POST", "PUT", "PATCH", "GRAB"} {
			for _, header := range []string{"", "Idempotency-Key", "X-Idempotency-Key", "idempotency-key"} {
				for _, body := range []string{"", `{"driver_id":1}`} {
					s := &rawServer{ending: endings[ending], seen: map[string]int{}}
					base := s.serve(t)
					transport := SendOnce(&http.Transport{})
					for _, path := range []string{"/first", "/second"} {
						req, err := http.NewRequestWithContext(t.Context(), method, base+path, strings.NewReader(body))
						if err != nil {
							t.Fatal(err)
						}
						if header != "" {
							req.Header[header] = []string{"k"}
						}
						if resp, err := transport.RoundTrip(req); err == nil {
							_, _ = io.Copy(io.Discard, resp.Body)
							resp.Body.Close()
						}
					}
					transport.CloseIdleConnections()
					s.mu.Lock()
					if !maps.Equal(s.seen, map[string]int{"/first": 1, "/second": 1}) {
						t.Errorf("%s %q %q, the server %s: requests by path are %v, want one each", method, header, body, ending, s.seen)
					}
					for _, h := range s.heads {
						if header != "" && h.Get(header) != "k" {
							t.Errorf("%s %q: the header is lost: %v", method, header, h)
						}
					}
					s.mu.Unlock()
				}
			}
		}
	}
}

// lateEOF is an empty body whose end is reported only after a delay, as on a busy machine.
type lateEOF struct{}

func (lateEOF) Read([]byte) (int, error) {
	time.Sleep(300 * time.Millisecond)
	return 0, io.EOF
}

// TestSendOnceWithoutChunks checks that a request without a body has no chunked body, even if the
// transport is slow to notice that the body is empty.
func TestSendOnceWithoutChunks(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"GET", "HEAD", "OPTIONS", "TRACE"} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			req, err := http.NewRequestWithContext(t.Context(), method, "http://127.0.0.1/", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			var sent strings.Builder
			if err := once(req, lateEOF{}).Write(&sent); err != nil {
				t.Fatal(err)
			}
			head, body, _ := strings.Cut(sent.String(), "\r\n\r\n")
			if strings.Contains(head, "Transfer-Encoding") || body != "" {
				t.Errorf("the request has a body: %q", sent.String())
			}
		})
	}
}

// TestSendOnceToHTTP2 checks that SendOnce uses HTTP/1.1 even if the server prefers HTTP/2. An HTTP/2
// client would retry requests after the server resets their stream.
func TestSendOnceToHTTP2(t *testing.T) {
	var mu sync.Mutex
	seen := map[int]int{}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		seen[r.ProtoMajor]++
		mu.Unlock()
		panic(http.ErrAbortHandler)
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	for _, method := range []string{"GET", "POST"} {
		transport := SendOnce(&http.Transport{TLSClientConfig: s.Client().Transport.(*http.Transport).TLSClientConfig, ForceAttemptHTTP2: true})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		req, _ := http.NewRequestWithContext(ctx, method, s.URL, nil)
		if resp, err := transport.RoundTrip(req); err == nil {
			resp.Body.Close()
		}
		cancel()
	}
	if !maps.Equal(seen, map[int]int{1: 2}) {
		t.Errorf("requests by HTTP version: %v, want 2 of HTTP/1", seen)
	}
}
