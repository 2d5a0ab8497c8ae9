package instance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"grablab/internal/grab"
	"grablab/internal/history"
	"grablab/internal/service/control"
	"grablab/internal/service/instance"
	"grablab/internal/tap"

	"github.com/alicebob/miniredis/v2"
)

// ask sends a request to an instance, and returns the status and the body of the response.
func ask(t *testing.T, method, url, body string) (code int, answer []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, answer
}

// controlled starts an instance with -control and opens its orders. It returns a client of the control
// API, the URL of the instance, and a function that stops the instance.
func controlled(t *testing.T, args ...string) (c control.Client, url string, stop func()) {
	t.Helper()
	url, stop = run(t, configOf(t, append([]string{"-control"}, args...)...))
	open(t, url)
	return func(_ context.Context, method, path string, body, answer any) error {
		code, text := ask(t, method, url+path, jsonOf(t, body))
		if code != http.StatusOK {
			return fmt.Errorf("HTTP %d: %s", code, text)
		}
		return json.Unmarshal(text, answer)
	}, url, stop
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestControlHoldsAGrab holds a grab after its read, while another driver grabs the same order. After
// its release, the held grab must win too, because there is no lock and the guard does not check the
// status.
func TestControlHoldsAGrab(t *testing.T) {
	events := t.TempDir() + "/events.jsonl"
	c, url, stop := controlled(t, "-strategy", "none", "-events", events)
	at := control.Point{Phase: tap.Read, After: true}
	must(t, c.SetHold(t.Context(), "held", control.Hold{First: 1, Count: 1, Drivers: []int64{42}, At: at, Strike: true}))
	faulted := grabbing(t, url, "/orders/1/grab")
	held, err := c.Held(t.Context(), "held", 1, 20*time.Second)
	want := control.Held{Call: control.Call{Order: 1, Driver: 42, Phase: tap.Read}, State: control.Replied}
	if err != nil || !slices.Equal(held, []control.Held{want}) {
		t.Fatalf("held %v, %v, want %v", held, err, want)
	}
	code, answer := ask(t, http.MethodPost, url+"/orders/1/grab", `{"driver_id":43}`)
	must(t, c.RemoveHold(t.Context(), "held"))
	if a := <-faulted; a.Outcome != grab.Grabbed || code != http.StatusOK {
		t.Errorf("held %+v, contender %d %s, want both to have grabbed", a, code, answer)
	}
	if err := c.RemoveHold(t.Context(), "held"); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("remove again: %v, want 404", err)
	}
	stop()
	var strikes []string
	for _, e := range eventsOf(t, events) {
		if e.Op == history.Strike {
			strikes = append(strikes, string(e.Kind)+" "+e.Note)
		}
	}
	if !slices.Equal(strikes, []string{"info after read", "ok after read"}) { // the beginning and the end of the hold
		t.Errorf("the recorded strikes are %q", strikes)
	}
}

// TestControlLetsAnInstanceEnd checks that an instance can stop while it holds a call. The held grab must
// then fail.
func TestControlLetsAnInstanceEnd(t *testing.T) {
	c, url, stop := controlled(t, "-strategy", "none")
	must(t, c.SetHold(t.Context(), "held", control.Hold{First: 1, Count: 1, At: control.Point{Phase: tap.Claim, N: 1}}))
	held := grabbing(t, url, "/orders/1/grab")
	_, err := c.Held(t.Context(), "held", 1, 20*time.Second)
	must(t, err)
	stop()
	if a := <-held; a.Outcome != grab.Failed {
		t.Errorf("%+v, want it to fail", a)
	}
}

// TestControlSetsTheClock sets the clock of an instance ahead. The strategy setnx-getset compares this
// clock with the expiry of a lock, so it must then take over a lock that has not expired.
func TestControlSetsTheClock(t *testing.T) {
	redis := miniredis.RunT(t)
	c, url, _ := controlled(t, "-strategy", "setnx-getset", "-ttl", "1m", "-redis", redis.Addr())
	stamp := time.Now().Add(30 * time.Second).UnixMilli()
	redis.Set(grab.Key("setnx-getset", 1), jsonOf(t, stamp))
	if a := <-grabbing(t, url, "/orders/1/grab"); a.Outcome != grab.Busy {
		t.Errorf("with the clock right: %+v, want busy", a)
	}
	must(t, c.SetClock(t.Context(), 40*time.Second))
	if a := <-grabbing(t, url, "/orders/1/grab"); a.Outcome != grab.Grabbed {
		t.Errorf("with the clock ahead: %+v, want grabbed", a)
	}
}

