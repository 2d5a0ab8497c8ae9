package grab_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"grablab/internal/check"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/history"
	"grablab/internal/order"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const sceneTTL = 10 * time.Second

// scene contains one order and one Redis server. Its clock advances only while all goroutines wait.
type scene struct {
	*testing.T
	redis     *miniredis.Miniredis
	store     *order.Mem
	order     int64
	strategy  string
	instances []*instance
	tokens    int
}

// play runs schedule in a synctest bubble with a new scene.
func play(t *testing.T, strategy string, schedule func(*scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &scene{T: t, redis: miniredis.NewMiniRedis(), store: new(order.Mem), strategy: strategy}
		s.redis.ClockTTL(true)
		t.Cleanup(s.redis.Close)
		var err error
		if s.order, err = s.store.Create(t.Context(), 1, 1); err != nil {
			t.Fatal(err)
		}
		schedule(s)
	})
}

// instance is a grab service with one driver. Its hooks run around the steps of a grab.
type instance struct {
	*grab.Service
	*order.Mem
	scene   *scene
	driver  int64
	history *memory

	afterRead   func(order.Order, error) error // its result replaces the error of the read
	beforeHeld  func(context.Context) error
	beforeClaim func()
	afterClaim  func(error) error // its result replaces the error of the claim
}

