package experiment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/history"
	"grablab/internal/measure/shard"
	"grablab/internal/testbed/fault"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/load"
	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/stack/stacktest"
	"grablab/internal/testbed/target"
)

// foreign is a user's service that serves only the grab request.
type foreign struct {
	mu    sync.Mutex
	taken map[string]bool
	// decide returns the status for a grab. If it is nil, the service answers correctly.
	decide func(r *http.Request, taken bool) int
}

func (f *foreign) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/grab") {
		http.NotFound(w, r)
		return
	}
	time.Sleep(2 * time.Millisecond) // make attempts overlap
	f.mu.Lock()
	defer f.mu.Unlock()
	status := http.StatusOK
	if f.taken[r.URL.Path] {
		status = http.StatusConflict
	}
	if f.decide != nil {
		status = f.decide(r, f.taken[r.URL.Path])
	}
	if status == http.StatusOK {
		f.taken[r.URL.Path] = true
	}
	w.WriteHeader(status)
}

func always(status int) func(*http.Request, bool) int {
	return func(*http.Request, bool) int { return status }
}

func TestTargetsAreJudgedByTheirAnswers(t *testing.T) {
	t.Parallel()
	var failingPort string
	grabbed200 := func(c *Config) { // the user's rules say that status 200 means a win
		var err error
		if c.Target.Shape, _, err = (target.Spec{Grabbed: "200"}).Compile(); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name    string
		decide  func(*http.Request, bool) int
		targets int
		change  func(*Config)
		verdict catalog.Verdict
		reason  string
	}{
		{"right", nil, 2, nil, catalog.Safe, ""},
		{"every answer is 200", always(http.StatusOK), 2, nil, catalog.Unknown, "every response was 200"},
		{"every answer is 200, one target", always(http.StatusOK), 1, nil, catalog.Unknown, "every response was 200"},
		{"every grab wins", always(http.StatusOK), 2, grabbed200, catalog.Unsafe, "more than once"},
		{"every grab wins, one target", always(http.StatusOK), 1, grabbed200, catalog.Unsafe, "more than once"},
		{"all load at one instance", nil, 1, nil, catalog.Unknown, "only one instance answered, so this run cannot show whether the lock works between processes"},
		{"one of two instances only fails", func(r *http.Request, taken bool) int {
			switch {
			case strings.HasSuffix(r.Host, failingPort):
				return http.StatusTooManyRequests
			case taken:
				return http.StatusConflict
			}
			return http.StatusOK
		}, 2, nil, catalog.Unknown, "only one instance answered, so this run cannot show whether the lock works between processes"},
		{"answers are lost", func(r *http.Request, taken bool) int {
			if taken {
				return http.StatusGatewayTimeout
			}
			return http.StatusOK
		}, 2, nil, catalog.Unknown, "may hide a grab: http 504"},
		{"no contention", nil, 2, func(c *Config) { c.Drivers, c.Rate = 1, 100 }, catalog.Unknown, "no two drivers competed for the same order: raise -rate or -drivers"},
		{"no driver ever gets in", always(http.StatusLocked), 2, func(c *Config) { c.Orders, c.Target.Lease = 2, 50*time.Millisecond }, catalog.Stuck, "no longer be grabbed"},
		{"an order that is never tried", func(r *http.Request, taken bool) int {
			var probe bool
			var driver int64
			fmt.Fscanf(r.Body, `{"driver_id":%d}`, &driver)
			probe = driver >= history.ProbeDriver
			switch {
			case strings.HasPrefix(r.URL.Path, "/orders/103/") && !probe:
				return http.StatusLocked
			case taken:
				return http.StatusConflict
			}
			return http.StatusOK
		}, 2, nil, catalog.Unknown, "1 of 5 orders was never tried"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			failingPort = "none"
			service := &foreign{taken: map[string]bool{}, decide: tc.decide}
			cfg := Scenarios[0].Config
			cfg.Scenario, cfg.Seed, cfg.Out, cfg.OnLost = "rush", 1, t.TempDir(), grab.Abort
			cfg.Settle = 200 * time.Millisecond
			cfg.Orders, cfg.Rate, cfg.Target.FirstOrder = 5, 0, 101
			cfg.Log = t.Output()
			for range tc.targets {
				s := httptest.NewServer(service)
				t.Cleanup(s.Close)
				cfg.Target.URLs = append(cfg.Target.URLs, s.URL)
				failingPort = s.URL[strings.LastIndex(s.URL, ":"):] // only the last target fails, if any
			}
			if tc.change != nil {
				tc.change(&cfg)
			}
			run, err := execute(t, t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			c := run.Cells[0]
			if c.Verdict != tc.verdict || !strings.Contains(c.Reason, tc.reason) {
				t.Errorf("verdict %s: %q; want %s: %q", c.Verdict, c.Reason, tc.verdict, tc.reason)
			}
			if c.CountedFrom != fromAnswers || c.Grabs != nil || c.PhantomGrabs != nil || c.Overlaps != nil || c.RedisCommands != nil {
				t.Errorf("counted from %s, want from the answers, without the figures %v %v %v %v",
					c.CountedFrom, c.Grabs, c.PhantomGrabs, c.Overlaps, c.RedisCommands)
			}
			if c.Expected != nil {
				t.Errorf("the verdict %v is expected, although the lock is unknown", *c.Expected)
			}
		})
	}
}

