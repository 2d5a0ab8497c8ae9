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
	"grablab/internal/testbed/fault"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/proc"
	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/stack/stacktest"
	"grablab/internal/testbed/target"
	"grablab/internal/testbed/wait"
)

// ticketService returns the service of that kind, whose locks live for the given number of
// milliseconds.
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

// ticketRun returns the configuration of a run that starts a ticket office of some kind. spec
// describes its calls; its defaults suit the office.
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

// ticketRunAt returns a run whose fault strikes only at this point of a grab.
func ticketRunAt(t *testing.T, kind string, fault catalog.Fault, point string) Config {
	t.Helper()
	cfg := ticketRun(t, kind, target.Spec{}, fault)
	strikeAt(t, &cfg, point)
	return cfg
}

// atWrite makes the faults of a run strike between the read and the write of a ticket office.
func atWrite(t *testing.T, cfg *Config) { strikeAt(t, cfg, "before mysql START TRANSACTION 1") }

// strikeAt makes the faults of a run strike only at this point.
func strikeAt(t *testing.T, cfg *Config, point string) {
	t.Helper()
	at, err := fault.ParsePoint(point)
	if err != nil {
		t.Fatal(err)
	}
	cfg.At = &at
}

// checkTickets runs the cells, and compares their verdicts with those wanted. On a busy machine a
// verdict may be unknown, so it repeats the run unless an unknown verdict is wanted.
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
		t.Errorf("%s; want %v", strings.Join(got, "; "), want)
	}
	if err := run.Contradiction(); err != nil {
		t.Error(err)
	}
	return run
}

// The database of a service is prepared by statements, by a command, or by one of its instances.
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
			if tt.name == "statements" { // the other services here are prepared so, too
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
				t.Errorf("%v; want …%s…", err, tt.wrong)
			}
		})
	}
}

// What a target file can say, for right and for wrong services under no fault, pause and crash. A
// wrong service has a lock without a fence, and is unsafe only if a pause lasts longer than the lock.
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
				if !proving { // a wrong service is found only if every part of the description works
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
					t.Errorf("%s; %s: want the id of an order", c.Reason, c.Checks[0].Why)
				}
			})
		}
	}
}

// A service may answer before it writes. Faults strike after the answer too. There, a pause outlives a
// lock that expires. A crash loses a write that was promised, unless a worker makes up for it later.
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

// A service that never tells the result may be wrong by its ledger, but it is not safe. The reason says
// how to let the program ask for the result.
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

// A service may read its servers to answer a request for a result. These reads are no part of a grab,
// so faults do not strike them.
func TestRequestsForAResultAreNoCalls(t *testing.T) {
	t.Parallel()
	names := callsOf(t, ticketRun(t, "guarded later looks-up", target.Spec{Grabbed: `json:.state=="won"`, Taken: `json:.state=="lost"`, Later: "202 -> /results/{order}/{driver}"}))
	if strings.Contains(names, "result:") || strings.Contains(names, "SELECT winners") || !strings.Contains(names, "INSERT winners") {
		t.Errorf("a grab makes these calls: %s", names)
	}
}

// A service may give up a request before the program lets its calls continue. It goes on with the grab or
// does not, and its writes decide.
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

// laterResults describes the calls of ticket offices that decide later.
var laterResults = target.Spec{Grabbed: `json:.state=="won"`, Taken: `json:.state=="lost"`, Later: "202 -> /results/{order}/{driver}"}

// If the worker of another instance writes, the proxies see no write. The reason says what they saw, and
// how to test such a service. That way leads to a verdict.
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
		resp, err := http.Post(cfg.Target.URLs[0]+"/tickets/none/grab", "", nil) // the fault hits the other instance, which writes
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if c := checkTickets(t, cfg, catalog.Safe, catalog.Safe).Cells[1]; value(c.Struck) == 0 {
			t.Error("the fault could not be tested")
		}
	})
}

// runningTickets returns the configuration of a run against two ticket offices that are running already.
func runningTickets(t *testing.T, kind string, spec target.Spec, faults ...catalog.Fault) Config {
	t.Helper()
	cfg, st := ticketRun(t, kind, spec, faults...), stacktest.Local(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{ticketCommand, "-redis", st.Redis, "-db", st.DSN, "-kind", kind, "-ttl", "1000"}
	if out, err := exec.Command(exe, append(args, "-create")...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
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

// A service may never release the lock of an order. Requests for other orders still show its calls, and
// that it has reconnected.
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

// A background task may write to the same table as a grab, during the grab or after it. These writes are
// no part of the grab, and the grab's own writes are no part of the task.
func TestWritesOfATaskAreNoCalls(t *testing.T) {
	for _, kind := range []string{"guarded resets", "guarded resets slow"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			if kind == "guarded resets" { // in memory, TestFindTrail and TestWithoutOthers do the same
				long(t)
			}
			var names string
			for range 3 { // the task may write during two grabs in a row
				names = callsOf(t, ticketRun(t, kind, target.Spec{}))
				if strings.Count(names, "UPDATE tickets") == 1 && strings.Contains(names, "INSERT winners") {
					return
				}
			}
			t.Errorf("a grab makes these calls: %s", names)
		})
	}
}

// The proxies show how a service releases its lock, and what it leaves of a cancelled grab.
func TestReleasesOfServices(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		kind  string
		fault catalog.Fault
		want  catalog.Verdict
		quick bool // make test runs it, too
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
				t.Errorf("the reason does not tell that an instance ended: %s", why)
			} else if strings.Contains(tt.kind, "hasty") && !strings.Contains(why, "lient gave up the delayed call") {
				t.Errorf("the reason does not tell that the client gave up: %s", why)
			}
		})
	}
}

