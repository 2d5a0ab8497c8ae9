package experiment

import (
	"database/sql"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab"
	"grablab/internal/history"
	"grablab/internal/testbed/target"

	_ "github.com/glebarez/go-sqlite" // registers the SQL driver
)

// shop is a small service under test, with a ledger in SQLite. If all its fields are zero, it is
// correct: the first driver gets the order. The fields add faults and delays.
type shop struct {
	racy    bool          // whether it reads and writes without a lock
	work    time.Duration // time between read and write
	capable chan struct{} // its capacity limits the concurrent grabs; nil means no limit
	each    time.Duration // additional duration of every grab
	used    func(order int64) bool
	before  func(w http.ResponseWriter, order, driver int64) (answered bool)
	answer  func(w http.ResponseWriter, won bool)
	repeats bool          // whether it tells a winner again that it has won
	late    time.Duration // delay after which a win appears in the ledger
	last    bool          // whether the ledger keeps only the last winner
	loses   bool          // whether the ledger keeps no winner

	db  *sql.DB
	mu  sync.Mutex
	won map[int64]int64 // winner of each order
}

// open creates the ledger of the shop and returns its DSN.
func (s *shop) open(t *testing.T) (dsn string) {
	s.db, dsn = createWins(t)
	if s.won == nil {
		s.won = map[int64]int64{}
	}
	return dsn
}

// createWins creates a SQLite database with an empty table wins, the ledger of a service under
// test. The database is removed when the test ends.
func createWins(t *testing.T) (db *sql.DB, dsn string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "wins.db")
	db, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_pragma=synchronous(0)")
	if err == nil {
		t.Cleanup(func() { db.Close() })
		db.SetMaxOpenConns(1)
		_, err = db.Exec("CREATE TABLE wins (order_id BIGINT, driver_id BIGINT)")
	}
	if err != nil {
		t.Fatal(err)
	}
	return db, "sqlite:" + path
}

func (s *shop) taken(order int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.won[order] > 0 || s.used != nil && s.used(order)
}

func (s *shop) has(order int64) (driver int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.won[order]
}

func (s *shop) write(order, driver int64) {
	s.mu.Lock()
	s.won[order] = driver
	s.mu.Unlock()
	if s.loses {
		return
	}
	insert := func() {
		if s.last {
			_, _ = s.db.Exec("DELETE FROM wins WHERE order_id = ?", order)
		}
		_, _ = s.db.Exec("INSERT INTO wins VALUES (?, ?)", order, driver)
	}
	if s.late > 0 {
		time.AfterFunc(s.late, insert)
	} else {
		insert()
	}
}

var pathOfGrab = regexp.MustCompile(`^(?:/shop)?/(?:api/)?orders/(\d+)/grab$`)
var driverOfGrab = regexp.MustCompile(`"driver_?[iI]d":(\d+)`)

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m := pathOfGrab.FindStringSubmatch(r.URL.Path)
	if m == nil {
		http.NotFound(w, r)
		return
	}
	body := make([]byte, 100)
	n, _ := r.Body.Read(body)
	order, _ := strconv.ParseInt(m[1], 10, 64)
	driver, _ := strconv.ParseInt(driverOfGrab.FindStringSubmatch(string(body[:n]))[1], 10, 64)
	if s.before != nil && s.before(w, order, driver) {
		return
	}
	if s.capable != nil {
		s.capable <- struct{}{}
		defer func() { <-s.capable }()
	}
	time.Sleep(s.each)
	won := s.grab(order, driver) || s.repeats && s.has(order) == driver
	switch {
	case s.answer != nil:
		s.answer(w, won)
	case !won:
		w.WriteHeader(http.StatusConflict)
	}
}

var shopLock sync.Mutex

func (s *shop) grab(order, driver int64) bool {
	if !s.racy {
		shopLock.Lock()
		defer shopLock.Unlock()
	}
	if s.taken(order) {
		return false
	}
	time.Sleep(s.work)
	s.write(order, driver)
	return true
}

func words(w http.ResponseWriter, won bool) {
	fmt.Fprint(w, map[bool]string{true: "you have won", false: "you have lost"}[won])
}

func xml(w http.ResponseWriter, won bool) { fmt.Fprintf(w, "<answer><won>%v</won></answer>", won) }

