package tap

import (
	"context"
	"net"
	"sync/atomic"
	"syscall"
)

// CountRedis returns a dialer whose connections add the number of sent commands to n, including
// subscriptions and connection set-up. An instance uses it for its metric grab_redis_commands_total.
func CountRedis(dial dialer, n *atomic.Uint64) dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		counting := &countingConn{Conn: c, n: n}
		// Keep the file descriptor accessible, because go-redis needs it to detect closed idle
		// connections.
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
	skip uint64 // remaining bytes of the current string, including its CRLF
}

// maxNum limits the numbers in a stream. Otherwise, a huge invalid number could overflow.
const maxNum = 1 << 40

// feed reads p and returns how many commands begin in it. Each line begins a command, unless it
// announces a string.
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