func (s *scene) instance(change ...func(*grab.Config)) *instance {
	s.Helper()
	i := &instance{Mem: s.store, scene: s, driver: int64(len(s.instances) + 1)}
	name := fmt.Sprint("instance ", i.driver)
	i.history = &memory{instance: name, now: func() time.Duration { return time.Duration(time.Now().UnixNano()) }}
	client := redis.NewClient(&redis.Options{
		Dialer:                   func(context.Context, string, string) (net.Conn, error) { return s.redis.Dial() },
		Addr:                     "127.0.0.1:6379",
		Protocol:                 2,
		MaxRetries:               -1,
		DialerRetries:            1,
		ContextTimeoutEnabled:    true,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	s.Cleanup(func() { client.Close() })
	cfg := grab.Config{
		Instance: name, Orders: i, Strategy: s.strategy, History: i.history,
		Lock: lock.Env{
			Redis: client, TTL: sceneTTL, Now: time.Now,
			Token: func() string { s.tokens++; return fmt.Sprint("token ", s.tokens) },
			Rand:  func() float64 { return 0.5 },
		},
	}
	for _, f := range change {
		f(&cfg)
	}
	var err error
	if i.Service, err = grab.New(cfg); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { i.Service.Close() })
	s.instances = append(s.instances, i)
	return i
}

func (i *instance) Read(ctx context.Context, id int64, fence uint64) (order.Order, error) {
	o, err := i.Mem.Read(ctx, id, fence)
	if i.afterRead != nil {
		err = i.afterRead(o, err)
	}
	return o, err
}

func (i *instance) Held(ctx context.Context, id, driver int64) (int, error) {
	if i.beforeHeld != nil {
		if err := i.beforeHeld(ctx); err != nil {
			return 0, err
		}
	}
	return i.Mem.Held(ctx, id, driver)
}

func (i *instance) Claim(ctx context.Context, c order.Claim, g order.Guard) error {
	if i.beforeClaim != nil {
		i.beforeClaim()
	}
	err := i.Mem.Claim(ctx, c, g)
	if i.afterClaim != nil {
		err = i.afterClaim(err)
	}
	return err
}

func (i *instance) grab() grab.Answer {
	return i.Grab(i.scene.Context(), grab.Request{Order: i.scene.order, Driver: i.driver})
}

func (s *scene) key() string { return fmt.Sprintf("grab:%s:{%d}", s.strategy, s.order) }

// runOut deletes the lock, as if the holder's lease had expired.
func (s *scene) runOut() { s.redis.Del(s.key()) }

// winners returns the drivers in the ledger.
func (s *scene) winners() (drivers []int64) {
	s.Helper()
	grabs, err := s.store.Ledger(s.Context(), s.order, 1)
	if err != nil {
		s.Fatal(err)
	}
	for _, g := range grabs {
		drivers = append(drivers, g.Driver)
	}
	return drivers
}

func (s *scene) nearMisses() int {
	var scan check.Scan
	for _, i := range s.instances {
		for _, e := range i.history.Events() {
			scan.Add(e)
		}
	}
	return scan.Record().CountNearMisses()
}

// wants checks the outcome and the reason of an answer.
func (s *scene) wants(who string, a grab.Answer, outcome grab.Outcome, reason string) {
	s.Helper()
	if a.Outcome != outcome || a.Reason != reason {
		s.Errorf("%s is told %q %q (%s), want %q %q", who, a.Outcome, a.Reason, a.Error, outcome, reason)
	}
}

// TestLateWrite checks what a holder can still write after its lease has ended and B has grabbed the
// order (F11, F37). The lease ends after A's read, or after A's last check of the lease. A check stops
// only the first write, but a fence stops both.
func TestLateWrite(t *testing.T) {
	const ( // the results of A's grab
		grabbed = iota
		lost
		stale
	)
	tests := []struct {
		strategy               string
		afterRead, beforeClaim int
	}{
		{"setnx", grabbed, grabbed},
		{"setnx-driverid", grabbed, grabbed},
		{"setnx-watch", grabbed, grabbed},
		{"setnx-check", lost, grabbed},
		{"watchdog", grabbed, grabbed}, // no renewal has noticed the loss yet
		{"setnx-fence-write", stale, stale},
		{"setnx-fenced", stale, stale},
		{"watchdog-fenced", stale, stale},
	}
	for _, tt := range tests {
		for when, want := range map[string]int{"after the read": tt.afterRead, "before the claim": tt.beforeClaim} {
			t.Run(tt.strategy+" "+when, func(t *testing.T) {
				play(t, tt.strategy, func(s *scene) {
					a, b := s.instance(), s.instance()
					meanwhile := func() {
						s.runOut()
						s.wants("B", b.grab(), grab.Grabbed, "")
					}
					if when == "after the read" {
						a.afterRead = func(_ order.Order, err error) error { meanwhile(); return err }
					} else {
						a.beforeClaim = meanwhile
					}
					told, winners, nearMisses := a.grab(), 1, 0
					switch want {
					case grabbed:
						s.wants("A", told, grab.Grabbed, "")
						winners = 2
					case lost:
						s.wants("A", told, grab.Failed, "lease_lost")
					case stale:
						s.wants("A", told, grab.Failed, "stale")
						nearMisses = 1
					}
					if got := s.winners(); len(got) != winners {
						t.Errorf("drivers %v have the order, want %d drivers", got, winners)
					}
					if got := s.nearMisses(); got != nearMisses {
						t.Errorf("%d near misses, want %d", got, nearMisses)
					}
				})
			})
		}
	}
}

// TestOlderTokenWritesFirst checks a holder A whose lease ends after its read. B then reads the order,
// but A writes before B (F34). If only writes compare tokens, both writes succeed, because A's older
// token comes first. If B's read has already raised the token in the order, A's write fails.
func TestOlderTokenWritesFirst(t *testing.T) {
	for strategy, winners := range map[string]int{"setnx-fence-write": 2, "setnx-fenced": 1, "watchdog-fenced": 1} {
		t.Run(strategy, func(t *testing.T) {
			play(t, strategy, func(s *scene) {
				a, b := s.instance(), s.instance()
				reads, goOn, told := make(chan struct{}), make(chan struct{}), make(chan grab.Answer)
				b.beforeClaim = func() { close(reads); <-goOn }
				a.afterRead = func(_ order.Order, err error) error {
					s.runOut()
					go func() { told <- b.grab() }()
					<-reads
					return err
				}
				first := a.grab()
				close(goOn)
				s.wants("B", <-told, grab.Grabbed, "")
				if winners == 1 {
					s.wants("A", first, grab.Failed, "stale")
				} else {
					s.wants("A", first, grab.Grabbed, "")
				}
				if got := s.winners(); len(got) != winners {
					t.Errorf("drivers %v have the order, want %d drivers", got, winners)
				}
			})
		})
	}
}

// TestLeaseIsCheckedAfterTheWork checks that a grab checks its lease after the work, because the work may last
// longer than the lease.
func TestLeaseIsCheckedAfterTheWork(t *testing.T) {
	play(t, "setnx-check", func(s *scene) {
		a := s.instance(func(c *grab.Config) { c.Work = 2 * sceneTTL })
		if told := a.grab(); told.Outcome != grab.Failed || len(s.winners()) != 0 {
			t.Errorf("work of two TTLs: %+v, drivers %v have the order", told, s.winners())
		}
	})
}

// recorded returns the events of an instance, each on a new line. A line has the kind and the operation,
// followed by all fields that are set. The word error stands for a note.
func (i *instance) recorded() string {
	var lines strings.Builder
	for _, e := range i.history.Events() {
		fmt.Fprintf(&lines, "\n%s %s", e.Kind, e.Op)
		if e.Code != "" {
			fmt.Fprintf(&lines, " %s", e.Code)
		}
		if e.Note != "" {
			lines.WriteString(" error")
		}
		if e.Token != "" {
			fmt.Fprintf(&lines, ", %s", e.Token)
		}
		if e.Fence != 0 {
			fmt.Fprintf(&lines, ", fence %d", e.Fence)
		}
		if e.Lease != 0 {
			fmt.Fprintf(&lines, ", lease %v", e.Lease)
		}
		if e.Order != i.scene.order || e.Driver != i.driver || e.Strategy != i.scene.strategy {
			fmt.Fprintf(&lines, ", order %d, driver %d, strategy %s", e.Order, e.Driver, e.Strategy)
		}
	}
	return lines.String()
}

// TestRecordOfAGrab checks all events of a grab, for several ways in which it can end.
func TestRecordOfAGrab(t *testing.T) {
	errDown := errors.New("down")
	for _, tt := range []struct {
		name, strategy string
		prepare        func(a *instance)
		want           string
	}{
		{"won", "setnx", func(*instance) {}, `
invoke grab
invoke acquire
ok acquire, token 1, lease 10s
invoke read, token 1
ok read open, token 1
invoke claim, token 1
ok claim, token 1
invoke release, token 1
ok release, token 1
ok grab, token 1`},
		{"won and renewed", "watchdog-fenced", func(a *instance) { a.beforeClaim = func() { time.Sleep(sceneTTL / 2) } }, `
invoke grab
invoke acquire
ok acquire, token 1, fence 1, lease 10s
invoke read, token 1, fence 1
ok read open, token 1, fence 1
invoke claim, token 1, fence 1
ok renew, lease 10s
ok claim, token 1, fence 1
invoke release, token 1, fence 1
ok release, token 1, fence 1
ok grab, token 1, fence 1`},
		{"repaired and renewed", "watchdog-fenced", func(a *instance) {
			if _, err := a.Mem.Read(a.scene.Context(), a.scene.order, 41); err != nil {
				a.scene.Fatal(err)
			}
			a.beforeClaim = func() { time.Sleep(sceneTTL / 2) }
		}, `
invoke grab
invoke acquire
ok acquire, token 1, fence 1, lease 10s
invoke read, token 1, fence 1
fail read stale error, token 1, fence 1
invoke release, token 1, fence 1
ok release, token 1, fence 1
invoke acquire, token 1, fence 1
ok acquire, token 2, fence 42, lease 10s
invoke read, token 2, fence 42
ok read open, token 2, fence 42
invoke claim, token 2, fence 42
ok renew, lease 10s
ok claim, token 2, fence 42
invoke release, token 2, fence 42
ok release, token 2, fence 42
ok grab, token 2, fence 42`},
		{"taken", "setnx", func(a *instance) { a.scene.instance().grab() }, `
invoke grab
invoke acquire
ok acquire, token 2, lease 10s
invoke read, token 2
ok read taken, token 2
invoke release, token 2
ok release, token 2
fail grab taken error, token 2`},
		{"busy", "setnx", func(a *instance) { a.scene.redis.Set(a.scene.key(), "another client") }, `
invoke grab
invoke acquire
fail acquire busy error
fail grab busy error`},
		{"the lease is lost", "setnx-check", func(a *instance) {
			a.afterRead = func(_ order.Order, err error) error { a.scene.runOut(); return err }
		}, `
invoke grab
invoke acquire
ok acquire, token 1, lease 10s
invoke read, token 1
ok read open, token 1
info lost, token 1
invoke release, token 1
fail release lease_lost error, token 1
fail grab lease_lost error, token 1`},
		{"the read fails", "setnx", func(a *instance) {
			a.afterRead = func(order.Order, error) error { return errDown }
		}, `
invoke grab
invoke acquire
ok acquire, token 1, lease 10s
invoke read, token 1
fail read dependency error, token 1
invoke release, token 1
ok release, token 1
fail grab dependency error, token 1`},
		{"the claim fails", "setnx", func(a *instance) {
			a.afterClaim = func(error) error { return errDown }
		}, `
invoke grab
invoke acquire
ok acquire, token 1, lease 10s
invoke read, token 1
ok read open, token 1
invoke claim, token 1
info claim unknown error, token 1
invoke release, token 1
ok release, token 1
info grab unknown error, token 1`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			play(t, tt.strategy, func(s *scene) {
				a := s.instance()
				tt.prepare(a)
				a.grab()
				if got := a.recorded(); got != tt.want {
					t.Errorf("recorded%s\nwant%s", got, tt.want)
				}
			})
		})
	}
}

// TestReadIsRecordedWithItsValue checks that the history contains what a driver has read, even if
// another driver wins before the reply arrives.
func TestReadIsRecordedWithItsValue(t *testing.T) {
	play(t, "none", func(s *scene) {
		a, b := s.instance(), s.instance()
		a.afterRead = func(_ order.Order, err error) error { b.grab(); return err } // B wins after the read of A
		a.grab()
		a.afterRead = nil
		a.grab()
		var got []history.Code
		for _, e := range a.history.Events() {
			if e.Op == history.Read && e.Kind == history.OK {
				got = append(got, e.Code)
			}
		}
		if want := []history.Code{history.Open, history.Taken}; !slices.Equal(got, want) {
			t.Errorf("the reads are recorded as %q, want %q", got, want)
		}
	})
}
