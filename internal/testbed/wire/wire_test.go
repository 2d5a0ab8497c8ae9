package wire_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"grablab/internal/testbed/stack/stacktest"
	"grablab/internal/testbed/wire"
)

func TestMain(m *testing.M) { stacktest.Main(m) }

// recorder is a tap that records requests, and holds the ones for which there is a gate.
type recorder struct {
	mu    sync.Mutex
	texts []string
	errs  []string
	holds map[string]*gate // by the text of the request
}

// gate holds one request. It closes the channel held when the request waits, which lasts until the test
// closes let.
type gate struct {
	after     bool  // whether the request waits after its reply, instead of before it is sent
	as        error // the error that the tap returns
	unsent    bool  // whether the tap returns without sending the request
	held, let chan struct{}
}

func newGate(after bool) *gate {
	return &gate{after: after, held: make(chan struct{}), let: make(chan struct{})}
}

func (r *recorder) hold(text string, g *gate) *gate {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.holds == nil {
		r.holds = map[string]*gate{}
	}
	r.holds[text] = g
	return g
}

func (r *recorder) tap(ctx context.Context, e wire.Event, send func(context.Context) error) error {
	r.mu.Lock()
	r.texts = append(r.texts, e.Text)
	g := r.holds[e.Text]
	delete(r.holds, e.Text)
	r.mu.Unlock()
	if g != nil && !g.after {
		close(g.held)
		<-g.let
		if g.unsent {
			return g.as
		}
	}
	err := send(ctx)
	if err != nil {
		r.mu.Lock()
		r.errs = append(r.errs, e.Text+": "+err.Error())
		r.mu.Unlock()
	}
	if g != nil && g.after {
		close(g.held)
		<-g.let
	}
	if g != nil && g.as != nil {
		return g.as
	}
	return err
}

func (r *recorder) seen() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.texts)
}

// failed returns the errors that send has returned.
func (r *recorder) failed() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.errs)
}

// said records the messages that a proxy prints for the user.
type said struct {
	mu    sync.Mutex
	lines []string
}

func (s *said) say(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, text)
}

func (s *said) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.lines)
}

