package experiment

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab"
	"grablab/internal/testbed/fault"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/proc"
	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/stack/stacktest"
	"grablab/internal/testbed/target"
	"grablab/internal/testbed/wait"
)

// ticketService returns the command of a ticket office of the given kind. The parameter ttl is the
// TTL of its locks in milliseconds.
func ticketService(t *testing.T, kind, ttl string) fleet.Service {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s, err := fleet.ParseService(exe + " " + ticketCommand + " -port {port} -redis {redis} -db {db} -ttl " + ttl + " -work {work_ms} -number {number} -kind '" + kind + "'")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ticketRun returns the configuration of a run that starts a ticket office of the given kind. The
// parameter spec describes its requests. Empty fields get values that fit the office.
func ticketRun(t *testing.T, kind string, spec target.Spec, faults ...catalog.Fault) Config {
	t.Helper()
	s := ticketService(t, kind, "{ttl_ms}")
	for _, text := range []string{"sql: " + createTickets, "sql: " + createWinners} {
		m, err := fleet.ParseMigration(text)
		if err != nil {
			t.Fatal(err)
		}
		s.Migrations = append(s.Migrations, m)
	}
	if spec.Path == "" {
		spec.Path = "/tickets/{order}/grab"
	}
	if spec.Body == nil {
		spec.Body = new(`{"driver":{driver}}`)
	}
	if spec.OpenOrders == nil {
		spec.OpenOrders = []string{"/tickets"}
	}
	cfg := small(t, stack.Local)
	cfg.Service, cfg.Faults, cfg.Workers, cfg.Orders, cfg.Rate, cfg.Together = &s, faults, 1, 5, 0, true
	cfg.Stack.Logs, cfg.Budget = cfg.Out, 5*time.Minute
	var err error
	if cfg.Target.Shape, cfg.Target.Open, err = spec.Compile(); err != nil {
		t.Fatal(err)
	}
	cfg.Target.Database.Query = "SELECT ticket_id, driver FROM winners WHERE ticket_id BETWEEN ? AND ?"
	return cfg
}

// ticketRunAt is like ticketRun with a fault that strikes only at the given point of a grab.
func ticketRunAt(t *testing.T, kind string, fault catalog.Fault, point string) Config {
	t.Helper()
	cfg := ticketRun(t, kind, target.Spec{}, fault)
	strikeAt(t, &cfg, point)
	return cfg
}

// atWrite makes the faults of a run strike between the read and the write of a ticket office.
func atWrite(t *testing.T, cfg *Config) { strikeAt(t, cfg, "before mysql START TRANSACTION 1") }

// strikeAt makes the faults of a run strike only at the given point.
func strikeAt(t *testing.T, cfg *Config, point string) {
	t.Helper()
	at, err := fault.ParsePoint(point)
	if err != nil {
		t.Fatal(err)
	}
	cfg.At = &at
}

// checkTickets executes a run and checks the verdicts of its cells. On a busy machine, a verdict
// may be unknown, so it repeats the run unless it expects this verdict.
func checkTickets(t *testing.T, cfg Config, want ...catalog.Verdict) *Run {
	t.Helper()
	var run *Run
	if slices.Contains(want, catalog.Unknown) {
		var err error
		if run, err = execute(t, t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
	} else {
		run = decide(t, &cfg)
	}
	var got []string
	var verdicts []catalog.Verdict
	for _, c := range run.Cells {
		got = append(got, fmt.Sprintf("%s: %s (%s)", c.Fault, c.Verdict, c.Reason))
		verdicts = append(verdicts, c.Verdict)
	}
	if !slices.Equal(verdicts, want) {
		t.Errorf("verdicts are %s; want %v", strings.Join(got, "; "), want)
	}
	if err := run.Contradiction(); err != nil {
		t.Error(err)
	}
	return run
}

// TestMigrations checks that statements, a command, or an instance of the service can prepare the
// database, and that an error names the step that failed.
func TestMigrations(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	createCommand := exe + " " + ticketCommand + " -db {db} -create"
	for _, tt := range []struct {
		name, kind string
		steps      []string
		wrong      string // part of the error
	}{
		{"statements", "guarded", []string{"sql: " + createTickets, "sql: " + createWinners}, ""},
		{"command", "guarded", []string{createCommand}, ""},
		{"service", "guarded creates", []string{"service"}, ""},
		{"a wrong statement", "guarded", []string{"sql: CREATE TABEL t (id INT)"}, `migrate: the migration step "sql: CREATE TABEL t (id INT)" failed: `},
		{"a command that fails", "guarded", []string{"sh -c 'echo no rights >&2; exit 3'"}, "no rights"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.name == "statements" { // all other tests of ticket offices use statements too
				long(t)
			}
			cfg := ticketRun(t, tt.kind, target.Spec{}, catalog.NoFault)
			cfg.Service.Migrations = nil
			for _, text := range tt.steps {
				m, err := fleet.ParseMigration(text)
				if err != nil {
					t.Fatal(err)
				}
				cfg.Service.Migrations = append(cfg.Service.Migrations, m)
			}
			if tt.wrong == "" {
				checkTickets(t, cfg, catalog.Safe)
				return
			}
			if _, err := Execute(t.Context(), cfg, func(*Run) error { return nil }); err == nil || !strings.Contains(err.Error(), tt.wrong) {
				t.Errorf("Execute: %v; want …%s…", err, tt.wrong)
			}
		})
	}
}

// TestTickets checks the ways in which a target file can describe orders, drivers and results. Each
// is tested with a correct and a wrong service, without a fault and with the faults pause and
// crash. The wrong service checks nothing in its write, so it is unsafe only under pause.
func TestTickets(t *testing.T) {
	t.Parallel()
	named := func(open string) target.Spec {
		return target.Spec{Path: "/tickets/{order_uuid}/grab", Body: new(`{"driver":"{driver_uuid}"}`), OpenOrders: []string{open}}
	}
	const byList = "SELECT ticket_id, driver FROM winners WHERE ticket_id IN ({orders})"
	for _, tt := range []struct {
		name, kind string
		spec       target.Spec
		change     func(*Config)
	}{
		{"an id in a header", "text-ids", named(`POST /tickets {} -> header:Location~"/tickets/(.+)$"`), func(c *Config) { c.Target.Database.Query = byList }},
		{"ids in a list", "id-lists", named(`/tickets -> .tickets[*].id`), func(c *Config) { c.Target.Database.Query = byList }},
		{"drivers by name", "", target.Spec{Body: new(`{"driver":"{driver_name}"}`)}, nil},
		{"a later result", "later", target.Spec{Grabbed: `json:.state=="won"`, Taken: `json:.state=="lost"`, Later: "202 -> /results/{order}/{driver}"}, nil},
		{"a row for each retry", "retries", target.Spec{}, func(c *Config) { c.Target.Idempotent = true }},
	} {
		for _, right := range []bool{true, false} {
			name, kind, want := tt.name+", right", "guarded "+tt.kind, catalog.Safe
			if !right {
				name, kind, want = tt.name+", wrong", tt.kind, catalog.Unsafe
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				faults, wanted := []catalog.Fault{catalog.NoFault, catalog.Pause, catalog.Crash}, []catalog.Verdict{catalog.Safe, want, catalog.Safe}
				if !proving { // test only wrong services, because they are found only if the whole description works
					if right || tt.name != "an id in a header" && tt.name != "a later result" {
						long(t)
					}
					faults, wanted = faults[1:2], wanted[1:2]
				}
				cfg := ticketRun(t, kind, tt.spec, faults...)
				if tt.change != nil {
					tt.change(&cfg)
				}
				atWrite(t, &cfg)
				c := checkTickets(t, cfg, wanted...).Cells[len(wanted)/2]
				if c.Verdict == catalog.Unsafe && tt.kind == "text-ids" && (!strings.Contains(c.Reason, "for example order t-") || !strings.Contains(c.Checks[0].Why, "for example, order t-")) {
					t.Errorf("%s; %s: want reasons with the service's ID of an order", c.Reason, c.Checks[0].Why)
				}
			})
		}
	}
}