// TestNamesInAnswersDoNotCount checks that instances are distinguished by their URLs and addresses,
// and not by the names in their responses. One service must never count as two instances, and two
// must never count as one.
func TestNamesInAnswersDoNotCount(t *testing.T) {
	t.Parallel()
	names := map[string]func(n int, r *http.Request) string{
		"no name":                func(int, *http.Request) string { return "" },
		"the same name":          func(int, *http.Request) string { return "shop" },
		"a path, as RFC 9457":    func(_ int, r *http.Request) string { return r.URL.Path },
		"another in each answer": func(n int, _ *http.Request) string { return fmt.Sprint(n) },
		"the URL that was asked": func(_ int, r *http.Request) string { return r.Host },
	}
	for name, instance := range names {
		for _, tc := range []struct {
			urls    func(one, two string) []string
			verdict catalog.Verdict
			reason  string
		}{
			{func(one, two string) []string { return []string{one, two} }, catalog.Safe, ""},
			{func(one, _ string) []string { return []string{one} }, catalog.Unknown, "only one instance answered, so this run cannot show whether the lock works between processes"},
			{func(one, _ string) []string { return []string{one, strings.Replace(one, "127.0.0.1", "localhost", 1)} }, catalog.Unknown, "both reach"},
			{func(one, _ string) []string { return []string{strings.Replace(one, "127.0.0.1", "LocalHost", 1), one} }, catalog.Unknown, "both reach"},
			{func(one, _ string) []string { return []string{one, one + "/shop"} }, catalog.Unknown, "both reach"},
		} {
			service := &foreign{taken: map[string]bool{}}
			n := 0
			handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.URL.Path = strings.TrimPrefix(r.URL.Path, "/shop")
				answer := httptest.NewRecorder()
				service.ServeHTTP(answer, r)
				service.mu.Lock()
				n++
				text := fmt.Sprintf(`{"type":"about:blank","instance":%q}`, instance(n, r))
				service.mu.Unlock()
				w.WriteHeader(answer.Code)
				fmt.Fprint(w, strings.ReplaceAll(text, ":", map[bool]string{true: ":", false: ": "}[r.ContentLength%2 == 0]))
			})
			one, two := httptest.NewServer(handler), httptest.NewServer(handler)
			cfg := small(t, "")
			cfg.Target.URLs, cfg.Target.FirstOrder = tc.urls(one.URL, two.URL), 101
			cfg.Orders, cfg.Drivers, cfg.Rate = 4, 10, 0
			run, err := execute(t, t.Context(), cfg)
			one.Close()
			two.Close()
			if err != nil {
				t.Fatal(err)
			}
			c := run.Cells[0]
			want := 1
			if tc.verdict == catalog.Safe {
				want = 2
			}
			if c.Verdict != tc.verdict || !strings.Contains(c.Reason, tc.reason) || len(c.ServedBy) != want {
				t.Errorf("%s, %v: %s (%s), served by %v; want %s, %d", name, cfg.Target.URLs, c.Verdict, c.Reason, c.ServedBy, tc.verdict, want)
			}
		}
	}
}

