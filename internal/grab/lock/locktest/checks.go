package locktest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"grablab/internal/grab/lock"
)

// Times of the checks. The slack is for a machine that does much else: nothing
// is measured by it, it only parts an answer from a hang.
const (
	longTTL  = 20 * time.Second
	shortTTL = time.Second
	slack    = 2 * time.Second
	settling = shortTTL / 2 // what is left for longer than this was forgotten
)

func unexpected(what string, err error) error { return fmt.Errorf("%s: %w", what, err) }

// want turns an error that is not the wanted one into an error that says so.
func want(what string, got, wanted error) error {
	if !errors.Is(got, wanted) {
		return fmt.Errorf("%s: %v; want %v", what, got, wanted)
	}
	return nil
}

// held checks that nobody else can take the key now.
func held(ctx context.Context, by string, rival lock.Locker, key string) error {
	lease, err := rival.Acquire(ctx, key)
	if err == nil {
		_ = lease.Release(ctx)
		return fmt.Errorf("%s has the lock, and a rival got it too", by)
	}
	return want("a rival of "+by, err, lock.ErrBusy)
}

// busy: while one has it, another gets ErrBusy, at once or after the wait.
func busy(ctx context.Context, s Subject) error {
	for _, wait := range []time.Duration{0, 300 * time.Millisecond} {
		if err := busyFor(ctx, s, wait); err != nil {
			return fmt.Errorf("wait %v: %w", wait, err)
		}
	}
	return nil
}

func busyFor(ctx context.Context, s Subject, wait time.Duration) error {
	key := "locktest:{busy}"
	holder, rival, stop, err := s.pair(longTTL, wait)
	if err != nil {
		return err
	}
	defer stop()
	lease, err := holder.Acquire(ctx, key)
	if err != nil {
		return unexpected("acquire", err)
	}
	if lease.Token() == "" {
		return errors.New("the lease has no token")
	}
	began := time.Now()
	if err := held(ctx, "the holder", rival, key); err != nil {
		return err
	}
	if took := time.Since(began); took < wait || took > wait+slack {
		return fmt.Errorf("ErrBusy came after %v", took)
	}
	if err := lease.Release(ctx); err != nil {
		return unexpected("release", err)
	}
	return s.nothingLeft(ctx, key)
}

// triesOnce: under TryOnce a long wait is none.
func triesOnce(ctx context.Context, s Subject) error {
	key := "locktest:{once only}"
	holder, rival, stop, err := s.pair(longTTL, 2*slack)
	if err != nil {
		return err
	}
	defer stop()
	lease, err := holder.Acquire(lock.TryOnce(ctx), key)
	if err != nil {
		return unexpected("acquire", err)
	}
	began := time.Now()
	if err := held(lock.TryOnce(ctx), "the holder", rival, key); err != nil {
		return err
	}
	if took := time.Since(began); took > slack {
		return fmt.Errorf("ErrBusy came after %v", took)
	}
	if err := lease.Release(ctx); err != nil {
		return unexpected("release", err)
	}
	return s.nothingLeft(ctx, key)
}

// wakes: a waiter gets the lock soon after its release.
func wakes(ctx context.Context, s Subject) error {
	key := "locktest:{wakes}"
	holder, rival, stop, err := s.pair(longTTL, longTTL)
	if err != nil {
		return err
	}
	defer stop()
	lease, err := holder.Acquire(ctx, key)
	if err != nil {
		return unexpected("acquire", err)
	}
	waiting := acquire(ctx, rival, key)
	select {
	case got := <-waiting:
		return fmt.Errorf("the waiter did not wait: %v", got.err)
	case <-time.After(200 * time.Millisecond):
	}
	if err := lease.Release(ctx); err != nil {
		return unexpected("release", err)
	}
	select {
	case got := <-waiting:
		if got.err != nil {
			return unexpected("the waiter", got.err)
		}
		if err := got.lease.Release(ctx); err != nil {
			return unexpected("the waiter's release", err)
		}
	case <-time.After(slack):
		return fmt.Errorf("the waiter was not there %v after the release", slack)
	}
	return s.nothingLeft(ctx, key)
}

type acquired struct {
	lease lock.Lease
	err   error
}

