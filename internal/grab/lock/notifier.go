package lock

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// unsubscribedWait is after how long a waiter looks at the lock while its
	// subscription does not stand: no message can come before.
	unsubscribedWait = time.Second
	// reconnectPause is after how long a connection is opened again that could not
	// be opened the last time.
	reconnectPause = 100 * time.Millisecond
)

// notifier tells the waiters of a process that a lock was published as free. One
// connection serves all waiters of a locker, one channel all waiters of a lock.
//
// A message wakes one waiter, for only one can have the lock; when the lock is
// released again, another message comes. A waiter that was woken and leaves without
// having looked wakes the next. The acknowledgement of a subscription wakes all,
// each time: what was published before it, while the connection was being opened,
// has been missed (F16).
type notifier struct {
	redis  redis.UniversalClient
	ctx    context.Context
	cancel context.CancelFunc

	running sync.WaitGroup
	changed chan struct{} // one slot: there are channels to subscribe or unsubscribe

	mu       sync.Mutex // never held across anything that waits
	started  bool
	channels map[string]*channel // those with waiters
	pending  map[string]struct{} // those that got their first waiter, or lost their last
}

// channel is one that some client waits on.
type channel struct {
	subscribed bool // and acknowledged
	waiters    []*waiter
}

func newNotifier(client redis.UniversalClient) *notifier {
	n := &notifier{
		redis:    client,
		changed:  make(chan struct{}, 1),
		channels: map[string]*channel{},
		pending:  map[string]struct{}{},
	}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	return n
}

// join adds a waiter to the channel. Its first wait ends when the subscription
// stands, or at once if it does: only what is looked at after that is sure to
// be followed by a message.
func (n *notifier) join(name string) *waiter {
	n.mu.Lock()
	defer n.mu.Unlock()
	c, ok := n.channels[name]
	if !ok {
		c = &channel{}
		n.channels[name] = c
		n.changeLocked(name)
	}
	w := &waiter{notifier: n, name: name, channel: c, signal: make(chan struct{}, 1)}
	c.waiters = append(c.waiters, w)
	if c.subscribed {
		w.wake()
	}
	if !n.started {
		n.started = true
		n.running.Go(n.subscribe)
	}
	return w
}

func (n *notifier) changeLocked(name string) {
	n.pending[name] = struct{}{}
	select {
	case n.changed <- struct{}{}:
	default:
	}
}

// changes takes the channels that have waiters since the last time, and those that
// have none any more.
func (n *notifier) changes() (come, gone []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(n.pending)) {
		if _, ok := n.channels[name]; ok {
			come = append(come, name)
		} else {
			gone = append(gone, name)
		}
	}
	clear(n.pending)
	return come, gone
}

// subscribe makes the subscriptions what the waiters need. It has a goroutine
// of its own because it may have to open a connection, and waiters must be able
// to leave meanwhile. Its errors are not lost: listen opens the connection again,
// with every channel that was ever asked for and not given up.
func (n *notifier) subscribe() {
	pubsub := n.redis.Subscribe(n.ctx)
	listening := false
	for {
		select {
		case <-n.changed:
		case <-n.ctx.Done():
			ctx, cancel := cleanupContext(n.ctx)
			_ = pubsub.Unsubscribe(ctx)
			cancel()
			_ = pubsub.Close()
			return
		}
		come, gone := n.changes()
		if len(gone) > 0 {
			_ = pubsub.Unsubscribe(n.ctx, gone...)
		}
		if len(come) > 0 {
			_ = pubsub.Subscribe(n.ctx, come...)
		}
		if !listening {
			listening = true
			n.running.Go(func() { n.listen(pubsub) })
		}
	}
}

// listen ends when the subscription is closed.
func (n *notifier) listen(pubsub *redis.PubSub) {
	failed := false
	for {
		msg, err := pubsub.Receive(n.ctx)
		switch msg := msg.(type) {
		case *redis.Message:
			n.wakeOne(msg.Channel)
		case *redis.Subscription:
			if msg.Kind == "subscribe" {
				n.wakeAll(msg.Channel)
			}
		}
		if errors.Is(err, redis.ErrClosed) {
			return
		}
		if err != nil && failed {
			sleep(n.ctx, reconnectPause)
		}
		failed = err != nil
	}
}

func (n *notifier) wakeOne(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if c, ok := n.channels[name]; ok {
		c.wakeOneLocked()
	}
}

func (n *notifier) wakeAll(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if c, ok := n.channels[name]; ok {
		c.subscribed = true
		for _, w := range c.waiters {
			w.wake()
		}
	}
}

// wakeOneLocked wakes the waiter that has waited longest and is not awake yet.
func (c *channel) wakeOneLocked() {
	for _, w := range c.waiters {
		if w.wake() {
			return
		}
	}
}

// close gives up the connection. No client may wait any more.
func (n *notifier) close() {
	n.cancel()
	n.running.Wait()
}

// waiter is a client that waits on a channel.
type waiter struct {
	*notifier
	name    string
	channel *channel
	signal  chan struct{} // one slot
	woken   bool          // and has not looked since; the waiter's own
}

// wake is false if the waiter was awake already.
func (w *waiter) wake() bool {
	select {
	case w.signal <- struct{}{}:
		return true
	default:
		return false
	}
}

// wait returns when it is worth looking at the lock: it was published as free,
// or most has passed. The error is the context's.
func (w *waiter) wait(ctx context.Context, most time.Duration) error {
	if !w.subscribed() {
		most = min(most, unsubscribedWait)
	}
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-w.signal:
		w.woken = true
		return nil
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *waiter) subscribed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.channel.subscribed
}

// looked says that the lock has been looked at since the last wait.
func (w *waiter) looked() { w.woken = false }

// leave ends the waiting. A wake-up that was not made use of goes to the next.
func (w *waiter) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.channel
	i := slices.Index(c.waiters, w)
	c.waiters = slices.Delete(c.waiters, i, i+1)
	if len(c.waiters) == 0 {
		delete(w.channels, w.name)
		w.changeLocked(w.name)
		return
	}
	if w.woken || len(w.signal) > 0 {
		c.wakeOneLocked()
	}
}