// TestWritesAfterTheAnswer checks faults that strike a service after its response, but before its
// write. A pause must be unsafe if the lock expires. After a crash, a promised row is missing, so
// the verdict must be unknown.
func TestWritesAfterTheAnswer(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		kind, why string
		fault     catalog.Fault
		want      catalog.Verdict
	}{
		{"behind", "", catalog.Pause, catalog.Unsafe},
		{"behind no-expiry", "", catalog.Pause, catalog.Safe},
		{"behind no-expiry", "-settle", catalog.Crash, catalog.Unknown},
	} {
		t.Run(tt.kind+" "+string(tt.fault), func(t *testing.T) {
			t.Parallel()
			if tt.want == catalog.Safe {
				long(t)
			}
			cfg := ticketRun(t, tt.kind, target.Spec{}, tt.fault)
			atWrite(t, &cfg)
			c := checkTickets(t, cfg, tt.want).Cells[0]
			if value(c.Struck) == 0 || !strings.Contains(c.Reason, tt.why) {
				t.Errorf("struck %d times, %s; want a strike and a reason with %q", value(c.Struck), c.Reason, tt.why)
			}
		})
	}
}

// TestAnswersWithoutResult tests a service that never reports the result of a grab. Its ledger can
// show a failure, but its verdict can never be safe. The reason must name the flag with which the
// program can request results.
func TestAnswersWithoutResult(t *testing.T) {
	long(t)
	t.Parallel()
	for kind, want := range map[string][]catalog.Verdict{"none later": {catalog.Unsafe}, "guarded later": {catalog.Unknown, catalog.Unknown}} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			run := checkTickets(t, ticketRun(t, kind, target.Spec{}, []catalog.Fault{catalog.NoFault, catalog.Pause}[:len(want)]...), want...)
			for _, c := range run.Cells {
				if c.Verdict == catalog.Unknown && !strings.Contains(c.Reason, "-later") {
					t.Errorf("%s: %s: the reason does not name -later", c.Fault, c.Reason)
				}
			}
		})
	}
}

