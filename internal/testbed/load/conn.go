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

// dialUntil returns a function that opens connections, which close at the latest when ctx ends.
// Closing them is cheaper than a context for each request.
func dialUntil(ctx context.Context) func(context.Context, string, string) (net.Conn, error) {
	dialer := net.Dialer{KeepAlive: 30 * time.Second}
	return func(dialing context.Context, network, addr string) (net.Conn, error) {
		conn, err := dialer.DialContext(dialing, network, addr)
		if err != nil {
			return nil, err
		}
		return &endingConn{conn, context.AfterFunc(ctx, func() { conn.Close() })}, nil
	}
}

type endingConn struct {
	net.Conn
	stop func() bool // releases the memory that ctx keeps for the connection
}

func (c *endingConn) Close() error {
	c.stop()
	return c.Conn.Close()
}
