package fleet

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"grablab/internal/testbed/target"
)

// TestTargetDoesNotAnswer checks that the error for a target that does not respond contains its URL and
// says what to do.
func TestTargetDoesNotAnswer(t *testing.T) {
	closed := httptest.NewServer(nil)
	closed.Close()
	_, err := Attach(t.Context(), target.Target{URLs: []string{closed.URL}, FirstOrder: 1})
	if err == nil || !strings.HasPrefix(err.Error(), "target "+closed.URL+" does not answer: ") || !strings.Contains(err.Error(), "connection refused: start it, or correct -targets. GET /healthz only shows") {
		t.Errorf("Attach: %v", err)
	}
	f := newFleet("")
	in := &Instance{ID: "a", URL: closed.URL, fleet: f}
	if _, _, err := in.Ask(t.Context(), 7, 1); err == nil || strings.Contains(err.Error(), "#") {
		t.Errorf("%v; want an error without the internal part of the URL", err)
	}
}

// serving starts a target that answers only the calls in answers, whose keys have the form
// "METHOD /path". It returns the target's URL.
func serving(t *testing.T, answers map[string]string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, ok := answers[r.Method+" "+r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, text)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

const grabsvc = `{"instance":"8004","settings":{"work_ms":5,"ttl_ms":9,"wait_ms":0,"on_lost":"abort"}}`

// TestOneLine checks that OneLine makes a target's text safe for terminals: it must remove control
// characters and shorten the text without cutting a character.
func TestOneLine(t *testing.T) {
	for text, want := range map[string]string{
		" a\n\tb ": "a b", "\x1b[31mred": "?[31mred", strings.Repeat("é", 200): strings.Repeat("é", 200), strings.Repeat("é", 201): strings.Repeat("é", 200) + "…", "\xff": "", "取得": "取得",
	} {
		if got := OneLine(text); got != want {
			t.Errorf("OneLine(%q) = %q, want %q", text, got, want)
		}
	}
}

// TestNotHTTP checks the hints for a target that does not speak HTTP, and for a target without TLS whose
// URL begins with https.
func TestNotHTTP(t *testing.T) {
	plain := serving(t, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 4096)) // the whole request, so that closing does not reset the connection
			_ = c.Close()
		}
	}()
	for url, want := range map[string]string{
		strings.Replace(plain, "http://", "https://", 1): "HTTPS client: use http:// instead of https://",
		"http://" + l.Addr().String():                    "EOF: check that an HTTP server listens on this port",
	} {
		if _, err := Attach(t.Context(), target.Target{URLs: []string{url}, FirstOrder: 1}); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("Attach(%s): %v; want …%s", url, err, want)
		}
	}
}

// TestAttach checks what Attach learns from targets that support different parts of the API. It must
// refuse flags that require other parts.
func TestAttach(t *testing.T) {
	_, byCall, err := target.Spec{OpenOrders: []string{"/o"}}.Compile()
	if err != nil {
		t.Fatal(err)
	}
	users, _, err := target.Spec{Path: "/buy/{order}"}.Compile()
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]string{"GET /strategies": `["a",{"name":"b","available":false}]`}
	for _, tc := range []struct {
		name    string
		answers map[string]string
		target  target.Target
		foreign bool
		shape   *target.Shape
		has     []Strategy
		refused string
	}{
		{"nothing but the grab", nil, target.Target{FirstOrder: 1}, true, target.Plain, nil, ""},
		{"a shape of the user", nil, target.Target{FirstOrder: 1, Shape: users}, true, users, nil, ""},
		{"a shape of the user for grabsvc", map[string]string{"GET /strategies": `[{"name":"none","available":true}]`, "GET /healthz": grabsvc}, target.Target{Shape: users}, false, users, []Strategy{{"none", true}}, ""},
		{"a page for every call", map[string]string{"GET /strategies": "<html>", "GET /healthz": "OK"}, target.Target{FirstOrder: 1}, true, target.Plain, nil, ""},
		{"a list of something else", map[string]string{"GET /strategies": `[{"id":1}]`}, target.Target{FirstOrder: 1}, true, target.Plain, nil, ""},
		{"a list", listed, target.Target{}, false, target.Plain, []Strategy{{"a", true}, {"b", false}}, ""},
		{"grabsvc", map[string]string{"GET /strategies": `[{"name":"none","available":true}]`, "GET /healthz": grabsvc}, target.Target{}, false, target.Own, []Strategy{{"none", true}}, ""},
		{"orders are opened by a call", nil, target.Target{Open: byCall, Token: "x"}, true, target.Plain, nil, ""},
		{"nobody opens orders", nil, target.Target{}, true, nil, nil, "-first-order ID"},
		{"no such strategy", listed, target.Target{Strategies: []string{"aa"}}, false, nil, nil, "did you mean a?"},
		{"no strategies", nil, target.Target{FirstOrder: 1, Strategies: []string{"a"}}, true, nil, nil, "-strategies: the targets have no API"},
		{"no control call", nil, target.Target{FirstOrder: 1, Token: "x"}, true, nil, nil, "-admin-token: the targets have no control API"},
		{"a lease that is known", map[string]string{"GET /strategies": `["none"]`, "GET /healthz": grabsvc}, target.Target{Lease: time.Second}, false, nil, nil, "-lease: the targets' GET /healthz already reports how long a lock lasts: leave out this flag"},
	} {
		tc.target.URLs = []string{serving(t, tc.answers), serving(t, tc.answers) + "/"}
		f, err := Attach(t.Context(), tc.target)
		if tc.refused != "" {
			if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), tc.refused) {
				t.Errorf("%s: error %v; want …%s…", tc.name, err, tc.refused)
			}
			continue
		}
		if err != nil || f.Foreign != tc.foreign || f.Shape != tc.shape || !reflect.DeepEqual(f.Strategies, tc.has) || len(f.IDs()) != 2 {
			t.Errorf("%s: %v: foreign %v, %v, shape %v, ids %v", tc.name, err, f.Foreign, f.Strategies, f.Shape.Says(), f.IDs())
		}
	}
	_, err = Attach(t.Context(), target.Target{URLs: []string{serving(t, listed), serving(t, nil)}, FirstOrder: 1})
	if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "different strategies") {
		t.Errorf("targets of two services: %v", err)
	}
}