// TestRequestsForAResultAreNoCalls checks that reads with which a service answers a request for a
// result are not part of a grab. Faults must not strike them.
func TestRequestsForAResultAreNoCalls(t *testing.T) {
	t.Parallel()
	names := callsOf(t, ticketRun(t, "guarded later looks-up", target.Spec{Grabbed: `json:.state=="won"`, Taken: `json:.state=="lost"`, Later: "202 -> /results/{order}/{driver}"}))
	if strings.Contains(names, "result:") || strings.Contains(names, "SELECT winners") || !strings.Contains(names, "INSERT winners") {
		t.Errorf("a grab makes these calls: %s", names)
	}
}

// TestServiceWithAShortTimeout tests a service that answers a request with a timeout while the
// program still holds its calls back, and then continues the grab. The verdict must depend on what
// the service writes.
func TestServiceWithAShortTimeout(t *testing.T) {
	long(t)
	t.Parallel()
	for kind, want := range map[string]catalog.Verdict{"times-out": catalog.Unsafe, "guarded times-out": catalog.Safe} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			cfg := ticketRun(t, kind, target.Spec{}, catalog.Pause)
			atWrite(t, &cfg)
			checkTickets(t, cfg, want)
		})
	}
}

// laterResults describes the requests of ticket offices that decide later.
var laterResults = target.Spec{Grabbed: `json:.state=="won"`, Taken: `json:.state=="lost"`, Later: "202 -> /results/{order}/{driver}"}

