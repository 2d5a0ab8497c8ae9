package fleet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/history"
	"grablab/internal/service/control"
	"grablab/internal/tap"
	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/target"
	"grablab/internal/testbed/wire"
)

func TestParseService(t *testing.T) {
	at := stack.Addresses{DSN: "grablab@tcp(127.0.0.1:3306)/grablab", Redis: "127.0.0.1:6379", Redlock: []string{"a:1", "b:2"}}
	u := Setup{TTL: time.Second, Work: 5 * time.Millisecond}
	for _, tt := range []struct {
		text string
		want string // the variables and then the words, separated by |; or a part of the error
	}{
		{"java -jar app.jar --server.port={port} --redis=redis://{redis}", "java|-jar|app.jar|--server.port=8004|--redis=redis://127.0.0.1:6379"},
		{"PORT={port} NODE_ENV=test node 'my app.js' \"--lease {ttl_ms}\"", "PORT=8004|NODE_ENV=test|node|my app.js|--lease 1000"},
		{`x {port} '' \"a\ b {work_ms}`, `x|8004||"a b|5`},
		{"x {port} {db} {db_host} {db_port} {db_user} '{db_password}' {db_name} {redis_host} {redis_port} {redlock} {instance}", "x|8004|grablab@tcp(127.0.0.1:3306)/grablab|127.0.0.1|3306|grablab||grablab|127.0.0.1|6379|a:1,b:2|8004"},
		{"LEADS={number} x {port}", "LEADS=2|x|8004"},
		{"x {port} {\"json\": 1}", "x|8004|{json:|1}"},
		{"x {redsi} {port}", "there is no placeholder {redsi}; did you mean {redis}?"},
		{"x {what} {port}", "there is no placeholder {what}: use {port}, {instance}, "},
		{"x {port} {redlock_1} redis://{redlock_2}", "x|8004|a:1|redis://b:2"},
		{"x {port} {redlock_6}", "there is no placeholder {redlock_6}; did you mean {redlock_1}?"},
		{"x", "without {port}, all instances would listen on the same port"},
		{"", "must be a command"},
		{"PORT={port}", "must be a command"},
		{"x '{port}", "the quote ' is not closed: add a second '"},
		{`x {port} \`, "the backslash at the end has no effect"},
	} {
		s, err := ParseService(tt.text)
		if err != nil {
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("ParseService(%s): error %v, want %q", tt.text, err, tt.want)
			}
			continue
		}
		exe, args, env, err := s.fill("8004", 2, at, u)
		if got := strings.Join(slices.Concat(env, []string{exe}, args), "|"); got != tt.want || err != nil {
			t.Errorf("ParseService(%s): %s, %v, want %s", tt.text, got, err, tt.want)
		}
	}
}

func TestParseMigration(t *testing.T) {
	for text, want := range map[string]string{
		"service": "", "sql: CREATE TABLE t (id INT)": "", "flyway -url={db_host}:{db_port} migrate": "",
		"sql:": "a statement must follow sql:", "": "must be service, 'sql: STATEMENT', or a command",
		"migrate {port}": "there is no placeholder {port}", "migrate '": "the quote ' is not closed: add a second '",
	} {
		if _, err := ParseMigration(text); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("ParseMigration(%q) = %v, want %q", text, err, want)
		}
	}
}

// TestNoShell checks the hint for a command that contains operators of a shell, such as <.
func TestNoShell(t *testing.T) {
	for text, want := range map[string]string{
		"mysql shop < schema.sql": "so < has no effect: use sh -c", "mysql shop <schema.sql": "<schema.sql", "cat a | mysql shop": "so | has", "sh -c 'mysql shop < schema.sql'": "",
	} {
		m, err := ParseMigration(text)
		if got := m.command.noShell(); err != nil || !strings.Contains(got, want) || (got == "") != (want == "") {
			t.Errorf("%q: noShell: %q, %v, want …%s…", text, got, err, want)
		}
	}
}

// TestCallsOfAGrab checks that a call's name contains a star instead of the order's number. Noise must not
// count as a call of the grab.
func TestCallsOfAGrab(t *testing.T) {
	w := &wires{database: "mysql", naming: newNaming()}
	if _, ok := w.call(wire.Event{Server: "redis", Text: "SET grab:7 NX PX"}); ok {
		t.Error("a request counts as a call although no grab is watched")
	}
	w.watch(7, 3, "7", map[string]string{})
	for _, tt := range []struct{ server, text, want string }{
		{"redis", "SET grab:7 NX PX", "redis SET grab:* NX PX"},
		{"redis", "SET grab:77 NX PX", "redis SET grab:77 NX PX"},
		{"redis", "EVAL c41f0d7 {order}:7", "redis EVALSHA c41f0d7 {order}:*"},
		{"redlock-3", "DEL lock-7", "redlock DEL lock-*"},
		{"redis", "DEL latch:{lock:7}:a3cbed1cb2287b85953403ea77d198a7", "redis DEL latch:{lock:*}:#"},
		{"redis", "SET t-123e4567-e89b-12d3-a456-426614174000", "redis SET t-#"},
		{"db", "UPDATE orders", "mysql UPDATE orders"},
		{"db", "SELECT orders", "mysql SELECT orders"},
		{"redis", "SET order_7 NX PX", "redis SET order_* NX PX"},
		{"redis", "SET x7a NX PX", "redis SET x*a NX PX"},
		{"redis", "GET {7}:77:0007:70:1.7", "redis GET {*}:77:*:70:1.*"},
		{"redis", "GET lock:7:c7d1a7bb-7777-7a77-8b77-00000000007f", "redis GET lock:*:#"},
		{"redis", "EVALSHA 7a7b7c7 decade7", "redis EVALSHA 7a7b7c7 decade*"},
		{"redis", "GET 7deadbeefdeadbeef-7", "redis GET #-*"},
		{"db", "SELECT orders_7", "mysql SELECT orders_*"},
		{"db", "BEGIN + SELECT + UPDATE orders + INSERT wins_7 + COMMIT", "mysql BEGIN + UPDATE orders + INSERT wins_* + COMMIT"},
		{"db", "SET autocommit=0 + SELECT", "mysql SET autocommit=0"}, {"db", "SET autocommit=1 + SELECT", ""},
		{"db", "SELECT", ""}, {"db", "PREPARE SELECT orders", ""},
		{"redis", "HELLO", ""}, {"redis", "SELECT 1", ""}, {"redis", "CLIENT SETINFO", ""},
	} {
		op, ok := w.call(wire.Event{Server: tt.server, Text: tt.text})
		if got := string(op.Phase); got != tt.want || ok != (tt.want != "") {
			t.Errorf("name of the call %s: %q, %v, want %q", tt.text, got, ok, tt.want)
		}
		if ok && (op.Order != 7 || op.Driver != 3 || op.Target != tt.server) {
			t.Errorf("call %s belongs to %+v", tt.text, op)
		}
	}
}

// TestLongOrderIDs checks that an order's ID is recognized even if it looks like a random value.
func TestLongOrderIDs(t *testing.T) {
	for _, id := range []string{"1234567890123456789", "0123456789abcdef0123456789abcdef", "123e4567-e89b-12d3-a456-426614174000"} {
		if got := withoutIDs("SET grab:"+id+" NX", id, nil); got != "SET grab:* NX" {
			t.Errorf("withoutIDs(%s): %q", id, got)
		}
	}
}

// noise lists requests on which no lock and no guard depends.
var noise = []wire.Event{
	{Server: "db", Text: "PING"}, {Server: "db", Text: wire.EmptyStatement}, {Server: "db", Text: "SELECT"}, {Server: "db", Text: "SELECT DUAL"},
	{Server: "db", Text: "SELECT NOW"}, {Server: "db", Text: "SELECT VERSION"}, {Server: "db", Text: "SELECT information_schema"},
	{Server: "db", Text: "SET NAMES utf8mb4"}, {Server: "db", Text: "SET autocommit=1"}, {Server: "db", Text: "SET session transaction isolation"},
	{Server: "db", Text: "SHOW WARNINGS"}, {Server: "db", Text: "SHOW VARIABLES"}, {Server: "db", Text: "USE"}, {Server: "db", Text: "RESET"},
	{Server: "db", Text: "PREPARE UPDATE orders"}, {Server: "db", Text: "CHANGE USER"}, {Server: "db", Text: "EXPLAIN SELECT"},
	{Server: "db", Text: "INSERT metrics"}, {Server: "db", Text: "UPDATE counters"}, {Server: "db", Text: "INSERT request_stats"},
	{Server: "redis", Text: "PING"}, {Server: "redis", Text: "HELLO"}, {Server: "redis", Text: "AUTH"}, {Server: "redis", Text: "CLIENT SETINFO"},
	{Server: "redis", Text: "INFO"}, {Server: "redis", Text: "ECHO"}, {Server: "redis", Text: "CONFIG GET"}, {Server: "redis", Text: "SUBSCRIBE news"},
	{Server: "redis", Text: "INCR metrics:grabs"}, {Server: "redis", Text: "HINCRBY stats"}, {Server: "redis", Text: "INCR counter:requests"},
	{Server: "redis", Text: "INCRBY hits"}, {Server: "redis", Text: "PFADD visits:today"}, {Server: "redis", Text: "XADD telemetry"},
	{Server: "redis", Text: "INCR http_requests_total"}, {Server: "redlock-2", Text: "PING"},
}

// TestNoise checks that noise between the calls of a grab does not change the names of the calls.
func TestNoise(t *testing.T) {
	grab := []wire.Event{
		{Server: "redis", Text: "SET order_61 NX PX"}, {Server: "redis", Text: "INCR fence"}, {Server: "redis", Text: "INCR fence:counter"},
		{Server: "redis", Text: "INCR stock:count"}, {Server: "redis", Text: "INCR orders:count"}, {Server: "redis", Text: "HINCRBY stats:61"}, {Server: "db", Text: "BEGIN"}, {Server: "db", Text: "SELECT orders"},
		{Server: "db", Text: "SELECT GET_LOCK"}, {Server: "db", Text: "UPDATE orders"}, {Server: "db", Text: "INSERT wins"}, {Server: "db", Text: "INSERT grabs"},
		{Server: "db", Text: "CALL grab"}, {Server: "db", Text: "PREPARE TRANSACTION"}, {Server: "db", Text: "XA PREPARE"}, {Server: "db", Text: "COMMIT"}, {Server: "redis", Text: "EVALSHA c41f0d7 order_61"}, {Server: "redis", Text: "PUBLISH unlocked"},
	}
	w := &wires{database: "mysql", naming: newNaming()}
	w.watch(61, 1, "61", map[string]string{})
	calls := func(events []wire.Event) (names []string) {
		for _, e := range events {
			if op, ok := w.call(e); ok {
				names = append(names, string(op.Phase))
			}
		}
		return names
	}
	want := calls(grab)
	if len(want) != len(grab) {
		t.Fatalf("%d of %d requests are calls: %q", len(want), len(grab), want)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		events := slices.Clone(grab)
		for range 1 + rng.IntN(20) {
			events = slices.Insert(events, rng.IntN(len(events)+1), noise[rng.IntN(len(noise))])
		}
		if got := calls(events); !slices.Equal(got, want) {
			t.Fatalf("with %v: %q, want %q", events, got, want)
		}
	}
	for _, e := range noise {
		if got := calls([]wire.Event{e}); got != nil {
			t.Errorf("%s is a call: %q", e.Text, got)
		}
	}
}

// TestSaysTaken checks that saysTaken recognizes the messages of several runtimes for a port that is
// already in use.
func TestSaysTaken(t *testing.T) {
	for log, want := range map[string]bool{
		"OSError: [Errno 98] Address already in use":                           true,
		"java.net.BindException: Address already in use":                       true,
		"Error: listen EADDRINUSE: address already in use 127.0.0.1:8004":      true,
		"redis.exceptions.ConnectionError: Error 111 connecting to 127.0.0.1.": false,
		"": false,
	} {
		if got := saysTaken(log); got != want {
			t.Errorf("saysTaken(%q): %v", log, got)
		}
	}
}

// TestAskingForAResult checks that requests do not count as calls of the watched grab while the instance
// answers a question about a result. A question about that grab must wait until the grab is quiet.
func TestAskingForAResult(t *testing.T) {
	t.Parallel()
	w := &wires{database: "mysql", naming: newNaming()}
	belongs := func() bool {
		_, ok := w.call(wire.Event{Server: "redis", Text: "GET result:7"})
		return ok
	}
	w.watch(7, 3, "7", map[string]string{})
	if !belongs() {
		t.Error("a request before the question does not count as a call")
	}
	came := time.Now()
	answered := w.ask(t.Context(), 7)
	if waited := time.Since(came); waited < quietForAsking || waited >= maxQuiet {
		t.Errorf("the question waited for %v", waited)
	}
	if belongs() {
		t.Error("a request during the question counts as a call")
	}
	if _, ok := w.call(wire.Event{Server: tap.DB, Text: "UPDATE orders"}); !ok {
		t.Error("a write during the question does not count as a call")
	}
	if answered(); !belongs() {
		t.Error("a request after the answer does not count as a call")
	}

	began := time.Now()
	defer w.ask(t.Context(), 8)()
	if time.Since(began) >= quietForAsking {
		t.Error("a question about another grab waited")
	}
	time.Sleep(askFor)
	if !belongs() {
		t.Error("a request long after the question does not count as a call")
	}
}

// TestCallsThatNameTheDriverOrThePort checks that a call has the same name for every driver and instance,
// even if its key contains the driver or the instance's port. Other numbers must stay in the name, unless
// Learn was called for it.
func TestCallsThatNameTheDriverOrThePort(t *testing.T) {
	t.Parallel()
	in := &Instance{fleet: newFleet(""), addr: "127.0.0.1:8004", wires: &wires{database: "mysql", naming: newNaming()}}
	in.fleet.Shape, in.fleet.Instances = target.Plain, []*Instance{in}
	names := func(texts ...string) (names []string) {
		for _, text := range texts {
			op, _ := in.wires.call(wire.Event{Server: "redis", Text: text})
			names = append(names, string(op.Phase))
		}
		return names
	}
	in.Watch(70, 1)
	dry := names(fmt.Sprintf("SET result:70:%d", in.fleet.ProbeDriver(1)), "RPUSH lane-8004", "GET shard:5")
	in.addr = "127.0.0.1:8006"
	in.Watch(71, 5)
	struck := names("SET result:71:5", "RPUSH lane-8006", "GET shard:5")
	if want := []string{"redis SET result:*:{driver}", "redis RPUSH lane-{port}", "redis GET shard:5"}; !slices.Equal(dry, want) || !slices.Equal(struck, want) {
		t.Errorf("%q, then %q; want %q twice", dry, struck, want)
	}
	in.fleet.Proxied().Learn("redis GET shard:{n}")
	dry = append(dry, names("GET shard:6", "EVALSHA a1b2c3d shard:6")...)
	if want := []string{"redis GET shard:{n}", "redis EVALSHA a1b2c3d shard:6"}; !slices.Equal(dry[3:], want) {
		t.Errorf("names of the calls are %q, want %q", dry[3:], want)
	}
	if got := in.NameOfKey("shard:6") + " " + in.NameOfKey("other:6"); got != "shard:{n} other:6" {
		t.Errorf("keys: %s", got)
	}
	in.wires = &wires{database: "mysql", naming: newNaming()} // as in another worker, which has made no dry run
	in.fleet.Proxied().Recognize([]control.Call{{Phase: tap.Phase(dry[0])}, {Phase: tap.Phase(dry[3])}}, nil)
	in.Watch(72, 6)
	if got, want := names("SET result:72:6", "GET shard:7"), []string{dry[0], dry[3]}; !slices.Equal(got, want) {
		t.Errorf("another worker names the calls %q, want %q", got, want)
	}
}

// TestTokensInKeys checks that a call keeps its name if its key contains another random token in each grab. A
// word, another key or another script must still change the name.
func TestTokensInKeys(t *testing.T) {
	t.Parallel()
	const nanoid, ulid, base36, base64 = "V1StGXR8_Z5jdHi6B-myT", "01ARZ3NDEKTSV4RRFFQ69G5FAV", "k3j5h2q9", "9/Xq+3aZ=="
	for _, tt := range []struct{ a, b, want string }{
		{"redis SET lock:*:" + nanoid + " NX PX", "redis SET lock:*:Uakgb_J5m9g-0JDMbcJqL NX PX", "redis SET lock:*:{token} NX PX"},
		{"redis GET sess:" + ulid, "redis GET sess:01ARZ3NDEKTSV4RRFFQ69G5FAW", "redis GET sess:{token}"},
		{"redis DEL lock-*-" + base36, "redis DEL lock-*-k3zzzzz1", "redis DEL lock-*-{token}"},
		{"redis EVALSHA c41f0d7 tries/" + base64 + "/lock:*", "redis EVALSHA c41f0d7 tries/0aB3cd==/lock:*", "redis EVALSHA c41f0d7 tries/{token}==/lock:*"},
		{"redis GET " + nanoid, "redis GET " + ulid, "redis GET {token}"},
		{"redis EVALSHA c41f0d7 lock:*", "redis EVALSHA a1b2c3d lock:*", ""},
		{"redis SET lock:*:" + nanoid + " NX PX", "redis SET lock:*:" + ulid + " XX PX", ""},
		{"redis GET sess:" + ulid, "redis DEL sess:" + nanoid, ""},
		{"redis GET sess:winner", "redis GET sess:loser", ""},
		{"redis EXEC", "redis MULTI", ""},
		{"redis GETDEL res:{port}-2559-8", "redis GETDEL res:{port}-2559-9", "redis GETDEL res:{port}-{n}-{n}"},
		{"redis GET a:1", "redis GET b:1", ""},
	} {
		if got, ok := CommonName(tt.a, tt.b); got != tt.want && ok || ok != (tt.want != "") {
			t.Errorf("%s and %s: %q, %v; want %q", tt.a, tt.b, got, ok, tt.want)
		}
	}

	in := &Instance{fleet: newFleet(""), addr: "127.0.0.1:8004", wires: &wires{database: "mysql", naming: newNaming()}}
	in.fleet.Shape, in.fleet.Instances = target.Plain, []*Instance{in}
	name := func(text string) string {
		op, _ := in.wires.call(wire.Event{Server: "redis", Text: text})
		return string(op.Phase)
	}
	in.Watch(7, 1)
	in.fleet.Proxied().Learn("redis SET lock:*:{token} NX PX")
	for range 2 {
		for text, want := range map[string]string{
			"SET lock:7:" + nanoid + " NX PX":  "redis SET lock:*:{token} NX PX",
			"SET lock:7:7Ab_7-x NX PX":         "redis SET lock:*:{token} NX PX",
			"SET lock:7:winner NX PX":          "redis SET lock:*:winner NX PX",
			"SET lock:7:a:b1Cd2 NX PX":         "redis SET lock:*:a:b1Cd2 NX PX",
			"PEXPIRE lock:7:" + base36:         "redis PEXPIRE lock:*:{token}",
			"EVALSHA a1b2c3d lock:7:" + base36: "redis EVALSHA a1b2c3d lock:*:{token}",
			"GET seat:7:" + base36:             "redis GET seat:*:" + base36,
		} {
			if got := name(text); got != want {
				t.Errorf("name(%s) = %q, want %q", text, got, want)
			}
		}
		if got := in.NameOfKey("lock:7:"+nanoid) + " " + in.NameOfKey("lock:7:winner"); got != "lock:*:{token} lock:*:winner" {
			t.Errorf("keys: %s", got)
		}
		in.wires.naming.tokened = map[string]*regexp.Regexp{} // as in another worker, which has made no dry run
		in.fleet.Proxied().Recognize([]control.Call{{Phase: "redis SET lock:*:{token} NX PX"}}, nil)
	}
}

// TestIdleStatements checks that known idle statements do not count as a grab in progress. A worker that
// polls the database may send them in a transaction. The end of a transaction must count if it contained
// another statement.
func TestIdleStatements(t *testing.T) {
	t.Parallel()
	w := &wires{database: "mysql", naming: newNaming(), holds: control.NewServer("a", 0, history.Discard)}
	on := func(conn uint64, text string) wire.Event { return wire.Event{Server: "db", Conn: conn, Text: text} }
	send := func(context.Context) error { return nil }
	w.recognize(nil, []control.Call{{Phase: "mysql SELECT jobs", Target: "db"}, {Phase: "mysql COMMIT", Target: "db"}})
	for _, tt := range []struct {
		event  wire.Event
		counts bool
	}{
		{on(1, "SELECT jobs"), false},
		{on(1, "UPDATE orders"), true},
		{on(2, "SELECT jobs"), false},
		{on(2, "COMMIT"), false},
		{on(1, "SELECT jobs"), false},
		{on(1, "COMMIT"), true},
		{on(1, "COMMIT"), false},
		{on(1, "ROLLBACK"), true},
	} {
		w.lastStatement.Store(0)
		if err := w.tap(t.Context(), tt.event, send); err != nil {
			t.Fatal(err)
		}
		if counts := w.lastStatement.Load() > 0; counts != tt.counts {
			t.Errorf("%s counts: %v", tt.event.Text, counts)
		}
	}
}

// TestTransactionsOfATask checks that the transactions of a task that polls the database are no calls of a grab. A
// transaction that also contains a statement of the grab must count from its beginning to its end. SET autocommit=1 is a
// COMMIT if the transaction has written.
func TestTransactionsOfATask(t *testing.T) {
	t.Parallel()
	w := &wires{database: "mysql", naming: newNaming(), holds: control.NewServer("a", 0, history.Discard)}
	w.watch(7, 1, "7", map[string]string{})
	w.ignoreBackground([]control.Call{{Phase: "mysql BEGIN", Target: "db"}, {Phase: "mysql SET autocommit=0", Target: "db"}, {Phase: "mysql SELECT jobs", Target: "db"}, {Phase: "mysql DELETE old", Target: "db"}, {Phase: "mysql COMMIT", Target: "db"}})
	in := &Instance{fleet: newFleet(""), wires: w, Client: w.holds.Client()}
	if err := in.SetHold(t.Context(), "all", control.Hold{First: 7, Count: 1, Outcome: control.Delivered}); err != nil {
		t.Fatal(err)
	}
	for _, step := range strings.Fields("1:BEGIN 2:BEGIN 1:SELECT_jobs 1:COMMIT 2:SELECT_jobs 1:BEGIN 1:DELETE_old 1:COMMIT 2:UPDATE_orders 2:INSERT_wins 2:COMMIT 2:BEGIN 2:ROLLBACK 4:BEGIN_+_UPDATE_orders_+_COMMIT 4:SELECT_jobs 4:COMMIT 3:COMMIT 3:UPDATE_orders 3:COMMIT 3:SELECT_jobs 3:COMMIT 5:SET_autocommit=0 5:SELECT_jobs 5:COMMIT 5:SET_autocommit=0 5:UPDATE_orders 5:COMMIT 5:SET_autocommit=1 " +
		"6:SET_autocommit=0 6:UPDATE_orders 6:SET_autocommit=1 6:UPDATE_orders 6:SET_autocommit=1 6:SET_autocommit=0 6:SELECT_jobs 6:SET_autocommit=1 6:SET_autocommit=0 6:INSERT_wins_+_SET_autocommit=1 6:SET_autocommit=1") {
		conn, text, _ := strings.Cut(step, ":")
		e := wire.Event{Server: "db", Conn: uint64(conn[0]), Text: strings.ReplaceAll(text, "_", " ")}
		if err := w.tap(t.Context(), e, func(context.Context) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	held, err := in.Held(t.Context(), "all", 0, 0)
	var got []string
	for _, h := range held {
		got = append(got, fmt.Sprintf("%s %d", h.Phase, h.N))
	}
	want := "mysql SELECT jobs 1, mysql SELECT jobs 2, mysql DELETE old 1, mysql BEGIN 1, mysql UPDATE orders 1, mysql INSERT wins 1, mysql COMMIT 1, mysql ROLLBACK 1, mysql BEGIN + UPDATE orders + COMMIT 1, mysql SELECT jobs 3, mysql UPDATE orders 2, mysql COMMIT 2, mysql SELECT jobs 4, mysql SELECT jobs 5, mysql SET autocommit=0 1, mysql UPDATE orders 3, mysql COMMIT 3, " +
		"mysql SET autocommit=0 2, mysql UPDATE orders 4, mysql COMMIT 4, mysql UPDATE orders 5, mysql SELECT jobs 6, mysql SET autocommit=0 3, mysql INSERT wins + COMMIT 1"
	if names := strings.Join(got, ", "); err != nil || names != want {
		t.Errorf("calls of the grab are %s, %v; want %s", names, err, want)
	}
}

// TestTransactionsDuringAQuestion checks that the beginning and the end of a write's transaction are calls of the grab even
// while the instance looks up a result. Those of a query are none, and do not delay the next question.
func TestTransactionsDuringAQuestion(t *testing.T) {
	t.Parallel()
	w := &wires{database: "mysql", naming: newNaming(), holds: control.NewServer("a", 0, history.Discard)}
	w.watch(7, 1, "7", map[string]string{})
	w.ignoreBackground(nil)
	w.holds.Set("all", control.Hold{First: 7, Count: 1, Outcome: control.Delivered})
	for _, step := range strings.Fields("4:SELECT_orders 1:BEGIN 1:SELECT_orders ? 4:SET_autocommit=0 4:SELECT_wins 4:COMMIT 2:BEGIN 2:SELECT_wins 1:UPDATE_orders 2:COMMIT 1:COMMIT 3:BEGIN 3:SELECT_wins 3:UPDATE_orders 3:COMMIT 3:COMMIT") {
		if step == "?" {
			w.questions, w.lastQuestion = 1, time.Now().Add(time.Hour)
			continue
		}
		conn, text, _ := strings.Cut(step, ":")
		e, before := wire.Event{Server: "db", Conn: uint64(conn[0]), Text: strings.ReplaceAll(text, "_", " ")}, len(w.holds.All()["all"])
		w.lastCall = time.Time{}
		if err := w.tap(t.Context(), e, func(context.Context) error { return nil }); err != nil {
			t.Fatal(err)
		}
		if counts := len(w.holds.All()["all"]) > before; w.lastCall.IsZero() == counts {
			t.Errorf("%s: last call at %v, is a call: %v", step, w.lastCall, counts)
		}
	}
	got := catalog.Join(w.holds.All()["all"], ", ", func(h control.Held) string { return fmt.Sprintf("%s %d", h.Phase, h.N) })
	if want := "mysql SELECT orders 1, mysql BEGIN 1, mysql SELECT orders 2, mysql UPDATE orders 1, mysql COMMIT 1, mysql BEGIN 2, mysql UPDATE orders 2, mysql COMMIT 2"; got != want {
		t.Errorf("%s; want %s", got, want)
	}
}

// TestAwaitGrabGivesUp checks that AwaitGrab returns an error after the given time if the grab never ends.
func TestAwaitGrabGivesUp(t *testing.T) {
	t.Parallel()
	over := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-over }))
	defer server.Close()
	defer close(over)
	in := &Instance{fleet: newFleet(""), URL: server.URL}
	in.fleet.Shape = target.Plain
	began := time.Now()
	if err := in.AwaitGrab(t.Context(), 1, 50*time.Millisecond); err == nil || time.Since(began) > 5*time.Second {
		t.Errorf("AwaitGrab returned %v after %v", err, time.Since(began))
	}
}
