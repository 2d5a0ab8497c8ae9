package sim

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing/synctest"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
)

// learnClosing closes lockers that still have work to do, and records in mistake what is wrong with that.
// No schedule does so, because a service closes its lock only after all its grabs have returned.
func (x *execution) learnClosing() {
	if c := x.cluster; c.mistake != "" || !c.locks() || !c.showsToken || len(c.nodes) == 0 || c.isEndless() {
		return
	}
	taken := x.whileHeld("awaited", func(lock.Locker, lock.Lease) string { return x.closeWhileAwaited() })
	if taken && !x.whileHeld("held", x.closeWhileHeld) {
		x.noteMistake("the lock cannot be taken after a waiter's lock was closed")
	}
}

// noteMistake records a mistake of the lock, unless an earlier one is known.
func (x *execution) noteMistake(mistake string) {
	x.cluster.mistake = cmp.Or(x.cluster.mistake, mistake)
}

// whileHeld takes the lock and calls check, which closes a locker and returns what was wrong with that. check
// returns "" if everything was right. as is "held" or "awaited". whileHeld returns whether it could take the lock.
func (x *execution) whileHeld(as string, check func(lock.Locker, lock.Lease) (wrong string)) (taken bool) {
	locker, err := x.closingLocker("closing-"+as, 0)
	if err != nil {
		return false // in the first round, every schedule will show that
	}
	defer locker.Close()
	lease, err := locker.Acquire(context.Background(), x.cluster.key())
	if err != nil {
		return false
	}
	defer lease.Release(context.Background()) // ends even a renewal that should have ended before
	if wrong := check(locker, lease); wrong != "" {
		x.noteMistake(fmt.Sprintf("a lock was closed while it was %s: %s", as, wrong))
	}
	return true
}

// closingLocker returns a new locker. Its tokens and its node are named after name.
func (x *execution) closingLocker(name string, wait time.Duration) (lock.Locker, error) {
	env, tokens := x.world.env(x.cluster.prober), 0
	env.Node, env.Wait = name, wait
	env.Token = func() string { tokens++; return fmt.Sprintf("%s-%d", name, tokens) }
	return x.cluster.Strategy.New(env)
}

// closeWhileAwaited closes a locker while one of its clients waits for the lock, which another client
// holds. The waiter must end in time, without the lock, and must leave nothing behind.
func (x *execution) closeWhileAwaited() (wrong string) {
	wait := x.cluster.TTL * 3 / 4
	if x.cluster.renews {
		wait = 2 * x.cluster.TTL
	}
	before, listeners := x.storedKeys(), x.listeners()
	locker, err := x.closingLocker("closing-waiter", wait)
	if err != nil {
		return fmt.Sprintf("a second locker cannot be created: %v", err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := locker.Acquire(context.Background(), x.cluster.key())
		ended <- err
	}()
	time.Sleep(wait / 2)
	if took := closeLocker(locker); took > longestGoodbye {
		return fmt.Sprintf("Close took %s", took)
	}
	select {
	case err = <-ended:
	case <-time.After(wait + longestGoodbye):
		return "the waiter still waits after its wait time"
	}
	synctest.Wait() // let the clients cancel their watches
	x.world.timePassed()
	added := slices.DeleteFunc(x.storedKeys(), func(key string) bool {
		return slices.Contains(before, key) || slices.Contains(x.cluster.residue, key)
	})
	switch {
	case err == nil:
		return "the waiter got the lock although another client held it"
	case len(added) > 0:
		return fmt.Sprintf("the servers still store %s", added[0])
	case x.listeners() > listeners:
		return "a server still notifies the waiter"
	}
	return ""
}

// closeWhileHeld closes a locker while one of its clients holds the lock. The lease must stay until it
// expires, without renewals, and its holder must then learn of the loss.
func (x *execution) closeWhileHeld(locker lock.Locker, lease lock.Lease) (wrong string) {
	if x.cluster.renews {
		time.Sleep(x.cluster.TTL) // the lease has now been renewed several times
	}
	if took := closeLocker(locker); took > longestGoodbye {
		return fmt.Sprintf("Close took %s", took)
	}
	x.world.timePassed()
	stored := func() bool { return x.world.stores(lease.Token()) || slices.Contains(x.storedKeys(), x.cluster.key()) }
	switch {
	case lease.Lost() != nil && lock.IsClosed(lease.Lost()):
		return "the holder was told that it had lost its lease"
	case !stored():
		return "the servers no longer store the lease"
	}
	calls := x.gate.passed.Load()
	time.Sleep(x.cluster.TTL * 5 / 4)
	x.world.timePassed()
	switch {
	case x.gate.passed.Load() > calls:
		return "it sent another request"
	case lease.Lost() != nil && !lock.IsClosed(lease.Lost()):
		return "the lease has expired, but the holder was not told"
	case x.cluster.renews && stored(): // without renewals, a lease that never expires has another cause
		return "the lease does not expire"
	}
	return ""
}

// closeLocker closes a locker and returns how long that took.
func closeLocker(l lock.Locker) time.Duration {
	began := time.Now()
	_ = l.Close()
	return time.Since(began).Round(time.Millisecond)
}

func (x *execution) storedKeys() []string {
	return catalog.Map(x.world.entries(), func(e entry) string { return e.key })
}

// listeners returns how many clients the servers notify of changes to the lock.
func (x *execution) listeners() (n int) {
	for _, node := range x.cluster.nodes {
		if s, ok := node.lockServer.(notifier); ok {
			n += s.listeners(x.cluster.key())
		}
	}
	return n
}