func coded(w http.ResponseWriter, won bool) {
	code := map[bool]int{true: 0, false: 1}[won]
	fmt.Fprintf(w, `{"code":%d,"msg":"said"}`, code)
}

// padded sends a response in which the decisive field comes after more text than the program reads.
func padded(w http.ResponseWriter, won bool) {
	code := map[bool]int{true: 0, false: 1}[won]
	fmt.Fprintf(w, `{"text":%q,"code":%d}`, strings.Repeat("x", target.MaxBody), code)
}

func paddedStatus(w http.ResponseWriter, won bool) {
	if !won {
		w.WriteHeader(http.StatusConflict)
	}
	fmt.Fprint(w, strings.Repeat("x", 2*target.MaxBody))
}

func failsBehindItsWrite(w http.ResponseWriter, won bool) {
	w.WriteHeader(map[bool]int{true: http.StatusInternalServerError, false: http.StatusConflict}[won])
}

func resetsBehindItsWrite(w http.ResponseWriter, won bool) {
	if won {
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(http.StatusConflict)
}

// forgets makes a shop forget the winner of an order when a probe asks for the order.
func forgets(s *shop) *shop {
	s.before = func(_ http.ResponseWriter, order, driver int64) bool {
		if driver >= history.ProbeDriver {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.won, order)
		}
		return false
	}
	return s
}

// forgetsLater returns a shop that forgets a winner some time after the order's first grab. A shop
// behaves like this if its only protection is a key with a TTL.
func forgetsLater(after time.Duration) *shop {
	s, began := &shop{}, map[int64]time.Time{}
	s.before = func(_ http.ResponseWriter, order, _ int64) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		if began[order].IsZero() {
			began[order] = time.Now()
		}
		if time.Since(began[order]) > after {
			delete(s.won, order)
		}
		return false
	}
	return s
}

// reserves returns a shop in which the first driver of the given order fails, but reserves it for
// some time.
func reserves(order int64, long time.Duration) *shop {
	var mu sync.Mutex
	var until time.Time
	return &shop{before: func(w http.ResponseWriter, o, _ int64) bool {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case o != order || !until.IsZero() && time.Now().After(until):
			return false
		case until.IsZero():
			until = time.Now().Add(long)
			w.WriteHeader(http.StatusInternalServerError)
		default:
			w.WriteHeader(http.StatusConflict)
		}
		return true
	}}
}

// knows makes a shop refuse all drivers whose ID is above 600, because it does not know them.
func knows(s *shop) *shop {
	s.before = func(w http.ResponseWriter, _, driver int64) bool {
		known := driver <= 600
		if !known {
			w.WriteHeader(http.StatusNotFound)
		}
		return !known
	}
	return s
}

const wins = "SELECT order_id, driver_id FROM wins WHERE order_id BETWEEN ? AND ?"

