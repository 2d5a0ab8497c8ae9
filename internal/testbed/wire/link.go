package wire

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"grablab/internal/testbed/wait"
)

// link is a client's connection to the proxy and the connection from the proxy to the server.
type link struct {
	proxy  *Proxy
	number uint64
	client net.Conn
	ctx    context.Context // canceled when the link ends
	cancel context.CancelCauseFunc
	done   chan struct{} // closes when both directions have ended

	mu     sync.Mutex
	server net.Conn // nil before connect
	ended  bool     // whether reset was called

	session  session
	plain    atomic.Bool // whether the proxy only copies bytes because it could not read a message
	requests uint64      // number of requests that passed through a tap
}

// reset ends both connections with a TCP reset.
func (l *link) reset() {
	l.cancel(ErrGone)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	Reset(l.client)
	if l.server != nil {
		Reset(l.server)
	}
}

// connect connects to the server. It returns false if that fails or if the link has ended
// meanwhile.
func (l *link) connect() bool {
	server, err := l.proxy.cfg.Dial(l.ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil || l.ended {
		if err == nil {
			Reset(server)
		}
		Reset(l.client)
		return false
	}
	l.server = server
	return true
}

// run copies data in both directions, and returns when both have ended.
func (l *link) run() {
	defer l.cancel(ErrGone)
	if !l.connect() {
		return
	}
	defer l.close()
	if pipe := l.proxy.cfg.Pipe; pipe != nil {
		pipe(l.ctx, l.client, l.server)
		return
	}
	requests, replies := l.proxy.cfg.Protocol(&l.session)
	up := &carrier{link: l, scan: requests, from: l.client, to: l.server, decide: l.send, buf: make([]byte, window)}
	down := &carrier{link: l, scan: replies, from: l.server, to: l.client, decide: l.deliver, buf: make([]byte, window)}
	var both sync.WaitGroup
	both.Go(func() { up.run() })
	both.Go(func() {
		down.run()
		l.cancel(ErrGone)
	})
	both.Wait()
}

func (l *link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.client.Close()
	_ = l.server.Close()
}

// abandon wakes every tap that waits for a reply, because no more replies will come.
func (l *link) abandon() {
	for _, r := range l.session.abandon() {
		if r.tap != nil {
			r.tap.reply(ErrGone)
		}
	}
}

// tapped is a request that the proxy has handed to the tap. The tap decides whether to send it.
type tapped struct {
	sent      chan struct{} // closes when the tap calls send
	replied   chan error    // takes the result of send
	ended     chan struct{} // closes when the tap has returned
	err       error         // error that the tap returned
	answer    error         // error that send returned
	replyOnce sync.Once
}

// reply makes the tap's pending call to send return err. Only the first call of reply has an effect.
func (t *tapped) reply(err error) { t.replyOnce.Do(func() { t.replied <- err }) }

// start runs tap for a request in a new goroutine. The tap decides when the request may be sent.
func (l *link) start(tap Tap, e Event) *tapped {
	t := &tapped{sent: make(chan struct{}), replied: make(chan error, 1), ended: make(chan struct{})}
	var send sync.Once
	go func() {
		defer close(t.ended)
		t.err = tap(l.ctx, e, func(ctx context.Context) error {
			send.Do(func() {
				close(t.sent)
				select {
				case t.answer = <-t.replied:
				case <-l.ctx.Done():
					t.answer = ErrGone
				}
			})
			return t.answer
		})
	}()
	return t
}

// send asks the tap what to do with a request, before any part of it is sent. flush sends earlier
// data, and present reports whether the client is still connected. If the link must be reset, send
// returns false.
func (l *link) send(m message, flush func() error, present func() bool) bool {
	tap := l.proxy.tap.Load()
	if tap != nil && m.kind == asks {
		if flush() != nil {
			return false
		}
		l.requests++
		t := l.start(*tap, Event{Server: l.proxy.cfg.Server, Conn: l.number, N: l.requests, Text: m.text})
		if !l.awaitSend(t, present) {
			return false
		}
		m.request.tap = t
	}
	if m.kind == asks {
		l.session.push(m.request)
	}
	if l.plain.Load() { // the connection became unreadable while the tap held the request
		l.abandon()
	}
	return true
}

// awaitSend waits until the tap calls send. It returns false if the tap returns without sending. It
// also returns false if the client disconnects, so that the server notices that immediately.
func (l *link) awaitSend(t *tapped, present func() bool) bool {
	const interval = 10 * time.Millisecond
	held := time.NewTimer(interval)
	defer held.Stop()
	for {
		select {
		case <-t.sent:
			return true
		case <-l.ctx.Done():
			return false
		case <-t.ended:
			return wait.IsOver(t.sent)
		case <-held.C:
			if !present() {
				return false
			}
			held.Reset(interval)
		}
	}
}

// deliver asks the tap what to do with a reply, before any part of it reaches the client. If the
// link must be reset, it returns false.
func (l *link) deliver(m message, flush func() error, _ func() bool) bool {
	t := m.request.tap
	if t == nil {
		return true
	}
	if flush() != nil {
		return false
	}
	t.reply(m.failed)
	select {
	case <-t.ended:
		return t.err == nil || errors.Is(t.err, t.answer)
	case <-l.ctx.Done():
		return false
	}
}

// carrier copies data in one direction of a link, and recognizes the messages in the data.
type carrier struct {
	*link
	scan     scanner
	from, to net.Conn
	decide   func(m message, flush func() error, present func() bool) bool

	buf        []byte
	sent, r, w int // buf[:sent] was sent, buf[:r] was scanned, and buf[:w] was received
	rest       int // bytes of the last message that have not arrived yet
}

// window is the buffer size for one direction of a connection, in bytes.
const window = 64 << 10

func (c *carrier) run() {
	for !c.plain.Load() {
		n, err := c.from.Read(c.buf[c.w:])
		c.w += n
		if !c.forward() {
			return
		}
		if err != nil {
			c.end(err)
			return
		}
	}
	c.r = c.w // no more messages are scanned, but the buffer may hold an incomplete one
	if c.flush() != nil {
		c.reset()
		return
	}
	_, err := io.Copy(c.to, c.from)
	c.end(err)
}

// forward sends as much of the received data as possible. If it returns false, the carrier must
// stop.
func (c *carrier) forward() bool {
	for c.r < c.w && !c.plain.Load() {
		if n := min(c.rest, c.w-c.r); n > 0 {
			c.rest -= n
			c.r += n
			continue
		}
		full := c.r == 0 && c.w == len(c.buf)
		n, m, err := c.scan.scan(c.buf[c.r:c.w], full)
		if err == nil && n == 0 && full {
			err = errLong
		}
		if err != nil {
			c.giveUp(err)
			break
		}
		if m.kind != noMessage && !c.decide(m, c.flush, c.present) {
			c.reset()
			return false
		}
		c.rest = max(0, c.r+n-c.w)
		c.r += n - c.rest
		if n > 0 || m.kind != noMessage {
			continue
		}
		if c.flush() != nil {
			c.reset()
			return false
		}
		c.w = copy(c.buf, c.buf[c.r:c.w])
		c.sent, c.r = 0, 0
		return true
	}
	if c.flush() != nil {
		c.reset()
		return false
	}
	return true
}

var errLong = errors.New("the proxy does not support this message, because its header is longer than 64 KB")

// flush sends the data that was scanned and may pass.
func (c *carrier) flush() error {
	if c.sent == c.r {
		return nil
	}
	_, err := c.to.Write(c.buf[c.sent:c.r])
	c.sent = c.r
	if c.r == c.w {
		c.sent, c.r, c.w = 0, 0, 0
	}
	return err
}

// present reports whether the sender is still connected. To find out, it attempts a read with a
// timeout of a millisecond, and keeps any data that arrives.
func (c *carrier) present() bool {
	if c.w == len(c.buf) {
		return true
	}
	_ = c.from.SetReadDeadline(time.Now().Add(time.Millisecond))
	defer c.from.SetReadDeadline(time.Time{})
	n, err := c.from.Read(c.buf[c.w:])
	c.w += n
	return err == nil || errors.Is(err, os.ErrDeadlineExceeded)
}

// giveUp makes the carrier copy data without looking for messages.
func (c *carrier) giveUp(err error) {
	c.noteUnreadable(err)
	c.plain.Store(true)
	c.abandon()
}

// end tells the receiver that the stream has ended. After an error, it resets both connections.
func (c *carrier) end(err error) {
	c.r = c.w
	if c.flush() != nil || err != nil && !errors.Is(err, io.EOF) {
		c.reset()
		return
	}
	if tcp, ok := c.to.(*net.TCPConn); ok {
		_ = tcp.CloseWrite()
		return
	}
	_ = c.to.Close()
}
