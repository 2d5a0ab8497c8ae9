package experiment

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/service/control"
	"grablab/internal/tap"
	"grablab/internal/testbed/fault"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/wire"
)

const pythonExample = "../../../examples/python/"

// python returns a Python interpreter with the packages that the example needs. It installs each
// version of them only once, and skips the test if that fails.
func python(t *testing.T) string {
	t.Helper()
	requirements, err := os.ReadFile(pythonExample + "requirements.txt")
	if err != nil {
		t.Fatal(err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Skip(err)
	}
	dir := filepath.Join(cache, "grablab", fmt.Sprintf("python-%.6x", sha256.Sum256(requirements)))
	exe, ready := filepath.Join(dir, "bin", "python"), filepath.Join(dir, "ready")
	if _, err := os.Stat(ready); err == nil {
		return exe
	}
	for _, command := range [][]string{
		{"python3", "-m", "venv", "--clear", dir},
		{exe, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", pythonExample + "requirements.txt"},
	} {
		if out, err := exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Skipf("the Python example cannot be run: %s: %v\n%s", strings.Join(command, " "), err, out)
		}
	}
	if err := os.WriteFile(ready, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return exe
}

// pythonRun returns the configuration of a run that starts the example in Python. The parameter
// redis contains the flags with which the example finds its Redis.
func pythonRun(t *testing.T, redis string, strategies []string, faults ...catalog.Fault) Config {
	t.Helper()
	exe := python(t)
	s, err := fleet.ParseService(exe + " " + pythonExample + "service.py --port {port} " + redis + " " +
		"--db {db_user}@{db_host}:{db_port}/{db_name} --ttl {ttl_ms} --work {work_ms} --wait 25000")
	if err != nil {
		t.Fatal(err)
	}
	s.Ready = "/healthz"
	cfg := small(t, stack.Local)
	cfg.Service, cfg.Faults, cfg.Workers = &s, faults, 2
	cfg.Target.Strategies = strategies
	cfg.Target.Database.Query = "SELECT order_id, driver_id FROM wins WHERE order_id BETWEEN ? AND ?"
	cfg.Stack.Logs, cfg.Budget = cfg.Out, 10*time.Minute // long enough, because the points are tested one after the other
	return cfg
}

// TestPythonService checks that a service in another language is started, tested and stopped in the
// same way as our own instances.
func TestPythonService(t *testing.T) {
	for _, port := range []string{"8004", "8005"} { // tests of other packages may use these ports later, so this one must not
		if l, err := net.Listen("tcp", "127.0.0.1:"+port); err == nil {
			defer l.Close()
		}
	}
	t.Parallel()
	strategies := []string{"none", "setnx"}
	if proving {
		strategies = nil // test all four strategies of the example
	}
	cfg := pythonRun(t, "--redis {redis}", strategies, catalog.NoFault)
	cfg.Rate, cfg.Together = 0, true
	run, err := execute(t, t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range run.Cells {
		want := catalog.Safe
		if c.Strategy == "none" {
			want = catalog.Unsafe
		}
		if c.Verdict != want || c.CountedFrom != fromLedger {
			t.Errorf("%s: %s (%s), counted from the %s, want %s", c.Strategy, c.Verdict, c.Reason, c.CountedFrom, want)
		}
		for id := range c.ServedBy {
			if _, err := os.Stat(filepath.Join(cfg.Out, "instance-"+id+".log")); err != nil {
				t.Error(err)
			}
			for end := time.Now().Add(time.Minute); ; time.Sleep(time.Second) { // meanwhile, another test may use the same port
				conn, err := net.Dial("tcp", "127.0.0.1:"+id)
				if err != nil {
					break
				}
				conn.Close()
				if time.Now().After(end) {
					t.Fatalf("instance %s still listens", id)
				}
			}
		}
	}
	if n := map[bool]int{true: 4, false: 2}[proving]; len(run.Cells) != n {
		t.Errorf("the run has %d cells", len(run.Cells))
	}
}

// TestPythonFaults checks that faults strike a service at every call of a grab. With a lock without
// a fencing token, a pause must be unsafe exactly at the points from the read to the commit. A
// crash and a lost reply must be safe. Faults that cannot be injected must be n/a.
func TestPythonFaults(t *testing.T) {
	long(t)
	t.Parallel()
	faults := []catalog.Fault{catalog.Slow, catalog.Pause, catalog.Amnesia, catalog.ReplyLost, catalog.Crash}
	cfg := pythonRun(t, "--redis {redis}", []string{"setnx"}, faults...)
	run, err := Execute(t.Context(), cfg, func(*Run) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	grab := []string{
		"before redis SET grab:* PX NX 1", "after redis SET grab:* PX NX 1", "before mysql SELECT orders 1", "after mysql SELECT orders 1",
		"before mysql COMMIT 1", "after mysql COMMIT 1", "before mysql BEGIN 1", "after mysql BEGIN 1",
		"before mysql UPDATE orders 1", "after mysql UPDATE orders 1", "before mysql INSERT wins 1", "after mysql INSERT wins 1",
		"before mysql COMMIT 2", "after mysql COMMIT 2", "before redis EVALSHA c41f0d7 grab:* 1", "after redis EVALSHA c41f0d7 grab:* 1",
	}
	open := grab[slices.Index(grab, "after mysql SELECT orders 1") : slices.Index(grab, "before mysql COMMIT 2")+1]
	wants := map[catalog.Fault]catalog.Verdict{
		catalog.Slow: catalog.NA, catalog.Amnesia: catalog.NA,
		catalog.Pause: catalog.Unsafe, catalog.Crash: catalog.Safe, catalog.ReplyLost: catalog.Safe,
	}
	for _, c := range run.Cells {
		if c.Verdict != wants[c.Fault] {
			t.Errorf("verdict under %s: %s (%s), want %s", c.Fault, c.Verdict, c.Reason, wants[c.Fault])
		}
		var points []string
		for _, p := range c.Points {
			points = append(points, p.Point)
			unsafe := c.Fault == catalog.Pause && slices.Contains(open, p.Point)
			if p.Struck != p.Strikes || (p.Verdict == catalog.Unsafe) != unsafe {
				t.Errorf("%s, %s: struck %d of %d, %s", c.Fault, p.Point, p.Struck, p.Strikes, p.Verdict)
			}
		}
		var want []string
		for _, p := range grab {
			if c.Verdict != catalog.NA && (c.Fault != catalog.ReplyLost || strings.HasPrefix(p, "before")) {
				want = append(want, p)
			}
		}
		if !slices.Equal(points, want) {
			t.Errorf("%s: points\n%q\nwant\n%q", c.Fault, points, want)
		}
	}
}

// TestTrailOf checks what the program infers from the sequence of a service's calls. It must find the
// write, the release, the work, and the part of the grab to which each call belongs. It must also find
// the ledger's table and the servers of the lock.
func TestTrailOf(t *testing.T) {
	calls := func(names ...string) (all []control.Call) {
		for _, name := range names {
			server, _, _ := strings.Cut(name, " ")
			if server == "mysql" || server == "postgres" {
				server = tap.DB
			}
			all = append(all, control.Call{Phase: tap.Phase(name), N: 1, Target: server})
		}
		return all
	}
	for _, tt := range []struct {
		calls                []control.Call
		parts                string
		claim, release, work string
		table                string
		needs                lock.Backend
	}{
		{
			calls("redis SET grab:* NX PX", "mysql SELECT orders", "redis GET grab:*", "mysql UPDATE orders", "mysql INSERT wins", "mysql COMMIT", "redis EVALSHA 1 grab:*"),
			"acquire work renew claim claim claim release", "before mysql UPDATE orders 1", "before redis EVALSHA 1 grab:* 1", "after mysql SELECT orders 1", "wins", lock.Redis,
		},
		{ // a driver reads the order before it acquires the lock
			calls("redis EXISTS cache:*", "mysql SELECT orders", "redis SET grab:* NX PX", "mysql UPDATE orders", "redis DEL grab:*"),
			"acquire work acquire claim release", "before mysql UPDATE orders 1", "before redis DEL grab:* 1", "after mysql SELECT orders 1", "orders", lock.Redis,
		},
		{
			calls("mysql SELECT orders", "mysql UPDATE orders"),
			"work claim", "before mysql UPDATE orders 1", "", "after mysql SELECT orders 1", "orders", 0,
		},
		{
			calls("redlock SET grab:* NX PX", "mysql SELECT GET_LOCK", "mysql SELECT drivers", "mysql SELECT orders", "mysql BEGIN", "mysql REPLACE winners", "redlock DEL grab:*"),
			"acquire acquire read work read claim release", "before mysql REPLACE winners 1", "before redlock DEL grab:* 1", "after mysql SELECT orders 1", "winners", lock.RedisQuorum | lock.SQLLocks,
		},
		{
			calls("redis SET grab:* NX PX", "mysql SELECT orders", "mysql BEGIN + UPDATE orders + INSERT wins + COMMIT", "redis DEL grab:*"),
			"acquire work claim release", "before mysql BEGIN + UPDATE orders + INSERT wins + COMMIT 1", "before redis DEL grab:* 1", "after mysql SELECT orders 1", "wins", lock.Redis,
		},
		{
			calls("postgres SELECT PG_ADVISORY_LOCK", "postgres SELECT orders", "postgres BEGIN", "postgres UPDATE orders", "postgres INSERT wins", "postgres COMMIT", "postgres SELECT PG_ADVISORY_UNLOCK"),
			"acquire work read claim claim claim release", "before postgres UPDATE orders 1", "before postgres SELECT PG_ADVISORY_UNLOCK 1", "after postgres SELECT orders 1", "wins", lock.SQLLocks,
		},
		{
			calls("postgres BEGIN", "postgres SELECT orders FOR UPDATE", "postgres DO BLOCK", "postgres COMMIT"),
			"read work claim claim", "before postgres DO BLOCK 1", "", "after postgres SELECT orders FOR UPDATE 1", "BLOCK", lock.SQLLocks,
		},
		{ // a lease in a table is acquired before the claim and released after it
			calls("postgres INSERT leases", "postgres SELECT orders", "postgres BEGIN", "postgres UPDATE orders", "postgres INSERT wins", "postgres COMMIT", "postgres UPDATE leases"),
			"acquire work read claim claim claim release", "before postgres UPDATE orders 1", "before postgres UPDATE leases 1", "after postgres SELECT orders 1", "wins", lock.SQLLocks,
		},
		{
			calls("mysql UPDATE locks", "mysql SELECT orders", "mysql UPDATE orders", "mysql INSERT wins", "mysql DELETE locks"),
			"acquire work claim claim release", "before mysql UPDATE orders 1", "before mysql DELETE locks 1", "after mysql SELECT orders 1", "wins", lock.SQLLocks,
		},
		{ // the same from Java, where turning autocommit off begins the transaction
			calls("mysql INSERT leases", "mysql UPDATE leases", "mysql SET autocommit=0", "mysql SELECT orders", "mysql UPDATE orders", "mysql INSERT wins", "mysql COMMIT", "mysql UPDATE leases"),
			"acquire acquire read work claim claim claim release", "before mysql UPDATE orders 1", "before mysql UPDATE leases 1", "after mysql SELECT orders 1", "wins", lock.SQLLocks,
		},
		{ // a reservation that another transaction confirms after the work
			calls("mysql SELECT orders", "mysql UPDATE orders", "mysql START TRANSACTION", "mysql UPDATE orders", "mysql INSERT wins", "mysql COMMIT"),
			"read work read claim claim claim", "before mysql UPDATE orders 1", "", "after mysql UPDATE orders 1", "wins", lock.SQLLocks,
		},
		{ // a lease in a table that is renewed before the claim
			calls("mysql UPDATE locks", "mysql SELECT orders", "mysql UPDATE locks", "mysql BEGIN", "mysql UPDATE orders", "mysql INSERT wins", "mysql COMMIT"),
			"acquire work acquire read claim claim claim", "before mysql UPDATE orders 1", "", "after mysql SELECT orders 1", "wins", lock.SQLLocks,
		},
		{ // a transaction that begins without a statement of its own
			calls("mysql SELECT orders", "mysql COMMIT", "mysql INSERT claims", "mysql SELECT claims", "mysql INSERT wins", "mysql COMMIT"),
			"work read claim claim claim claim", "before mysql INSERT claims 1", "", "after mysql SELECT orders 1", "wins", 0,
		},
		{ // an outbox, whose row is marked after the commit
			calls("mysql SELECT orders", "mysql BEGIN", "mysql UPDATE orders", "mysql INSERT wins", "mysql INSERT outbox", "mysql COMMIT", "redis PUBLISH won", "mysql UPDATE outbox"),
			"work read claim claim claim claim release claim", "before mysql UPDATE orders 1", "before redis PUBLISH won 1", "after mysql SELECT orders 1", "wins", lock.Redis,
		},
		{ // a row in another table, written after the commit
			calls("redis SET grab:* NX PX", "mysql SELECT orders", "mysql BEGIN", "mysql UPDATE orders", "mysql INSERT wins", "mysql COMMIT", "mysql INSERT audit", "redis DEL grab:*"),
			"acquire work read claim claim claim claim release", "before mysql UPDATE orders 1", "before redis DEL grab:* 1", "after mysql SELECT orders 1", "wins", lock.Redis,
		},
		{calls("postgres SELECT GRAB()"), "work", "before postgres SELECT GRAB() 1", "", "after postgres SELECT GRAB() 1", "GRAB()", 0},
		{
			calls("postgres SELECT SETTINGS()", "postgres SELECT orders", "postgres BEGIN", "postgres UPDATE orders", "postgres COMMIT"),
			"acquire work read claim claim", "before postgres UPDATE orders 1", "", "after postgres SELECT orders 1", "orders", lock.SQLLocks,
		},
		{calls("postgres SELECT orders", "postgres MERGE wins"), "work claim", "before postgres MERGE wins 1", "", "after postgres SELECT orders 1", "wins", 0},
		{calls("mysql SELECT orders", "mysql CALL grab"), "work claim", "before mysql CALL grab 1", "", "after mysql SELECT orders 1", "grab", 0},
		{ // a log that is written before the winner and after it is no lock
			calls("redis SETNX grab:*", "mysql INSERT log", "mysql SELECT orders", "mysql BEGIN", "mysql UPDATE orders", "mysql INSERT wins", "mysql COMMIT", "mysql INSERT log", "redis PUBLISH won", "redis EVALSHA 1 grab:*"),
			"acquire acquire work read claim claim claim release release release", "before mysql UPDATE orders 1", "before redis EVALSHA 1 grab:* 1", "after mysql SELECT orders 1", "wins", lock.Redis | lock.SQLLocks,
		},
		{ // a cached value that is removed before the lock is released
			calls("redis GET cache:*", "redis SET grab:* NX PX", "mysql SELECT orders", "mysql INSERT wins", "redis DEL cache:*", "redis DEL grab:*"),
			"acquire acquire work claim release release", "before mysql INSERT wins 1", "before redis DEL grab:* 1", "after mysql SELECT orders 1", "wins", lock.Redis,
		},
		{
			calls("mysql LOCK TABLES", "mysql SELECT orders", "mysql INSERT wins", "mysql UNLOCK TABLES"),
			"acquire work claim release", "before mysql INSERT wins 1", "before mysql UNLOCK TABLES 1", "after mysql SELECT orders 1", "wins", lock.SQLLocks,
		},
		{ // a pool that releases all locks of a session, although the session has none
			calls("redis SET grab:* NX PX", "postgres SELECT orders", "postgres INSERT wins", "postgres SELECT PG_ADVISORY_UNLOCK_ALL + CLOSE ALL + UNLISTEN *", "redis DEL grab:*"),
			"acquire work claim claim release", "before postgres INSERT wins 1", "before redis DEL grab:* 1", "after postgres SELECT orders 1", "wins", lock.Redis,
		},
		{
			calls("postgres SELECT PG_ADVISORY_LOCK", "postgres SELECT orders", "postgres INSERT wins", "postgres SELECT PG_ADVISORY_UNLOCK_ALL"),
			"acquire work claim release", "before postgres INSERT wins 1", "before postgres SELECT PG_ADVISORY_UNLOCK_ALL 1", "after postgres SELECT orders 1", "wins", lock.SQLLocks,
		},
		{calls("redis SETNX won:*"), "work", "", "", "after redis SETNX won:* 1", "", lock.Redis},
	} {
		got := trailOf(tt.calls, "SELECT order_id, driver_id FROM wins WHERE order_id BETWEEN ? AND ?")
		var parts []string
		for _, p := range got.service.parts {
			parts = append(parts, string(p))
		}
		if text := strings.Join(parts, " "); text != tt.parts {
			t.Errorf("parts of %s: %s, want %s", callNames(tt.calls), text, tt.parts)
		}
		if claim, release := named(got.claim), named(got.release); claim != tt.claim || release != tt.release {
			t.Errorf("%s: claim %q, release %q", callNames(tt.calls), claim, release)
		}
		if s := got.service; got.work.String() != tt.work || got.ledger != tt.table || s.needs != tt.needs {
			t.Errorf("%s: work %q, table %q, needs %v", callNames(tt.calls), got.work, got.ledger, s.needs)
		}
		for _, p := range got.points() {
			if p.Phase == "mysql SET autocommit=0" {
				t.Errorf("%s: a fault strikes at %q, which a pool may also send", callNames(tt.calls), p)
			}
			if read, err := fault.ParsePoint(p.String()); err != nil || read.Point != p.Point {
				t.Errorf("%q is parsed as %q, %v", p, read, err)
			}
		}
	}
}

// TestLocksOfASession checks whether a database session still holds a lock when the work begins.
func TestLocksOfASession(t *testing.T) {
	for calls, want := range map[string]bool{
		"SELECT GET_LOCK|SELECT orders|INSERT wins|SELECT RELEASE_LOCK":                                                            true,
		"SELECT GET_LOCK|BEGIN|SELECT drivers|COMMIT|SELECT orders|INSERT wins":                                                    true,
		"BEGIN|SELECT orders FOR UPDATE|INSERT wins|COMMIT":                                                                        true,
		"BEGIN|SELECT PG_ADVISORY_XACT_LOCK|SELECT orders|INSERT wins|COMMIT":                                                      true,
		"INSERT locks|BEGIN|SELECT wins_seq FOR UPDATE|COMMIT|SELECT orders|INSERT wins|DELETE locks":                              false,
		"BEGIN|SELECT PG_TRY_ADVISORY_XACT_LOCK|COMMIT|SELECT orders|INSERT wins":                                                  false,
		"SELECT GET_LOCK|SELECT drivers|SELECT RELEASE_LOCK|SELECT orders|INSERT wins":                                             false,
		"UPDATE locks|SELECT orders|BEGIN|INSERT wins|SELECT stats FOR UPDATE|COMMIT|SELECT GET_LOCK":                              false,
		"BEGIN|UPDATE orders|COMMIT|BEGIN|INSERT wins|COMMIT":                                                                      true,
		"UPDATE orders|COMMIT|INSERT wins|COMMIT":                                                                                  true,
		"UPDATE orders|SELECT drivers|INSERT wins":                                                                                 false,
		"UPDATE orders|SET autocommit=0|INSERT wins|COMMIT":                                                                        false,
		"UPDATE orders|START TRANSACTION|INSERT wins|COMMIT":                                                                       false,
		"BEGIN|UPDATE orders|COMMIT|SELECT drivers|BEGIN|INSERT wins|COMMIT":                                                       false,
		"BEGIN|INSERT locks|COMMIT|BEGIN|INSERT wins|COMMIT|DELETE locks":                                                          false,
		"SELECT PG_ADVISORY_LOCK|SELECT drivers|SELECT PG_ADVISORY_UNLOCK_ALL|SELECT orders|INSERT wins|SELECT PG_ADVISORY_UNLOCK": true,
		"SELECT orders|UPDATE orders":                                                                                              false,
	} {
		var all []control.Call
		for _, s := range strings.Split(calls, "|") {
			all = append(all, control.Call{Phase: tap.Phase("mysql " + s), N: 1, Target: tap.DB})
		}
		if got := trailOf(all, "SELECT order_id, driver_id FROM wins WHERE order_id BETWEEN ? AND ?").locksSession(); got != want {
			t.Errorf("%s: locksSession: %v, want %v", calls, got, want)
		}
	}
}

// TestCachesOfAService checks which keys a grab uses only as a cache. Their TTLs must not count as the lease of a lock. A
// grab stores a value in a cache after it has read the order. If it stores the key before that, the key may be a lock that
// was free according to a GET, so its TTL must count.
func TestCachesOfAService(t *testing.T) {
	for calls, want := range map[string]bool{
		"GET cache:*|read|SETEX cache:*|write|DEL cache:*": true, "read|SET cache:* EX|write|UNLINK cache:*": true, "read|write|SETEX cache:*|DEL cache:*": true,
		"read|MULTI|SETEX cache:*|EXEC|write": true, "GET cache:*|read|write": false, "read|write": false, "read|EXEC|write": false,
		"read|SET cache:* NX PX|write|DEL cache:*": false, "read|SET cache:* PX NX|write": false, "read|SETNX cache:*|EXPIRE cache:*|write": false,
		"read|EVALSHA a1b2c3d cache:*|write": false, "read|SETEX cache:*|EVALSHA a1b2c3d cache:*|write": false, "read|SETEX other:*|GET cache:*|write": false,
		"GET cache:*|SETEX cache:*|read|write|DEL cache:*": false, "EXISTS cache:*|SET cache:* EX|read|SET cache:* EX|write|DEL cache:*": false,
		"GET cache:*|SETEX cache:*|write|DEL cache:*": false, "GET cache:*|SETEX cache:*|DEL cache:*": false,
	} {
		var all []control.Call
		for _, text := range strings.Split(calls, "|") {
			c := control.Call{Phase: tap.Phase("redis " + text), N: 1, Target: "redis"}
			switch text {
			case "read":
				c = control.Call{Phase: "mysql SELECT orders", N: 1, Target: tap.DB}
			case "write":
				c = control.Call{Phase: "mysql INSERT wins", N: 1, Target: tap.DB}
			}
			all = append(all, c)
		}
		if got := trailOf(all, "").useOf("cache:*").caches(); got != want {
			t.Errorf("cache:* is a cache in %s: %v, want %v", calls, got, want)
		}
	}
}

// TestRefusedForever checks whether the calls of the contenders show that a Redis key without an expiry has refused them. If
// they read its value, it may contain the time when the lock expires. A key that no refused driver reaches shows nothing.
func TestRefusedForever(t *testing.T) {
	const locked, sold = "redis SET lock:* NX PX|mysql SELECT orders|", "mysql INSERT wins"
	for _, tt := range []struct {
		grab, tries string
		want        bool
	}{
		{"redis SET lock:* NX|mysql SELECT orders|" + sold, "redis SET lock:* NX", true},
		{"redis SET lock:* NX|mysql SELECT orders|" + sold, "redis SET lock:* NX|redis GET lock:*|redis SET lock:* NX", false},
		{"redis GET lock:*|redis SET lock:* NX|mysql SELECT orders|" + sold, "redis GET lock:*", false},
		{"redis EVALSHA a1b2c3d lock:*|mysql SELECT orders|" + sold, "redis EVALSHA a1b2c3d lock:*", true},
		{locked + sold, "redis SET lock:* NX PX", true}, // if the key has no TTL in spite of PX
		{"redis SET other:* NX PX|redis INCR lock:*|mysql SELECT orders|" + sold, "redis SET other:* NX PX", false},
		{"redis SET other:* NX PX|redis INCR lock:*|mysql SELECT orders|" + sold, "redis SET other:* NX PX|redis INCR lock:*", true},
		{"redis INCR lock:*|redis SET other:* NX PX|mysql SELECT orders|" + sold, "redis INCR lock:*|redis SET other:* NX PX", false},
		{"redis LPOP token:*|mysql SELECT orders|" + sold, "redis LPOP token:*", true},
		{"redis DECR stock:*|mysql SELECT orders|" + sold + "|redis INCR stock:*", "redis DECR stock:*|redis INCR stock:*", true},
		{"redis LPOP jobs|mysql INSERT locks|mysql SELECT orders|" + sold, "redis LPOP jobs", false},
		{"redis SADD shared|mysql SELECT orders|" + sold, "redis SADD shared", true},
		{"mysql INSERT locks|mysql SELECT orders|" + sold, "mysql INSERT locks", false},
		{"redis SET lock:* NX|mysql SELECT orders|" + sold, "", false},
	} {
		of := func(names string) (all []control.Call) {
			for _, name := range strings.Split(names, "|") {
				server, _, _ := strings.Cut(name, " ")
				all = append(all, control.Call{Phase: tap.Phase(name), N: 1, Target: strings.Replace(server, "mysql", tap.DB, 1)})
			}
			return all
		}
		grab := trailOf(of(tt.grab), "")
		grab.service.endless = []string{"lock:*", "shared"}
		if got := grab.refusesForever(of(tt.tries)); got != tt.want {
			t.Errorf("%s after %s: %v, want %v", tt.grab, tt.tries, got, tt.want)
		}
	}
}

// TestCallsOfHolders checks which calls show that a driver got past the lock: the writes of the winner, unless drivers
// without the lock or background tasks send the same ones. A write to a log is none of them.
func TestCallsOfHolders(t *testing.T) {
	for calls, want := range map[string]string{
		"INSERT locks|SELECT orders|UPDATE orders|INSERT wins|DELETE locks":       "UPDATE orders, INSERT wins",
		"SELECT orders|BEGIN|UPDATE orders|INSERT wins|COMMIT|INSERT tries":       "UPDATE orders, INSERT wins",
		"SELECT orders|BEGIN|UPDATE jobs|INSERT wins|COMMIT":                      "INSERT wins",
		"UPDATE orders|SELECT orders|BEGIN|UPDATE orders|INSERT wins|COMMIT":      "INSERT wins",
		"UPDATE wins|SELECT wins|UPDATE wins":                                     "",
		"SELECT orders|BEGIN|SELECT orders FOR UPDATE|UPDATE orders|INSERT wins|": "UPDATE orders, INSERT wins",
	} {
		var all []control.Call
		for i, s := range strings.Split(calls, "|") {
			all = append(all, control.Call{Phase: tap.Phase("mysql " + s), N: 1 + strings.Count(strings.Join(strings.Split(calls, "|")[:i], "|"), s), Target: tap.DB})
		}
		grab := trailOf(all, "SELECT order_id, driver_id FROM wins WHERE order_id BETWEEN ? AND ?")
		grab.service.background = []control.Call{{Phase: "mysql UPDATE jobs", N: 1, Target: tap.DB}}
		if got := strings.ReplaceAll(callNames(catalog.Filter(all, grab.onlyHolders)), "mysql ", ""); got != want && (got != "none" || want != "") {
			t.Errorf("%s: %s, want %s", calls, got, want)
		}
	}
}

// TestServersOfAService checks which servers start for a service: those with a placeholder in its command.
func TestServersOfAService(t *testing.T) {
	if needs := (Config{}).serviceNeeds(); needs != 0 {
		t.Errorf("without a service: %b", needs)
	}
	for placeholders, want := range map[string]lock.Backend{
		"": 0, "{instance} {ttl_ms}": 0, "{redis}": lock.Redis, "{redis_host}": lock.Redis,
		"{redlock}": lock.RedisQuorum, "{redlock_2}": lock.RedisQuorum, "{db}": lock.SQLLocks, "{db_name}": lock.SQLLocks, "{postgres}": lock.SQLLocks, "{postgres_user}": lock.SQLLocks,
		"{redis} {redlock} {db}": lock.Redis | lock.RedisQuorum | lock.SQLLocks,
	} {
		s, err := fleet.ParseService("x {port} " + placeholders)
		if err != nil {
			t.Fatal(err)
		}
		if needs := (Config{Service: &s}).serviceNeeds(); needs != want {
			t.Errorf("%q: serviceNeeds: %b, want %b", placeholders, needs, want)
		}
	}
}

// TestChangesAfter checks whether a request still changes something after a point of its grab,
// besides releasing its lock.
func TestChangesAfter(t *testing.T) {
	calls := func(names ...string) trail {
		t := trail{calls: map[fault.Role][]control.Call{}}
		for _, name := range names {
			c := control.Call{Phase: tap.Phase(name), N: 1}
			if strings.HasPrefix(name, "mysql ") {
				c.Target = tap.DB
			}
			t.calls[fault.Alone] = append(t.calls[fault.Alone], c)
		}
		return t
	}
	for _, tt := range []struct {
		name  string
		trail trail
		at    string
		after bool
		want  bool
	}{
		{"before its last write", calls("redis SET lock:*", "mysql INSERT wins", "mysql UPDATE orders", "redis DEL lock:*"), "mysql UPDATE orders", false, true},
		{"after its last write", calls("redis SET lock:*", "mysql INSERT wins", "mysql UPDATE orders", "redis DEL lock:*"), "mysql UPDATE orders", true, false},
		{"between two writes", calls("redis SET lock:*", "mysql INSERT wins", "mysql UPDATE orders", "redis DEL lock:*"), "mysql INSERT wins", true, true},
		{"before the status in Redis", calls("mysql INSERT wins", "redis SET closed:*", "redis EVALSHA 1a2b3c4 lock:*"), "mysql INSERT wins", true, true},
		{"before the release", calls("mysql INSERT wins", "redis EVALSHA 1a2b3c4 lock:*"), "redis EVALSHA 1a2b3c4 lock:*", false, false},
		{"before the commit", calls("mysql BEGIN", "mysql INSERT wins", "mysql COMMIT"), "mysql COMMIT", false, false},
		{"before a read", calls("mysql INSERT wins", "mysql SELECT wins", "mysql SELECT RELEASE_LOCK"), "mysql SELECT wins", false, false},
		{"after the end", calls("mysql INSERT wins"), "mysql INSERT wins", true, false},
		{"at an unknown call", calls("mysql INSERT wins"), "mysql UPDATE orders", false, true},
	} {
		p := fault.Point{Point: control.Point{Phase: tap.Phase(tt.at), N: 1, After: tt.after}}
		if got := tt.trail.changesAfter(p); got != tt.want {
			t.Errorf("%s: changesAfter: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// TestFindTrail checks requests that write after their response, or sometimes just before it,
// because the write races with the response. The trail must contain the write. If almost all
// requests let another instance write, there must be an error.
func TestFindTrail(t *testing.T) {
	call := func(p tap.Phase) control.Call { return control.Call{Phase: p, N: 1, Target: tap.DB} }
	read, update, insert := call("mysql SELECT orders"), call("mysql UPDATE orders"), call("mysql INSERT wins")
	before := request{calls: []control.Call{read, update, insert}, listened: quietFor}
	after := request{calls: []control.Call{read, update}, behind: []control.Call{insert}, listened: minSettle}
	elsewhere := request{calls: []control.Call{read, update}, listened: minSettle} // another instance wrote
	commits := request{calls: before.calls, behind: []control.Call{call("mysql COMMIT")}, listened: minSettle}
	opens := request{calls: append([]control.Call{call("mysql SET autocommit=0")}, before.calls...), listened: quietFor}
	looks := request{calls: before.calls, behind: []control.Call{call("mysql BEGIN"), call("mysql SELECT drivers"), call("mysql COMMIT")}, listened: minSettle}
	for name, tt := range map[string]struct {
		requests [dryRuns]request
		long     time.Duration // how long a request may make calls after its response; -1 if the trail is unknown
	}{
		"always before":        {[dryRuns]request{before, before}, 0},
		"always after":         {[dryRuns]request{after, after}, minSettle},
		"once after":           {[dryRuns]request{after, before}, minSettle},
		"after, between":       {[dryRuns]request{before, after, before}, minSettle},
		"by another, between":  {[dryRuns]request{after, elsewhere, elsewhere, after}, minSettle},
		"by another, but once": {[dryRuns]request{after, elsewhere, elsewhere, elsewhere, elsewhere, elsewhere}, -1},
		"before, COMMIT after": {[dryRuns]request{commits, commits}, minSettle},
		"before, reads after":  {[dryRuns]request{looks, looks}, 0},
		"opens a connection":   {[dryRuns]request{opens, before}, 0},
	} {
		next := func(n int64) (req request, err error) {
			req = tt.requests[n]
			req.calls = slices.Clone(req.calls) // findTrail removes late calls in place
			return req, nil
		}
		got, err := findTrail("", next, func(int64) ([]control.Call, error) { return nil, nil })
		if err != nil {
			got.callsAfterAnswer = -1
		}
		want := "mysql SELECT orders, mysql UPDATE orders, mysql INSERT wins"
		if strings.Contains(name, "COMMIT") {
			want += ", mysql COMMIT"
		}
		if got.callsAfterAnswer != tt.long || err == nil && callNames(got.calls[fault.Alone]) != want {
			t.Errorf("trail of %s: %s, %v, %v; want %v", name, callNames(got.calls[fault.Alone]), got.callsAfterAnswer, err, tt.long)
		}
	}
}

// TestTrailBesideATask tests a grab that a worker writes later. Its trail must contain the COMMIT,
// although the worker also commits transactions while no grab runs.
func TestTrailBesideATask(t *testing.T) {
	call := func(p tap.Phase, n int) control.Call { return control.Call{Phase: p, N: n, Target: tap.DB} }
	polls := []control.Call{call("mysql SELECT jobs", 1), call("mysql COMMIT", 1), call("mysql BEGIN + SELECT old", 1)}
	lists := [][]control.Call{
		{call("mysql SELECT jobs", 1), call("mysql COMMIT", 1), call("mysql UPDATE orders", 1), call("mysql INSERT wins", 1), call("mysql COMMIT", 2)},
		{call("mysql UPDATE orders", 1), call("mysql INSERT wins", 1), call("mysql COMMIT", 1)},
	}
	filtered := false // whether the proxies know the calls of the task, so that they omit its COMMIT
	next := func(n int64) (request, error) {
		calls := slices.Clone(lists[n%2])
		if filtered {
			calls = slices.Clone(lists[1])
		}
		return request{behind: calls, listened: quietFor}, nil
	}
	if left := callNames(withoutBackground(append(polls, lists[1]...), polls)); left != "mysql COMMIT, mysql UPDATE orders, mysql INSERT wins, mysql COMMIT" {
		t.Errorf("without the calls of the task: %s", left)
	}
	got, err := findTrail("", next, func(int64) ([]control.Call, error) { filtered = true; return polls, nil })
	if names := callNames(got.calls[fault.Alone]); err != nil || names != "mysql UPDATE orders, mysql INSERT wins, mysql COMMIT" || !slices.Equal(got.service.background, polls) {
		t.Errorf("the trail is %s, %v", names, err)
	}
}

// TestTasksThatWriteWinners checks that a write to the table of the winners never counts as a
// background call. This must be so even if a task also sends it, for example to reopen orders.
func TestTasksThatWriteWinners(t *testing.T) {
	call := func(p tap.Phase) control.Call { return control.Call{Phase: p, N: 1, Target: tap.DB} }
	others := []control.Call{call("mysql BEGIN"), call("mysql UPDATE orders"), call("mysql BEGIN + UPDATE orders"), call("mysql UPDATE jobs"), call("mysql COMMIT")}
	if got := callNames(withoutWinners(others, "orders")); got != "mysql BEGIN, mysql UPDATE jobs, mysql COMMIT" {
		t.Errorf("withoutWinners left %s", got)
	}
}

// TestTrailEndsBeforeTheNextJob checks that calls with which a worker waits for its next job are
// not part of the grab.
func TestTrailEndsBeforeTheNextJob(t *testing.T) {
	var calls []control.Call
	for _, name := range []string{"redis BLPOP turn:*", "mysql BEGIN", "mysql UPDATE orders", "mysql INSERT wins", "redis BLPOP jobs", "mysql COMMIT", "redis SET result:* EX", "redis XREADGROUP jobs"} {
		server := "redis"
		if strings.HasPrefix(name, "mysql") {
			server = tap.DB
		}
		calls = append(calls, control.Call{Phase: tap.Phase(name), N: 1, Target: server})
	}
	const want = "redis BLPOP turn:*, mysql BEGIN, mysql UPDATE orders, mysql INSERT wins, mysql COMMIT, redis SET result:* EX"
	if got := callNames(trailOf(calls, "").calls[fault.Alone]); got != want {
		t.Errorf("the trail is %s; want %s", got, want)
	}
}

// TestTrailWithoutWrite checks that the program refuses a trail without a write to the database,
// because the service then writes where no proxy sees it.
func TestTrailWithoutWrite(t *testing.T) {
	for phase, wrong := range map[tap.Phase]bool{"mysql SELECT orders": true, "mysql UPDATE orders": false, "mysql CALL grab": false, "postgres SELECT GRAB()": false} {
		r := recorder{fleet: &fleet.Fleet{}}
		if err := r.checkReadable(trailOf([]control.Call{{Phase: phase, N: 1, Target: tap.DB}}, "")); (err != nil) != wrong {
			t.Errorf("checkReadable(%s): %v", phase, err)
		}
	}
}

// TestDifference checks that the program names the differing calls if two grabs make different calls.
func TestDifference(t *testing.T) {
	call := func(p tap.Phase) control.Call { return control.Call{Phase: p, N: 1} }
	got := difference([]control.Call{call("redis SET a"), call("redis GET b7x")}, []control.Call{call("redis SET a"), call("redis GET c8x")})
	if want := "one grab makes redis GET b7x (no. 1), and the next one makes redis GET c8x (no. 1)"; got != want {
		t.Errorf("difference returned %q, want %q", got, want)
	}
}

// named returns a point as text, or "" if there is none.
func named(p *control.Point) string {
	if p == nil {
		return ""
	}
	return p.String()
}

// TestFaultWithoutPoint checks that a fault without any point at which it can strike does not apply
// to the service.
func TestFaultWithoutPoint(t *testing.T) {
	for name, want := range map[catalog.Fault]error{catalog.Cancel: errUnreachable, catalog.RedisRestart: nil, catalog.NodeClock: nil} {
		f, err := fault.Find(name)
		if err != nil {
			t.Fatal(err)
		}
		calls := trailOf([]control.Call{{Phase: "redis DECR stock:*", N: 1, Target: "redis"}, {Phase: "mysql UPDATE orders", N: 1, Target: tap.DB}}, "")
		in := &injection{w: &worker{fleet: &fleet.Fleet{}}, fault: f, trail: calls}
		if err := (startedService{}).choosePoints(in); !errors.Is(err, want) {
			t.Errorf("%s: choosePoints: %v, want %v", name, err, want)
		}
	}
}

// TestTableOfEachOrder checks that the fault slow-db is refused if each order has a table of its own, and that the message
// names another fault.
func TestTableOfEachOrder(t *testing.T) {
	for name, says := range map[catalog.Fault]string{catalog.SlowDB: "use partition-db", catalog.PartitionDB: ""} {
		f, err := fault.Find(name)
		if err != nil {
			t.Fatal(err)
		}
		calls := trailOf([]control.Call{{Phase: "mysql SELECT orders", N: 1, Target: tap.DB}, {Phase: "mysql INSERT wins_*", N: 1, Target: tap.DB}}, "")
		err = (startedService{}).choosePoints(&injection{w: &worker{fleet: &fleet.Fleet{}}, fault: f, trail: calls})
		if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v; want …%s…", name, err, says)
		}
	}
}

// TestSlowDBReachesNoOpenTransaction checks that the fault slow-db does not strike while a transaction
// of the grab uses the table. The transaction may have written to the table or, in MySQL, may have read
// it for an update. The fault could then not lock the table.
func TestSlowDBReachesNoOpenTransaction(t *testing.T) {
	f, err := fault.Find(catalog.SlowDB)
	if err != nil {
		t.Fatal(err)
	}
	for server, want := range map[string]string{
		"mysql":    "before mysql BEGIN 1, after mysql BEGIN 1, before mysql SELECT wins FOR UPDATE 1, after mysql COMMIT 1",
		"postgres": "before postgres BEGIN 1, after postgres BEGIN 1, before postgres SELECT wins FOR UPDATE 1, after postgres SELECT wins FOR UPDATE 1, before postgres INSERT wins 1, after postgres COMMIT 1",
	} {
		var calls []control.Call
		for _, statement := range []string{"BEGIN", "SELECT wins FOR UPDATE", "INSERT wins", "COMMIT"} {
			calls = append(calls, control.Call{Phase: tap.Phase(server + " " + statement), N: 1, Target: tap.DB})
		}
		points := slices.DeleteFunc(trailOf(calls, "").points(), func(p fault.Point) bool { return !f.Reaches(p) })
		if got := names(points); got != want {
			t.Errorf("points on %s: %s, want %s", server, got, want)
		}
	}
}

// TestLockedTable checks that slow-db locks a table that exists, even if the write names only a
// stored function, a procedure or a prepared statement.
func TestLockedTable(t *testing.T) {
	for _, tt := range []struct{ query, write, want string }{
		{"SELECT order_id, driver_id FROM shop.wins WHERE order_id BETWEEN ? AND ?", "EXECUTE insert_win", "wins"},
		{"SELECT order_id, driver_id FROM wins WHERE order_id BETWEEN ? AND ?", wire.DoBlock, "wins"},
		{"SELECT order_id, driver_id FROM wins WHERE order_id BETWEEN ? AND ?", "SELECT GRAB()", "wins"},
		{"SELECT id, driver_id FROM v_orders WHERE id BETWEEN ? AND ?", "UPDATE orders", "orders"},
		{"SELECT id, driver_id FROM orders WHERE id BETWEEN ? AND ?", "UPDATE orders + INSERT audit", "orders"},
		{"SELECT order_id, driver_id FROM shop.Wins WHERE order_id BETWEEN ? AND ?", "INSERT wins + INSERT audit", "wins"},
		{"", "CALL grab", ""},
		{"SELECT o.id, w.driver_id FROM orders o JOIN wins w ON w.order_id = o.id WHERE o.id BETWEEN ? AND ?", "UPDATE orders + INSERT wins", "wins"},
		{"SELECT o.id, w.driver_id FROM orders o JOIN wins w ON w.order_id = o.id WHERE o.id BETWEEN ? AND ?", "UPDATE orders + INSERT audit", "orders"},
		{"SELECT o.id, w.driver_id FROM orders o JOIN wins w ON w.order_id = o.id WHERE o.id BETWEEN ? AND ?", "UPDATE wins + UPDATE orders", "wins"},
	} {
		calls := []control.Call{{Phase: "postgres SELECT orders", N: 1, Target: tap.DB}, {Phase: tap.Phase("postgres " + tt.write), N: 1, Target: tap.DB}}
		if got := trailOf(calls, tt.query).lockedTable(tt.query); got != tt.want {
			t.Errorf("%s: lockedTable: %q, want %q", tt.write, got, tt.want)
		}
	}
}

// TestServiceThatOnlyUpdates checks which calls show that a grab only updates a row of the table of
// winners. A second winner would then overwrite the first one.
func TestServiceThatOnlyUpdates(t *testing.T) {
	for statements, want := range map[string]bool{
		"": false, "UPDATE wins": true, "UPDATE Wins": true, "UPDATE orders": false, "SELECT wins": false, "INSERT wins": false,
		"UPDATE orders|UPDATE wins": true, "UPDATE wins|UPDATE orders": true, "UPDATE wins|INSERT wins": false, "INSERT wins|UPDATE wins": false,
		"INSERT log|UPDATE wins": true, "UPDATE wins + INSERT wins": false, "SELECT wins + UPDATE wins": true,
	} {
		var calls []control.Call
		for _, text := range strings.Split(statements, "|") {
			calls = append(calls, control.Call{Phase: tap.Phase("mysql " + text), N: 1, Target: tap.DB}, control.Call{Phase: "redis SET wins", N: 1, Target: "redis"})
		}
		for query, reads := range map[string]bool{
			"SELECT id, driver FROM wins WHERE id IN ({orders})": true, "select id, driver from `shop`.`wins`": true, "": false,
		} {
			got := trailOf(calls, query).onlyUpdates(query)
			if reads && got != want || query == "" && got {
				t.Errorf("%s, ledger %q: %v, want %v", statements, query, got, want)
			}
		}
	}
}

// TestReachableCalls compares the calls that loadgen check lists for each fault with the points
// that the fault reaches.
func TestReachableCalls(t *testing.T) {
	service, err := fleet.ParseService("x {port} {redis}")
	if err != nil {
		t.Fatal(err)
	}
	calls := trailOf([]control.Call{
		{Phase: "redis SET lock:* NX PX", N: 1, Target: "redis"}, {Phase: "mysql SELECT orders", N: 1, Target: tap.DB},
		{Phase: "mysql INSERT wins", N: 1, Target: tap.DB}, {Phase: "redis EVAL lock:*", N: 1, Target: "redis"},
	}, "")
	calls.service.renewal = []control.Call{{Phase: "redis PEXPIRE lock:*", N: 1, Target: "redis"}}
	calls.service.needs = lock.Redis
	s := lock.Strategy{Name: Foreign, Needs: lock.Redis}
	reached := 0
	for _, f := range fault.Faults {
		r := Config{Service: &service, Instances: 2}.reach(CellName{Foreign, f.Name}, s, calls)
		var want Reach
		if r.Why == "" || f.Reach != nil && r.Why == f.Reach.Why {
			for n, c := range append(slices.Clone(calls.calls[fault.Alone]), calls.service.renewal...) {
				for _, p := range calls.points() {
					if p.Phase != c.Phase || !f.Reaches(p) {
						continue
					}
					if p.After {
						want.After = append(want.After, n+1)
					} else {
						want.Before = append(want.Before, n+1)
					}
				}
			}
			reached++
		}
		if !slices.Equal(r.Before, want.Before) || !slices.Equal(r.After, want.After) {
			t.Errorf("%s strikes before %v and after %v, want %v and %v (%s)", f.Name, r.Before, r.After, want.Before, want.After, r.Why)
		}
	}
	if reached < 10 {
		t.Errorf("only %d faults reach a call", reached)
	}
}

// TestPartsByDefinition draws random calls of a request, and compares the parts that trailOf infers
// with their definitions. The claim is the first write of the transaction that writes the winner last.
// If there is no transaction, several writes in a row may end with that write, and the claim is the
// first of them. Calls that wait for the next job do not belong to a request that has written. The
// release point is the first call of the release phase with a key that the request used before its
// claim. If there is no such call, it is the first call of that phase.
func TestPartsByDefinition(t *testing.T) {
	t.Parallel()
	names := []tap.Phase{
		"mysql BEGIN", "mysql COMMIT", "mysql ROLLBACK", "mysql UPDATE orders", "mysql INSERT wins", "mysql SELECT orders",
		"redis SET lock:*", "redis DEL lock:*", "redis BLPOP jobs",
	}
	r := rand.New(rand.NewPCG(12, 21))
	for range 3000 {
		var calls []control.Call
		for i := range r.IntN(8) {
			c := control.Call{Phase: names[r.IntN(len(names))], N: i + 1, Target: "redis"}
			if strings.HasPrefix(string(c.Phase), "mysql ") {
				c.Target = tap.DB
			}
			calls = append(calls, c)
		}
		is := func(i int, of ...tap.Phase) bool { return slices.Contains(of, calls[i].Phase) }
		writesAt := func(i int) bool { return is(i, "mysql UPDATE orders", "mysql INSERT wins") }
		last, committed := -1, false // the last write to the ledger, which is the table of the last INSERT
		ledger := tap.Phase("mysql UPDATE orders")
		for i := range calls {
			if is(i, "mysql INSERT wins") {
				ledger = "mysql INSERT wins"
			}
		}
		for i := range calls {
			if is(i, ledger) {
				last, committed = i, false
			}
			committed = committed || is(i, "mysql COMMIT")
		}
		claim := last
		if claim >= 0 {
			first := last
			for first > 0 && (committed && !is(first, "mysql BEGIN") && !is(first-1, "mysql COMMIT", "mysql ROLLBACK") || !committed && writesAt(first-1)) {
				first--
			}
			for claim = first; !writesAt(claim); claim++ {
			}
		}
		if got := claimOf(calls, ledgerOf(calls, "")); got != claim {
			t.Fatalf("%s: the claim is call %d, want %d", callNames(calls), got, claim)
		}
		own := []control.Call{}
		for i, c := range calls {
			if claim < 0 || i < claim || !is(i, "redis BLPOP jobs") {
				own = append(own, c)
			}
		}
		got := trailOf(calls, "")
		if !slices.Equal(got.calls[fault.Alone], own) {
			t.Fatalf("%s: the request has %s, want %s", callNames(calls), callNames(got.calls[fault.Alone]), callNames(own))
		}
		release := slices.Index(got.service.parts, tap.Release)
		key := func(c control.Call) string { return strings.Fields(string(c.Phase))[2] }
		for i := len(own) - 1; i > claim && claim >= 0; i-- { // find the first call after the claim that uses a key from before the claim
			if got.service.parts[i] != tap.Release || own[i].Target != "redis" {
				continue
			}
			if slices.ContainsFunc(own[:claim], func(c control.Call) bool { return c.Target == "redis" && key(c) == key(own[i]) }) {
				release = i
			}
		}
		if (got.release != nil) != (release >= 0) || release >= 0 && got.release.N != own[release].N {
			t.Fatalf("%s: parts %v, released at %+v", callNames(own), got.service.parts, got.release)
		}
	}
}

// TestPointsOfALockingRead lists the points of a read that also acquires the lock. The driver has no lock before the read,
// and does its work after it.
func TestPointsOfALockingRead(t *testing.T) {
	for read, before := range map[tap.Phase]tap.Phase{"mysql SELECT orders": fault.Work, "mysql SELECT orders" + wire.ForUpdate: tap.Acquire} {
		var got []tap.Phase
		for _, p := range trailOf([]control.Call{{Phase: read, N: 1, Target: tap.DB}, {Phase: "mysql INSERT wins", N: 1, Target: tap.DB}}, "").points() {
			got = append(got, p.Part)
		}
		if want := []tap.Phase{before, fault.Work, tap.Claim, tap.Claim}; !slices.Equal(got, want) {
			t.Errorf("%s: parts %v, want %v", read, got, want)
		}
	}
}

// TestWriteVerbs checks which statements may change a table, alone and after a read.
func TestWriteVerbs(t *testing.T) {
	for verb, want := range map[string]bool{
		"INSERT": true, "UPDATE": true, "DELETE": true, "REPLACE": true, "CALL": true, "EXECUTE": true, "LOAD": true,
		"SELECT": false, "SET": false, "BEGIN": false, "COMMIT": false, "ROLLBACK": false, "INSERTED": false,
	} {
		for _, name := range []string{verb + " wins", "SELECT orders" + wire.Joint + verb + " wins"} {
			c := control.Call{Phase: tap.Phase("mysql " + name), Target: tap.DB}
			if writes(c) != want || writesTo(c, []string{"wins"}) != want || writesTo(c, []string{"orders"}) {
				t.Errorf("%s: writes returned %v, or writesTo does not agree", name, writes(c))
			}
			c.Target = "redis"
			if writes(c) {
				t.Errorf("%s writes to the database from Redis", name)
			}
		}
	}
}

// TestReadingCalls checks which calls read a table. A SELECT does, even if it also locks rows. A
// function that acquires or releases a lock does not, and neither does a call that also writes.
func TestReadingCalls(t *testing.T) {
	for name, want := range map[string]bool{
		"SELECT orders": true, "SELECT orders" + wire.ForUpdate: true, "SELECT GET_LOCK" + wire.Joint + "SELECT orders": true, "BEGIN" + wire.Joint + "SELECT orders" + wire.ForUpdate: true,
		"SELECT GET_LOCK": false, "SELECT RELEASE_LOCK": false, "SELECT pg_try_advisory_xact_lock": false, "SELECT pg_advisory_unlock": false,
		"SELECT orders" + wire.Joint + "INSERT wins": false, "INSERT orders" + wire.ForUpdate: false, "UPDATE orders": false, "BEGIN": false, "SELECT": false, "": false,
	} {
		c := control.Call{Phase: tap.Phase("mysql " + name), Target: tap.DB}
		if got := reads(c); got != want {
			t.Errorf("%s: reads returned %v", name, got)
		}
		if c.Target = "redis"; reads(c) {
			t.Errorf("%s reads a table in Redis", name)
		}
	}
}