// TestServicesOfOthers checks the verdicts on correct and faulty services. A service must be called
// safe only if it is correct and the evidence is sufficient. Otherwise, the reason must say what is
// wrong or unknown.
func TestServicesOfOthers(t *testing.T) {
	t.Parallel()
	rules := target.Spec{Grabbed: "json:.code==0", Taken: "json:.code==1"}
	for _, tc := range []struct {
		name    string
		shop    *shop
		spec    target.Spec
		ledger  string // the ledger query; empty if there is no ledger
		change  func(*Config)
		verdict catalog.Verdict
		reasons []string
	}{
		{"right", &shop{}, target.Spec{}, "", nil, catalog.Safe, nil},
		{"right, by the ledger", &shop{}, target.Spec{}, wins, nil, catalog.Safe, nil},
		{"right, and writes late", &shop{late: 700 * time.Millisecond}, target.Spec{}, wins, nil, catalog.Safe, nil},
		{"right, of another shape", &shop{answer: coded}, target.Spec{Path: "/api/orders/{order}/grab", Body: new(`{"driverId":{driver}}`), Grabbed: rules.Grabbed, Taken: rules.Taken}, "", nil, catalog.Safe, nil},
		{"right, and slow by nature", &shop{each: 300 * time.Millisecond}, target.Spec{}, "", func(c *Config) { c.Rate, c.Together = 1000, true }, catalog.Safe, nil},
		{"no lock", &shop{racy: true, work: 100 * time.Millisecond}, target.Spec{}, "", nil, catalog.Unsafe, []string{"grabbed more than once"}},
		{"no lock, by the ledger", &shop{racy: true, work: 100 * time.Millisecond}, target.Spec{}, wins, nil, catalog.Unsafe, []string{"grabbed more than once"}},

		{"forgets its winners", forgets(&shop{}), target.Spec{}, "", nil, catalog.Unsafe, []string{"5 of 5 orders were grabbed more than once", "for 5 of them, a new driver still won after all others had their responses"}},
		{"forgets its winners, by the ledger", forgets(&shop{late: 200 * time.Millisecond}), target.Spec{}, wins, nil, catalog.Unsafe, []string{"5 of 5 orders were grabbed more than once, for example order 101; for 5 of them, a new driver"}},
		{"forgets its winners, by a ledger of the last writer", forgets(&shop{last: true}), target.Spec{}, wins, nil, catalog.Unsafe, []string{"5 of 5 orders were grabbed more than once"}},
		{"forgets its winners, by a ledger that has not all", forgets(&shop{loses: true}), target.Spec{}, wins, nil, catalog.Unsafe, []string{"according to the responses"}},
		{"forgets its winners, which are told an error", forgets(&shop{answer: failsBehindItsWrite}), target.Spec{}, wins, nil, catalog.Unsafe, []string{"5 of 5 orders were grabbed more than once"}},

		{"forgets its winners when a key expires, by the ledger", forgetsLater(450 * time.Millisecond), target.Spec{}, wins, nil, catalog.Unsafe, []string{"grabbed more than once", "a new driver still won after all others had their responses"}},

		{"fails behind its write", &shop{answer: failsBehindItsWrite}, target.Spec{}, "", nil, catalog.Unknown, []string{"5 answers may hide a grab: http 500 5", "-ledger-query"}},
		{"fails behind its write, no lock", &shop{racy: true, work: 100 * time.Millisecond, answer: failsBehindItsWrite}, target.Spec{}, "", nil, catalog.Unknown, []string{"may hide a grab: http 500"}},
		{"fails behind its write, no lock, by the ledger", &shop{racy: true, work: 100 * time.Millisecond, answer: failsBehindItsWrite}, target.Spec{}, wins, nil, catalog.Unsafe, []string{"grabbed more than once"}},
		{"fails, and writes late, no lock", &shop{racy: true, work: 100 * time.Millisecond, late: 200 * time.Millisecond, answer: failsBehindItsWrite}, target.Spec{}, wins, nil, catalog.Unsafe, []string{"grabbed more than once"}},
		{"fails behind its write, by the ledger", &shop{answer: failsBehindItsWrite}, target.Spec{}, wins, nil, catalog.Safe, nil},
		{"breaks off behind its write", &shop{answer: resetsBehindItsWrite}, target.Spec{}, "", nil, catalog.Unknown, []string{"may hide a grab: reset"}},
		{"breaks off behind its write, by the ledger", &shop{answer: resetsBehindItsWrite}, target.Spec{}, wins, nil, catalog.Unknown, []string{"5 requests were not answered", "-timeout"}},
		{"some fail behind their write", &shop{racy: true, work: 100 * time.Millisecond, answer: func() func(http.ResponseWriter, bool) {
			var mu sync.Mutex
			n := 0
			return func(w http.ResponseWriter, won bool) {
				mu.Lock()
				defer mu.Unlock()
				if n++; won && n%3 == 0 {
					w.WriteHeader(http.StatusBadGateway)
				} else if !won {
					w.WriteHeader(http.StatusConflict)
				}
			}
		}()}, target.Spec{}, "", nil, catalog.Unsafe, []string{"grabbed more than once, for example order 10", "answers may hide more of them"}},
		{"says taken to the winner", &shop{answer: func(w http.ResponseWriter, _ bool) { w.WriteHeader(http.StatusConflict) }}, target.Spec{}, "", nil, catalog.Unknown, []string{"is not open"}},

		{"orders that were used before", &shop{used: func(int64) bool { return true }}, target.Spec{}, "", nil, catalog.Unknown, []string{"is not open", "used before", "-first-order"}},
		{"orders that were used before, of another shape", &shop{used: func(int64) bool { return true }, answer: coded}, rules, "", nil, catalog.Unknown, []string{"is not open"}},
		{"some orders were used before", &shop{used: func(o int64) bool { return o == 103 }}, target.Spec{}, "", func(c *Config) { c.Rate, c.Together = 200, true }, catalog.Unknown, []string{"1 of 5 orders was reported as taken, but no driver was told that it had won"}},
		{"some orders were used before, by the ledger", &shop{used: func(o int64) bool { return o == 103 }}, target.Spec{}, wins, func(c *Config) { c.Rate, c.Together, c.TTL = 200, true, time.Second }, catalog.Stuck, []string{"1 of 5 orders can no longer be grabbed", "the ledger names no winner"}},
		{"reserves an order for a driver who fails", reserves(103, 700*time.Millisecond), target.Spec{}, wins, func(c *Config) { c.TTL = time.Second }, catalog.Unknown, []string{"1 of 5 orders was reported as taken, but no driver was told that it had won"}},
		{"reserves an order for a driver who fails, permanently", reserves(103, time.Hour), target.Spec{}, wins, func(c *Config) { c.TTL = time.Second }, catalog.Stuck, []string{"the ledger names no winner"}},
		{"orders that were used before, and winners that are told again", func() *shop {
			s := &shop{repeats: true, won: map[int64]int64{}}
			for id := int64(101); id < 106; id++ {
				s.won[id] = id % 7
			}
			return s
		}(), target.Spec{}, "", nil, catalog.Unknown, []string{"asked again", "-open-orders"}},
		{"fresh orders, and winners that are told again, by the ledger", &shop{repeats: true}, target.Spec{}, wins, nil, catalog.Safe, nil},
		{"the ledger has rows before", &shop{}, target.Spec{}, wins, func(c *Config) { c.Target.FirstOrder = 99 }, catalog.Unknown, []string{"the ledger has 1 row for orders 99 to 103 before the load"}},
		{"there are no such orders", &shop{before: func(w http.ResponseWriter, _, _ int64) bool {
			w.WriteHeader(404)
			fmt.Fprint(w, "no such order")
			return true
		}}, target.Spec{}, "", nil, catalog.Unknown, []string{"the responses are http 404", "(no such order)", "-path"}},

		{"serves a tenth of the load", &shop{racy: true, each: 10 * time.Millisecond, capable: make(chan struct{}, 1)}, target.Spec{}, "", func(c *Config) { c.Orders, c.Rate, c.Together = 20, 1000, true }, catalog.Unknown, []string{"half of the requests were served only after", "were due within", "-warmup"}},
		{"serves a tenth of the load, and opens more orders", &shop{each: 10 * time.Millisecond, capable: make(chan struct{}, 1)}, target.Spec{}, wins, func(c *Config) {
			c.Rate, c.Together = 1000, true
			_, c.Target.Open, _ = target.Spec{OpenOrders: []string{"sql: DELETE FROM wins WHERE order_id BETWEEN {first} AND {last}"}}.Compile()
		}, catalog.Safe, nil},
		{"sheds nine tenths of the load", &shop{before: func(w http.ResponseWriter, _, driver int64) bool {
			if driver < 1e9 && driver%10 != 0 {
				w.WriteHeader(http.StatusTooManyRequests)
				return true
			}
			return false
		}}, target.Spec{}, "", nil, catalog.Unknown, []string{"served 10 of 100 requests"}},
		{"sheds nine tenths of the load, by the ledger", &shop{before: func(w http.ResponseWriter, _, driver int64) bool {
			if driver < 1e9 && driver%10 != 0 {
				w.WriteHeader(http.StatusServiceUnavailable)
				return true
			}
			return false
		}}, target.Spec{}, wins, nil, catalog.Unknown, []string{"served 10 of 100 requests"}},

		{"200 to everything", &shop{answer: coded}, target.Spec{}, "", nil, catalog.Unknown, []string{"every response was 200", "-grabbed 'json:.code==0'"}},
		{"200 to everything, and the user says that it means a win", &shop{answer: coded}, target.Spec{Grabbed: "200"}, "", nil, catalog.Unsafe, []string{"grabbed more than once"}},
		{"200 to everything, in words", &shop{answer: words}, target.Spec{}, "", nil, catalog.Unknown, []string{"every response was 200"}},
		{"200 to everything, in XML", &shop{answer: xml}, target.Spec{}, "", nil, catalog.Unknown, []string{"every response was 200"}},
		{"200 to everything, in words, by the ledger", &shop{answer: words}, target.Spec{}, wins, nil, catalog.Unknown, []string{"every response was 200"}},
		{"200 to everything, in words, and a race by the ledger", &shop{racy: true, work: 100 * time.Millisecond, answer: words}, target.Spec{}, wins, nil, catalog.Unsafe, []string{"grabbed more than once"}},
		{"words where a field is wanted", &shop{answer: words}, rules, "", nil, catalog.Unknown, []string{"http 200", "you have"}},
		{"XML where a field is wanted", &shop{answer: xml}, rules, "", nil, catalog.Unknown, []string{"http 200", "<won>"}},
		{"words where a field is wanted, by the ledger", &shop{answer: words}, rules, wins, nil, catalog.Unknown, []string{"HTTP 200", "you have lost"}},
		{"200 to everything, and half of the rules", &shop{answer: coded}, target.Spec{Grabbed: rules.Grabbed}, "", nil, catalog.Unknown, []string{"95 answers may hide a grab: http 200 95", `{"code":1,"msg":"said"}`, "-taken"}},
		{"200 to everything, and rules that clash", &shop{answer: coded}, target.Spec{Taken: rules.Taken}, "", nil, catalog.Unknown, []string{"both grabbed and taken"}},
		{"a field behind more text than is read", &shop{answer: padded}, rules, "", nil, catalog.Unknown, []string{"http 200 with a body cut at 16 KiB", "…"}},
		{"a long text that no rule reads", &shop{answer: paddedStatus}, target.Spec{}, "", nil, catalog.Safe, nil},
		{"knows its drivers", knows(&shop{}), target.Spec{}, "", nil, catalog.Unknown, []string{"by driver 10000000", "-probe-drivers"}},
		{"knows its drivers, and the user names some", knows(&shop{}), target.Spec{}, wins, func(c *Config) { c.Target.ProbeDrivers = 501 }, catalog.Safe, nil},
		{"202 to everything", &shop{answer: func(w http.ResponseWriter, _ bool) { w.WriteHeader(http.StatusAccepted) }}, target.Spec{}, "", nil, catalog.Unknown, []string{"100 answers may hide a grab: http 202"}},

		{"a ledger of the last writer", &shop{racy: true, work: 100 * time.Millisecond, last: true}, target.Spec{}, wins, nil, catalog.Unsafe, []string{"according to the responses: more drivers were told that they had won than the ledger names", "keep only one of them"}},
		{"a ledger that has not all", &shop{loses: true}, target.Spec{}, wins, nil, catalog.Unknown, []string{"5 grabs were promised that the ledger does not have"}},
		{"a ledger that fails", &shop{}, target.Spec{}, "SELECT order_id, driver_id / 0, FROM wins WHERE order_id BETWEEN ? AND ?", nil, "", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			cfg := Scenarios[0].Config
			cfg.Scenario, cfg.Seed, cfg.Out, cfg.OnLost = "rush", 1, t.TempDir(), grab.Abort
			cfg.Orders, cfg.Rate, cfg.Timeout = 5, 0, 10*time.Second
			cfg.Log, cfg.Settle = t.Output(), 500*time.Millisecond
			dsn := tc.shop.open(t)
			tc.shop.write(99, 1)
			if tc.ledger != "" {
				cfg.Target.Database = target.Database{DSN: dsn, Query: tc.ledger}
			}
			cfg.Target.FirstOrder = 101
			for range 2 {
				s := httptest.NewServer(tc.shop)
				t.Cleanup(s.Close)
				cfg.Target.URLs = append(cfg.Target.URLs, s.URL+"/shop")
			}
			var err error
			if cfg.Target.Shape, _, err = tc.spec.Compile(); err != nil {
				t.Fatal(err)
			}
			if tc.change != nil {
				tc.change(&cfg)
			}
			run, err := execute(t, t.Context(), cfg)
			if tc.verdict == "" {
				if err == nil || !strings.Contains(err.Error(), "the query failed") {
					t.Errorf("got error %v, want one that says that the query failed", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			c := run.Cells[0]
			if c.Verdict != tc.verdict {
				t.Errorf("verdict %s: %q; want %s", c.Verdict, c.Reason, tc.verdict)
			}
			if strings.Contains(c.Reason, "every response was 200") && (c.Outcomes[grab.Grabbed] > 0 || value(c.PhantomGrabs) > 0) {
				t.Errorf("responses without information count as wins: %v, phantom grabs %d", c.Outcomes, value(c.PhantomGrabs))
			}
			for _, want := range tc.reasons {
				if !strings.Contains(c.Reason, want) {
					t.Errorf("the reason %q does not contain %q", c.Reason, want)
				}
			}
			if err := run.Contradiction(); err != nil {
				t.Error(err)
			}
			if c.RedisCommands != nil || c.DBStatementsPerRequest != nil || c.Overlaps != nil || c.WorkMS != nil || (tc.ledger == "") != (c.Grabs == nil) && c.CountedFrom == fromLedger {
				t.Errorf("the cell has figures that cannot be counted for this service: %+v", c)
			}
			t.Log(c.Reason)
		})
	}
}

// TestWarmup checks that warm-up requests use different orders from the load, and count in no
// figure.
func TestWarmup(t *testing.T) {
	var mu sync.Mutex
	seen := map[int64]int{}
	s := &shop{before: func(_ http.ResponseWriter, order, driver int64) bool {
		mu.Lock()
		defer mu.Unlock()
		if driver < 1e9 {
			seen[order]++
		}
		return false
	}}
	cfg := small(t, "")
	cfg.Target.Database = target.Database{DSN: s.open(t), Query: wins}
	cfg.Orders, cfg.Drivers, cfg.Rate, cfg.Together, cfg.Warmup = 4, 6, 500, true, 150*time.Millisecond
	cfg.Target.FirstOrder = 101
	for range 2 {
		server := httptest.NewServer(s)
		t.Cleanup(server.Close)
		cfg.Target.URLs = append(cfg.Target.URLs, server.URL)
	}
	run, err := execute(t, t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	c := run.Cells[0]
	if c.Verdict != catalog.Safe || c.Requests != 24 || *c.Grabs != 4 {
		t.Errorf("%s (%s), %d requests, %d grabs; want safe, 24, 4", c.Verdict, c.Reason, c.Requests, *c.Grabs)
	}
	warm := 0
	for id := int64(101); id <= 108; id++ {
		if id <= 104 {
			warm += seen[id]
		} else if n := seen[id]; n != 6 {
			t.Errorf("order %d got %d requests, want 6", id, n)
		}
	}
	if warm == 0 {
		t.Error("no warm-up request was sent")
	}
}

// TestOpenOrdersBySQL checks that the user's SQL statements open the orders in the user's database
// before each load, and change no other order.
func TestOpenOrdersBySQL(t *testing.T) {
	s := &shop{}
	cfg := small(t, "")
	cfg.Target.Database = target.Database{DSN: s.open(t), Query: wins}
	if _, err := s.db.Exec("INSERT INTO wins VALUES (103, 7), (200, 7)"); err != nil { // simulate rows of an earlier run
		t.Fatal(err)
	}
	cfg.Orders, cfg.Drivers, cfg.Rate, cfg.Target.FirstOrder = 5, 6, 0, 101
	for range 2 {
		server := httptest.NewServer(s)
		t.Cleanup(server.Close)
		cfg.Target.URLs = append(cfg.Target.URLs, server.URL)
	}
	for _, tc := range []struct {
		sql  []string
		want catalog.Verdict
		says string
	}{
		{nil, catalog.Unknown, "the ledger has 1 row"},
		{[]string{"sql: DELETE FROM nosuch"}, catalog.Unknown, "could not open orders"},
		{[]string{"sql: DELETE FROM wins WHERE order_id BETWEEN {first} AND {last}"}, catalog.Safe, ""},
	} {
		var err error
		if _, cfg.Target.Open, err = (target.Spec{OpenOrders: tc.sql}).Compile(); err != nil {
			t.Fatal(err)
		}
		cfg.Out = t.TempDir()
		run, err := execute(t, t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if c := run.Cells[0]; c.Verdict != tc.want || !strings.Contains(c.Reason, tc.says) {
			t.Errorf("verdict with %q: %s (%s), want %s (…%s…)", tc.sql, c.Verdict, c.Reason, tc.want, tc.says)
		}
	}
	var others int
	if err := s.db.QueryRow("SELECT COUNT(*) FROM wins WHERE order_id = 200").Scan(&others); err != nil || others != 1 {
		t.Errorf("another order has %d rows, %v; want its 1 row from before", others, err)
	}
}
