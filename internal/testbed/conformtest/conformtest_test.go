package conformtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

func TestMain(m *testing.M) {
	if _, child := os.LookupEnv(childEnv); child {
		fmt.Print("a program may print:\nthis is not a report")
	}
	BeChild(OpenRedis, findFlawed)
	os.Exit(m.Run())
}

// TestSuite checks the suite itself. A correct lock must pass every check, and a lock that does
// nothing must fail every check. Each other flaw must be found by the checks listed for it.
func TestSuite(t *testing.T) {
	node := miniredis.RunT(t)
	node.ClockTTL(true)
	nodes := Nodes{node.Addr()}
	var subjects []Subject
	for _, name := range slices.Sorted(maps.Keys(flawedLocks)) {
		st, err := findFlawed(name)
		if err != nil {
			t.Fatal(err)
		}
		s := nodes.Subject(st)
		for _, c := range checks {
			if !c.applies(s) {
				t.Errorf("%s: %s does not apply", name, c.name)
			}
		}
		subjects = append(subjects, s)
	}
	finds := func(s Subject, c check) bool {
		found := flawedLocks[s.Strategy.Name].found
		return found == nil || slices.Contains(found, c.name)
	}
	for i, results := range runAll(t.Context(), subjects, 10, finds) {
		name := subjects[i].Strategy.Name
		t.Run(name, func(t *testing.T) {
			if len(results) == 0 {
				t.Error("no check ran")
			}
			for _, r := range results {
				switch flawed := flawedLocks[name].does != nil; {
				case !flawed && r.err != nil:
					t.Errorf("the correct lock fails the check %s: %v", r.name, r.err)
				case flawed && r.err == nil:
					t.Errorf("%s found nothing", r.name)
				default:
					t.Logf("%s took %v: %v", r.name, r.took.Round(time.Millisecond), r.err)
				}
			}
		})
	}
}

// TestAgainst checks when a result contradicts the expected failures: a check that is listed there
// must fail, and any other check must pass.
func TestAgainst(t *testing.T) {
	failed := errors.New("left behind")
	for _, tt := range []struct {
		said, fails, wrong bool
	}{{false, false, false}, {false, true, true}, {true, false, true}, {true, true, false}} {
		r, said := result{check: check{name: "busy"}}, map[string]string{"contention": "another one"}
		if tt.fails {
			r.err = failed
		}
		if tt.said {
			said["busy"] = "it does not wait"
		}
		if err := r.against(said); (err != nil) != tt.wrong {
			t.Errorf("%+v: against: %v", tt, err)
		}
	}
}

// flaw describes a bug in a lock and lists the checks that must find it.
type flaw struct {
	does  func(*flawed) // adds the bug to a lock; nil for the correct lock
	found []string      // names of the checks; nil means all checks
}

