package explore_test

import (
	"path/filepath"
	"testing"
)

// Each of these schedules was once reported as a failure that the lock does not have. The causes
// were in the simulator, or a promise of the lock was not stated:
//
//   - redlock, waits-as-told: a time-out after 599.999966 ms did not count as one after 600 ms.
//   - redlock, no-lost-wakeup: a request that arrived late had the lock, so it was not free.
//   - watchdog, no-residue: the schedule was cut off while an actor still worked.
//   - zookeeper-fenced, order-of-service: the session of a paused waiter had ended.
//   - watchdog, no-lost-wakeup: the waiter looked again after exactly the time that is promised.
//   - handoff and watchdog-fenced, renews-own: the holder had acquired the lock again.
//   - handoff, renews-own: the clean-up of a late request had handed the lock on.
//   - handoff, order-of-service: a process that has not waited yet does not know that others wait.
//   - handoff, loss-notified: after a lost reply, the process had given its lease back early.
//   - zookeeper-fenced, renews-own: two drivers of one process share its session.
//   - setnx, one-winner: time passed for a lease that a cancelled driver had given back.
//   - setnx-getset, one-winner: the same, where the next driver had stored the same stamp.
//   - redislock, waits-as-told: its library does not wait for a lock that is taken.
//   - redlock-miswired, loss-notified: what an earlier try got had expired, and counted for this lease.
//   - redlock-miswired, no-lost-wakeup: a late release had not reached its server, so its lock was not free.
//   - redlock-miswired, no-lost-wakeup: a release was lost on the node that has two of the three locks.
//   - watchdog, write-after-expiry: time passed for a lease whose release had lost its reply.
//   - zookeeper, waits-as-told: the release of a cancelled driver waited for a new session.
//   - redis-stock, answers-agree: a lost reply had lost the unit that was set aside, which is claimed as F42.
//   - handoff, lease-exclusive: a release had queued the turn, so the driver itself had asked for nothing.
//   - redlock, waits-as-told: a release of a driver that had ended was still on its way.
//   - redsync, no-lost-wakeup: the requests of the waiter had failed, so it did not know that the lock was free.
//   - redsync, waits-as-told: its library gives up after 32 tries.
//   - redlock, lease-exclusive: a request of an earlier attempt arrived late, and hid the lease of the later one.
//   - redlock, loss-notified: the clean-up of an earlier attempt came late, and hid the lease of the later one.
//   - zookeeper, stuck: the client of a dead process had connected again, and kept its session alive.
//   - watchdog, renews-own: the server's clock had ended the lease before its time was over.
func TestFalseAlarms(t *testing.T) {
	files, err := filepath.Glob("testdata/false-alarms/*.txt")
	if err != nil || len(files) != 29 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			s, r := replayFile(t, path)
			for _, f := range r.Failures {
				if f.Property == s.Property { // the fault may break others, as the registry claims
					t.Errorf("%s: %s", f.Property, f.Why)
				}
			}
		})
	}
}
