package experiment

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/order"
	"grablab/internal/service/control"
	"grablab/internal/tap"
	"grablab/internal/testbed/fault"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/target"
	"grablab/internal/testbed/wait"
)

// TestInspect checks what an inspection of a correct service shows. It must list the calls of a grab
// with their purposes, the responses with their meanings, and the ledger. It must also list the calls
// at which each fault can strike.
func TestInspect(t *testing.T) {
	t.Parallel()
	cfg := ticketRun(t, "", target.Spec{}, catalog.NoFault)
	var shown []Preflight
	if err := Inspect(t.Context(), cfg, func(p Preflight) { shown = append(shown, p) }); err != nil {
		t.Fatal(err)
	}
	if len(shown) != 1 || len(shown[0].Problems) != 0 {
		t.Fatalf("Inspect should find no problem, but showed %+v", shown)
	}
	p := shown[0]
	var calls, answers []string
	for _, c := range p.Calls {
		calls = append(calls, c.Role+" "+c.Name)
	}
	for _, a := range p.Answers {
		answers = append(answers, a.Answer+" "+a.Meaning)
	}
	for _, tt := range []struct{ got, want string }{
		{strings.Join(calls, ", "), "acquire redis SET ticket:* EX NX, read, then work mysql SELECT tickets, read mysql START TRANSACTION, " +
			"write mysql UPDATE tickets, write mysql INSERT winners, write mysql COMMIT, release redis EVALSHA 2e47b37 ticket:*"},
		{strings.Join(answers, ", "), "HTTP 200 grabbed, by the rule 200, HTTP 409 taken, by the rule 409, HTTP 409 taken, by the rule 409"},
		{p.Ledger, "has 1 row for the order"},
	} {
		if tt.got != tt.want {
			t.Errorf("the inspection shows  %s\nwant %s", tt.got, tt.want)
		}
	}
	wants := map[catalog.Fault]string{
		catalog.Pause: "[1 2 3 4 5 6 7] [1 2 3 4 5 6 7] ", catalog.Hang: "[] [2] the fault can strike only during the driver's work, between its read and its write",
		catalog.Amnesia: "[] [] this fault has no effect, because the service's grabs make no calls that it affects",
	}
	for _, r := range p.Reaches {
		if got := fmt.Sprint(r.Before, r.After, " ", r.Why); wants[r.Fault] != "" && got != wants[r.Fault] {
			t.Errorf("calls that %s can hit: %s, want %s", r.Fault, got, wants[r.Fault])
		}
	}
	if len(p.Reaches) != len(catalog.RunFaults)-1 {
		t.Errorf("the inspection lists the calls for %d faults, want all faults", len(p.Reaches))
	}
}

// TestInspectLedgerColumn checks the hint for a ledger that is a column of the order, because such
// a ledger keeps only the last winner.
func TestInspectLedgerColumn(t *testing.T) {
	t.Parallel()
	cfg := ticketRun(t, "in-column", target.Spec{}, catalog.NoFault)
	cfg.Target.Database.Query = "SELECT id, driver FROM tickets WHERE driver IS NOT NULL AND id BETWEEN ? AND ?"
	var p Preflight
	if err := Inspect(t.Context(), cfg, func(shown Preflight) { p = shown }); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(p.Ledger, "has 1 row for the order. A grab only updates this row") {
		t.Errorf("%q: want a hint that a second winner would overwrite the row", p.Ledger)
	}
}

// TestInspectGoesOn checks that calls of a polling task do not count as renewals. It also checks
// that an error response after the write is no problem for the inspection, because the ledger
// counts.
func TestInspectGoesOn(t *testing.T) {
	t.Parallel()
	for kind, ledger := range map[string]string{"polls": "has 1 row for the order", "fails-late": "has 1 row for the order, although the service answered that driver with HTTP 500. The ledger counts, not the response"} {
		var p Preflight
		if err := Inspect(t.Context(), ticketRun(t, kind, target.Spec{}, catalog.NoFault), func(shown Preflight) { p = shown }); err != nil {
			t.Fatal(err)
		}
		for _, c := range p.Calls {
			if c.Role == "renewal" {
				t.Errorf("%s: %s counts as a renewal", kind, c.Name)
			}
		}
		if p.Ledger != ledger || len(p.Answers) != 3 || kind == "polls" && len(p.Problems)+len(p.Calls) != 7 {
			t.Errorf("inspection of the service %s: %+v", kind, p)
		}
	}
}

