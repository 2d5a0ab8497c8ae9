package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/flags"
	"grablab/internal/measure/experiment"
	"grablab/internal/present/report"
	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/target"
)

// TestTargetFileHasTheFlags checks that the schema of target files has exactly the flags that describe
// a target as keys. These flags must accept the schema's examples.
func TestTargetFileHasTheFlags(t *testing.T) {
	var schema struct {
		Properties map[string]struct{ Examples []any }
	}
	if err := json.Unmarshal([]byte(target.FileSchema), &schema); err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	for _, name := range []string{"SHOP_TOKEN", "SHOP_PASSWORD"} {
		t.Setenv(name, "x")
	}
	var names []string
	for _, o := range slices.Concat(new(runSettings).targetFlags(), serverFlags(new(stack.Config))[:1]) {
		property, known := schema.Properties[o.Name]
		if o.Name == "target-file" {
			continue
		}
		names = append(names, o.Name)
		if !known || len(property.Examples) == 0 {
			t.Errorf("%s: not in the schema, or without an example", o.Name)
		}
		for _, example := range property.Examples {
			text, err := json.Marshal(map[string]any{o.Name: example})
			if err != nil {
				t.Fatal(err)
			}
			write(t, "example.yaml", string(text))
			lines, err := target.ReadFile("example.yaml")
			if err == nil {
				err = o.Value.Set(lines[0].Value)
			}
			if err != nil {
				t.Errorf("the flags refuse the schema's example %s: %v", text, err)
			}
		}
	}
	for key := range schema.Properties {
		if !slices.Contains(names, key) {
			t.Errorf("no flag -%s", key)
		}
	}
}

func TestTargetFile(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "my.yaml", "targets: [http://a:1/shop, http://b:1]\npath: /api/{order}\nheader: ['A: 1', 'B: 2']\ntaken: 409,410\nfirst-order: 5\ndb: u:p@tcp(h)/d\nledger-query: SELECT ? ?\nlease: 5s\n")
	s, err := parseRun(strings.Fields("-target-file my.yaml -path /v2/{order} -header C:3 -rate 80 -seed 1"))
	if err != nil {
		t.Fatal(err)
	}
	if s.spec.Path != "/v2/{order}" || !slices.Equal(s.spec.Headers, []string{"C:3"}) || s.spec.Taken != "409,410" || s.Target.FirstOrder != 5 ||
		s.Target.Lease != 5*time.Second || s.Target.Database != (target.Database{DSN: "u:p@tcp(h)/d", Query: "SELECT ? ?"}) ||
		!slices.Equal(s.Target.URLs, []string{"http://a:1/shop", "http://b:1"}) || !s.Together || s.Target.Shape == nil {
		t.Errorf("spec %+v\ntarget %+v", s.spec, s.Target)
	}
	if want := []string{"-target-file=my.yaml", "-path=/v2/{order}", "-rate=80", "-seed=1"}; !slices.Equal(s.Args, want) {
		t.Errorf("the run records the flags %q, want %q", s.Args, want)
	}
	for text, want := range map[string]string{
		"targets: http://h:1\npth: /a":                                  `-target-file: my.yaml:2:1: there is no key "pth"; did you mean path?`,
		"targets: http://h:1\n\npath: grab":                             "-target-file: my.yaml:3:7: path: ",
		"targets: http://h:1\nlease: 30":                                "-target-file: my.yaml:2:8: lease: must be a duration such as 30s",
		"targets: http://h:1\npath: 5":                                  "-target-file: my.yaml:2:7: path: ",
		"targets: http://h:1\nidempotent: maybe":                        "-target-file: my.yaml:2:13: idempotent: must be true or false",
		"targets: http://h:1\nfirst-order: many":                        "-target-file: my.yaml:2:14: first-order: must be an order ID",
		"targets: http://h:1\nfirst-order: 0":                           "-target-file: my.yaml:2:14: first-order: must be an order ID",
		"targets: http://h:1\nwork: 5ms":                                `my.yaml:2:1: there is no key "work"`,
		"path: /g/{order}":                                              "-target-file my.yaml: this flag describes your own service, but no service is named",
		"targets: http://h:1\nfirst-order: 1\ngrabbed: 2xx\ntaken: 204": "-target-file: my.yaml:4:8: taken: a response with status 204 matches the rules for both",
		"targets: http://h:1\ndb: u@tcp(h)/d\nledger-query: DELETE":     "-target-file: my.yaml:3:15: ledger-query: ",
		"targets: http://h:1\nfirst-order: 7\nopen-orders: /o":          "-target-file: my.yaml:2:14: first-order: -open-orders calls the service",
	} {
		write(t, "my.yaml", text)
		var stdout, stderr bytes.Buffer
		code := exitOf(context.Background(), []string{"-target-file", "my.yaml"}, &stdout, &stderr)
		if code != int(exitUsage) || !strings.Contains(stderr.String(), want) || strings.Count(stderr.String(), "\n") != 1 {
			t.Errorf("%q: exit %d, %q, want …%s…", text, code, &stderr, want)
		}
	}
}