func TestControlRefuses(t *testing.T) {
	_, url, _ := controlled(t, "-strategy", "none")
	for _, c := range []struct {
		method, path, body string
		code               int
	}{
		{"PUT", "/lab/holds/x", `{"fase":"read"}`, 400},
		{"PUT", "/lab/clock", `1`, 400},
		{"POST", "/lab/holds/x/await", `{"n":1,"within_ms":1000}`, 404},
		{"POST", "/lab/holds/x/await", `{"n":"a","within_ms":1000}`, 400},
		{"POST", "/lab/holds/x/await", `{"n":1,"within_ms":"soon"}`, 400},
		{"POST", "/lab/holds/x/release", `{"driver":1,"outcome":"delivered"}`, 404},
	} {
		if code, _ := ask(t, c.method, url+c.path, c.body); code != c.code {
			t.Errorf("%s %s %s: status %d, want %d", c.method, c.path, c.body, code, c.code)
		}
	}
}

// TestNoControlWithoutTheFlag checks that an instance has no control API if it runs without -control.
func TestNoControlWithoutTheFlag(t *testing.T) {
	url, _ := run(t, configOf(t, "-strategy", "none"))
	if code, _ := ask(t, "PUT", url+"/lab/clock", `{"ahead_ms":1}`); code != 404 {
		t.Errorf("status %d, want 404", code)
	}
}

func jsonOf(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestControlIsForLoopback checks that -control is allowed only with a loopback address, and that the
// help does not mention it.
func TestControlIsForLoopback(t *testing.T) {
	cfg := configOf(t, "-strategy", "none", "-control")
	cfg.Addr = "0.0.0.0:0"
	err := instance.Run(t.Context(), cfg, io.Discard, slog.New(slog.DiscardHandler))
	if !errors.Is(err, instance.ErrUsage) || !strings.Contains(err.Error(), "-control") {
		t.Errorf("%v, want it refused", err)
	}
	var help strings.Builder
	if code := instance.Main(t.Context(), []string{"-help"}, &help, io.Discard); code != 0 || strings.Contains(help.String(), "-control") {
		t.Errorf("exit %d, and the help mentions -control: %s", code, help.String())
	}
}

func dbCall(phase tap.Phase, n int) control.Call {
	return control.Call{Order: 1, Driver: 42, Phase: phase, N: n, Target: tap.DB}
}

// TestControlReleasesCallsByName checks that every call of a driver is held until it is released by its
// name. A claim counts as one call, although it consists of several statements.
func TestControlReleasesCallsByName(t *testing.T) {
	c, url, stop := controlled(t, "-strategy", "none")
	defer stop()
	must(t, c.SetHold(t.Context(), "all", control.Hold{First: 1, Count: 1, Drivers: []int64{42}}))
	grabbed := grabbing(t, url, "/orders/1/grab")
	for _, phase := range []tap.Phase{tap.Read, tap.Claim} {
		releases(t, c, dbCall(phase, 1), control.Delivered)
	}
	if a := <-grabbed; a.Outcome != grab.Grabbed {
		t.Errorf("%+v, want it to win", a)
	}
	if a, err := c.Release(t.Context(), "all", dbCall(tap.Claim, 2), control.Delivered); err != nil || a.Code != control.NotHeld {
		t.Errorf("a call that is not there: %+v, %v, want code %s", a, err, control.NotHeld)
	}
}

// TestControlRefusesAClaim refuses a held claim. The grab must fail, and the order must stay open.
func TestControlRefusesAClaim(t *testing.T) {
	c, url, stop := controlled(t, "-strategy", "none")
	defer stop()
	must(t, c.SetHold(t.Context(), "all", control.Hold{First: 1, Count: 1, Drivers: []int64{42}}))
	grabbed := grabbing(t, url, "/orders/1/grab")
	releases(t, c, dbCall(tap.Read, 1), control.Delivered)
	releases(t, c, dbCall(tap.Claim, 1), control.Refused)
	if a := <-grabbed; a.Outcome != grab.Failed {
		t.Errorf("%+v, want it to fail", a)
	}
	must(t, c.RemoveHold(t.Context(), "all"))
	if a := <-grabbing(t, url, "/orders/1/grab"); a.Outcome != grab.Grabbed {
		t.Errorf("%+v, want the order to be open still", a)
	}
}

// releases waits until the call is held, and then releases it.
func releases(t *testing.T, c control.Client, call control.Call, as control.Outcome) (a control.Answer) {
	t.Helper()
	eventually(t, fmt.Sprintf("%+v is held", call), func() bool {
		var err error
		a, err = c.Release(t.Context(), "all", call, as)
		must(t, err)
		return a.Code != control.NotHeld
	})
	return a
}