// TestWorkerOfAnotherInstance tests a service in which only one instance writes, so that the
// proxies of the other see no write. The reason must list the calls that they saw, and name the
// flag for testing running targets. A test with this flag must have a verdict.
func TestWorkerOfAnotherInstance(t *testing.T) {
	t.Parallel()
	t.Run("started by the run", func(t *testing.T) {
		t.Parallel()
		c := checkTickets(t, ticketRun(t, "guarded one-writer", laterResults, catalog.Pause), catalog.Unknown).Cells[0]
		if !strings.Contains(c.Reason, "redis LPUSH jobs") || !strings.Contains(c.Reason, "-target-pid") {
			t.Errorf("%s: want a reason with the calls and with -target-pid", c.Reason)
		}
	})
	t.Run("already running", func(t *testing.T) {
		long(t)
		t.Parallel()
		cfg := runningTickets(t, "guarded one-writer", laterResults, catalog.NoFault, catalog.Pause)
		resp, err := http.Post(cfg.Target.URLs[0]+"/tickets/none/grab", "", nil) // the other instance then becomes the writer, and the fault strikes it
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		cfg.Target.NoExpiry = true // no other driver can win while the only writer is stopped
		if c := checkTickets(t, cfg, catalog.Safe, catalog.Safe).Cells[1]; value(c.Struck) == 0 {
			t.Error("the fault did not strike")
		}
	})
}