func TestTargetsThatCannotBeUsed(t *testing.T) {
	gone := httptest.NewServer(nil)
	gone.Close()
	service := httptest.NewServer(&foreign{taken: map[string]bool{}})
	defer service.Close()
	secured := httptest.NewUnstartedServer(&foreign{taken: map[string]bool{}})
	secured.Config.ErrorLog = log.New(io.Discard, "", 0)
	secured.StartTLS()
	defer secured.Close()
	for _, tc := range []struct{ target, says string }{
		{gone.URL, "does not answer"},
		{secured.URL, "SSL_CERT_FILE"},
		{service.URL, "-first-order"},
	} {
		cfg := Scenarios[0].Config
		cfg.Out, cfg.Target.URLs = t.TempDir(), []string{tc.target}
		_, err := Execute(context.Background(), cfg, func(*Run) error { return nil })
		if err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: Execute: %v; want …%s…", tc.target, err, tc.says)
		}
	}
}

// TestTargetsOfOurs tests our own instances as running targets. All named strategies must run and
// have the expected verdicts, counted from the ledger. Whether the lock was exclusive must stay
// unknown, because it depends on the events.
func TestTargetsOfOurs(t *testing.T) {
	t.Parallel()
	st, err := stack.Start(t.Context(), stack.Config{Kind: stack.Embedded, Needs: lock.Redis})
	stacktest.Check(t, err)
	defer st.Close()
	cfg := small(t, "")
	instances := fleet.New(fleet.Config{Exe: cfg.Exe, Instances: 2, OnLost: grab.Abort, Say: t.Logf}, st, 0)
	defer instances.Stop()
	if err := instances.Equip(t.Context(), fleet.Setup{Work: 20 * time.Millisecond, TTL: 5 * time.Second, Wait: time.Second, Timeout: 10 * time.Second}); err != nil {
		t.Fatal(err)
	}
	cfg.Target.URLs = instances.URLs()
	cfg.Target.Strategies = []string{"none", "mutex", "setnx", "mysql-cas"}
	cfg.Orders, cfg.Rate, cfg.Together = 5, 60, true
	run := decide(t, &cfg)
	if len(run.Cells) != 4 {
		t.Fatalf("%d cells, want 4", len(run.Cells))
	}
	for _, c := range run.Cells {
		if c.Expected == nil || !c.AsExpected() || c.CountedFrom != fromLedger || c.Exclusive != nil || c.WorkMS == nil || *c.WorkMS != 20 || c.RedisCommands == nil {
			t.Errorf("%s: %s (%s), expected %v, from %s, exclusive %v, work %v", c.Strategy, c.Verdict, c.Reason, c.Expected, c.CountedFrom, c.Exclusive, c.WorkMS)
		}
		checkSums(t, c)
	}
}