func acquire(ctx context.Context, l lock.Locker, key string) <-chan acquired {
	done := make(chan acquired, 1)
	go func() {
		lease, err := l.Acquire(ctx, key)
		done <- acquired{lease, err}
	}()
	return done
}

// releaseOnce: releasing again frees nobody else's lock.
func releaseOnce(ctx context.Context, s Subject) error {
	key := "locktest:{once}"
	first, second, stop, err := s.pair(longTTL, 0)
	if err != nil {
		return err
	}
	defer stop()
	a, err := first.Acquire(ctx, key)
	if err != nil {
		return unexpected("acquire", err)
	}
	if err := a.Release(ctx); err != nil {
		return unexpected("release", err)
	}
	b, err := second.Acquire(ctx, key)
	if err != nil {
		return unexpected("acquire after a release", err)
	}
	if a.Token() == b.Token() {
		return fmt.Errorf("two acquisitions have one token, %q", a.Token())
	}
	if err := want("a second release", a.Release(ctx), lock.ErrLost); err != nil {
		return err
	}
	if err := held(ctx, "the second holder", first, key); err != nil {
		return err
	}
	if err := b.Release(ctx); err != nil {
		return unexpected("the second holder's release", err)
	}
	return s.nothingLeft(ctx, key)
}

// releaseLost: a lease that somebody else has by now is told so, and does not
// free the other's lock.
func releaseLost(ctx context.Context, s Subject) error {
	key := "locktest:{stale}"
	first, second, stop, err := s.pair(longTTL, 0)
	if err != nil {
		return err
	}
	defer stop()
	a, err := first.Acquire(ctx, key)
	if err != nil {
		return unexpected("acquire", err)
	}
	if err := s.Drop(ctx, key); err != nil {
		return err
	}
	b, err := second.Acquire(ctx, key)
	if err != nil {
		return unexpected("acquire after the loss", err)
	}
	if err := want("release of the lost lease", a.Release(ctx), lock.ErrLost); err != nil {
		return err
	}
	if err := held(ctx, "the new holder", first, key); err != nil {
		return err
	}
	if err := b.Release(ctx); err != nil {
		return unexpected("the new holder's release", err)
	}
	return s.nothingLeft(ctx, key)
}

// expiry: what a dead process held is free after the TTL.
func expiry(ctx context.Context, s Subject) error {
	key := "locktest:{expiry}"
	holder, err := s.start(shortTTL, 0)
	if err != nil {
		return err
	}
	if _, err := holder.Acquire(ctx, key); err != nil {
		return unexpected("acquire", err)
	}
	rival, err := s.start(shortTTL, 0)
	if err != nil {
		return err
	}
	err = held(ctx, "a live holder", rival, key)
	_, _ = holder.stop(), rival.stop()
	if err != nil {
		return err
	}
	heir, err := s.start(shortTTL, shortTTL+slack)
	if err != nil {
		return err
	}
	defer heir.stop()
	lease, err := heir.Acquire(ctx, key)
	if err != nil {
		return unexpected("acquire after the holder's end", err)
	}
	if err := lease.Release(ctx); err != nil {
		return unexpected("release", err)
	}
	return s.nothingLeft(ctx, key)
}

// kept: a lease outlives its TTL for as long as it is held.
func kept(ctx context.Context, s Subject) error {
	key := "locktest:{kept}"
	holder, rival, stop, err := s.pair(shortTTL, 0)
	if err != nil {
		return err
	}
	defer stop()
	lease, err := holder.Acquire(ctx, key)
	if err != nil {
		return unexpected("acquire", err)
	}
	select {
	case <-lease.Lost():
		return errors.New("the lease was given up as lost")
	case <-time.After(2 * shortTTL):
	}
	if err := held(ctx, "the holder", rival, key); err != nil {
		return err
	}
	if err := lease.Release(ctx); err != nil {
		return unexpected("release", err)
	}
	return s.nothingLeft(ctx, key)
}