// runningTickets starts two ticket offices and returns the configuration of a run against them.
func runningTickets(t *testing.T, kind string, spec target.Spec, faults ...catalog.Fault) Config {
	t.Helper()
	cfg, st := ticketRun(t, kind, spec, faults...), stacktest.Local(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{ticketCommand, "-redis", st.Redis, "-db", st.DSN, "-kind", kind, "-ttl", "1000"}
	if out, err := exec.Command(exe, append(args, "-create")...).CombinedOutput(); err != nil {
		t.Fatalf("create the tables: %v: %s", err, out)
	}
	cfg.Service, cfg.Target.Database.DSN, cfg.Target.Lease = nil, st.DSN, time.Second
	for range 2 {
		addr, err := proc.FreeAddr()
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(addr)
		cmd := exec.Command(exe, append(args, "-port", port)...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
		if ok, _ := wait.Until(t.Context(), pollInterval, dryStep, func() (bool, error) {
			conn, err := net.Dial("tcp", addr)
			if err == nil {
				conn.Close()
			}
			return err == nil, nil
		}); !ok {
			t.Fatalf("nothing listens on %s", addr)
		}
		cfg.Target.URLs, cfg.Target.PIDs = append(cfg.Target.URLs, "http://127.0.0.1:"+port), append(cfg.Target.PIDs, cmd.Process.Pid)
	}
	return cfg
}

// TestLockThatIsNeverReleased tests a service that never releases the lock of an order. The program
// must still find the calls of a grab, and whether the service has reconnected, with requests for
// other orders.
func TestLockThatIsNeverReleased(t *testing.T) {
	t.Parallel()
	cfg := ticketRun(t, "guarded split patient", target.Spec{})
	cfg.Stack.Needs = cfg.serviceNeeds()
	w, err := openWorker(t.Context(), cfg, 0, newProgress(cfg), &journal{dir: cfg.Out})
	t.Cleanup(func() { _ = w.close() })
	if err != nil {
		t.Fatal(err)
	}
	trail, err := w.recorder().recordService(t.Context(), cfg.strategies(w.fleet)[0])
	if err != nil || trail.claim == nil {
		t.Fatalf("%v, %s; want the calls of a grab", err, callNames(trail.calls[fault.Alone]))
	}
	in := &injection{w: w}
	if in.spare, err = w.orders.Create(t.Context(), 1, 1); err != nil {
		t.Fatal(err)
	}
	first := in.spare
	if err := in.awaitGrab(t.Context(), w.fleet.Instances[0], 4*time.Second); err != nil || in.spare == first {
		t.Errorf("%v for order %d, want an answer for a new order", err, in.spare)
	}
}

// TestLoadEndsRequests checks that no request runs on after the load. Its calls would otherwise seem to belong to the
// next dry run.
func TestLoadEndsRequests(t *testing.T) {
	long(t)
	t.Parallel()
	cfg := ticketRun(t, "guarded split patient", target.Spec{})
	cfg.Stack.Needs, cfg.Timeout = cfg.serviceNeeds(), time.Second
	w, err := openWorker(t.Context(), cfg, 0, newProgress(cfg), &journal{dir: cfg.Out})
	t.Cleanup(func() { _ = w.close() })
	if err != nil {
		t.Fatal(err)
	}
	c, _ := w.load(t.Context(), cfg.strategies(w.fleet)[0], cfg.Load)
	if c.Outcomes[grab.Timeout] == 0 {
		t.Fatalf("outcomes %v, want requests without a response", c.Outcomes)
	}
	for _, in := range w.fleet.Instances {
		select {
		case <-in.Process().Done():
		default:
			t.Errorf("%s runs on after the load", in.Name())
		}
	}
}

// callsOf returns the names of the calls that a grab makes.
func callsOf(t *testing.T, cfg Config) string {
	t.Helper()
	cfg.Stack.Needs = cfg.serviceNeeds()
	w, err := openWorker(t.Context(), cfg, 0, newProgress(cfg), &journal{dir: cfg.Out})
	t.Cleanup(func() { _ = w.close() })
	if err != nil {
		t.Fatal(err)
	}
	trail, err := w.recorder().quickTrail(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return callNames(trail.calls[fault.Alone])
}

// TestWritesOfATaskAreNoCalls tests a service with a background task that writes to the same table
// as a grab. The trail must contain the grab's own writes, but not those of the task.
func TestWritesOfATaskAreNoCalls(t *testing.T) {
	for _, kind := range []string{"guarded resets", "guarded resets slow"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			if kind == "guarded resets" { // TestFindTrail and TestWithoutOthers cover this case without servers
				long(t)
			}
			var names string
			for range 3 { // retry, because the task may write during two consecutive grabs
				names = callsOf(t, ticketRun(t, kind, target.Spec{}))
				if strings.Count(names, "UPDATE tickets") == 1 && strings.Contains(names, "INSERT winners") {
					return
				}
			}
			t.Errorf("a grab makes these calls: %s", names)
		})
	}
}

// TestReleasesOfServices checks the verdicts on various ways to release a lock, under faults that
// delay the release, prevent it, or cancel the grab.
func TestReleasesOfServices(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		kind  string
		fault catalog.Fault
		want  catalog.Verdict
		quick bool // whether make test runs it too
	}{
		{"", catalog.LateRelease, catalog.Safe, false},
		{"del", catalog.LateRelease, catalog.Unsafe, false},
		{"guarded del", catalog.LateRelease, catalog.Safe, false},
		{"striped del", catalog.LateRelease, catalog.Unsafe, true},
		{"del hasty", catalog.LateRelease, catalog.Unknown, false},
		{"", catalog.Cancel, catalog.Safe, false},
		{"cancelled", catalog.Cancel, catalog.Safe, false},
		{"no-expiry cancelled", catalog.Cancel, catalog.Stuck, true},
		{"del repeats", catalog.RedisDown, catalog.Safe, false},
		{"no-expiry del repeats", catalog.RedisDown, catalog.Stuck, false},
		{"del exits", catalog.RedisDown, catalog.Unknown, true},
	} {
		t.Run(string(tt.fault)+" "+tt.kind, func(t *testing.T) {
			t.Parallel()
			if !tt.quick {
				long(t)
			}
			cfg := ticketRun(t, tt.kind, target.Spec{}, tt.fault)
			if tt.fault == catalog.RedisDown || strings.Contains(tt.kind, "hasty") {
				strikeAt(t, &cfg, "before redis DEL ticket:* 1")
			} else if strings.Contains(tt.kind, "striped") {
				strikeAt(t, &cfg, "before redis DEL ticket:{n} 1")
			}
			run := checkTickets(t, cfg, tt.want)
			if why := run.Cells[0].Reason; strings.Contains(tt.kind, "exits") && !strings.Contains(why, "exited unexpectedly") {
				t.Errorf("the reason does not say that an instance exited: %s", why)
			} else if strings.Contains(tt.kind, "hasty") && !strings.Contains(why, "lient gave up the delayed call") {
				t.Errorf("the reason does not say that the client gave up: %s", why)
			}
		})
	}
}

