package conformtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
)

// trial is one run of a check. Its fatalf method ends the run and stops everything that the run has
// started.
type trial struct {
	Subject
	ctx  context.Context
	keys []string // keys that must be gone from the servers at the end
	key  string   // the first of keys
	err  error
	stop []func()
}

const hangTimeout = time.Minute

// run runs the check, and returns nil if the lock passes.
func (c check) run(ctx context.Context, s Subject) error {
	ctx, cancel := context.WithTimeout(ctx, hangTimeout)
	defer cancel()
	t := &trial{Subject: s, ctx: ctx}
	t.key = t.addKey(c.name)
	var running sync.WaitGroup
	running.Go(func() { // fatalf ends this goroutine
		defer t.stopAll()
		c.does(t)
		for _, key := range t.keys {
			t.nothingLeft(key)
		}
	})
	running.Wait()
	return t.err
}

// addKey returns a key that only this check uses. At the end, the key must be gone from the
// servers.
func (t *trial) addKey(name string) string {
	key := fmt.Sprintf("conformtest:%s:{%s}", t.Strategy.Name, name)
	t.keys = append(t.keys, key)
	return key
}

func (t *trial) fatalf(format string, args ...any) {
	t.err = fmt.Errorf(format, args...)
	runtime.Goexit()
}

func (t *trial) must(what string, err error) {
	if err != nil {
		t.fatalf("%s: %w", what, err)
	}
}

func (t *trial) want(what string, got, wanted error) {
	if !errors.Is(got, wanted) {
		t.fatalf("%s: got the error %v, want %v", what, got, wanted)
	}
}

// within returns the next value of a channel. If none comes within limit, the check fails.
func within[T any](t *trial, limit time.Duration, c <-chan T, failure string, args ...any) (v T) {
	select {
	case v = <-c:
	case <-time.After(limit):
		t.fatalf(failure, args...)
	}
	return v
}

// process is a locker with its own clients, so it behaves like a lock in a separate process.
type process struct {
	lock.Locker
	stop func() error // ends the process cleanly, but does not release leases
}

func (s Subject) start(ttl, wait time.Duration) (*process, error) {
	env, disconnect, err := s.Open(s.Spec)
	if err != nil {
		return nil, err
	}
	env.TTL, env.Wait = ttl, wait
	locker, err := s.Strategy.New(env)
	if err != nil {
		disconnect()
		return nil, err
	}
	return &process{locker, sync.OnceValue(func() error {
		defer disconnect()
		return locker.Close()
	})}, nil
}

// start opens a locker that is closed at the end of the check.
func (t *trial) start(ttl, wait time.Duration) *process {
	p, err := t.Subject.start(ttl, wait)
	t.must("start", err)
	t.stop = append(t.stop, func() { _ = p.stop() })
	return p
}

// pair starts one process for a holder and one for a contender. If the lock works only within a
// process, they share one.
func (t *trial) pair(ttl, wait time.Duration) (holder, contender *process) {
	holder = t.start(ttl, wait)
	if t.Strategy.Excludes == catalog.PerProcess {
		return holder, holder
	}
	return holder, t.start(ttl, wait)
}

func (t *trial) stopAll() {
	for _, stop := range t.stop {
		stop()
	}
}

func (t *trial) acquire(l lock.Locker) lock.Lease {
	lease, err := l.Acquire(t.ctx, t.key)
	t.must("acquire", err)
	return lease
}

func (t *trial) release(lease lock.Lease) { t.must("release", lease.Release(t.ctx)) }

// excluded checks that another client cannot acquire the key, and returns how long its attempt
// took.
func (t *trial) excluded(ctx context.Context, by string, contender lock.Locker) time.Duration {
	began := time.Now()
	lease, err := contender.Acquire(ctx, t.key)
	took := time.Since(began)
	if err == nil {
		_ = lease.Release(ctx)
		t.fatalf("%s has the lock, but another client got it too", by)
	}
	t.want("a client that competes with "+by, err, lock.ErrBusy)
	return took
}

type acquired struct {
	lease lock.Lease
	err   error
}

// waiter tries to acquire the key in the background. The check fails if the key is free at once.
func (t *trial) waiter(ctx context.Context, l lock.Locker) <-chan acquired {
	done := make(chan acquired, 1)
	go func() {
		lease, err := l.Acquire(ctx, t.key)
		done <- acquired{lease, err}
	}()
	select {
	case got := <-done:
		t.fatalf("Acquire did not wait, although another client has the lock: %v", got.err)
	case <-time.After(200 * time.Millisecond):
	}
	return done
}

// drop takes the lock away from its holder, as if the server had lost it.
func (t *trial) drop() { t.must("drop", t.Drop(t.ctx, t.key)) }

// nothingLeft checks that the servers store nothing for the key. It may wait a little, because a
// release can return before all servers have executed it.
func (t *trial) nothingLeft(key string) {
	if t.Left == nil {
		return
	}
	for began := time.Now(); ; {
		late := time.Since(began) > cmp.Or(t.Settling, settling)
		keys, err := t.Left(t.ctx, key)
		switch {
		case err == nil && len(keys) == 0:
			return
		case err != nil && (late || t.ctx.Err() != nil):
			t.fatalf("cannot ask the server which keys of %s are left: %w", key, err)
		case late || t.ctx.Err() != nil:
			t.fatalf("the check released its locks, but the server still stores %s", strings.Join(keys, " and "))
		}
		time.Sleep(settling / 50)
	}
}

type replyKey struct{}

// onReply returns a context that makes Replied call f after every reply, before the lock sees the
// reply. If f returns an error, the lock gets this error instead.
func onReply(ctx context.Context, f func() error) context.Context {
	return context.WithValue(ctx, replyKey{}, f)
}

// Replied must be called by a client after each reply. It may block. If it returns an error, the
// client must return this error instead of the reply.
func Replied(ctx context.Context) error {
	if f, ok := ctx.Value(replyKey{}).(func() error); ok {
		return f()
	}
	return nil
}