// A strike that misses its driver is repeated with another ticket, because a grab does not always
// make the same calls.
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
		t.Errorf("%d orders: no strike was repeated, so this test shows nothing", run.Cells[0].Orders)
	}
}

// Code that runs when an instance starts may break the lock of a driver at the other instance. If the
// instance starts so slowly that this lock may have expired, the verdict is unknown. If only instance 1
// does the work, instance 2 is the one that starts.
func TestCrashTestsTheStart(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		kind, ttl, why string
		want           catalog.Verdict
		quick          bool // make test runs it, too
	}{
		{"", "{ttl_ms}", "", catalog.Safe, false},
		{"clears", "{ttl_ms}", "stopped at instance 2 while instance 1 was killed and restarted", catalog.Unsafe, false},
		{"clears queued", "{ttl_ms}", "stopped at instance 1 while instance 2 was killed and restarted", catalog.Unsafe, false},
		{"none", "{ttl_ms}", "", catalog.Unsafe, false}, // wrong without a crash too
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

// A service that goes on without its lock while Redis is down lets a second driver win, unless its write
// looks again. The others compete while the driver that the fault hits is stopped in its work.
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

// A second winner may overwrite the first one in a ledger that is a column. After a crash, the first one
// is not told that it won, so only a reading of the ledger shows it.
func TestOverwrittenWinner(t *testing.T) {
	long(t)
	t.Parallel()
	cfg := ticketRun(t, "in-column", target.Spec{}, catalog.Crash)
	cfg.Target.Database.Query = "SELECT id, driver FROM tickets WHERE driver IS NOT NULL AND id BETWEEN ? AND ?"
	cfg.TTL, cfg.Asked.TTL = 3*time.Second, true // on a busy machine, a shorter lease may end during a grab, and then two drivers are told that they won
	strikeAt(t, &cfg, "before mysql UPDATE tickets 2")
	c := checkTickets(t, cfg, catalog.Unknown).Cells[0]
	if !strings.Contains(c.Reason, "may keep only the last winner") {
		t.Errorf("%s: want a reason that names the overwritten winner", c.Reason)
	}
}

// A restart of the database takes the lock of a session away from a driver at work. A driver who works
// long enough then writes in a new session.
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

// After the fault, an instance may renew its lock forever. The extra injections of a fault restart the
// instances with other settings, which must not end these renewals before the probes.
func TestRenewalsGoOn(t *testing.T) {
	long(t)
	t.Parallel()
	cfg := ticketRunAt(t, "renews-on", catalog.DBRestart, "after mysql SELECT tickets 1")
	checkTickets(t, cfg, catalog.Stuck)
}

// A COMMIT that the service no longer waits for may arrive when the network works again. If another driver
// read the order before, and writes afterwards, both have won.
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

// A fencing token that only the write checks does not help if the older driver writes first. If that
// driver writes too late for the test, the verdict is unknown.
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

// A pause between the record of the winner and the step that closes the order lets a second driver win,
// although the first one is in the ledger already.
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

// A background task removes old locks only from time to time, so a lock may live longer than its TTL. At
// one step, the pause is long enough for that.
func TestPauseOutlivesSweptLock(t *testing.T) {
	long(t)
	t.Parallel()
	cfg := ticketRunAt(t, "swept no-wait", catalog.Pause, "after mysql SELECT tickets 1")
	checkTickets(t, cfg, catalog.Unsafe)
}

// If all drivers of an order without a fault fail, others grab it.
func TestOrdersWithoutAFaultAreGrabbed(t *testing.T) {
	t.Parallel()
	cfg := ticketRunAt(t, "guarded flaky", catalog.Pause, "before mysql SELECT tickets 1")
	cfg.TTL, cfg.Asked.TTL = 3*time.Second, true // on a busy machine, a shorter lease leaves no time to grab an order after a failed grab
	checkTickets(t, cfg, catalog.Safe)
}

// A driver who is told twice that it won is no second winner. Under late-release, the same driver
// grabs twice, and a service that repeats a refused write wins both times.
func TestDriverToldTwice(t *testing.T) {
	long(t)
	t.Parallel()
	cfg := ticketRunAt(t, "insists", catalog.LateRelease, "after mysql SELECT tickets 1")
	run := checkTickets(t, cfg, catalog.Unknown)
	if c := run.Cells[0]; !strings.Contains(c.Reason, "-idempotent") {
		t.Errorf("%s: want a reason that names -idempotent", c.Reason)
	}
}

// A lock belongs to a database session that returns to the pool. It lets in another driver of the same
// instance who comes while the first one is at work, so some drivers must come late.
func TestLateDriversOfAnOrder(t *testing.T) {
	t.Parallel()
	var c Cell
	for range 3 { // a late driver may miss the session that has the lock
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