// TestMissedStrikesAreRepeated tests a service whose grabs do not always make the same calls. A
// strike that misses must be repeated with another ticket, until every point has been struck.
func TestMissedStrikesAreRepeated(t *testing.T) {
	long(t)
	t.Parallel()
	cfg := ticketRun(t, "guarded guesses", target.Spec{}, catalog.Crash)
	run := checkTickets(t, cfg, catalog.Safe)
	for _, p := range run.Cells[0].Points {
		if p.Struck != p.Strikes {
			t.Errorf("%s: struck %d of %d", p.Point, p.Struck, p.Strikes)
		}
	}
	if n := 2*(len(run.Cells[0].Points)+1) + 1; run.Cells[0].Orders <= n {
		t.Errorf("only %d orders were used: no strike was repeated, so this test proves nothing", run.Cells[0].Orders)
	}
}

// TestCrashTestsTheStart checks that the fault crash finds start-up code that removes the locks of other
// instances. If an instance starts so slowly that a lock may expire before it is ready, the verdict must be
// unknown. If only instance 1 does the work, the fault must restart instance 2.
func TestCrashTestsTheStart(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		kind, ttl, why string
		want           catalog.Verdict
		quick          bool // whether make test runs it too
	}{
		{"", "{ttl_ms}", "", catalog.Safe, false},
		{"clears", "{ttl_ms}", "stopped at instance 2 while instance 1 was killed and restarted", catalog.Unsafe, false},
		{"clears queued", "{ttl_ms}", "stopped at instance 1 while instance 2 was killed and restarted", catalog.Unsafe, false},
		{"none", "{ttl_ms}", "", catalog.Unsafe, false}, // unsafe even without a crash
		{"clears boots-late", "{ttl_ms}", "stopped at instance 2 while instance 1 was killed and restarted", catalog.Unsafe, true},
		{"clears boots-late", "1000", "pass {ttl_ms} to the service", catalog.Unknown, false},
	} {
		t.Run(tt.kind+" "+tt.ttl, func(t *testing.T) {
			t.Parallel()
			if !tt.quick {
				long(t)
			}
			cfg := ticketRun(t, tt.kind, target.Spec{}, catalog.Crash)
			s := ticketService(t, tt.kind, tt.ttl)
			s.Migrations = cfg.Service.Migrations
			cfg.Service, cfg.TTL = &s, time.Second
			strikeAt(t, &cfg, "after mysql SELECT tickets 1")
			c := checkTickets(t, cfg, tt.want).Cells[0]
			if !strings.Contains(c.Reason, tt.why) || tt.why == "" && strings.Contains(c.Reason, "started again") {
				t.Errorf("the reason is %q; want one with %q", c.Reason, tt.why)
			}
			if p := c.Points[0]; p.Strikes != 2 || tt.want != catalog.Unknown && p.Struck != 2 {
				t.Errorf("struck %d of %d, want 2 of 2: one driver at each instance", p.Struck, p.Strikes)
			}
		})
	}
}