// lossKnown: the next renewal finds the lock gone, and the holder is told.
func lossKnown(ctx context.Context, s Subject) error {
	const ttl = 3 * shortTTL
	key := "locktest:{lost}"
	holder, rival, stop, err := s.pair(ttl, 0)
	if err != nil {
		return err
	}
	defer stop()
	lease, err := holder.Acquire(ctx, key)
	if err != nil {
		return unexpected("acquire", err)
	}
	if err := held(ctx, "the holder", rival, key); err != nil {
		return err
	}
	if err := s.Drop(ctx, key); err != nil {
		return err
	}
	select {
	case <-lease.Lost():
	case <-time.After(ttl * 2 / 3):
		return fmt.Errorf("the loss was not known after two thirds of the TTL")
	}
	if err := want("release of the lost lease", lease.Release(ctx), lock.ErrLost); err != nil {
		return err
	}
	return s.nothingLeft(ctx, key)
}

var errCut = errors.New("locktest: the reply is lost")

// unconfirmed: a lease whose renewals get no answer is lost when it has run
// out, and not at the first silence.
func unconfirmed(ctx context.Context, s Subject) error {
	key := "locktest:{unconfirmed}"
	holder, rival, stop, err := s.pair(shortTTL, 0)
	if err != nil {
		return err
	}
	defer stop()
	var cut atomic.Bool
	var silent atomic.Int32
	acquiring := onReply(ctx, func() error {
		if !cut.Load() {
			return nil
		}
		silent.Add(1)
		return errCut
	})
	began := time.Now()
	lease, err := holder.Acquire(acquiring, key)
	if err != nil {
		return unexpected("acquire", err)
	}
	cut.Store(true)
	if err := held(ctx, "the holder", rival, key); err != nil {
		return err
	}
	select {
	case <-lease.Lost():
	case <-time.After(shortTTL + slack):
		return errors.New("the holder was never told")
	}
	if took := time.Since(began); took < shortTTL*2/3 {
		return fmt.Errorf("given up as lost after %v of %v", took, shortTTL)
	}
	if silent.Load() == 0 {
		return errors.New("no renewal was tried")
	}
	if err := lease.Release(ctx); err != nil && !errors.Is(err, lock.ErrLost) {
		return unexpected("release", err)
	}
	return s.nothingLeft(ctx, key)
}

// cancelledWaiting: a waiter whose client hangs up returns, and leaves nothing.
func cancelledWaiting(ctx context.Context, s Subject) error {
	key := "locktest:{cancelled}"
	holder, rival, stop, err := s.pair(longTTL, longTTL)
	if err != nil {
		return err
	}
	defer stop()
	lease, err := holder.Acquire(ctx, key)
	if err != nil {
		return unexpected("acquire", err)
	}
	patience, hangUp := context.WithCancel(ctx)
	defer hangUp()
	waiting := acquire(patience, rival, key)
	select {
	case got := <-waiting:
		return fmt.Errorf("the waiter did not wait: %v", got.err)
	case <-time.After(200 * time.Millisecond):
	}
	hangUp()
	select {
	case got := <-waiting:
		if err := want("the cancelled waiter", got.err, context.Canceled); err != nil {
			return err
		}
	case <-time.After(slack):
		return errors.New("the waiter waits on after its client has gone")
	}
	if err := lease.Release(ctx); err != nil {
		return unexpected("release", err)
	}
	if err := s.nothingLeft(ctx, key); err != nil {
		return err
	}
	if _, err := rival.Acquire(patience, key); !errors.Is(err, context.Canceled) {
		return fmt.Errorf("an acquire for a client that has gone: %v", err)
	}
	return s.nothingLeft(ctx, key)
}

// cancelledMidway: the client hangs up while the lock is being granted.
func cancelledMidway(ctx context.Context, s Subject) error {
	patience, hangUp := context.WithCancel(ctx)
	defer hangUp()
	return disturbed(ctx, s, "locktest:{midway}", longTTL, disturbance{
		ctx:    patience,
		reply:  func() error { hangUp(); return nil },
		wanted: context.Canceled,
	})
}

// lostReply: the lock is granted and the reply does not arrive. Nobody has the
// lock then, so that busy would be a wrong answer.
func lostReply(ctx context.Context, s Subject) error {
	return disturbed(ctx, s, "locktest:{lostreply}", longTTL, disturbance{
		ctx:      ctx,
		reply:    func() error { return errCut },
		unwanted: lock.ErrBusy,
	})
}

