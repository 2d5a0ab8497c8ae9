package grab_test

import (
	"testing"
	"time"

	"grablab/internal/grab"
	"grablab/internal/order"
)

var fencedStrategies = []string{"setnx-fenced", "watchdog-fenced"}

// TestForgottenCounter checks a lock whose counter is lower than the tokens that the order has already
// seen (F27). A grab must still succeed, with a token that is higher than all of them.
func TestForgottenCounter(t *testing.T) {
	for _, strategy := range fencedStrategies {
		for name, once := range map[string]bool{"waiting": false, "trying once": true} {
			t.Run(strategy+" "+name, func(t *testing.T) {
				play(t, strategy, func(s *scene) {
					if _, err := s.store.Read(s.Context(), s.order, 41); err != nil {
						t.Fatal(err)
					}
					a, b := s.instance(), s.instance()
					told := a.Grab(s.Context(), grab.Request{Order: s.order, Driver: a.driver, TryOnce: once})
					s.wants("A", told, grab.Grabbed, "")
					if told.Fence != 42 {
						t.Errorf("A's token is %d, want 42", told.Fence)
					}
					s.redis.FlushAll()
					s.wants("B", b.grab(), grab.Taken, "")
					if got := s.winners(); len(got) != 1 {
						t.Errorf("drivers %v have the order, want only A", got)
					}
				})
			})
		}
	}
}

// TestRedisForgetsUnderAHolder checks that a holder cannot write after Redis has lost the lock and its
// counter. The next driver's first token is then too low. The driver must get a higher token and win.
func TestRedisForgetsUnderAHolder(t *testing.T) {
	for _, strategy := range fencedStrategies {
		t.Run(strategy, func(t *testing.T) {
			play(t, strategy, func(s *scene) {
				a, b := s.instance(), s.instance()
				a.beforeClaim = func() {
					s.redis.FlushAll()
					told := b.grab()
					s.wants("B", told, grab.Grabbed, "")
					if told.Fence != 2 {
						t.Errorf("B's token is %d, want 2", told.Fence)
					}
				}
				told := a.grab()
				s.wants("A", told, grab.Failed, "stale")
				if told.Fence != 1 {
					t.Errorf("A's token is %d, want 1", told.Fence)
				}
				if got := s.winners(); len(got) != 1 || got[0] != b.driver {
					t.Errorf("drivers %v have the order, want only B", got)
				}
			})
		})
	}
}

// TestOvertakenBeforeTheRead checks that a holder tries again if another driver has taken the lock and
// read the order before the holder's read. The holder must then find the order taken.
func TestOvertakenBeforeTheRead(t *testing.T) {
	play(t, "setnx-fenced", func(s *scene) {
		a, b := s.instance(), s.instance()
		reads := 0
		a.afterRead = func(o order.Order, err error) error {
			if reads++; reads == 1 { // as if B had read between A's lock and A's read
				s.wants("B", b.grab(), grab.Busy, "")
				s.runOut()
				s.wants("B", b.grab(), grab.Grabbed, "")
				return order.ErrStale
			}
			return err
		}
		s.wants("A", a.grab(), grab.Taken, "")
		if reads != 2 {
			t.Errorf("A read %d times, want twice", reads)
		}
	})
}

// TestStaleReadOfATakenOrder checks a driver whose token is too old and whose order is already taken.
// The driver must immediately learn that the order is taken, without raising the counter or reading the
// order again.
func TestStaleReadOfATakenOrder(t *testing.T) {
	play(t, "setnx-fenced", func(s *scene) {
		a, b := s.instance(), s.instance()
		s.wants("B", b.grab(), grab.Grabbed, "")
		reads := 0
		a.afterRead = func(order.Order, error) error { reads++; return order.ErrStale }
		s.wants("A", a.grab(), grab.Taken, "")
		if reads != 1 {
			t.Errorf("A read %d times, want once", reads)
		}
	})
}

// TestRepairsEnd checks that a grab gives up after a few attempts if its token stays too old, and that
// it leaves no lock behind.
func TestRepairsEnd(t *testing.T) {
	for _, strategy := range fencedStrategies {
		t.Run(strategy, func(t *testing.T) {
			play(t, strategy, func(s *scene) {
				a := s.instance()
				reads := 0
				a.afterRead = func(order.Order, error) error { reads++; return order.ErrStale }
				s.wants("A", a.grab(), grab.Failed, "stale")
				if reads < 2 || reads > 10 {
					t.Errorf("A read %d times", reads)
				}
				if s.redis.Exists(s.key()) {
					t.Error("A has left its lock behind")
				}
			})
		})
	}
}

// TestRepairFails checks that a grab reports a failed dependency if it cannot raise the counter.
func TestRepairFails(t *testing.T) {
	play(t, "setnx-fenced", func(s *scene) {
		a := s.instance()
		a.afterRead = func(order.Order, error) error {
			s.redis.SetError("LOADING for a while")
			return order.ErrStale
		}
		s.wants("A", a.grab(), grab.Failed, "dependency")
	})
}

// TestRepairWaitsNoLonger checks that the wait limit applies to all acquires of a grab together.
func TestRepairWaitsNoLonger(t *testing.T) {
	for _, strategy := range fencedStrategies {
		t.Run(strategy, func(t *testing.T) {
			play(t, strategy, func(s *scene) {
				const wait = 20 * time.Second
				a, b := s.instance(func(c *grab.Config) { c.Lock.Wait = wait }), s.instance()
				inside, ended := make(chan struct{}), make(chan struct{})
				b.afterRead = func(order.Order, error) error {
					close(inside)
					time.Sleep(wait / 4)
					return order.ErrNotFound // so that B releases the lock without writing
				}
				go func() { b.grab(); close(ended) }()
				<-inside
				a.afterRead = func(order.Order, error) error {
					s.runOut()
					s.redis.HSet(s.key(), "owner", "another client") // and never releases the lock
					return order.ErrStale
				}
				began := time.Now()
				s.wants("A", a.grab(), grab.Busy, "")
				if took := time.Since(began); took < wait || took > wait+time.Second {
					t.Errorf("A waited %v, want %v", took, wait)
				}
				<-ended
			})
		})
	}
}