// TestSecretFlagsAreNotInMessages checks that messages omit the value of a flag if and only if a target
// file can take it from an environment variable. These are the flags with secret values.
func TestSecretFlagsAreNotInMessages(t *testing.T) {
	const secret = "s3cret"
	t.Chdir(t.TempDir())
	t.Setenv("GRABLAB_TEST_SECRET", secret)
	hidden := 0
	for _, f := range defaults("").flags() {
		write(t, "one.yaml", f.Name+": 'A: ${GRABLAB_TEST_SECRET}'")
		lines, err := target.ReadFile("one.yaml")
		expands := err == nil && strings.Contains(lines[0].Value, secret)
		shows := strings.Contains(flags.Label(f.Name, "A: "+secret), secret)
		if expands == shows {
			t.Errorf("-%s: the value can come from the environment: %v; messages show the value: %v", f.Name, expands, shows)
		}
		if !shows {
			hidden++
		}
	}
	if hidden == 0 {
		t.Error("no flag is secret")
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestExpectationsOfOurs checks that parseRun rejects wrong expectations for our own strategies, so
// that no run has to start before the user sees the error.
func TestExpectationsOfOurs(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "e.yaml", "none: unsafe\nsetnxx: safe\n")
	if _, err := parseRun([]string{"-expectations", "e.yaml"}); err == nil || !strings.Contains(err.Error(), `e.yaml:2: there is no strategy "setnxx"; did you mean setnx?`) {
		t.Error(err)
	}
	write(t, "e.yaml", "setnx: {none: safe, pause: unsafe}\n")
	s, err := parseRun([]string{"-expectations", "e.yaml"})
	if want := (target.Expectation{Strategy: "setnx", Fault: catalog.Pause, Verdict: catalog.Unsafe, Line: 1}); err != nil || len(s.Expect) != 2 || s.Expect[1] != want {
		t.Errorf("parseRun returned %+v, %v", s, err)
	}
}

// garage is a service with a control API and two strategies: "free-for-all" grabs without a lock, and
// "gate" grabs with one.
type garage struct {
	mu       sync.Mutex
	gate     sync.Mutex
	strategy map[string]string // the current strategy of each instance
	next     int64
	winners  map[string][]int64
}

func (g *garage) instance(name string) http.Handler {
	mux := http.NewServeMux()
	reply := func(w http.ResponseWriter, v any) { _ = json.NewEncoder(w).Encode(v) }
	mux.HandleFunc("GET /v1/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"status":"UP"}`) })
	mux.HandleFunc("GET /v1/strategies", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `["free-for-all", {"name":"gate","title":"one at a time"}, {"name":"later","available":false}]`)
	})
	mux.HandleFunc("PUT /v1/strategy", func(w http.ResponseWriter, r *http.Request) {
		var body struct{ Name string }
		_ = json.NewDecoder(r.Body).Decode(&body)
		g.mu.Lock()
		defer g.mu.Unlock()
		g.strategy[name] = body.Name
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST /v1/orders", func(w http.ResponseWriter, r *http.Request) {
		var body struct{ Count int64 }
		_ = json.NewDecoder(r.Body).Decode(&body)
		g.mu.Lock()
		defer g.mu.Unlock()
		reply(w, map[string]int64{"first_id": g.next + 1, "count": body.Count})
		g.next += body.Count
	})
	mux.HandleFunc("GET /v1/orders/{id}", func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		defer g.mu.Unlock()
		grabs := []map[string]int64{}
		for _, d := range g.winners[r.PathValue("id")] {
			grabs = append(grabs, map[string]int64{"driver_id": d})
		}
		reply(w, map[string]any{"grabs": grabs})
	})
	mux.HandleFunc("POST /v1/orders/{id}/grab", func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Driver int64 `json:"driver_id"`
		}
		_ = json.NewDecoder(r.Body).Decode(&body)
		g.mu.Lock()
		strategy := g.strategy[name]
		g.mu.Unlock()
		if strategy == "gate" {
			g.gate.Lock()
			defer g.gate.Unlock()
		}
		id := r.PathValue("id")
		g.mu.Lock()
		taken := len(g.winners[id]) > 0
		g.mu.Unlock()
		if taken {
			w.WriteHeader(http.StatusConflict)
			return
		}
		if strategy != "gate" {
			time.Sleep(50 * time.Millisecond)
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		g.winners[id] = append(g.winners[id], body.Driver)
	})
	return mux
}