// proxyTo returns a proxy to a server, and a record of its messages.
func proxyTo(tb testing.TB, server, addr string, protocol wire.Protocol) (*wire.Proxy, *said) {
	tb.Helper()
	var s said
	p, err := wire.Listen(wire.Config{
		Server: server, Protocol: protocol, Say: s.say,
		Dial: func(ctx context.Context) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", addr)
		},
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(p.Close)
	return p, &s
}

// TestHangUpComesFirst opens a connection while HangUpThen runs. The proxy must not serve it before the
// function passed to HangUpThen returns. The old connection must end, and the new one must work.
func TestHangUpComesFirst(t *testing.T) {
	began, served := make(chan struct{}, 8), make(chan struct{})
	p, err := wire.Listen(wire.Config{Server: "redis", Protocol: wire.RESP, Dial: func(context.Context) (net.Conn, error) {
		began <- struct{}{}
		client, server := net.Pipe()
		go fakeRedis(server, nil)
		return client, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	conn, r := dial(t, p.Addr())
	<-began
	var next net.Conn
	p.HangUpThen(func() {
		next, _ = dial(t, p.Addr())
		go func() {
			defer close(served)
			_, _ = next.Write([]byte("PING\r\n"))
			_, _ = next.Read(make([]byte, 5))
		}()
		select {
		case <-began:
			t.Error("a connection begins while the proxy hangs up")
		case <-time.After(100 * time.Millisecond):
		}
	})
	await(t, "the new connection", began)
	await(t, "its reply", served)
	if _, err := r.ReadByte(); err == nil {
		t.Error("the old connection is still open")
	}
	_ = conn.Close()
}

// TestRefusesAndReopens checks connections while the proxy is open, refuses, is open again at the same
// address, and is closed.
func TestRefusesAndReopens(t *testing.T) {
	held := make(chan context.Context, 1)
	p, err := wire.Listen(wire.Config{Server: "redis", Protocol: wire.RESP, Dial: func(context.Context) (net.Conn, error) {
		client, server := net.Pipe()
		go fakeRedis(server, nil)
		return client, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	works := func() (net.Conn, bool) {
		conn, err := net.Dial("tcp", p.Addr())
		if err != nil {
			return nil, false
		}
		t.Cleanup(func() { _ = conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		_, err = conn.Write([]byte("PING\r\n"))
		if err == nil {
			_, err = conn.Read(make([]byte, 5))
		}
		return conn, err == nil
	}
	addr := p.Addr()
	for _, end := range []func(){p.Refuse, p.Close} {
		conn, ok := works()
		if !ok || p.Addr() != addr {
			t.Fatalf("an open proxy at %s serves no one; it was at %s", p.Addr(), addr)
		}
		p.Use(func(ctx context.Context, _ wire.Event, send func(context.Context) error) error {
			held <- ctx
			<-ctx.Done()
			return send(ctx)
		})
		if _, err := conn.Write([]byte("PING\r\n")); err != nil {
			t.Fatal(err)
		}
		waiting := <-held
		end()
		await(t, "the context of a waiting tap", waiting.Done())
		if _, err := conn.Read(make([]byte, 5)); err == nil {
			t.Error("a connection outlives its proxy")
		}
		p.Use(nil)
		if _, ok := works(); ok {
			t.Error("a new connection is served")
		}
		if err := p.Reopen(); err != nil {
			t.Fatal(err)
		}
	}
	p.Close()
}

// TestNoConnectionToTheServer connects a client while the proxy cannot connect to the server, or while HangUp
// interrupts the proxy before it has connected. The client's connection must end. A late connection to the
// server must be closed.
func TestNoConnectionToTheServer(t *testing.T) {
	for _, fails := range []bool{true, false} {
		server, late := net.Pipe()
		dialing := make(chan struct{}, 1)
		p, err := wire.Listen(wire.Config{Server: "redis", Protocol: wire.RESP, Dial: func(ctx context.Context) (net.Conn, error) {
			dialing <- struct{}{}
			if fails {
				return nil, errors.New("connection refused")
			}
			<-ctx.Done()
			return server, nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		conn, connectErr := net.Dial("tcp", p.Addr()) // fails if the proxy ends the connection at once
		await(t, "the connection to the server", dialing)
		if !fails {
			p.HangUp()
			_ = late.SetReadDeadline(time.Now().Add(10 * time.Second))
			if _, err := late.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Errorf("the server gets %v, want the end of the connection", err)
			}
		}
		if connectErr != nil {
			continue
		}
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("dialing fails: %v; the client gets %v", fails, err)
		}
		_ = conn.Close()
	}
}

// TestContextEndsWithTheConnection checks that the context of a connection ends with it. A connection ends if the
// server cannot be reached, when Pipe returns, and when the server closes it.
func TestContextEndsWithTheConnection(t *testing.T) {
	pipe := func(context.Context, net.Conn, net.Conn) {}
	for _, tt := range []struct {
		name  string
		fails bool
		pipe  func(context.Context, net.Conn, net.Conn)
	}{{"no server", true, nil}, {"pipe", false, pipe}, {"closed by the server", false, nil}} {
		ended := make(chan struct{})
		p, err := wire.Listen(wire.Config{Server: "redis", Protocol: wire.RESP, Pipe: tt.pipe, Dial: func(ctx context.Context) (net.Conn, error) {
			context.AfterFunc(ctx, func() { close(ended) })
			if tt.fails {
				return nil, errors.New("connection refused")
			}
			server, other := net.Pipe()
			if tt.pipe == nil {
				_ = other.Close()
			}
			return server, nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		if conn, err := net.Dial("tcp", p.Addr()); err == nil { // fails if the proxy ends the connection at once
			t.Cleanup(func() { conn.Close() })
		}
		await(t, "the end of the context: "+tt.name, ended)
		p.Close()
	}
}

// TestEndsArePassedOn closes or resets a connection from either side. The other side must get an orderly
// end after a close, and an error after a reset.
func TestEndsArePassedOn(t *testing.T) {
	for _, protocol := range []wire.Protocol{wire.RESP, wire.MySQL, wire.Postgres} {
		for _, closer := range []string{"client", "server"} {
			for _, reset := range []bool{false, true} {
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				p, _ := proxyTo(t, "server", l.Addr().String(), protocol)
				client, _ := dial(t, p.Addr())
				server, err := l.Accept()
				if err != nil {
					t.Fatal(err)
				}
				ends, sees := client, server
				if closer == "server" {
					ends, sees = server, client
				}
				if reset {
					wire.Reset(ends)
				} else {
					_ = ends.Close()
				}
				_ = sees.SetReadDeadline(time.Now().Add(10 * time.Second))
				_, err = sees.Read(make([]byte, 1))
				if err == nil || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, io.EOF) == reset {
					t.Errorf("the %s ends the connection, reset %v: the other side gets %v", closer, reset, err)
				}
				_ = server.Close()
				_ = l.Close()
			}
		}
	}
}

func await(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(10 * time.Second):
		t.Fatalf("%s: not within 10 s", what)
	}
}

// eventually waits until holds returns true. If it does not, the test fails with the details.
func eventually(t *testing.T, holds func() bool, details func() string) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(details())
		}
	}
}

// TestClientGoesWhileItsRequestIsHeld closes or resets the client's connection at several times after
// its request was held, or after an earlier request was held and sent. The server must see the end,
// although the tap never sends the request, and the tap's context must end. While the client stays
// connected, requests must pass even after they were held for a while.
func TestClientGoesWhileItsRequestIsHeld(t *testing.T) {
	for _, after := range []time.Duration{0, 5 * time.Millisecond, 25 * time.Millisecond, 60 * time.Millisecond} {
		for _, earlier := range []int{0, 2} {
			for _, reset := range []bool{false, true} {
				t.Run(fmt.Sprintf("after %v, request %d, reset %v", after, earlier+1, reset), func(t *testing.T) {
					t.Parallel()
					l, err := net.Listen("tcp", "127.0.0.1:0")
					if err != nil {
						t.Fatal(err)
					}
					defer l.Close()
					p, _ := proxyTo(t, "server", l.Addr().String(), wire.RESP)
					held := make(chan context.Context)
					p.Use(func(ctx context.Context, e wire.Event, send func(context.Context) error) error {
						if e.N <= uint64(earlier) {
							time.Sleep(after)
							return send(ctx)
						}
						held <- ctx
						<-ctx.Done()
						return ctx.Err()
					})
					client, replies := dial(t, p.Addr())
					server, err := l.Accept()
					if err != nil {
						t.Fatal(err)
					}
					defer server.Close()
					_ = server.SetReadDeadline(time.Now().Add(10 * time.Second))
					const ping, pong = "PING\r\n", "+PONG\r\n"
					for range earlier {
						_, _ = io.WriteString(client, ping)
						if _, err := io.ReadFull(server, make([]byte, len(ping))); err != nil {
							t.Fatalf("a request that was held for %v does not arrive: %v", after, err)
						}
						_, _ = io.WriteString(server, pong)
						if line, err := replies.ReadString('\n'); line != pong {
							t.Fatalf("the reply is %q, %v", line, err)
						}
					}
					_, _ = io.WriteString(client, ping)
					ctx := <-held
					time.Sleep(after)
					if ctx.Err() != nil {
						t.Error("the tap's context ends before the client goes")
					}
					if reset {
						wire.Reset(client)
					} else {
						_ = client.Close()
					}
					if n, err := server.Read(make([]byte, 1)); n > 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
						t.Errorf("the server gets %d bytes, %v; want the end of the connection", n, err)
					}
					await(t, "the end of the tap's context", ctx.Done())
				})
			}
		}
	}
}