// TestOutageDuringTheWork tests services during an outage of Redis, with a driver that is stopped
// in its work. A service that then grabs without its lock must be unsafe, unless its write checks
// the order again.
func TestOutageDuringTheWork(t *testing.T) {
	long(t)
	t.Parallel()
	for _, tt := range []struct {
		kind, why string
		want      catalog.Verdict
	}{
		{"fails-open", "if Redis fails, a grab must fail too", catalog.Unsafe},
		{"fails-open insistent", "if Redis fails, a grab must fail too", catalog.Unsafe},
		{"fails-open guarded", "", catalog.Safe},
		{"", "", catalog.Safe},
	} {
		t.Run(tt.kind, func(t *testing.T) {
			t.Parallel()
			cfg := ticketRunAt(t, tt.kind, catalog.RedisDown, "after mysql SELECT tickets 1")
			c := checkTickets(t, cfg, tt.want).Cells[0]
			if p := c.Points[0]; !strings.Contains(c.Reason, tt.why) || p.Struck != 2 || p.Strikes != 2 {
				t.Errorf("struck %d of %d, %q; want 2 of 2, and a reason with %q", p.Struck, p.Strikes, c.Reason, tt.why)
			}
		})
	}
}

// TestOverwrittenWinner tests a ledger that is a column of the order, in which a second winner
// overwrites the first. After a crash, the first winner gets no response, so only an earlier
// reading of the ledger shows it.
func TestOverwrittenWinner(t *testing.T) {
	long(t)
	t.Parallel()
	cfg := ticketRun(t, "in-column", target.Spec{}, catalog.Crash)
	cfg.Target.Database.Query = "SELECT id, driver FROM tickets WHERE driver IS NOT NULL AND id BETWEEN ? AND ?"
	cfg.TTL, cfg.Asked.TTL = 3*time.Second, true // on a busy machine, a shorter lease may end during a grab, so that two drivers are told that they won
	strikeAt(t, &cfg, "before mysql UPDATE tickets 2")
	c := checkTickets(t, cfg, catalog.Unknown).Cells[0]
	if !strings.Contains(c.Reason, "may keep only the last winner") {
		t.Errorf("%s: want a reason that names the overwritten winner", c.Reason)
	}
}

// TestLockOfAnotherSession tests a lock of a database session, which a restart of the database
// releases during a driver's work. A driver that works long enough then writes in a new session.
func TestLockOfAnotherSession(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]catalog.Verdict{"lock-session": catalog.Unsafe, "guarded lock-session": catalog.Safe} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			if want == catalog.Safe {
				long(t)
			}
			cfg := ticketRunAt(t, kind, catalog.DBRestart, "after mysql SELECT tickets 1")
			checkTickets(t, cfg, want)
		})
	}
}

// TestRenewalsGoOn tests a service that renews its lock forever after a fault. Some injections, called
// variations, restart the instances with other settings. These restarts must not end the renewals
// before the test probes the service.
func TestRenewalsGoOn(t *testing.T) {
	long(t)
	t.Parallel()
	cfg := ticketRunAt(t, "renews-on", catalog.DBRestart, "after mysql SELECT tickets 1")
	checkTickets(t, cfg, catalog.Stuck)
}

// TestLateCommit tests a COMMIT that arrives when the network works again, although the service has
// given it up. If another driver read the order before the COMMIT arrived, and writes afterwards, both
// drivers have won.
func TestLateCommit(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]catalog.Verdict{"gives-up no-wait": catalog.Unsafe, "gives-up no-wait guarded": catalog.Safe} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			if want == catalog.Safe {
				long(t)
			}
			cfg := ticketRunAt(t, kind, catalog.PartitionDB, "before mysql COMMIT 1")
			checkTickets(t, cfg, want)
		})
	}
}