// TestStrategiesInAnyOrder checks that targets can list the same strategies in different orders, but
// cannot list different strategies.
func TestStrategiesInAnyOrder(t *testing.T) {
	names := []string{`"a"`, `{"name":"b","available":false}`, `{"name":"c"}`, `"d"`}
	list := func(names []string) string {
		return serving(t, map[string]string{"GET /strategies": "[" + strings.Join(names, ",") + "]"})
	}
	for seed := range uint64(10) {
		mixed := slices.Clone(names)
		rand.New(rand.NewPCG(seed, 0)).Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
		if f, err := Attach(t.Context(), target.Target{URLs: []string{list(names), list(mixed)}}); err != nil || f.Names()[0] != "a" {
			t.Errorf("%v and %v: %v", names, mixed, err)
		}
		for _, other := range [][]string{mixed[1:], append(slices.Clone(mixed[1:]), `"e"`), append(slices.Clone(mixed[1:]), mixed[1])} {
			if _, err := Attach(t.Context(), target.Target{URLs: []string{list(names), list(other)}}); !errors.Is(err, ErrRefused) {
				t.Errorf("%v and %v: %v", names, other, err)
			}
		}
	}
}

// TestOpenByCall checks that Create opens orders with the user's call, and returns an error if the
// response contains no valid order ID.
func TestOpenByCall(t *testing.T) {
	for answer, want := range map[string]int64{
		`{"data":{"id":7}}`: 7, `{"data":{"id":"7"}}`: 7,
		`{"data":{"id":0}}`: 0, `{"data":{"id":1.5}}`: 0, `{"data":{"id":9223372036854775807}}`: 0, `{"id":7}`: 0, `7`: 0, ``: 0,
	} {
		_, open, err := target.Spec{OpenOrders: []string{`PUT /make {"n":{count}} -> .data.id`}}.Compile()
		if err != nil {
			t.Fatal(err)
		}
		f, err := Attach(t.Context(), target.Target{URLs: []string{serving(t, map[string]string{"PUT /make": answer})}, Open: open})
		if err != nil {
			t.Fatal(err)
		}
		if first, err := f.Create(t.Context(), 3, 1); first != want || (err == nil) != (want > 0) {
			t.Errorf("%s: Create: %d, %v", answer, first, err)
		}
	}
}

// TestTargetsWithoutMetrics checks that Drain returns ErrNoMetrics at once if the targets report no
// metrics. Missing metrics must not count as 0.
func TestTargetsWithoutMetrics(t *testing.T) {
	strategies := map[string]string{"GET /strategies": `["a"]`}
	for _, text := range []string{"-", "<html>", "jvm_threads 7\n"} {
		strategies["GET /metrics"] = text
		if text == "-" {
			delete(strategies, "GET /metrics")
		}
		f, err := Attach(t.Context(), target.Target{URLs: []string{serving(t, strategies)}})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		got, err := f.Drain(t.Context(), 0, time.Minute)
		if !errors.Is(err, ErrNoMetrics) || got.RedisCommands == 0 && err == nil || time.Since(began) > 30*time.Second {
			t.Errorf("%q: Drain: %+v, %v", text, got, err)
		}
	}
}