// TestMissingTable checks the problem if the ledger's table does not exist: it must suggest the
// setting migrate.
func TestMissingTable(t *testing.T) {
	t.Parallel()
	cfg := ticketRun(t, "", target.Spec{}, catalog.NoFault)
	cfg.Service.Migrations = nil
	err := Inspect(t.Context(), cfg, func(Preflight) {})
	if problem := (*Problem)(nil); !errors.As(err, &problem) || problem.Key != "ledger-query" || !strings.Contains(problem.Text, "create them with migrate") {
		t.Errorf("the problem should name ledger-query, but the error is %v", err)
	}
}

// TestInterruptedStart interrupts the start of a service. The error must be the interruption, and
// not a problem in the target file.
func TestInterruptedStart(t *testing.T) {
	t.Parallel()
	cfg := ticketRun(t, "", target.Spec{}, catalog.NoFault)
	service, err := fleet.ParseService("sleep 600 {port}")
	if err != nil {
		t.Fatal(err)
	}
	service.Ready = "/readyz"
	cfg.Service, cfg.Stack.Logs = &service, t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		_, _ = wait.Until(ctx, 10*time.Millisecond, time.Minute, func() (bool, error) {
			logs, err := filepath.Glob(filepath.Join(cfg.Stack.Logs, "instance-*.log"))
			return len(logs) > 0, err
		})
	}()
	problem := new(Problem)
	if err := Inspect(ctx, cfg, func(Preflight) {}); !errors.Is(err, context.Canceled) || errors.As(err, &problem) {
		t.Errorf("Inspect: %v", err)
	}
}

// TestWrongReadyPath checks that the problem names the setting ready if the ready path does not
// exist.
func TestWrongReadyPath(t *testing.T) {
	t.Parallel()
	cfg := ticketRun(t, "", target.Spec{}, catalog.NoFault)
	cfg.Service.Ready = "/nothing"
	problem := new(Problem)
	if err := Inspect(t.Context(), cfg, func(Preflight) {}); !errors.As(err, &problem) || problem.Key != "ready" || !strings.Contains(problem.Text, "HTTP 404") {
		t.Errorf("Inspect: %v", err)
	}
}