// TestFenceOfAService tests a fencing token that only the write checks. It does not help if the
// driver with the older token writes first. If that driver writes too late for the test, the
// verdict may be unknown.
func TestFenceOfAService(t *testing.T) {
	long(t)
	t.Parallel()
	for work, want := range map[time.Duration][]catalog.Verdict{
		0:                      {catalog.Unsafe},
		300 * time.Millisecond: {catalog.Unsafe},
		800 * time.Millisecond: {catalog.Unsafe, catalog.Unknown},
	} {
		cfg := ticketRunAt(t, "fenced", catalog.Pause, "after mysql SELECT tickets 1")
		cfg.Work, cfg.Asked.Work = work, true
		run := decide(t, &cfg)
		if c := run.Cells[0]; !slices.Contains(want, c.Verdict) {
			t.Errorf("work of %v: %s (%s); want %v", work, c.Verdict, c.Reason, want)
		}
	}
	cfg := ticketRunAt(t, "guarded", catalog.Pause, "after mysql SELECT tickets 1")
	run := checkTickets(t, cfg, catalog.Safe)
	if p := run.Cells[0].Points[0]; p.Struck != 2 || p.Strikes != 2 {
		t.Errorf("struck %d of %d, want 2 of 2: each of the two orders of writes once", p.Struck, p.Strikes)
	}
}

// TestPauseAfterTheRecord pauses a service after it has recorded the winner, but before it closes
// the order. A second driver must then be able to win, although the first one is already in the
// ledger.
func TestPauseAfterTheRecord(t *testing.T) {
	long(t)
	t.Parallel()
	for kind, point := range map[string]string{
		"two-steps": "before mysql UPDATE tickets 1",
		"in-redis":  "before redis SET closed:* 1",
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			cfg := ticketRunAt(t, kind+" no-wait", catalog.Pause, point)
			checkTickets(t, cfg, catalog.Unsafe)
		})
	}
}

// TestPauseOutlivesSweptLock tests a service in which a background task removes old locks, so that
// a lock can live longer than its TTL. At the point of the work, the pause must be long enough for
// that.
func TestPauseOutlivesSweptLock(t *testing.T) {
	long(t)
	t.Parallel()
	cfg := ticketRunAt(t, "swept no-wait", catalog.Pause, "after mysql SELECT tickets 1")
	checkTickets(t, cfg, catalog.Unsafe)
}

// TestOrdersWithoutAFaultAreGrabbed checks that further drivers grab an order without a fault if
// all its drivers failed.
func TestOrdersWithoutAFaultAreGrabbed(t *testing.T) {
	t.Parallel()
	cfg := ticketRunAt(t, "guarded flaky", catalog.Pause, "before mysql SELECT tickets 1")
	cfg.TTL, cfg.Asked.TTL = 3*time.Second, true // on a busy machine, a shorter lease leaves no time to grab an order after a failed grab
	checkTickets(t, cfg, catalog.Safe)
}

// TestDriverToldTwice checks that a driver that is told twice that it won does not count as a
// second winner. With the fault late-release, the same driver grabs twice, and this service lets
// both grabs win.
func TestDriverToldTwice(t *testing.T) {
	long(t)
	t.Parallel()
	cfg := ticketRunAt(t, "insists", catalog.LateRelease, "after mysql SELECT tickets 1")
	run := checkTickets(t, cfg, catalog.Unknown)
	if c := run.Cells[0]; !strings.Contains(c.Reason, "-idempotent") {
		t.Errorf("%s: want a reason that names -idempotent", c.Reason)
	}
}

// TestLateDriversOfAnOrder tests a lock of a database session that returns to the pool. Another
// driver of the same instance gets the lock too if it comes while the first driver works. To find
// this, some drivers must come late.
func TestLateDriversOfAnOrder(t *testing.T) {
	t.Parallel()
	var c Cell
	for range 3 { // retry, because a late driver may get a session that does not hold the lock
		cfg := ticketRun(t, "pool-lock", target.Spec{}, catalog.NoFault)
		cfg.Orders, cfg.Drivers, cfg.Rate, cfg.TTL, cfg.Work, cfg.Asked.Work = 40, 20, 200, time.Second, 500*time.Millisecond, true
		run, err := execute(t, t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if c = run.Cells[0]; c.Verdict == catalog.Unsafe {
			return
		}
	}
	t.Errorf("%s (%s), want unsafe", c.Verdict, c.Reason)
}