var flawedLocks = map[string]flaw{
	"right":   {},
	"nothing": {does: func(l *flawed) { l.nothing = true }},
	"per process": {
		does:  func(l *flawed) { l.perProcess = true },
		found: []string{"busy", "two processes"},
	},
	"one token for all": {
		does:  func(l *flawed) { l.token = func() string { return "token" } },
		found: []string{"release once", "release of a lost lease"},
	},
	"frees whatever is there": {
		does:  func(l *flawed) { l.freesAny = true },
		found: []string{"release once", "release of a lost lease"},
	},
	"leaves a key": {
		does:  func(l *flawed) { l.litters = true },
		found: []string{"busy", "cancelled while waiting"},
	},
	"leaves a goroutine": {
		does:  func(l *flawed) { l.leaks = true },
		found: []string{"two processes"},
	},
	"does not wait": {
		does:  func(l *flawed) { l.env.Wait = 0 },
		found: []string{"busy", "wakes a waiter"},
	},
	"waits too long": {
		does:  func(l *flawed) { l.env.Wait += 2 * slack },
		found: []string{"busy"},
	},
	"always waits": {
		does:  func(l *flawed) { l.waitsAlways = true },
		found: []string{"tries once"},
	},
	"wakes no waiter": {
		does:  func(l *flawed) { l.sleep = 2 * slack },
		found: []string{"wakes a waiter"},
	},
	"wakes only the first waiter": {
		does:  func(l *flawed) { l.wakesOnce = true },
		found: []string{"wakes a waiter"},
	},
	"remembers an outage": {
		does:  func(l *flawed) { l.remembers = true },
		found: []string{"recovers"},
	},
	"hears no cancellation": {
		does:  func(l *flawed) { l.deaf = true },
		found: []string{"cancelled while waiting", "cancelled in the middle"},
	},
	"undoes nothing": {
		does:  func(l *flawed) { l.undoesNothing = true },
		found: []string{"cancelled in the middle", "lost reply"},
	},
	"calls an error busy": {
		does:  func(l *flawed) { l.errorIsBusy = true },
		found: []string{"lost reply"},
	},
	"believes a late reply": {
		does:  func(l *flawed) { l.believesLate = true },
		found: []string{"late reply"},
	},
	"never expires": {
		does:  func(l *flawed) { l.noExpiry = true },
		found: []string{"expiry frees the key"},
	},
	"does not renew": {
		does:  func(l *flawed) { l.renewsNot = true },
		found: []string{"kept past its TTL", "loss is known", "unconfirmed renewals"},
	},
	"never says lost": {
		does:  func(l *flawed) { l.saysNot = true },
		found: []string{"loss is known", "unconfirmed renewals"},
	},
	"lost at the first silence": {
		does:  func(l *flawed) { l.nervous = true },
		found: []string{"unconfirmed renewals"},
	},
}

func findFlawed(name string) (lock.Strategy, error) {
	f, ok := flawedLocks[name]
	if !ok {
		return lock.Strategy{}, fmt.Errorf("no lock %q", name)
	}
	return lock.Strategy{
		Name:     name,
		Needs:    lock.Redis,
		Excludes: catalog.Global,
		Claims:   catalog.Claims{catalog.NoFault: catalog.Holds, catalog.Slow: catalog.Holds, catalog.Crash: catalog.Holds},
		New: func(env lock.Env) (lock.Locker, error) {
			l := &flawed{env: env, token: env.Token, redis: env.Redis, closed: make(chan struct{})}
			if f.does != nil {
				f.does(l)
			}
			return l, nil
		},
	}, nil
}

// flawed is a simple lock on a single Redis server. It is correct until a flaw is added.
type flawed struct {
	env     lock.Env
	redis   redis.UniversalClient
	token   func() string
	closed  chan struct{}
	running sync.WaitGroup

	nothing, freesAny, deaf, undoesNothing, errorIsBusy, noExpiry, believesLate bool
	renewsNot, saysNot, nervous, leaks, litters, perProcess, waitsAlways        bool
	wakesOnce, remembers                                                        bool
	waited, failed                                                              atomic.Bool   // whether an acquire has got the lock after a wait, and whether one has failed
	sleep                                                                       time.Duration // between two attempts
}

func (l *flawed) Close() error {
	close(l.closed)
	l.running.Wait()
	return nil
}

func (l *flawed) Acquire(ctx context.Context, key string) (lock.Lease, error) {
	if l.nothing {
		return &flawedLease{flawed: l, token: l.token(), lost: make(chan struct{})}, nil
	}
	if l.deaf {
		ctx = context.WithoutCancel(ctx)
	}
	if l.leaks {
		go func() { select {} }()
	}
	if l.perProcess {
		key = fmt.Sprintf("%s-%p", key, l)
	}
	pause := 3 * time.Millisecond
	if l.sleep > 0 {
		pause = l.sleep
	}
	wait := lock.WaitIn(ctx, l.env.Wait)
	if l.waitsAlways {
		wait = l.env.Wait
	}
	if l.wakesOnce && l.waited.Load() {
		pause = 2 * slack
	}
	first := true
	for end := time.Now().Add(wait); ; time.Sleep(pause) {
		lease := &flawedLease{flawed: l, key: key, token: l.token(), lost: make(chan struct{}), released: make(chan struct{})}
		ok, err := lease.try(ctx)
		switch {
		case ok:
			if !first {
				l.waited.Store(true)
			}
			return lease, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil && !l.errorIsBusy:
			l.failed.Store(true)
			return nil, err
		case !time.Now().Before(end) && l.remembers && l.failed.Load():
			return nil, errNever
		case !time.Now().Before(end):
			return nil, lock.ErrBusy
		}
		first = false
	}
}

