package lab

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/stack"
)

// TestByHandAfterFailures makes requests to an instance fail, either to its control API or to its
// orders. No matter which request failed, each driver must be able to grab as soon as the instances
// work again.
func TestByHandAfterFailures(t *testing.T) {
	var refuses atomic.Value // the request that fails: a method of the control API, or "grab"
	refuses.Store("")
	errDown := errors.New("the instance does not answer")
	var served atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if refuses.Load() == "grab" {
			panic(http.ErrAbortHandler)
		}
		served.Add(1)
		_, _ = w.Write([]byte(`{"outcome":"taken"}`))
	}))
	defer server.Close()
	l := &Lab{state: newState(), fleet: &fleet.Fleet{}, hand: 7}
	for range handDrivers {
		l.fleet.Instances = append(l.fleet.Instances, &fleet.Instance{URL: server.URL, Client: func(_ context.Context, method, _ string, _, _ any) error {
			if method == refuses.Load() {
				return errDown
			}
			return nil
		}})
	}
	l.state.openByHand(l.hand)
	refuses.Store(http.MethodDelete)
	if err := l.ByHand(t.Context(), Hand{Do: "order"}); !errors.Is(err, errDown) || l.hand != 7 {
		t.Errorf("another order while a driver cannot be released: order %d, %v", l.hand, err)
	}
	for _, who := range []string{"a", "b"} {
		for _, failing := range []string{http.MethodPut, http.MethodDelete, "grab"} {
			refuses.Store(failing)
			for _, do := range []string{"write", "grab", "write"} {
				_ = l.ByHand(t.Context(), Hand{Do: do, Who: who})
				l.inHand.Wait()
			}
			if got := l.state.status.Drivers[who]; failing == "grab" && !strings.HasPrefix(got, "no answer: ") || failing == http.MethodPut && got != errDown.Error() {
				t.Errorf("%s failed for driver %s, and the page shows %q", failing, who, got)
			}
			refuses.Store("")
			served.Store(0)
			err := l.ByHand(t.Context(), Hand{Do: "grab", Who: who})
			l.inHand.Wait()
			if got := l.state.status.Drivers[who]; err != nil || served.Load() != 1 || got != "taken" {
				t.Errorf("the next grab of driver %s: %v, sent %d times, and the page shows %q", who, err, served.Load(), got)
			}
		}
	}
}

// TestStartsThatFail starts a run several times although its instances cannot start. Each attempt must show
// the error and leave the lab free for another task.
func TestStartsThatFail(t *testing.T) {
	l := &Lab{
		state: newState(), stack: &stack.Stack{Dir: t.TempDir()},
		cfg: Config{Stack: stack.Config{Kind: stack.Embedded}, Say: t.Logf, Exe: filepath.Join(t.TempDir(), "missing")},
	}
	for range 3 {
		l.fleet = fleet.New(fleet.Config{Exe: l.cfg.Exe, Instances: 2, Say: t.Logf}, l.stack, 0)
		if err := l.Start(t.Context(), firstSettings); err == nil || errors.Is(err, errBusy) || errors.Is(err, errBad) {
			t.Errorf("start: %v", err)
		}
		tick := l.state.tick()
		if tick.Status.Error == "" || tick.Status.Phase != Idle || tick.Status.Busy != "" {
			t.Errorf("after a failed start, the lab has the status %+v", tick.Status)
		}
		release, err := l.state.occupy("a search")
		if err != nil {
			t.Fatal(err)
		}
		release()
		l.Stop()
	}
	l.state.endWork() // waits forever if an attempt is still counted as a task
}

// TestStartBeforeTheServersAreReady starts a run while the servers do not answer yet. The user must learn at once that
// they are still starting.
func TestStartBeforeTheServersAreReady(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	addr := silent.Addr().String()
	l := quietLab(nil)
	l.cfg.Stack = stack.Config{Kind: stack.External, Addresses: stack.Addresses{Redis: addr, Redlock: []string{addr, addr, addr}, DSN: "root@tcp(" + addr + ")/x"}}
	ctx, cancel := context.WithCancel(t.Context())
	opened := make(chan error)
	go func() { opened <- l.open(ctx) }()
	asked, err := silent.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer asked.Close()
	if !l.op.TryLock() {
		t.Error("the request would wait for the servers")
	} else {
		l.op.Unlock()
		if err := l.Start(t.Context(), firstSettings); !errors.Is(err, errBad) || !strings.Contains(err.Error(), "still starting") {
			t.Errorf("start: %v", err)
		}
	}
	cancel()
	if err := <-opened; err == nil {
		t.Error("the lab opened without servers")
	}
}

