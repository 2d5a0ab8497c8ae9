package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
)

// TestFailureOf checks the kind of failure that each cause belongs to. FailureOf must find this kind
// again in the text of the error.
func TestFailureOf(t *testing.T) {
	running, ended := context.Background(), func() context.Context {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		return ctx
	}()
	for _, tt := range []struct {
		attack context.Context
		cause  error
		want   string
	}{
		{running, syscall.ECONNREFUSED, Refused},
		{running, syscall.ECONNRESET, Reset},
		{running, syscall.EPIPE, Reset},
		{running, io.EOF, Reset},
		{running, io.ErrUnexpectedEOF, Reset},
		{running, os.ErrDeadlineExceeded, Timeout},
		{running, context.DeadlineExceeded, Timeout},
		{running, context.Canceled, Timeout},
		{running, &net.DNSError{IsTimeout: true}, Timeout},
		{running, errors.New("no route to host"), Other},
		{ended, syscall.ECONNRESET, Interrupted},
		{ended, io.EOF, Interrupted},
	} {
		got := failureOf(tt.attack, fmt.Errorf("read: %w", tt.cause))
		if got != tt.want {
			t.Errorf("failureOf(%v) = %q, want %q", tt.cause, got, tt.want)
		}
		text := fmt.Sprintf("Post \"http://127.0.0.1:1/orders/1/grab\": %s: %v", got, tt.cause)
		if found := FailureOf(text); found != tt.want {
			t.Errorf("FailureOf(%q) = %q, want %q", text, found, tt.want)
		}
	}
}
