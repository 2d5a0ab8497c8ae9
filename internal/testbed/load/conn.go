package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

// These are the reasons why a request gets no reply.
const (
	Interrupted = "interrupted" // the attack ended before the response
	Timeout     = "timeout"
	Refused     = "refused" // the server did not receive the request
	Reset       = "reset"   // the server may have received the request
	Other       = "other"
)

// failureNamer adds the reason for a failure to the error text, because vegeta keeps only the text.
type failureNamer struct {
	attack context.Context
	http.RoundTripper
}

// RoundTrip sends a request. If it fails, RoundTrip adds the reason to the error.
func (n failureNamer) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := n.RoundTripper.RoundTrip(req)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", failureOf(n.attack, err), err)
	}
	return resp, nil
}

func failureOf(attack context.Context, err error) string {
	var ne net.Error
	switch {
	case attack.Err() != nil:
		return Interrupted
	case errors.Is(err, syscall.ECONNREFUSED):
		return Refused
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, context.Canceled), errors.As(err, &ne) && ne.Timeout():
		return Timeout
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return Reset
	default:
		return Other
	}
}

// FailureOf extracts the reason for a failure from a result's error text.
func FailureOf(text string) string {
	for _, f := range []string{Interrupted, Timeout, Refused, Reset} {
		if strings.Contains(text, `": `+f+": ") {
			return f
		}
	}
	if strings.Contains(text, "Client.Timeout") { // the timeout occurred while the client was reading the body
		return Timeout
	}
	return Other
}

// conns tracks an attack's connections, so that cut can close all of them. Tracking is cheaper than
// a context for each request.
type conns struct {
	mu    sync.Mutex
	open  map[net.Conn]struct{}
	isCut bool
}

func (c *conns) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{KeepAlive: 30 * time.Second}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isCut {
		conn.Close()
		return nil, net.ErrClosed
	}
	c.open[conn] = struct{}{}
	return &trackedConn{conn, c}, nil
}

// cut closes all connections and prevents new ones.
func (c *conns) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isCut = true
	for conn := range c.open {
		conn.Close()
	}
}

type trackedConn struct {
	net.Conn
	of *conns
}

func (t *trackedConn) Close() error {
	t.of.mu.Lock()
	delete(t.of.open, t.Conn)
	t.of.mu.Unlock()
	return t.Conn.Close()
}
