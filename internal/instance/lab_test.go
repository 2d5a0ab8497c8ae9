package instance_test

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"grablab/internal/grab"
	"grablab/internal/history"
	"grablab/internal/instance"
	"grablab/internal/tap"

	"github.com/alicebob/miniredis/v2"
)

// ask makes one call to the lab of an instance.
func ask(t *testing.T, method, url, body string) (code int, catch instance.Catch) {
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
	if resp.StatusCode == http.StatusOK {
		if err := json.NewDecoder(resp.Body).Decode(&catch); err != nil {
			t.Fatal(err)
		}
	}
	return resp.StatusCode, catch
}

// A grab that is held has read its order open, and claims it all the same once
// it is let go: the rival was faster, under a guard that does not look.
func TestLabHoldsAGrab(t *testing.T) {
	events := t.TempDir() + "/events.jsonl"
	url, stop := run(t, configOf(t, "-strategy", "none", "-traps", "-events", events))
	open(t, url)
	trap := url + "/lab/traps/held"
	if code, _ := ask(t, "PUT", trap, `{"phase":"read","after":true,"first":1,"count":1}`); code != 200 {
		t.Fatalf("set: %d", code)
	}
	victim := grabbing(t, url, "/orders/1/grab")
	if _, catch := ask(t, "GET", trap+"?n=1&within=20s", ""); !slices.Equal(catch.Caught, []tap.Caught{{Order: 1, Driver: 42}}) {
		t.Fatalf("caught %v", catch.Caught)
	}
	rival := <-grabbing(t, url, "/orders/1/grab")
	if code, _ := ask(t, "DELETE", trap, ""); code != 200 {
		t.Errorf("lift: %d", code)
	}
	if a := <-victim; a.Outcome != grab.Grabbed || rival.Outcome != grab.Grabbed {
		t.Errorf("victim %+v, rival %+v, want both to have grabbed", a, rival)
	}
	if code, _ := ask(t, "DELETE", trap, ""); code != 404 {
		t.Errorf("lift again: %d, want 404", code)
	}
	stop()
	var strikes []string
	for _, e := range eventsOf(t, events) {
		if e.Op == history.Strike {
			strikes = append(strikes, string(e.Kind)+" "+e.Note)
		}
	}
	if !slices.Equal(strikes, []string{"info after read"}) {
		t.Errorf("strikes %q", strikes)
	}
}

// What is held when an instance is to end does not keep it.
func TestLabLetsAnInstanceEnd(t *testing.T) {
	url, stop := run(t, configOf(t, "-strategy", "none", "-traps"))
	open(t, url)
	ask(t, "PUT", url+"/lab/traps/held", `{"phase":"claim","n":1,"first":1,"count":1}`)
	victim := grabbing(t, url, "/orders/1/grab")
	ask(t, "GET", url+"/lab/traps/held?n=1&within=20s", "")
	stop()
	if a := <-victim; a.Outcome != grab.Failed {
		t.Errorf("%+v, want it refused", a)
	}
}

// setnx-getset reads the clock: one that is ahead takes over a live lock.
func TestLabMovesTheClock(t *testing.T) {
	redis := miniredis.RunT(t)
	url, _ := run(t, configOf(t, "-strategy", "setnx-getset", "-ttl", "1m", "-traps", "-redis", redis.Addr()))
	open(t, url)
	stamp := time.Now().Add(30 * time.Second).UnixMilli()
	redis.Set(grab.Key("setnx-getset", 1), jsonOf(t, stamp))
	if a := <-grabbing(t, url, "/orders/1/grab"); a.Outcome != grab.Busy {
		t.Errorf("with the clock right: %+v, want busy", a)
	}
	if code, _ := ask(t, "PUT", url+"/lab/clock", `{"ahead_ms":40000}`); code != 200 {
		t.Errorf("clock: %d", code)
	}
	if a := <-grabbing(t, url, "/orders/1/grab"); a.Outcome != grab.Grabbed {
		t.Errorf("with the clock ahead: %+v, want grabbed", a)
	}
}

