package tap

import (
	"context"
	"net"
	"sync/atomic"
	"syscall"
)

// CountRedis returns a dialer whose connections count the commands that are sent, and add them to
// n. This includes subscriptions and the commands that set up connections.
func CountRedis(dial dialer, n *atomic.Uint64) dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		counting := &countingConn{Conn: c, n: n}
		// Keep the file descriptor accessible, because go-redis needs it to detect that an idle
		// connection has been closed.
		if sc, ok := c.(syscall.Conn); ok {
			return struct {
				*countingConn
				syscall.Conn
			}{counting, sc}, nil
		}
		return counting, nil
	}
}

type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

type countingConn struct {
	net.Conn
	resp respCounter
	n    *atomic.Uint64
}

func (c *countingConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.n.Add(c.resp.feed(p[:n]))
	return n, err
}

// respCounter counts the commands in a stream of the Redis protocol (RESP). The stream may arrive
// in pieces of any size. The zero value is ready to use.
type respCounter struct {
	kind byte   // the first byte of the current line; 0 at the start of a line
	num  uint64 // the number after that byte
	skip uint64 // how many bytes of the current string are still to come, including its CRLF
}

// maxNum limits the numbers in a stream, because a huge invalid number could overflow otherwise.
const maxNum = 1 << 40

// feed reads p and returns how many commands begin in it. Each line is the beginning of a command,
// unless it announces a string.
func (r *respCounter) feed(p []byte) (commands uint64) {
	for len(p) > 0 {
		if r.skip > 0 {
			n := min(r.skip, uint64(len(p)))
			r.skip -= n
			p = p[n:]
			continue
		}
		switch b := p[0]; {
		case b == '\n':
			if r.kind == '$' {
				r.skip = r.num + uint64(len("\r\n"))
			} else if r.kind != 0 {
				commands++
			}
			r.kind, r.num = 0, 0
		case r.kind == 0 && b != '\r':
			r.kind = b
		case '0' <= b && b <= '9':
			r.num = min(r.num*10+uint64(b-'0'), maxNum)
		}
		p = p[1:]
	}
	return commands
}