// TestLeaseIsTooShort tests a lock that lives longer than the lease that the user named. A pause would
// then look harmless, because the other drivers come before the lock has expired. So the inspection
// must report the setting lease, and the verdict of a run must be unknown.
func TestLeaseIsTooShort(t *testing.T) {
	t.Parallel()
	cfg := ticketRun(t, "", target.Spec{}, catalog.Pause)
	service := ticketService(t, "", "5000")
	service.Migrations = cfg.Service.Migrations
	cfg.Service, cfg.TTL = &service, time.Second
	var p Preflight
	if err := Inspect(t.Context(), cfg, func(shown Preflight) { p = shown }); err != nil {
		t.Fatal(err)
	}
	// The advised lease must be at least the lock's TTL, even if a busy machine reads the TTL late.
	advises := func(text string) bool {
		found := regexp.MustCompile(`expires after (\S+), but lease is 1s: set lease: (\S+),`).FindStringSubmatch(text)
		if found == nil || found[1] != found[2] {
			return false
		}
		lease, err := time.ParseDuration(found[1])
		return err == nil && lease >= 5*time.Second && lease <= 8*time.Second
	}
	if len(p.Problems) != 1 || p.Problems[0].Key != "lease" || !p.Problems[0].Faults || !advises(p.Problems[0].Text) {
		t.Errorf("check: %+v", p.Problems)
	}
	run, err := Execute(t.Context(), cfg, func(*Run) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if c := run.Cells[0]; c.Verdict != catalog.Unknown || !advises(c.Reason) {
		t.Errorf("pause: %s: %s", c.Verdict, c.Reason)
	}
}

// TestCheckLease checks the advised lease, which is the upper bound of the lock's TTL.
func TestCheckLease(t *testing.T) {
	for _, tt := range []struct {
		atLeast, atMost time.Duration
		says            string
	}{
		{1100 * time.Millisecond, 3 * time.Second, ""},
		{4960 * time.Millisecond, 5010 * time.Millisecond, "set lease: 5s,"},
		{4400 * time.Millisecond, 5700 * time.Millisecond, "set lease: 5.7s,"},
		{1690 * time.Millisecond, 1710 * time.Millisecond, "set lease: 1.7s,"},
	} {
		err := checkLease(map[string]lockTTL{"127.0.0.1:6379 lock:7": {atLeast: tt.atLeast, atMost: tt.atMost}}, time.Second)
		if (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%v to %v: %v; want …%s…", tt.atLeast, tt.atMost, err, tt.says)
		}
	}
}

// TestShortLease checks that a lease is refused if it is much longer than the TTL of every lock. Keys that are probably no
// locks, such as that of a rate limiter, do not count. If any lock expires, the user must not say that it never does.
func TestShortLease(t *testing.T) {
	lock, script, limit := keyUse{refuses: true, unlocks: true}, keyUse{scripts: true, unlocks: true}, keyUse{other: true}
	of := func(ttl time.Duration, use keyUse) lockTTL { return lockTTL{ttl, ttl + time.Millisecond, use, false} }
	for name, tt := range map[string]struct {
		locks map[string]lockTTL
		says  string
	}{
		"none":            {nil, ""},
		"as long":         {map[string]lockTTL{"redis lock:7": of(30*time.Second, lock)}, ""},
		"almost as long":  {map[string]lockTTL{"redis lock:7": of(20*time.Second, lock)}, ""},
		"short":           {map[string]lockTTL{"redis lock:7": of(5*time.Second, lock)}, "the lock lock:7 in Redis expires after only 5s, but lease is 30s: set lease: 5s"},
		"a script":        {map[string]lockTTL{"redis lock:7": of(5*time.Second, script)}, "expires after only 5s"},
		"a rate limiter":  {map[string]lockTTL{"redis rate:7": of(time.Second, limit)}, ""},
		"one long enough": {map[string]lockTTL{"redis a": of(5*time.Second, script), "redis b": of(30*time.Second, script)}, ""},
		"never released":  {map[string]lockTTL{"redis lock:7": of(5*time.Second, keyUse{refuses: true})}, ""},
		"stored by SET":   {map[string]lockTTL{"redis lock:7": of(5*time.Second, keyUse{stores: true, other: true, unlocks: true})}, ""},
	} {
		err := checkShortLease(tt.locks, 30*time.Second)
		if (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: checkShortLease: %v; want …%s…", name, err, tt.says)
		}
		err = checkNoExpiry(tt.locks)
		if expires := tt.locks != nil && name != "a rate limiter"; (err == nil) == expires || err != nil && !strings.Contains(err.Error(), "remove no-expiry, and set lease: ") {
			t.Errorf("%s: checkNoExpiry: %v", name, err)
		}
	}
}

// TestUnreleasedLocks checks which keys count as locks although they are left after the grab.
func TestUnreleasedLocks(t *testing.T) {
	for _, tt := range []struct {
		calls, key string
		ttl        time.Duration
		want       bool
	}{
		{"redis SET lock:* NX EX|mysql UPDATE orders", "lock:*", time.Minute, true},
		{"redis SETNX lock:*|redis EXPIRE lock:*|mysql UPDATE orders", "lock:*", time.Minute, true},
		{"redis SET lock:* NX EX|mysql UPDATE orders", "lock:*", 24 * time.Hour, false},
		{"redis SET seen:*:{driver} NX EX|mysql UPDATE orders", "seen:*:{driver}", time.Minute, false},
		{"redis SET seen:*:# NX EX|mysql UPDATE orders", "seen:*:#", time.Minute, false},
		{"redis SET lock NX EX|mysql UPDATE orders", "lock", time.Minute, false},
		{"mysql UPDATE orders|redis SET sold:* NX EX", "sold:*", time.Minute, false},
		{"redis SET status:* EX|mysql UPDATE orders", "status:*", time.Minute, false},
		{"redis INCR rate:*|mysql UPDATE orders", "rate:*", time.Minute, false},
	} {
		var calls []control.Call
		for _, name := range strings.Split(tt.calls, "|") {
			server, _, _ := strings.Cut(name, " ")
			calls = append(calls, control.Call{Phase: tap.Phase(name), N: 1, Target: strings.Replace(server, "mysql", tap.DB, 1)})
		}
		if got := trailOf(calls, "").useOf(tt.key).isUnreleasedLock(tt.ttl); got != tt.want {
			t.Errorf("isUnreleasedLock after %s, TTL %v: %v, want %v", tt.calls, tt.ttl, got, tt.want)
		}
	}
}

// TestLocksAmongKeys checks which keys count as locks if several are found. A key that is left after the grab counts only
// if the service releases no other lock.
func TestLocksAmongKeys(t *testing.T) {
	lock, mark := keyUse{name: "lock:*", refuses: true, unlocks: true}, keyUse{name: "sold:*", refuses: true}
	released, sold := lockTTL{time.Second, time.Second, lock, false}, lockTTL{5 * time.Minute, 5 * time.Minute, mark, true}
	for want, keys := range map[string]map[string]lockTTL{
		"lock":               {"lock": released, "sold": sold},
		"of one driver sold": {"sold": sold, "of one driver": {time.Second, time.Second, keyUse{name: "lock:{driver}", refuses: true, unlocks: true}, false}},
		"sold":               {"sold": sold, "cache": {time.Second, time.Second, keyUse{stores: true}, true}},
		"other":              {"other": {time.Second, time.Second, mark, false}, "endless": {0, time.Second, lock, false}, "unlimited": {time.Hour, time.Hour, mark, true}},
		"":                   nil,
	} {
		if got := strings.Join(slices.Sorted(maps.Keys(locksAmong(keys))), " "); got != want {
			t.Errorf("locks %q, want %q", got, want)
		}
	}
}

// TestDiffers checks the explanation of the difference between two grabs, if they differ before or
// only after their responses.
func TestDiffers(t *testing.T) {
	call := func(p tap.Phase) control.Call { return control.Call{Phase: p, N: 1} }
	read, update, insert := call("mysql SELECT orders"), call("mysql UPDATE jobs"), call("mysql INSERT wins")
	for _, tt := range []struct {
		before, last []control.Call
		deferred     [][]control.Call
		want         string
	}{
		{[]control.Call{read}, []control.Call{read, update}, nil, "one grab makes no other call, and the next one makes mysql UPDATE jobs (no. 1)"},
		{[]control.Call{read}, []control.Call{read}, [][]control.Call{{read, insert}}, "only one of them wrote after its response"},
		{[]control.Call{read}, []control.Call{read}, [][]control.Call{{read}, {read, insert}, {read, update}}, "they differ only after the response: one grab makes mysql INSERT wins (no. 1), and the next one makes mysql UPDATE jobs (no. 1)"},
	} {
		if got := differs(tt.before, tt.last, tt.deferred); got != tt.want {
			t.Errorf("differs: %s, want %s", got, tt.want)
		}
	}
}

// TestWithoutOthers checks which calls count as renewals: those that contain the grab's order, and
// those that the instance sends only during a grab.
func TestWithoutOthers(t *testing.T) {
	call := func(p tap.Phase) control.Call { return control.Call{Phase: p, N: 1, Target: "redis"} }
	renewals := []control.Call{call("redis PEXPIRE lock:*"), call("redis PEXPIRE lock:7"), call("redis LPOP jobs"), call("redis EVALSHA 1 leases")}
	elsewhere := control.Call{Phase: "redis EVALSHA 1 leases", N: 1, Target: "another redis"}
	got := withoutOthers(renewals, []control.Call{call("redis PEXPIRE lock:*"), call("redis LPOP jobs"), call("redis PEXPIRE lock:7"), elsewhere})
	if names := callNames(got); names != "redis PEXPIRE lock:*, redis EVALSHA 1 leases" {
		t.Errorf("withoutOthers left %s", names)
	}
}

// TestChangingNames checks that keys are found that differ only in a number or a random token between two grabs. If
// the calls also differ in another way, none may be found.
func TestChangingNames(t *testing.T) {
	redis := func(phases ...tap.Phase) (calls []control.Call) {
		for _, p := range phases {
			calls = append(calls, control.Call{Phase: p, N: 1, Target: "redis"})
		}
		return calls
	}
	for _, tt := range []struct {
		a, b []control.Call
		want string
	}{
		{redis("redis GETDEL res:{port}-2559-8"), redis("redis GETDEL res:{port}-2559-9"), "redis GETDEL res:{port}-{n}-{n}"},
		{redis("redis SET lock:*", "redis GET a:1"), redis("redis SET lock:*", "redis GET a:2", "redis GET a:2"), "redis GET a:{n}"},
		{redis("redis GET a:1", "redis DEL a:1"), redis("redis GET a:2", "redis DEL a:2"), "redis GET a:{n}, redis DEL a:{n}"},
		{redis("redis GET a:1"), redis("redis GET b:1"), ""},
		{redis("redis GET a:1", "redis GET a:2"), redis("redis GET a:2", "redis GET a:1"), ""},
		{redis("redis GET a:1", "redis GET a:2"), redis("redis GET a:1"), ""},
		{[]control.Call{{Phase: "mysql SELECT t1", Target: tap.DB}}, []control.Call{{Phase: "mysql SELECT t2", Target: tap.DB}}, ""},
		{redis("redis SET lock:*:k3j5h2q9 NX"), redis("redis SET lock:*:zz81mxq0 NX"), "redis SET lock:*:{token} NX"},
		{redis("redis GET s:k3j5h2q9", "redis DEL s:k3j5h2q9"), redis("redis GET s:zz81mxq0", "redis DEL s:zz81mxq0"), "redis GET s:{token}, redis DEL s:{token}"},
		{redis("redis GET s:k3j5h2q9", "redis GET s:zz81mxq0"), redis("redis GET s:zz81mxq0", "redis GET s:k3j5h2q9"), ""},
		{redis("redis GET s:active"), redis("redis GET s:closed"), ""},
		{[]control.Call{{Phase: "mysql SELECT k3j5h2q9", Target: tap.DB}}, []control.Call{{Phase: "mysql SELECT zz81mxq0", Target: tap.DB}}, ""},
	} {
		if got := strings.Join(changingNames(tt.a, tt.b), ", "); got != tt.want {
			t.Errorf("changingNames(%v, %v) = %q, want %q", tt.a, tt.b, got, tt.want)
		}
	}
}

// TestRowRelease covers a user's service that keeps its lock in the database. The fault late-release
// does not delay the release of such a lock. Therefore, the user must be told to check the release.
func TestRowRelease(t *testing.T) {
	for command, faults := range map[string]map[catalog.Fault]bool{
		"shop {port} {db}":       {catalog.LateRelease: true, catalog.Partition: false, catalog.Cancel: false},
		"shop {port} {postgres}": {catalog.LateRelease: true},
		"shop {port} {redis}":    {catalog.LateRelease: false},
	} {
		service, err := fleet.ParseService(command)
		if err != nil {
			t.Fatal(err)
		}
		cfg := Config{Service: &service}
		for name, want := range faults {
			f, err := fault.Find(name)
			if err != nil {
				t.Fatal(err)
			}
			if got := cfg.rowRelease(f); (got != "") != want {
				t.Errorf("%s under %s: %q", command, name, got)
			}
		}
		strategy := lock.Strategy{Name: "a", Needs: cfg.serviceNeeds()}
		cell := cfg.excuse(&cellSpec{CellName: CellName{"a", catalog.LateRelease}, strategy: strategy})
		if says := cell != nil && strings.Contains(cell.Reason, "compares the owner"); says != faults[catalog.LateRelease] {
			t.Errorf("late-release on the service %s: %+v", command, cell)
		}
	}
	if got := (Config{}).rowRelease(fault.Fault{Course: fault.Released}); got != "" {
		t.Errorf("our own instances: %q", got)
	}
}

// TestUnusedRedis checks when a fault without effect leads to the hint that the service may use
// another Redis.
func TestUnusedRedis(t *testing.T) {
	for _, tt := range []struct {
		command string
		fault   catalog.Fault
		hint    bool
	}{
		{"shop {port} {redis}", catalog.RedisDown, true},
		{"shop {port} {redis_host}", catalog.RedisDown, true},
		{"shop {port}", catalog.RedisDown, false},
		{"shop {port} {redis}", catalog.SlowDB, false},
		{"shop {port} {redis}", catalog.Cancel, false},
	} {
		s, err := fleet.ParseService(tt.command)
		if err != nil {
			t.Fatal(err)
		}
		f, err := fault.Find(tt.fault)
		if err != nil {
			t.Fatal(err)
		}
		if got := (Config{Service: &s}).unusedRedis(f); (got != "") != tt.hint {
			t.Errorf("%s under %s: %q", tt.command, tt.fault, got)
		}
	}
}

// TestFirstDriverThatLoses answers the first driver of an order with every status and outcome except a
// win. Each problem must begin with the response and name the setting to correct. If the service may
// not know the driver, the problem must end with a hint.
func TestFirstDriverThatLoses(t *testing.T) {
	const says, known = "the first driver of a fresh order was answered with HTTP 7", ". It may not know this driver"
	keys := map[int]string{404: "path", 405: "method", 401: "header", 403: "header", 202: "later"}
	mayNotKnow := []int{401, 403, 404}
	for status := 100; status < 600; status++ {
		for outcome, key := range map[grab.Outcome]string{grab.Taken: "orders", grab.Busy: "busy", grab.Failed: ""} {
			hints := outcome == grab.Failed && status >= 400 && status < 500 && (keys[status] == "" || slices.Contains(mayNotKnow, status))
			if key == "" {
				switch key = keys[status]; {
				case key != "":
				case status < 400:
					key = "grabbed"
				case status < 500:
					key = "body"
				default:
					key = "service"
				}
			}
			var p Preflight
			p.addLoser(reply{status: status, outcome: outcome, text: "HTTP 7"}, "orders", "service", known)
			if got := p.Problems[0]; got.Key != key || !strings.HasPrefix(got.Text, says) || strings.HasSuffix(got.Text, known) != hints {
				t.Errorf("%d, %s: %s: %s; want %s, and a hint: %v", status, outcome, got.Key, got.Text, key, hints)
			}
		}
	}
}

// TestInspectFindsMistakes checks that each mistake in the description of a service is found, and
// that the problem names the setting to correct.
func TestInspectFindsMistakes(t *testing.T) {
	t.Parallel()
	for kind, mistakes := range map[string][]struct {
		spec       target.Spec
		query      string
		key, wants string
	}{
		"": {
			{target.Spec{Path: "/ticket/{order}/grab"}, "", "path", "if it is right, the order does not exist: correct first-order"},
			{target.Spec{Path: "/tickets/{order}/grab", Method: "PUT"}, "", "method", "405"},
			{target.Spec{Path: "/tickets/{order}/grab", Grabbed: "201"}, "", "grabbed", "HTTP 200"},
			{target.Spec{Path: "/tickets/{order}/grab", Taken: "410"}, "", "taken", "HTTP 409"},
			{target.Spec{Path: "/tickets/{order}/grab", Grabbed: "409", Taken: "200"}, "", "open-orders", "means taken"},
			{target.Spec{Path: "/tickets/{order}/grab", OpenOrders: []string{"/tickets -> .id"}}, "", "open-orders", "where -open-orders expects it"},
			{target.Spec{Path: "/tickets/{order_uuid}/grab", OpenOrders: []string{"/tickets -> .tickets[1].id"}}, "SELECT ticket_id, driver FROM winners WHERE ticket_id IN ({orders})", "open-orders", `has 1 id where -open-orders expects them: {"first_id"`},
			{target.Spec{Path: "/tickets/{order_uuid}/grab", OpenOrders: []string{"/tickets -> .first_id"}}, "SELECT ticket_id, driver FROM winners WHERE ticket_id IN ({orders})", "open-orders", `The call has no body, so {"count":2} was sent: if it opens only one order, write its body, for example {}. Correct`},
			{target.Spec{Path: "/tickets/{order}/grab", OpenOrders: []string{"sql: INSERT INTO ticket (id) VALUES ({order})"}}, "", "open-orders", "Correct the statement; if it must run again, let it delete the orders first"},
			{target.Spec{Path: "/tickets/{order}/grab", OpenOrders: []string{"PUT /tickets -> .first_id"}}, "", "open-orders", "/tickets: HTTP 405: "},
			{target.Spec{Path: "/tickets/{order}/grab", OpenOrders: []string{`POST /tickets {"n":1} -> .first_id`}}, "", "open-orders", "write {order_uuid} instead of {order}"},
			{target.Spec{Path: "/tickets/{order}/grab"}, "SELECT ticket_id, driver FROM winners WHERE n < 0 AND ticket_id BETWEEN ? AND ?", "ledger-query", "no row"},
			{target.Spec{Path: "/tickets/{order}/grab"}, "SELECT ticket_id, n FROM winners WHERE ticket_id BETWEEN ? AND ?", "ledger-query", "names driver"},
			{target.Spec{Path: "/tickets/{order}/grab"}, "SELECT id, status FROM tickets WHERE id BETWEEN ? AND ?", "open-orders", "just opened"},
			{target.Spec{Path: "/results/{order}/{driver}", Method: "GET"}, "none", "grabbed", "If both were really told that they had won, write grabbed: 200"},
		},
		"later": {
			{target.Spec{Path: "/tickets/{order}/grab"}, "", "later", "HTTP 202"},
			{target.Spec{Path: "/tickets/{order}/grab", Later: "202 -> header:Locatoin", Grabbed: `json:.state=="won"`}, "", "later", "the answer 202 has no header Locatoin (it has Content-Length, Date, Location)"},
		},
	} {
		cfg := ticketRun(t, kind, target.Spec{}, catalog.NoFault)
		cfg.Stack.Needs = cfg.serviceNeeds()
		w, err := openWorker(t.Context(), cfg, 0, newProgress(cfg), &journal{dir: cfg.Out})
		t.Cleanup(func() { _ = w.close() })
		if err != nil {
			t.Fatal(err)
		}
		cfg.Service.Migrations = nil
		for _, tt := range mistakes {
			if tt.spec.OpenOrders == nil {
				tt.spec.OpenOrders = []string{`POST /tickets {"count":{count}} -> .first_id`}
			}
			tt.spec.Body = new(`{"driver":{driver}}`)
			var at target.Target
			if at.Shape, at.Open, err = tt.spec.Compile(); err != nil {
				t.Fatal(err)
			}
			if !at.Open.ByCall() {
				at.FirstOrder = 1000
			}
			at.Database = cfg.Target.Database
			at.Database.DSN = w.stack.DSN
			if tt.query == "none" {
				at.Database = target.Database{}
			} else if tt.query != "" {
				at.Database.Query = tt.query
			}
			w.cfg.Target = at
			if err := w.fleet.Identify(t.Context(), at); err != nil {
				t.Fatal(err)
			}
			_ = w.theirs.Close()
			if err := w.useTheirOrders(t.Context(), at); err != nil {
				t.Fatal(err)
			}
			i := w.inspector()
			p := i.inspect(t.Context(), cfg.strategies(w.fleet)[0])
			if len(p.Problems) == 0 {
				trail, err := i.recorder.quickTrail(t.Context())
				i.inspectTrail(&p, trail, err)
			}
			if len(p.Problems) != 1 || p.Problems[0].Key != tt.key || !strings.Contains(p.Problems[0].Text, tt.wants) || strings.Contains(p.Problems[0].Text, "migrate") {
				t.Errorf("inspection of %+v %s: problems %+v, want %s: …%s…", tt.spec, tt.query, p.Problems, tt.key, tt.wants)
			}
		}
	}
}

// TestLedgerOfTheFirstGrab inspects ledgers with up to two rows of the winner and of another
// driver. inspectLedger must return how many drivers have a row. Repeated rows must not change
// that.
func TestLedgerOfTheFirstGrab(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for winners := range 3 {
			for others := range 3 {
				rows := slices.Concat(slices.Repeat([]order.Grab{{Order: 7, Driver: 2}}, others), slices.Repeat([]order.Grab{{Order: 7, Driver: 1}}, winners))
				i := inspector{fleet: &fleet.Fleet{Shape: target.Own}, auditor: &auditor{ledger: true}, orders: ledgerFunc(func() ([]order.Grab, error) { return rows, nil })}
				var p Preflight
				got := i.inspectLedger(t.Context(), &p, 7, 1)
				if want := min(winners, 1) + min(others, 1); got != want || (len(p.Problems) == 0) != (winners > 0) || p.Ledger == "" {
					t.Errorf("%d rows of the winner, %d of another driver: %d drivers, want %d; %q, %v", winners, others, got, want, p.Ledger, p.Problems)
				}
			}
		}
		for settle, problems := range map[time.Duration]int{0: 1, 5 * time.Second: 0} { // a worker writes the row after 3 s
			began := time.Now()
			i := inspector{cfg: Config{Settle: settle}, fleet: &fleet.Fleet{Shape: target.Own}, auditor: &auditor{ledger: true}, orders: ledgerFunc(func() (rows []order.Grab, err error) {
				if time.Since(began) > 3*time.Second {
					rows = []order.Grab{{Order: 7, Driver: 1}}
				}
				return rows, nil
			})}
			var p Preflight
			if i.inspectLedger(t.Context(), &p, 7, 1); len(p.Problems) != problems {
				t.Errorf("a row after 3 s, settle %v: %v", settle, p.Problems)
			}
		}
		i := inspector{auditor: &auditor{ledger: true}, orders: ledgerFunc(func() ([]order.Grab, error) { return nil, errors.New("no table") })}
		var p Preflight
		if n := i.inspectLedger(t.Context(), &p, 7, 1); n != 0 || len(p.Problems) != 1 || p.Problems[0].Text != "no table" {
			t.Errorf("inspectLedger returned %d drivers and the problems %v", n, p.Problems)
		}
	})
}

