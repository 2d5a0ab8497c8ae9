package lock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// How long to be patient with a subscription.
const (
	// While it does not stand yet, no message can come: look again after this.
	unsubscribedWait = time.Second
	// Its connection is opened again after this, if that failed the last time.
	reconnectPause = 100 * time.Millisecond
)

// wakeups wakes those who wait for a lock when it is published as free. One
// connection serves all waiters of a locker, one channel all waiters of a lock.
//
// A message wakes one of them, for only one can have the lock; as long as the
// lock is held again, another message will come. Whoever was woken and leaves
// without having looked wakes the next. The acknowledgement of a subscription
// wakes all, each time: what was published before it, while the connection was
// being opened, has been missed (F16).
type wakeups struct {
	redis  redis.UniversalClient
	ctx    context.Context
	cancel context.CancelFunc

	running sync.WaitGroup
	changed chan struct{} // one slot: there are channels to subscribe or unsubscribe

	mu      sync.Mutex // never held across anything that waits
	started bool
	topics  map[string]*topic
	pending map[string]struct{} // channels whose topics have come or gone
}

// topic is a channel that somebody waits on.
type topic struct {
	stands  bool // the subscription has been acknowledged
	waiters []*waiter
}

func newWakeups(client redis.UniversalClient) *wakeups {
	w := &wakeups{
		redis:   client,
		changed: make(chan struct{}, 1),
		topics:  map[string]*topic{},
		pending: map[string]struct{}{},
	}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w
}

// join adds a waiter to the channel. Its first wait ends when the subscription
// stands, or at once if it does: only what is looked at after that is sure to
// be followed by a message.
func (w *wakeups) join(channel string) *waiter {
	w.mu.Lock()
	defer w.mu.Unlock()
	t, ok := w.topics[channel]
	if !ok {
		t = &topic{}
		w.topics[channel] = t
		w.change(channel)
	}
	one := &waiter{wakeups: w, channel: channel, topic: t, signal: make(chan struct{}, 1)}
	t.waiters = append(t.waiters, one)
	if t.stands {
		one.wake()
	}
	if !w.started {
		w.started = true
		w.running.Go(w.subscribe)
	}
	return one
}

// change is called with mu held.
func (w *wakeups) change(channel string) {
	w.pending[channel] = struct{}{}
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// changes takes the channels that somebody waits on since the last time, and
// those that nobody does any more.
func (w *wakeups) changes() (come, gone []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for channel := range w.pending {
		if _, ok := w.topics[channel]; ok {
			come = append(come, channel)
		} else {
			gone = append(gone, channel)
		}
	}
	clear(w.pending)
	slices.Sort(come)
	slices.Sort(gone)
	return come, gone
}

// subscribe makes the subscriptions what the waiters need. It has a goroutine
// of its own because it may have to open a connection, and waiters must be able
// to leave meanwhile. Its errors are not lost: the listener opens the
// connection again, with every channel that was ever asked for and not given up.
func (w *wakeups) subscribe() {
	pubsub := w.redis.Subscribe(w.ctx)
	listening := false
	for {
		select {
		case <-w.changed:
		case <-w.ctx.Done():
			ctx, cancel := undoing(w.ctx)
			_ = pubsub.Unsubscribe(ctx)
			cancel()
			_ = pubsub.Close()
			return
		}
		come, gone := w.changes()
		if len(gone) > 0 {
			_ = pubsub.Unsubscribe(w.ctx, gone...)
		}
		if len(come) > 0 {
			_ = pubsub.Subscribe(w.ctx, come...)
		}
		if !listening {
			listening = true
			w.running.Go(func() { w.listen(pubsub) })
		}
	}
}

// listen ends when the subscription is closed.
func (w *wakeups) listen(pubsub *redis.PubSub) {
	failed := false
	for {
		msg, err := pubsub.Receive(w.ctx)
		switch msg := msg.(type) {
		case *redis.Message:
			w.wakeOne(msg.Channel)
		case *redis.Subscription:
			if msg.Kind == "subscribe" {
				w.wakeAll(msg.Channel)
			}
		}
		if errors.Is(err, redis.ErrClosed) {
			return
		}
		if err != nil && failed {
			rest(w.ctx, reconnectPause)
		}
		failed = err != nil
	}
}

// rest waits for d, or until ctx is done.
func rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (w *wakeups) wakeOne(channel string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t, ok := w.topics[channel]; ok {
		t.wakeOne()
	}
}

func (w *wakeups) wakeAll(channel string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t, ok := w.topics[channel]; ok {
		t.stands = true
		for _, one := range t.waiters {
			one.wake()
		}
	}
}

// wakeOne wakes who has waited longest and is not awake yet.
func (t *topic) wakeOne() {
	for _, one := range t.waiters {
		if one.wake() {
			return
		}
	}
}

// close gives up the connection. Nobody may wait any more.
func (w *wakeups) close() {
	w.cancel()
	w.running.Wait()
}

// waiter is one who waits on a channel.
type waiter struct {
	*wakeups
	channel string
	topic   *topic
	signal  chan struct{} // one slot
	woken   bool          // and has not looked since; the waiter's own
}

// wake is false if the waiter was awake already.
func (one *waiter) wake() bool {
	select {
	case one.signal <- struct{}{}:
		return true
	default:
		return false
	}
}

// wait returns when it is worth looking at the lock: it was published as free,
// or most has passed. The error is the context's.
func (one *waiter) wait(ctx context.Context, most time.Duration) error {
	if !one.subscribed() {
		most = min(most, unsubscribedWait)
	}
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-one.signal:
		one.woken = true
		return nil
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (one *waiter) subscribed() bool {
	one.mu.Lock()
	defer one.mu.Unlock()
	return one.topic.stands
}

// looked says that the lock has been looked at since the last wait.
func (one *waiter) looked() { one.woken = false }

// leave ends the waiting. A wake-up that was not made use of goes to the next.
func (one *waiter) leave() {
	one.mu.Lock()
	defer one.mu.Unlock()
	t := one.topic
	i := slices.Index(t.waiters, one)
	t.waiters = slices.Delete(t.waiters, i, i+1)
	if len(t.waiters) == 0 {
		delete(one.topics, one.channel)
		one.change(one.channel)
		return
	}
	if one.woken || len(one.signal) > 0 {
		t.wakeOne()
	}
}
