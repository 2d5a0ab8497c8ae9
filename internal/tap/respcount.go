package tap

import (
	"context"
	"net"
	"sync/atomic"
	"syscall"
)

// CountRedis returns a dialer that adds to n each command which is written whole
// to one of its connections. A hook would miss subscriptions, the handshake of a
// new connection (HELLO and CLIENT SETINFO), and the commands of a pipeline one
// by one.
func CountRedis(dial dialer, n *atomic.Uint64) dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		counting := &countingConn{Conn: c, n: n}
		// go-redis finds out that an idle connection was closed by looking at
		// its file descriptor.
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

// countingConn counts the commands that are written to it. Like the stream
// itself it has one writer at a time.
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

// respCounter counts the commands in what a client sends of a RESP stream, in
// pieces of any length: arrays of bulk strings, or inline commands of one line.
// The zero value is at the start of a stream.
type respCounter struct {
	kind byte   // the first byte of the line under way; 0: at the start of a line
	num  uint64 // the number that follows it
	args uint64 // bulk strings of the command that are still to begin
	skip uint64 // bytes of the bulk string, and of its CRLF, that are still to come
}

// maxNum bounds a number in a line, so that a malformed stream overflows nothing.
const maxNum = 1 << 40

// feed takes the next bytes and returns how many commands ended in them.
func (r *respCounter) feed(p []byte) (commands uint64) {
	for len(p) > 0 {
		if r.skip > 0 {
			n := min(r.skip, uint64(len(p)))
			r.skip -= n
			p = p[n:]
			if r.skip == 0 && r.args == 0 {
				commands++
			}
			continue
		}
		b := p[0]
		p = p[1:]
		switch {
		case b == '\n':
			commands += r.endLine()
		case r.kind == 0 && b != '\r':
			r.kind = b
		case '0' <= b && b <= '9':
			r.num = min(r.num*10+uint64(b-'0'), maxNum)
		}
	}
	return commands
}

// endLine acts upon the line that has just ended, and returns 1 if it was a
// command by itself.
func (r *respCounter) endLine() uint64 {
	kind, num := r.kind, r.num
	r.kind, r.num = 0, 0
	switch {
	case kind == 0:
		return 0
	case kind == '$' && r.args > 0:
		r.args--
		r.skip = num + uint64(len("\r\n"))
		return 0
	case kind == '*':
		r.args = num
		return 0
	default:
		r.args = 0
		return 1
	}
}