// TestSlowRunIsSlowThroughout checks that a slow run changes all durations alike. In particular, a driver
// must wait for longer than a TTL, so that it gets the lock of a driver that has died.
func TestSlowRunIsSlowThroughout(t *testing.T) {
	usual, slow := setupOf(Settings{}), setupOf(Settings{Slow: true})
	for name, d := range map[string][2]time.Duration{
		"work": {usual.Work, slow.Work}, "TTL": {usual.TTL, slow.TTL}, "wait": {usual.Wait, slow.Wait},
	} {
		if d[0] <= 0 || d[1] != slowFactor*d[0] {
			t.Errorf("%s: %v, and %v in a slow run", name, d[0], d[1])
		}
	}
	for _, u := range []fleet.Setup{usual, slow} {
		if u.Wait <= u.TTL {
			t.Errorf("a driver waits for %v with a TTL of %v", u.Wait, u.TTL)
		}
	}
}

// TestFailedStrikeIsUndone injects the fault client-clock, and makes one of its requests fail. The
// clock must be right again after the fault, even if the request has changed the clock before it
// reported the error. The paused driver must be released, and strike must return the error. Meanwhile, the page must name
// the driver, the order and the instance that the fault hits.
func TestFailedStrikeIsUndone(t *testing.T) {
	errLost := errors.New("the reply is lost")
	for _, failing := range []string{"", "clock", http.MethodDelete} {
		fails := failing == "clock"
		synctest.Test(t, func(t *testing.T) {
			var asked []string // the methods of the requests to the first instance
			l := &Lab{state: labOf(2), stack: &stack.Stack{}, fleet: &fleet.Fleet{}}
			l.fleet.Instances = []*fleet.Instance{
				{ID: "8004", Client: func(_ context.Context, method, path string, _, answer any) error {
					asked = append(asked, method)
					if method == failing {
						return errLost
					}
					if answer == nil || !strings.HasSuffix(path, "/await") {
						return nil
					}
					return json.Unmarshal([]byte(`[{"order":1,"driver":7}]`), answer)
				}},
				{ID: "8005"},
			}
			var clocks []float64
			l.fleet.Instances[1].Client = func(_ context.Context, _, _ string, body, _ any) error {
				text, err := json.Marshal(body)
				var to struct {
					MS float64 `json:"ahead_ms"`
				}
				if err == nil {
					err = json.Unmarshal(text, &to)
				}
				if clocks = append(clocks, to.MS); fails && len(clocks) == 1 {
					return errLost
				}
				const hit = "client-clock strikes driver 7 of order 1 at instance 8004, which is about to write"
				if shown := l.state.tick().Status; len(clocks) == 1 && (shown.Fault != hit || shown.Watch != 1) {
					t.Errorf("during the fault, the page shows order %d and %q, want order 1 and %q", shown.Watch, shown.Fault, hit)
				}
				return err
			}
			err := l.strike(t.Context(), Settings{Strategy: "setnx", Fault: catalog.ClientClock}, 1, nil)
			if errors.Is(err, errLost) != (failing != "") || err != nil && failing == "" {
				t.Errorf("request %q fails; strike returns %v", failing, err)
			}
			if want := []string{http.MethodPut, http.MethodPost, http.MethodDelete}; !slices.Equal(asked, want) { // set, await and remove the hold
				t.Errorf("request %q fails; the first instance gets %q, want %q", failing, asked, want)
			}
			if shown := l.state.tick().Status.Fault; shown != "" {
				t.Errorf("after the fault, the page shows %q", shown)
			}
			if len(clocks) != 2 || clocks[0] <= 0 || clocks[1] != 0 {
				t.Errorf("request %q fails; the clock is set ahead by %v ms", failing, clocks)
			}
		})
	}
}