// TestTargetDatabase checks that -db is enough to read the ledger of our own instances. For another
// service, it must be refused without a ledger query or statements.
func TestTargetDatabase(t *testing.T) {
	own := small(t, stack.Embedded, "mysql-cas")
	w, err := openWorker(t.Context(), own, 0, newProgress(own), &journal{dir: own.Out})
	t.Cleanup(func() { _ = w.close() })
	if err == nil {
		err = w.fleet.Equip(t.Context(), own.setup())
	}
	if err != nil {
		t.Fatal(err)
	}
	other := httptest.NewServer(&foreign{taken: map[string]bool{}})
	t.Cleanup(other.Close)
	for name, tc := range map[string]struct {
		urls    []string
		refused bool
	}{
		"ours":     {w.fleet.URLs(), false},
		"of other": {[]string{other.URL}, true},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := Scenarios[0].Config
			cfg.Scenario, cfg.Seed, cfg.Out, cfg.Orders, cfg.Rate, cfg.Log = "rush", 1, t.TempDir(), 5, 0, t.Output()
			cfg.Strategies = own.Strategies
			cfg.Target.URLs, cfg.Target.Database.DSN = tc.urls, w.stack.DSN
			if tc.refused {
				cfg.Target.FirstOrder = 1
			}
			run, err := execute(t, t.Context(), cfg)
			if tc.refused {
				if !errors.Is(err, fleet.ErrRefused) || !strings.Contains(err.Error(), "-ledger-query") {
					t.Errorf("got %v, want a refusal that names -ledger-query", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			c := run.Cells[0]
			if c.Verdict != catalog.Safe || c.CountedFrom != fromLedger || value(c.Grabs) != 5 || !strings.HasPrefix(run.Environment.Database, "SQLite") {
				t.Errorf("%s (%s): %d grabs, counted from %s in %q", c.Verdict, c.Reason, value(c.Grabs), c.CountedFrom, run.Environment.Database)
			}
		})
	}
}

// TestModeOfAServiceThatNeedsNoFault checks that a failure under a fault has no failure mode if the
// user's service also fails without the fault.
func TestModeOfAServiceThatNeedsNoFault(t *testing.T) {
	for without, want := range map[catalog.Verdict]string{catalog.Unsafe: "", catalog.Safe: "F11"} {
		r := newRunner(Config{Target: target.Target{URLs: []string{"http://h:1"}}}, func(*Run) error { return nil })
		pause := &cellSpec{CellName: CellName{Foreign, catalog.Pause}}
		r.specs = []*cellSpec{{CellName: CellName{Foreign, catalog.NoFault}, cell: &Cell{Verdict: without}}, pause}
		if err := r.finish(pause, Cell{Points: []Point{{FailureMode: "F11"}}}, nil); err != nil {
			t.Fatal(err)
		}
		if got := pause.cell.Points[0].FailureMode; got != want {
			t.Errorf("%s without a fault: the failure mode is %q, want %q", without, got, want)
		}
	}
}

// TestFaultsOfRunningTargets checks the advice for a fault that cannot be injected into running
// targets.
func TestFaultsOfRunningTargets(t *testing.T) {
	cfg := Config{Target: target.Target{URLs: []string{"http://h:1", "http://h:2"}}, Faults: []catalog.Fault{catalog.SlowDB}}
	f, err := fault.Find(catalog.SlowDB)
	if err != nil {
		t.Fatal(err)
	}
	if why := cfg.subject().excuse(f); !strings.Contains(why, "start the service with -service") {
		t.Errorf("%s for running targets: got the reason %q, want one that names -service", f.Name, why)
	}
	cfg.Target.PIDs = []int{4711, 4712}
	if err := cfg.checkMoments(&fleet.Fleet{Foreign: true}); err == nil || !strings.Contains(err.Error(), "let loadgen start the service with -service") {
		t.Errorf("got error %v, want one that names -service", err)
	}
}

// TestProblemNamesItsStrategy checks that a problem that stops a run names the strategy, if the run
// tests several.
func TestProblemNamesItsStrategy(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ strategies, says string }{
		{`["fair"]`, "the first driver of a fresh order was answered with HTTP 409"},
		{`["fair","rlock"]`, "fair: the first driver of a fresh order was answered with HTTP 409"},
	} {
		mux := http.NewServeMux()
		reply := func(status int, body string) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status); _, _ = io.WriteString(w, body) }
		}
		mux.HandleFunc("GET /strategies", reply(http.StatusOK, tt.strategies))
		mux.HandleFunc("PUT /strategy", reply(http.StatusOK, "{}"))
		mux.HandleFunc("POST /orders", reply(http.StatusCreated, `{"first_id":1,"count":1}`))
		mux.HandleFunc("POST /orders/{id}/grab", reply(http.StatusConflict, ""))
		s := httptest.NewServer(mux)
		t.Cleanup(s.Close)
		cfg := Scenarios[0].Config
		cfg.Scenario, cfg.Out, cfg.OnLost, cfg.Log = "rush", t.TempDir(), grab.Abort, t.Output()
		cfg.Target.URLs = []string{s.URL}
		cfg.Inspected = func(p Preflight) error { return &p.Problems[0] }
		_, err := execute(t, t.Context(), cfg)
		if problem, ok := errors.AsType[*Problem](err); !ok || !strings.HasPrefix(problem.Text, tt.says) {
			t.Errorf("problem with the strategies %s: %v, want %s…", tt.strategies, err, tt.says)
		}
	}
}