func TestLabRefuses(t *testing.T) {
	url, _ := run(t, configOf(t, "-strategy", "none", "-traps"))
	for _, c := range []struct {
		method, path, body string
		code               int
	}{
		{"PUT", "/lab/traps/x", `{"fase":"read"}`, 400},
		{"PUT", "/lab/clock", `1`, 400},
		{"GET", "/lab/traps/x?n=1&within=1s", "", 404},
		{"GET", "/lab/traps/x?n=a&within=1s", "", 400},
		{"GET", "/lab/traps/x?n=1&within=soon", "", 400},
	} {
		if code, _ := ask(t, c.method, url+c.path, c.body); code != c.code {
			t.Errorf("%s %s %s: %d, want %d", c.method, c.path, c.body, code, c.code)
		}
	}
}

// Nobody can hold up an instance that was not started for it.
func TestNoLabWithoutTraps(t *testing.T) {
	url, _ := run(t, configOf(t, "-strategy", "none"))
	if code, _ := ask(t, "PUT", url+"/lab/clock", `{"ahead_ms":1}`); code != 404 {
		t.Errorf("%d, want 404", code)
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

// Only its own host may hold up an instance, and no user needs to know.
func TestTrapsAreForLoopback(t *testing.T) {
	cfg := configOf(t, "-strategy", "none", "-traps")
	cfg.Addr = "0.0.0.0:0"
	err := instance.Run(t.Context(), cfg, io.Discard, slog.New(slog.DiscardHandler))
	if !errors.Is(err, instance.ErrUsage) || !strings.Contains(err.Error(), "-traps") {
		t.Errorf("%v, want it refused", err)
	}
	var help strings.Builder
	if code := instance.Main(t.Context(), []string{"-help"}, &help, io.Discard); code != 0 || strings.Contains(help.String(), "-traps") {
		t.Errorf("exit %d, and the help tells of -traps: %s", code, help.String())
	}
}

// At a gate every call of a driver waits for its name; a claim is one, however
// many statements it takes.
func TestLabLetsCallsGoByName(t *testing.T) {
	url, stop := run(t, configOf(t, "-strategy", "none", "-traps"))
	defer stop()
	open(t, url)
	gate := url + "/lab/gate"
	if code, _ := ask(t, "PUT", gate, `{"order":1,"drivers":[42]}`); code != 200 {
		t.Fatalf("shut: %d", code)
	}
	grabbed := grabbing(t, url, "/orders/1/grab")
	for _, call := range []string{"read", "claim"} {
		letGo(t, gate, `{"driver":42,"phase":"`+call+`","n":1,"target":"db","fate":"goes"}`)
	}
	if a := <-grabbed; a.Outcome != grab.Grabbed {
		t.Errorf("%+v, want it to have grabbed", a)
	}
	if code, _ := ask(t, "POST", gate+"/calls", `{"driver":42,"phase":"claim","n":2,"target":"db","fate":"goes"}`); code != 404 {
		t.Errorf("a call that is not there: %d, want 404", code)
	}
}

// A claim that never got past the gate was not written, and says so.
func TestLabGivesUpAClaim(t *testing.T) {
	url, stop := run(t, configOf(t, "-strategy", "none", "-traps"))
	defer stop()
	open(t, url)
	gate := url + "/lab/gate"
	ask(t, "PUT", gate, `{"order":1,"drivers":[42]}`)
	grabbed := grabbing(t, url, "/orders/1/grab")
	letGo(t, gate, `{"driver":42,"phase":"read","n":1,"target":"db","fate":"goes"}`)
	letGo(t, gate, `{"driver":42,"phase":"claim","n":1,"target":"db","fate":"given up"}`)
	if a := <-grabbed; a.Outcome != grab.Failed {
		t.Errorf("%+v, want an error that is sure of nothing written", a)
	}
	if code, _ := ask(t, "DELETE", gate, ""); code != 200 {
		t.Errorf("open: %d", code)
	}
	if a := <-grabbing(t, url, "/orders/1/grab"); a.Outcome != grab.Grabbed {
		t.Errorf("%+v, want the order to be open still", a)
	}
}

// letGo asks until the call has come to the gate.
func letGo(t *testing.T, gate, call string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		code, _ := ask(t, "POST", gate+"/calls", call)
		if code == http.StatusOK {
			return
		}
		if code != http.StatusNotFound {
			t.Fatalf("%s: %d", call, code)
		}
	}
	t.Fatalf("%s never came", call)
}
