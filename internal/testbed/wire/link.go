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
)

// link is a connection of a client, and the one to the server that stands behind it.
type link struct {
	proxy  *Proxy
	number uint64
	client net.Conn
	ctx    context.Context // ends with the link
	cancel context.CancelCauseFunc
	done   chan struct{} // closes when both directions have ended

	mu     sync.Mutex
	server net.Conn // nil: not yet connected
	over   bool     // it was reset

	session  session
	plain    atomic.Bool // it passes as bytes, for something was not understood
	requests uint64      // that had a tap
}

// reset ends both connections at once.
func (l *link) reset() {
	l.cancel(ErrGone)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	reset(l.client)
	if l.server != nil {
		reset(l.server)
	}
}

// connect is false if there is no way to the server, or no use for one any more.
func (l *link) connect() bool {
	server, err := l.proxy.cfg.Dial(l.ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil || l.over {
		if err == nil {
			reset(server)
		}
		reset(l.client)
		return false
	}
	l.server = server
	return true
}

// run brings bytes in both directions until both have ended.
func (l *link) run() {
	defer l.cancel(ErrGone)
	if !l.connect() {
		return
	}
	requests, replies := l.proxy.cfg.Protocol(&l.session)
	up := &carrier{link: l, scan: requests, from: l.client, to: l.server, tell: l.send}
	down := &carrier{link: l, scan: replies, from: l.server, to: l.client, tell: l.deliver}
	var both sync.WaitGroup
	both.Go(func() { up.run() })
	both.Go(func() {
		down.run()
		l.cancel(ErrGone)
	})
	both.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.client.Close()
	_ = l.server.Close()
}

// abandon tells taps that the replies they wait for will not be seen.
func (l *link) abandon() {
	for _, r := range l.session.abandon() {
		if r.tap != nil {
			r.tap.reply(ErrGone)
		}
	}
}

// tapped is a request that goes through a tap.
type tapped struct {
	sent    chan struct{} // closes when it may be sent
	replied chan error    // takes what send returns
	ended   chan struct{} // closes when the tap has returned
	err     error         // what it has returned
	answer  error         // what send has returned
	told    sync.Once
}

func (t *tapped) reply(err error) { t.told.Do(func() { t.replied <- err }) }

func (t *tapped) isSent() bool {
	select {
	case <-t.sent:
		return true
	default:
		return false
	}
}

// start calls the tap.
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

// fate is what becomes of a message.
type fate int

const (
	passes fate = iota
	isDropped
	isCut
)

// fateOf is what the tap has decided by what it has returned.
func fateOf(err error) fate {
	if errors.Is(err, ErrDropped) {
		return isDropped
	}
	return isCut
}

// send is told of a request before any of it is sent. flush sends what came before it,
// present says whether the client is still there.
func (l *link) send(m message, flush func() error, present func() bool) (fate, error) {
	tap := l.proxy.tap.Load()
	if tap != nil && m.kind == asks {
		if err := flush(); err != nil {
			return isCut, err
		}
		l.requests++
		t := l.start(*tap, Event{Server: l.proxy.cfg.Server, Conn: l.number, N: l.requests, Text: m.text(m.raw), At: time.Now()})
		if sent, err := l.awaitSend(t, present); !sent {
			return fateOf(err), nil
		}
		m.request.tap = t
	}
	if m.kind == asks {
		l.session.push(m.request)
	}
	return passes, nil
}

// awaitSend returns once the tap sends, or with its error if it does not. A client that goes
// meanwhile, because its process has been killed, sends nothing, and its server is to learn
// of that at once.
func (l *link) awaitSend(t *tapped, present func() bool) (sent bool, err error) {
	const look = 10 * time.Millisecond
	held := time.NewTimer(look)
	defer held.Stop()
	for {
		select {
		case <-t.sent:
			return true, nil
		case <-l.ctx.Done():
			return false, ErrGone
		case <-t.ended:
			return t.isSent(), t.err
		case <-held.C:
			if !present() {
				return false, ErrGone
			}
			held.Reset(look)
		}
	}
}

// deliver is told of a reply before any of it is delivered.
func (l *link) deliver(m message, flush func() error, _ func() bool) (fate, error) {
	t := m.request.tap
	if t == nil {
		return passes, nil
	}
	if err := flush(); err != nil {
		return isCut, err
	}
	t.reply(m.failed)
	select {
	case <-t.ended:
	case <-l.ctx.Done():
		return isCut, nil
	}
	if t.err != nil && !errors.Is(t.err, t.answer) {
		return fateOf(t.err), nil
	}
	return passes, nil
}

// carrier brings the bytes of one direction.
type carrier struct {
	*link
	scan     scanner
	from, to net.Conn
	tell     func(m message, flush func() error, present func() bool) (fate, error)

	buf        []byte
	sent, r, w int // of buf: sent, looked at, filled
}

// window is how much of a message is looked at, at the most.
const window = 64 << 10

// run brings bytes until there are no more, and then their end.
func (c *carrier) run() {
	if c.buf == nil {
		c.buf = make([]byte, window)
	}
	for !c.plain.Load() {
		n, err := c.from.Read(c.buf[c.w:])
		c.w += n
		if !c.pass() {
			return
		}
		if err != nil {
			c.end(err)
			return
		}
	}
	if c.flush() != nil {
		c.reset()
		return
	}
	_, err := io.Copy(c.to, c.from)
	c.end(err)
}

// pass passes what can be of what has come; false: the connection needs no more.
func (c *carrier) pass() bool {
	for c.r < c.w && !c.plain.Load() {
		full := c.r == 0 && c.w == len(c.buf)
		n, m, err := c.scan.scan(c.buf[c.r:c.w], full)
		if err == nil && n == 0 && full {
			err = errLong
		}
		if err != nil {
			if !c.misunderstand(err) {
				return false
			}
			break
		}
		if m.kind != none {
			switch fate, err := c.tell(m, c.flush, c.present); {
			case err != nil || fate == isCut:
				c.reset()
				return false
			case fate == isDropped:
				c.drain()
				return false
			}
		}
		c.r += n
		if n > 0 || m.kind != none {
			continue
		}
		if c.flush() != nil {
			break // which fails again
		}
		c.w = copy(c.buf, c.buf[c.r:c.w])
		c.sent, c.r = 0, 0
		if c.w < len(c.buf) {
			return true
		}
	}
	if c.plain.Load() {
		c.r = c.w
	}
	if c.flush() != nil {
		c.reset()
		return false
	}
	return true
}

var errLong = errors.New("a message that is not understood by its beginning")

// flush sends what was looked at.
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

// present says whether the other end is still there. What it has sent meanwhile is kept.
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

// misunderstand has the connection pass as bytes from now on; false: it ends instead.
func (c *carrier) misunderstand(err error) bool {
	c.say("%v", err)
	var refused *refusal
	if errors.As(err, &refused) {
		_, _ = c.from.Write(refused.answer)
		_ = c.from.Close()
		c.cancel(ErrGone)
		reset(c.to)
		return false
	}
	c.plain.Store(true)
	c.abandon()
	return true
}

// drain takes what comes, and its end, and passes nothing on.
func (c *carrier) drain() {
	_, _ = io.Copy(io.Discard, c.from)
	_ = c.to.Close()
}

// end passes the end of a direction on, a reset as a reset.
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