// TestEachStrategyIsInspected checks that a run ends if the test requests of any strategy fail. The problem
// must give the reason, and no test may have run.
func TestEachStrategyIsInspected(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ strategies, ran string }{ // ran lists the tests in alphabetical order
		{"good", "good good"},
		{"good fine", "fine fine good good"},
		{"good bad", ""},
		{"bad good", ""},
		{"good fine bad", ""},
		{"bad", ""},
	} {
		names := strings.Fields(tt.strategies)
		cfg := Scenarios[0].Config
		cfg.Scenario, cfg.Out, cfg.OnLost, cfg.Log, cfg.Repeat = "rush", t.TempDir(), grab.Abort, t.Output(), 2
		cfg.Inspected = func(p Preflight) error {
			for _, problem := range p.Problems {
				return &problem
			}
			return nil
		}
		cfg.Target.URLs = []string{serviceOf(t, names).URL}
		r := newRunner(cfg, func(*Run) error { return nil })
		var ran []string
		r.runCell = func(_ *worker, _ context.Context, s *cellSpec) Cell {
			ran = append(ran, s.Strategy)
			return blankCell(s)
		}
		err := r.open(t.Context())
		if err == nil {
			err = r.runAll(t.Context())
		}
		slices.Sort(ran)
		if (err == nil) != (tt.ran != "") || strings.Join(ran, " ") != tt.ran {
			t.Errorf("%s: ran %q, %v; want %q", tt.strategies, ran, err, tt.ran)
		}
		problem, ok := errors.AsType[*Problem](err)
		if tt.ran == "" && (!ok || !strings.Contains(problem.Text, "fresh order was answered with HTTP 409") || len(r.run.Cells) > 0) {
			t.Errorf("%s: %v, and %d tests have a result", tt.strategies, err, len(r.run.Cells))
		}
		if tt.ran != "" && (len(r.run.Cells) != len(names) || !r.run.Complete) {
			t.Errorf("%s: %d tests, complete %v", tt.strategies, len(r.run.Cells), r.run.Complete)
		}
		if err := r.close(); err != nil {
			t.Error(err)
		}
	}
}