// answering returns an inspector of a service that answers the nth grab with the nth status, and its other calls with 404.
func answering(t *testing.T, codes ...int) inspector {
	var mu sync.Mutex
	s := stub(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if r.Method == http.MethodPost && len(codes) > 0 {
			w.WriteHeader(codes[0])
			codes = codes[1:]
			return
		}
		w.WriteHeader(http.StatusNotFound)
	})
	to := target.Target{URLs: []string{s.URL}, FirstOrder: 1}
	f, err := fleet.Attach(t.Context(), to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	cfg := Config{Target: to}
	orders := theirOrders{f, to, nil}
	return inspector{cfg: cfg, fleet: f, orders: orders, auditor: &auditor{cfg: cfg, fleet: f, orders: orders}}
}

// TestAnswersToALateDriver gives the second driver of an order each possible answer. Only the answer of
// a second driver that wins must be marked as wrong. An answer that matches no rule must be reported as
// a problem.
func TestAnswersToALateDriver(t *testing.T) {
	for code, problem := range map[int]string{200: "grabbed", 409: "", 423: "", 404: "taken", 500: "taken", 504: "taken"} {
		p := answering(t, 200, code, 409).inspect(t.Context(), lock.Strategy{Name: Foreign})
		got := catalog.Join(p.Problems, ", ", func(p Problem) string { return p.Key })
		if got != problem || len(p.Answers) != 3 {
			t.Errorf("HTTP %d: problems %+v, answers %+v", code, p.Problems, p.Answers)
			continue
		}
		for n, a := range p.Answers {
			if a.Wrong != (n == 1 && code == 200) {
				t.Errorf("HTTP %d: answer %d is marked: %v", code, n, a.Wrong)
			}
		}
	}
}