func startGarage(t *testing.T) (targets string) {
	g := &garage{strategy: map[string]string{}, winners: map[string][]int64{}}
	var urls []string
	for _, name := range []string{"a", "b"} {
		s := httptest.NewServer(g.instance(name))
		t.Cleanup(s.Close)
		urls = append(urls, s.URL+"/v1")
	}
	return strings.Join(urls, ",")
}

// TestControlAPI checks that one command tests all strategies of a service with a control API, and
// compares the verdicts with the expectations of the user.
func TestControlAPI(t *testing.T) {
	t.Chdir(t.TempDir())
	targets := startGarage(t)
	write(t, "right.yaml", "free-for-all: unsafe\ngate:\n  none: safe\n  pause: unsafe\n")
	write(t, "wrong.yaml", "gate: unsafe\n")
	write(t, "nosuch.yaml", "gat: safe\n")
	loadgen := func(args ...string) (code int, stdout, stderr string) {
		var out, errs bytes.Buffer
		code = exitOf(context.Background(), append([]string{"-targets", targets, "-orders", "5", "-drivers", "8", "-seed", "1", "-settle", "100ms", "-quiet"}, args...), &out, &errs)
		return code, out.String(), errs.String()
	}
	code, stdout, stderr := loadgen("-out", "all", "-assert", "expected", "-expectations", "right.yaml")
	if code != int(exitDone) {
		t.Fatalf("exit %d\n%s%s", code, stdout, stderr)
	}
	run, err := report.Load("all")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range run.Cells {
		got = append(got, fmt.Sprintf("%s %s %s", c.Strategy, c.Verdict, c.CountedFrom))
		if c.RedisCommands != nil || c.WorkMS != nil || c.Guard != "" {
			t.Errorf("%s has figures that the service does not report: %+v", c.Strategy, c)
		}
	}
	if want := []string{"free-for-all unsafe ledger", "gate safe ledger"}; !slices.Equal(got, want) {
		t.Errorf("table rows are %q, want %q", got, want)
	}
	// Remove the mark for a load that this machine could not sustain, and the spaces that depend on it.
	table := strings.Join(strings.Fields(strings.ReplaceAll(stdout, "*", "")), " ")
	for _, want := range []string{"free-for-all unsafe ✓", "gate safe ✓", "500/s, the drivers of an order close together over 2 instances loadgen explain", "taken 409"} {
		if !strings.Contains(table, want) {
			t.Errorf("%q is not in\n%s", want, stdout)
		}
	}
	for _, tc := range []struct {
		args string
		exit int
		says string
	}{
		{"-out wrong -assert expected -expectations wrong.yaml -strategies gate", int(exitAssert), "gate/none: is safe, expected unsafe"},
		{"-out none -expectations nosuch.yaml", int(exitUsage), `-expectations, line 1: there is no strategy "gat"; did you mean gate?`},
		{"-out none -strategies gat", int(exitUsage), `the targets have no strategy "gat"; did you mean gate?`},
		{"-out other -only gate/none -assert gate:double_grabs==0", int(exitDone), ""},
		{"-out warm -strategies gate -warmup 50ms -assert gate:orders==5", int(exitDone), ""},
	} {
		code, stdout, stderr := loadgen(strings.Fields(tc.args)...)
		if code != tc.exit || !strings.Contains(stderr, tc.says) {
			t.Errorf("%s: exit %d, want %d and …%s…\n%s%s", tc.args, code, tc.exit, tc.says, stdout, stderr)
		}
	}
	if _, err := os.Stat("none"); err == nil {
		t.Error("a run that did not begin has left its folder")
	}
}