// serviceOf starts a service with these strategies. The first driver of an order wins, unless the name of
// the strategy begins with "bad". Then no driver wins.
func serviceOf(t *testing.T, strategies []string) *httptest.Server {
	var mu sync.Mutex
	current, next, taken := "", 1, map[string]bool{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /strategies", func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(strategies) })
	mux.HandleFunc("PUT /strategy", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		var asked struct{ Name string }
		_ = json.NewDecoder(r.Body).Decode(&asked)
		current = asked.Name
		_, _ = io.WriteString(w, "{}")
	})
	mux.HandleFunc("POST /orders", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		var asked struct{ Count int }
		_ = json.NewDecoder(r.Body).Decode(&asked)
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"first_id":%d,"count":%d}`, next, asked.Count)
		next += asked.Count
	})
	mux.HandleFunc("POST /orders/{id}/grab", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		id := r.PathValue("id")
		if taken[id] || strings.HasPrefix(current, "bad") {
			w.WriteHeader(http.StatusConflict)
			return
		}
		taken[id] = true
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

// TestLoadIsRepeatedMoreSlowly checks the rate at which a load that was too fast is repeated: half
// of the rate that the service reached. It must not be repeated if there are no further orders, or
// if the verdict is unknown for another reason.
func TestLoadIsRepeatedMoreSlowly(t *testing.T) {
	for _, requests := range []int{10, 200} {
		for _, half := range []time.Duration{hiccup / 2, time.Second, 4 * time.Second} {
			a := newAccounting(2, nil, target.Plain)
			a.requests, a.competed, a.tried = requests, map[string]bool{"a": true, "b": true}, 10
			a.lastDue = a.began.Add(10 * time.Millisecond)
			a.sent.Add(time.Millisecond)
			for range requests {
				a.served.Add(half)
			}
			for bits := range 1 << 7 {
				has := func(n int) bool { return bits>>n&1 != 0 }
				c, m := calmCell()
				c.OfferedRPS, c.Latency = new(1000.0), &load.Latency{}
				m.vacuous = "too slow"
				m.accounting = a
				w := &worker{cfg: Config{Load: Load{Together: !has(0)}}}
				if has(1) {
					w.cfg.Shard = &shard.Shard{}
				}
				if has(2) {
					w.cfg.Merge = &shard.Merge{}
				}
				if has(3) {
					w.cfg.Target.FirstOrder = 7
				}
				if has(4) {
					w.cfg.Target.Open = &target.Opening{}
				}
				if has(5) {
					m.invalid = "events were lost"
				}
				if has(6) {
					m.vacuous = ""
				}
				want := 0.0
				if !has(0) && !has(1) && !has(2) && (!has(3) || has(4)) && !has(5) && !has(6) && half > hiccup {
					want = float64(requests) / 2 / half.Seconds() / 2
				}
				if got := w.slowerRate(c, m); math.Abs(got-want) > want/100 {
					t.Errorf("%d requests, half of them after %v, settings %07b: %v/s, want %v/s", requests, half, bits, got, want)
				}
			}
		}
	}
}

// TestFaultsOfNamedProcesses chooses faults, strategies and settings in every combination. Of the faults, only those that
// stop or kill a process are possible. A pause needs a lease, and a killed process cannot serve a second strategy.
func TestFaultsOfNamedProcesses(t *testing.T) {
	for bits := range 1 << 7 {
		has := func(n int) bool { return bits>>n&1 != 0 }
		pids, paused, killed, slow, foreign, lease, two := has(0), has(1), has(2), has(3), has(4), has(5), has(6) && !has(4)
		cfg := Config{Target: target.Target{URLs: []string{"http://h:1"}, Strategies: []string{"a"}}}
		if pids {
			cfg.Target.PIDs = []int{4711}
		}
		for f, chosen := range map[catalog.Fault]bool{catalog.Pause: paused, catalog.Crash: killed, catalog.Slow: slow} {
			if chosen {
				cfg.Faults = append(cfg.Faults, f)
			}
		}
		if lease {
			cfg.Target.Lease = time.Second
		}
		if two {
			cfg.Target.Strategies = append(cfg.Target.Strategies, "b")
		}
		want := pids && (!paused && !killed || paused && foreign && !lease || killed && two)
		if err := cfg.checkMoments(&fleet.Fleet{Foreign: foreign}); (err != nil) != want {
			t.Errorf("PIDs %v, faults %v, foreign %v, lease %v, two strategies %v: %v", pids, cfg.Faults, foreign, lease, two, err)
		}
	}
}