// TestAnswersOfASecondOrder grabs a second order. It must be open too, so a driver either wins it
// or is told to retry.
func TestAnswersOfASecondOrder(t *testing.T) {
	for code, open := range map[int]bool{200: true, 423: true, 409: false, 404: false, 500: false, 504: false} {
		p := Preflight{Answers: make([]SeenAnswer, 3)}
		answering(t, code).inspectSecond(t.Context(), &p, 2)
		if (len(p.Problems) == 0) != open || (len(p.Answers) == 3) != open {
			t.Errorf("HTTP %d: %+v, %d answers", code, p.Problems, len(p.Answers))
		}
	}
}

// TestAdviceOnMissingTables checks the advice on database errors that report a missing table. The
// advice must suggest migrations only if the program starts the service and no migrations are set.
func TestAdviceOnMissingTables(t *testing.T) {
	for text, missing := range map[string]bool{
		"Error 1146: Table 'shop.wins' doesn't exist": true, `ERROR: relation "wins" does not exist`: true, "no such table: wins": true, "no such column: wins": false, "access denied": false,
	} {
		for name, service := range map[string]*fleet.Service{"none": nil, "started": {}, "migrated": {Migrations: make([]fleet.Migration, 1)}} {
			got := Config{Service: service}.missingTable(errors.New(text))
			if (got != "") != (missing && name == "started") {
				t.Errorf("%s, service %s: %q", text, name, got)
			}
		}
	}
}