// TestCountersAddUp checks that Counters adds up each metric over three targets in any order, and that
// Drain uses the sum of their running grabs.
func TestCountersAddUp(t *testing.T) {
	want := Counters{RedisCommands: 3 + 30 + 300, DBStatements: 4 + 40 + 400, InFlight: 5 + 50 + 500, Epoch: 6 + 60 + 600}
	var urls []string
	for _, times := range []int{1, 10, 100} {
		urls = append(urls, serving(t, map[string]string{"GET /strategies": `["a"]`, "GET /metrics": fmt.Sprintf(
			"# TYPE grab_redis_commands_total counter\ngrab_redis_commands_total{target=\"a\"} %d\ngrab_redis_commands_total{target=\"b\"} %d\n# TYPE grab_db_statements_total counter\ngrab_db_statements_total %d\n"+
				"grab_in_flight %d\n# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds %d\n",
			times, 2*times, 4*times, 5*times, 6*times)}))
	}
	for range urls {
		urls = append(urls[1:], urls[0])
		f, err := Attach(t.Context(), target.Target{URLs: urls})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := f.Counters(t.Context()); err != nil || got != want {
			t.Errorf("Counters: %+v, %v, want %+v", got, err, want)
		}
		if _, err := f.Drain(t.Context(), 554, 50*time.Millisecond); err == nil {
			t.Error("drained, although 555 grabs are running")
		}
		if _, err := f.Drain(t.Context(), 555, time.Minute); err != nil {
			t.Error(err)
		}
	}
}

// TestLongestTTLCounts checks that Use returns the longest TTL that any of three targets reports, because
// a probe must outlast every lock. If one target fails, Use must return an error.
func TestLongestTTLCounts(t *testing.T) {
	for _, reports := range []string{"100 200 300", "100 300 200", "300 200 100", "300 0 100", "0 0 0", "- 100 300", "100 - 300", "300 100 -"} {
		var urls []string
		longest, fails := 0.0, strings.Contains(reports, "-")
		for _, ms := range strings.Fields(reports) {
			answers := map[string]string{"GET /strategies": `["a","b"]`}
			if ms != "-" {
				answers["PUT /strategy"] = `{"name":"b","lease_ms":` + ms + `}`
				n, _ := strconv.ParseFloat(ms, 64)
				longest = max(longest, n)
			}
			urls = append(urls, serving(t, answers))
		}
		f, err := Attach(t.Context(), target.Target{URLs: urls})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := f.Use(t.Context(), "b"); (err != nil) != fails || !fails && got != longest {
			t.Errorf("%s: Use: %v, %v; want %v", reports, got, err, longest)
		}
	}
}

// TestAttachToListed checks the errors for a registry that lists no instances, or an instance that does
// not respond.
func TestAttachToListed(t *testing.T) {
	registry := serving(t, map[string]string{
		"GET /eureka/apps/DEAD":  `{"application":{"instance":[{"hostName":"127.0.0.1","status":"UP","port":{"$":1,"@enabled":"true"}}]}}`,
		"GET /eureka/apps/EMPTY": `{"application":{"instance":[]}}`,
	})
	for source, says := range map[string]string{
		"eureka:DEAD@":  "target http://127.0.0.1:1 does not answer: ",
		"eureka:EMPTY@": "-targets eureka:EMPTY@" + registry + ": the registry lists no instance",
		"eureka:NONE@":  "-targets eureka:NONE@" + registry + ": the registry lists no instance",
	} {
		_, err := Attach(t.Context(), target.Target{URLs: []string{source + registry}})
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("Attach(%s) = %v, want …%s…", source, err, says)
		}
	}
}

// TestKilledTargetStaysKilled sends several signals to a process of the user. After SIGKILL, the instance
// must not count as running any more, whether later signals succeed or fail.
func TestKilledTargetStaysKilled(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	for _, reaped := range []bool{false, true} {
		process := exec.Command("sleep", "60")
		if err := process.Start(); err != nil {
			t.Fatal(err)
		}
		f, err := Attach(t.Context(), target.Target{URLs: []string{server.URL}, PIDs: []int{process.Process.Pid}, FirstOrder: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		in := f.Instances[0]
		for n, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT, syscall.SIGKILL, syscall.SIGCONT, syscall.SIGKILL, syscall.SIGSTOP} {
			err := in.Signal(sig)
			if reaped && sig == syscall.SIGKILL {
				process.Wait()
			}
			if killed := n >= 2; in.alive() == killed {
				t.Errorf("after signal %d (%v), reaped %v: runs %v, %v", n, sig, reaped, in.alive(), err)
			}
		}
		process.Wait()
	}
}