// lateReply: a grant that took longer than the lease lives is none (F12).
func lateReply(ctx context.Context, s Subject) error {
	var once sync.Once
	var late time.Time
	return disturbed(ctx, s, "locktest:{late}", shortTTL, disturbance{
		ctx: ctx,
		reply: func() error {
			once.Do(func() { late = time.Now().Add(shortTTL + shortTTL/10) })
			time.Sleep(time.Until(late))
			return nil
		},
	})
}

type disturbance struct {
	ctx              context.Context
	reply            func() error
	wanted, unwanted error
}

// disturbed acquires while something happens to each reply. It must come to no
// lease, and leave the key free at once.
func disturbed(ctx context.Context, s Subject, key string, ttl time.Duration, d disturbance) error {
	p, err := s.start(ttl, 0)
	if err != nil {
		return err
	}
	defer p.stop()
	// Once undisturbed: its scripts are loaded then, and its connections open.
	lease, err := p.Acquire(ctx, key)
	if err != nil {
		return unexpected("acquire", err)
	}
	if err := lease.Release(ctx); err != nil {
		return unexpected("release", err)
	}
	var replies atomic.Int32
	lease, err = p.Acquire(onReply(d.ctx, func() error { replies.Add(1); return d.reply() }), key)
	if err == nil {
		_ = lease.Release(ctx)
		return errors.New("it came to a lease")
	}
	if replies.Load() == 0 {
		return errors.New("no server was asked")
	}
	if d.wanted != nil && !errors.Is(err, d.wanted) {
		return fmt.Errorf("%v; want %v", err, d.wanted)
	}
	if d.unwanted != nil && errors.Is(err, d.unwanted) {
		return fmt.Errorf("it came to %v", err)
	}
	return s.nothingLeft(ctx, key)
}

// The crowd.
const (
	crowdSize = 1000
	crowdKeys = 50
	crowdWait = 5 * time.Second
)

// crowdHold is how long the ith acquirer holds: of the 20 of one key all can be
// served within the wait, and no two keys go in step.
func crowdHold(i int) time.Duration { return time.Duration(20+i*37%60) * time.Millisecond }

// crowd: many acquirers of few keys at once, on two processes. Each gets a
// lease or ErrBusy a second after the wait at the latest, no two hold one key,
// and every key is had.
func crowd(ctx context.Context, s Subject) error {
	first, second, stop, err := s.pair(longTTL, crowdWait)
	if err != nil {
		return err
	}
	had, err := rush(ctx, []lock.Locker{first, second})
	stop() // what a lock still has to undo, it has undone now
	if err != nil {
		return err
	}
	for key, times := range had {
		if times == 0 {
			return fmt.Errorf("key %d was never had", key)
		}
		if err := s.nothingLeft(ctx, crowdKey(key)); err != nil {
			return err
		}
	}
	return nil
}

// rush returns how often each key was had.
func rush(ctx context.Context, lockers []lock.Locker) ([]int, error) {
	var inside, had [crowdKeys]atomic.Int32
	var all sync.WaitGroup
	errs := make(chan error, crowdSize)
	for i := range crowdSize {
		key := i % crowdKeys
		all.Go(func() {
			errs <- func() error {
				began := time.Now()
				lease, err := lockers[i/crowdKeys%2].Acquire(ctx, crowdKey(key))
				if took := time.Since(began); took > crowdWait+time.Second {
					return fmt.Errorf("an acquire took %v", took)
				}
				if errors.Is(err, lock.ErrBusy) {
					return nil
				}
				if err != nil {
					return unexpected("acquire", err)
				}
				overlap := inside[key].Add(1) != 1
				had[key].Add(1)
				time.Sleep(crowdHold(i))
				inside[key].Add(-1)
				if err := lease.Release(ctx); err != nil {
					return unexpected("release", err)
				}
				if overlap {
					return errors.New("two held one key")
				}
				return nil
			}()
		})
	}
	all.Wait()
	close(errs)
	failed, sample := 0, error(nil)
	for err := range errs {
		if err != nil {
			failed, sample = failed+1, err
		}
	}
	if failed > 0 {
		return nil, fmt.Errorf("%d of %d acquirers; one: %w", failed, crowdSize, sample)
	}
	times := make([]int, crowdKeys)
	for key := range had {
		times[key] = int(had[key].Load())
	}
	return times, nil
}

func crowdKey(i int) string { return fmt.Sprintf("locktest:{crowd%d}", i) }
