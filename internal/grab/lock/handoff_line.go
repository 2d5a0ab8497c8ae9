package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// A line that does not open is tried again after this.
	linePause = 100 * time.Millisecond
	// A line that has not answered a ping for so long is opened anew.
	lineSilence = 3 * time.Second
)

// line is the subscription on which the waiters of a locker are woken: one
// channel, one connection. It is opened when somebody first has to wait.
type line struct {
	*oldHandoffLocker
	redis   redis.UniversalClient
	addr    string
	channel string
	ctx     context.Context
	cancel  context.CancelFunc
	up      chan struct{} // closes when the subscription first stands
	ended   chan struct{}

	// Guarded by mu.
	started bool
	stood   bool
	pubsub  *redis.PubSub // the one in use
	pinged  time.Time     // the first ping without an answer; zero: all were answered
	pinging bool
}

func newLine(l *oldHandoffLocker, client redis.UniversalClient, addr string) *line {
	n := &line{
		oldHandoffLocker: l, redis: client, addr: addr,
		// Each node of a Cluster passes on every message, so each line has a channel of its own.
		channel: fmt.Sprintf("handoff:%s%s:%v", l.id, addr, l.ttl),
		up:      make(chan struct{}), ended: make(chan struct{}),
	}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	return n
}

// isUp says whether wake-ups have a way to come. They may still be lost with a
// connection.
func (n *line) isUp() bool {
	select {
	case <-n.up:
		return true
	default:
		return false
	}
}

// open opens the line and waits until it is up.
func (n *line) open(ctx context.Context, giveUp time.Time) error {
	n.mu.Lock()
	if !n.started && !n.closed {
		n.started = true
		n.running.Go(n.run)
	}
	n.mu.Unlock()

	timer := time.NewTimer(time.Until(giveUp))
	defer timer.Stop()
	select {
	case <-n.up:
		return nil
	case <-n.ended: // the next request opens another
		return nil
	case <-timer.C:
		return ErrBusy
	case <-ctx.Done():
		return ctx.Err()
	case <-n.closing:
		return errClosed
	}
}

// run ends when the line is hung up, or broken and not needed.
func (n *line) run() {
	defer close(n.ended)
	defer n.cancel()
	for {
		pubsub := n.redis.Subscribe(n.ctx, n.channel) // its error comes again with Receive
		needed := n.use(pubsub)
		if needed {
			needed = n.receive(pubsub)
		}
		_ = pubsub.Close()
		if !needed {
			return
		}
	}
}

// use makes pubsub the one to hang up, unless it is too late for that.
func (n *line) use(pubsub *redis.PubSub) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pubsub, n.pinged = pubsub, time.Time{}
	return !n.closed
}

// receive delivers wake-ups. go-redis opens the connection again when it
// fails. It is false once the line is not needed any more, and true if another
// subscription is to take its place.
func (n *line) receive(pubsub *redis.PubSub) bool {
	for failed := false; ; {
		msg, err := pubsub.Receive(n.ctx)
		switch msg := msg.(type) {
		case *redis.Message:
			n.deliver(msg.Payload)
		case *redis.Subscription:
			if msg.Kind != "subscribe" {
				return false
			}
			n.confirmed()
		case *redis.Pong:
			n.heard()
		}
		if err != nil && !n.needed() {
			return false
		}
		if errors.Is(err, redis.ErrClosed) {
			return true
		}
		if err != nil && failed {
			sleep(n.ctx, min(linePause, n.check))
		}
		failed = err != nil
	}
}

// confirmed takes in that the subscription stands. Wake-ups that came while it
// did not have been missed, and places in the queue passed over. If the server
// was away it may have forgotten the leases, and no run is to go on then.
func (n *line) confirmed() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.stood {
		n.stood = true
		close(n.up)
		return
	}
	now := time.Now()
	for _, p := range n.places {
		if p.line == n && (p.state == queued || p.state == holding) {
			p.due = now
		}
	}
	n.wakeBy(now)
}

// needed says whether somebody waits for wake-ups on the line. One that is not
// needed is forgotten.
func (n *line) needed() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return false
	}
	for _, p := range n.places {
		if p.line == n && (p.state == asking || p.state == queued) {
			return true
		}
	}
	delete(n.lines, n.addr)
	return false
}

func (n *line) heard() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pinged = time.Time{}
}

// ping asks for a sign of life: a connection may be dead without an error. It
// is called with mu held and does not wait for the answer.
func (n *line) ping() {
	if !n.stood || n.pinging || n.closed {
		return
	}
	if n.pinged.IsZero() {
		n.pinged = time.Now()
	}
	n.pinging = true
	pubsub, dead := n.pubsub, time.Since(n.pinged) > lineSilence
	n.running.Go(func() {
		if dead {
			_ = pubsub.Close() // run opens another
		} else {
			_ = pubsub.Ping(n.ctx)
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		n.pinging = false
	})
}

// hangUp ends the line: politely if the server answers, else by force.
func (n *line) hangUp() {
	n.mu.Lock()
	pubsub, started := n.pubsub, n.started
	n.mu.Unlock()
	if !started {
		n.cancel()
		return
	}
	if pubsub != nil {
		force := time.AfterFunc(cleanupTimeout, func() {
			n.cancel()
			_ = pubsub.Close()
		})
		defer force.Stop()
		_ = pubsub.Unsubscribe(n.ctx, n.channel)
	}
	<-n.ended
}
