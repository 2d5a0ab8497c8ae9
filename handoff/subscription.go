package handoff

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// silence is after how long without a message a sign of life is asked for, and how
	// long that may take: a connection may be dead without an error.
	silence = 3 * time.Second
	// reopenPause is before a subscription is opened again that has failed.
	reopenPause = 100 * time.Millisecond
)

// openLocked opens the subscription on which all waiters of the locker are told, when
// somebody first has to wait.
func (l *Locker) openLocked() {
	if !l.opened && !l.closed {
		l.opened = true
		l.running.Go(l.listen)
	}
}

func (l *Locker) listen() {
	for l.closing.Err() == nil {
		pubsub := l.client.Subscribe(l.closing, l.channel) // its error comes again with Receive
		unsubscribe := context.AfterFunc(l.closing, func() { _ = pubsub.Close() })
		err := l.receive(pubsub)
		unsubscribe()
		_ = pubsub.Close()
		l.mu.Lock()
		l.subscribed = false
		l.mu.Unlock()
		if l.closing.Err() == nil {
			l.opt.Logger.Debug("handoff: subscription lost", "channel", l.channel, "error", err)
			sleep(l.closing, min(reopenPause, l.check))
		}
	}
}

// receive returns when the subscription has failed.
func (l *Locker) receive(pubsub *redis.PubSub) error {
	for silent := false; ; {
		msg, err := pubsub.ReceiveTimeout(l.closing, silence)
		var timeout net.Error
		switch {
		case err == nil:
			silent = false
		case !silent && errors.As(err, &timeout) && timeout.Timeout():
			silent = true
			err = pubsub.Ping(l.closing)
		}
		if err != nil {
			return err
		}
		switch msg := msg.(type) {
		case *redis.Message:
			if m, ok := parseMessage(msg.Payload); ok {
				l.deliver(m)
			}
		case *redis.Subscription:
			if msg.Kind == "subscribe" {
				l.confirmed()
			}
		}
	}
}

// confirmed takes in that the subscription stands. What was published while it did not has
// been missed, and who stood in a queue was passed over. If the server was away it may have
// forgotten the leases.
func (l *Locker) confirmed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.subscribed = true
	now := time.Now()
	for _, key := range slices.Sorted(maps.Keys(l.queues)) {
		q := l.queues[key]
		q.due = now
		q.attendLocked(now)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