// TestPlainTarget tests a service that has only a grab endpoint. It checks that flags without effect are
// refused, that missing flags are named, and that the table shows no unknown figures.
func TestPlainTarget(t *testing.T) {
	t.Chdir(t.TempDir())
	var mu sync.Mutex
	taken := map[string]bool{}
	service := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/shop/grab/") || r.Header.Get("X-User") == "" {
			http.NotFound(w, r)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(w, `{"code":%d}`, map[bool]int{false: 0, true: 7}[taken[r.URL.Path]])
		taken[r.URL.Path] = true
	})
	var urls []string
	for range 2 {
		s := httptest.NewServer(service)
		t.Cleanup(s.Close)
		urls = append(urls, s.URL+"/shop")
	}
	base := []string{"-targets", strings.Join(urls, ","), "-orders", "3", "-drivers", "6", "-seed", "1", "-quiet"}
	shape := []string{"-method", "PUT", "-path", "/grab/{order}", "-header", "X-User: {driver}", "-grabbed", "json:.code==0", "-taken", "json:.code==7"}
	for i, tc := range []struct {
		args    []string
		exit    int
		says    string
		verdict catalog.Verdict
	}{
		{nil, int(exitUsage), "name the first open order with -first-order ID", ""},
		{[]string{"-first-order", "1", "-strategies", "setnx"}, int(exitUsage), "-strategies: the targets have no API", ""},
		{append(shape, "-first-order", "1"), int(exitDone), "", catalog.Safe},
		{append(shape, "-first-order", "1"), int(exitDone), "", catalog.Unknown}, // these orders are taken now
		{[]string{"-first-order", "11"}, int(exitDone), "", catalog.Unknown},
	} {
		out := filepath.Join("results", fmt.Sprint(i))
		var stdout, stderr bytes.Buffer
		code := exitOf(context.Background(), slices.Concat(base, tc.args, []string{"-out", out}), &stdout, &stderr)
		if code != tc.exit || !strings.Contains(stderr.String(), tc.says) {
			t.Errorf("%q: exit %d, want %d and …%s…\n%s%s", tc.args, code, tc.exit, tc.says, &stdout, &stderr)
		}
		if tc.verdict == "" {
			continue
		}
		run, err := report.Load(out)
		if err != nil {
			t.Fatal(err)
		}
		if c := run.Cells[0]; c.Verdict != tc.verdict || c.Strategy != experiment.Foreign {
			t.Errorf("%q: %s is %s (%s), want %s", tc.args, c.Strategy, c.Verdict, c.Reason, tc.verdict)
		}
		if strings.Contains(stdout.String(), "ledger ---") || strings.Contains(stdout.String(), "0.00  ") {
			t.Errorf("%q: the table shows a ledger or an unknown figure:\n%s", tc.args, &stdout)
		}
	}
}