type flawedLease struct {
	*flawed
	key, token string
	lost       chan struct{}
	released   chan struct{}
}

func (l *flawedLease) try(ctx context.Context) (bool, error) {
	if ctx.Err() != nil {
		return false, nil
	}
	if l.litters {
		l.redis.Set(ctx, l.key+":litter", 1, 0)
	}
	ttl := l.env.TTL
	if l.noExpiry {
		ttl = 0
	}
	end := time.Now().Add(l.env.TTL)
	ok, err := l.redis.SetNX(ctx, l.key, l.token, ttl).Result()
	if err == nil && !ok {
		return false, nil
	}
	if err == nil && ctx.Err() == nil && (l.believesLate || time.Now().Before(end)) {
		if !l.renewsNot {
			l.running.Go(func() { l.renew(context.WithoutCancel(ctx), end) })
		}
		return true, nil
	}
	if !l.undoesNothing {
		_, _ = ifOurs.Run(context.WithoutCancel(ctx), l.redis, []string{l.key}, l.token, "DEL").Int()
	}
	return false, err
}

var ifOurs = redis.NewScript(`
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if ARGV[2] == 'DEL' then return redis.call('DEL', KEYS[1]) end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])`)

func (l *flawedLease) renew(ctx context.Context, end time.Time) {
	for {
		select {
		case <-l.closed:
			return
		case <-l.released:
			return
		case <-time.After(l.env.TTL / 4):
		}
		sent := time.Now()
		ours, err := ifOurs.Run(ctx, l.redis, []string{l.key}, l.token, l.env.TTL.Milliseconds()).Int()
		if err == nil && ours == 1 {
			end = sent.Add(l.env.TTL)
		}
		if err == nil && ours == 0 || err != nil && l.nervous || time.Now().After(end) {
			if !l.saysNot {
				close(l.lost)
			}
			return
		}
	}
}

func (l *flawedLease) Token() string         { return l.token }
func (l *flawedLease) Fence() uint64         { return 0 }
func (l *flawedLease) Lost() <-chan struct{} { return l.lost }

func (l *flawedLease) Release(ctx context.Context) error {
	if l.nothing {
		return nil
	}
	select {
	case <-l.released:
	default:
		close(l.released)
	}
	if l.freesAny {
		return l.redis.Del(ctx, l.key).Err()
	}
	ours, err := ifOurs.Run(ctx, l.redis, []string{l.key}, l.token, "DEL").Int()
	if err == nil && ours == 0 {
		return lock.ErrLost
	}
	return err
}

var errNever = errors.New("never")

// TestChildError checks that a check fails and shows the child's output if a child process cannot
// create its lock. It also checks that start returns the error of Open.
func TestChildError(t *testing.T) {
	s := Subject{Strategy: lock.Strategy{Name: "unheard of"}, Open: OpenRedis}
	err := (check{name: "two processes", does: processes}).run(t.Context(), s)
	if err == nil || !strings.Contains(err.Error(), `no lock "unheard of"`) || !strings.Contains(err.Error(), "a program may print") {
		t.Errorf("a child without a lock: %v, want the child's output", err)
	}
	st := lock.Strategy{Name: "right"}
	open := func(string) (lock.Env, func(), error) { return lock.Env{}, nil, errNever }
	if _, err := (Subject{Strategy: st, Open: open}).start(time.Second, 0); !errors.Is(err, errNever) {
		t.Error(err)
	}
}
