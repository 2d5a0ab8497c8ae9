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
	// unsubscribedWait is the longest pause between two checks of the lock while the subscription
	// is not confirmed.
	unsubscribedWait = time.Second
	// reconnectPause is the pause between two attempts to reconnect.
	reconnectPause = 100 * time.Millisecond
)

// A notifier wakes the waiters of watchdog and its variants when Redis publishes that a lock is free.
// All locks share one connection, and each lock has one channel.
//
// A message wakes one waiter, because only one client can take the lock. If that waiter leaves
// without checking the lock, it wakes the next one. A confirmed subscription wakes all waiters,
// because they may have missed an earlier message.
type notifier struct {
	redis  redis.UniversalClient
	ctx    context.Context
	cancel context.CancelFunc

	running tasks
	changed chan struct{} // signals that pending is not empty

	mu       sync.Mutex // never held while waiting
	started  bool
	channels map[string]*channel // the channels with waiters
	pending  map[string]struct{} // channels that may need to be subscribed or unsubscribed
}

// A channel is a Redis channel on which at least one client of this process waits for messages.
type channel struct {
	subscribed bool // whether Redis has acknowledged the subscription
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

// join adds a waiter to a channel. The waiter's first wait ends as soon as the subscription is
// confirmed, because it may have missed earlier messages.
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

// changes returns the channels that may have changed since the last call. Those in come need a
// subscription, and those in gone no longer need one.
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

// subscribe subscribes to all channels with waiters, and unsubscribes from the others. It ignores
// errors, because the Redis client subscribes again once it has reconnected.
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

// listen passes messages to the waiters until the notifier is closed.
func (n *notifier) listen(pubsub *redis.PubSub) {
	failed := false
	for {
		msg, err := pubsub.Receive(n.ctx)
		n.deliver(msg)
		if errors.Is(err, redis.ErrClosed) || n.ctx.Err() != nil {
			return
		}
		if err != nil && failed {
			Sleep(n.ctx, reconnectPause)
		}
		failed = err != nil
	}
}

// deliver wakes one waiter when a message is published. When the subscription to a channel is
// confirmed, it wakes all waiters of that channel.
func (n *notifier) deliver(msg any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch msg := msg.(type) {
	case *redis.Message:
		if c, ok := n.channels[msg.Channel]; ok {
			c.wakeOneLocked()
		}
	case *redis.Subscription:
		if c, ok := n.channels[msg.Channel]; ok && msg.Kind == "subscribe" {
			c.subscribed = true
			for _, w := range c.waiters {
				w.wake()
			}
		}
	}
}

// wakeOneLocked wakes the sleeping waiter that has waited longest.
func (c *channel) wakeOneLocked() {
	for _, w := range c.waiters {
		if w.wake() {
			return
		}
	}
}

// close closes the connection. It must not be called while a client waits.
func (n *notifier) close() {
	n.cancel()
	n.running.Wait()
}

// A waiter is a client that waits until another client releases a lock.
type waiter struct {
	*notifier
	name    string
	channel *channel
	signal  chan struct{} // has room for one signal
	woken   bool          // whether the waiter was woken and has not checked the lock since; not guarded by mu
}

// wake wakes the waiter. It returns false if the waiter was already awake.
func (w *waiter) wake() bool {
	select {
	case w.signal <- struct{}{}:
		return true
	default:
		return false
	}
}

// wait returns nil when the lock may be free, or once most has passed. If ctx ends first, it
// returns the error of ctx.
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

func (w *waiter) noteChecked() { w.woken = false }

// leave removes the waiter from its channel. If the waiter was woken but has not checked the lock,
// leave wakes another waiter instead.
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
