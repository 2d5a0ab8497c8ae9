package experiment

import (
	"crypto/rand"
	"database/sql"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/history"
	"grablab/internal/testbed/target"
)

// winnersOf stores the true winners of a stub service, which its table and its responses may not
// show.
type winnersOf struct {
	mu      sync.Mutex
	rows    map[int64][]int64 // drivers of the rows, by order
	db      *sql.DB
	unknown map[int64]bool // orders that are marked as taken without a winner
}

// free reports whether the order is open.
func (s *winnersOf) free(order int64) bool { return len(s.rows[order]) == 0 && !s.unknown[order] }

// won records a win, and writes the given number of copies of its row to the table.
func (s *winnersOf) won(order, driver int64, copies int) {
	s.rows[order] = append(s.rows[order], driver)
	for range copies {
		_, _ = s.db.Exec("INSERT INTO wins VALUES (?, ?)", order, driver)
	}
}

// doubled reports whether an order has more rows than units.
func (s *winnersOf) doubled(units int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, rows := range s.rows {
		if len(rows) > units {
			return true
		}
	}
	return false
}

// attempt is a grab request to a stub service.
type attempt struct {
	order, driver int64
	instance      int
}

// core decides a grab and returns the status of the response. The caller holds s.mu.
type core func(s *winnersOf, a attempt) int

// answer writes the response to a grab for the status that the core returned.
type answer func(w http.ResponseWriter, r *http.Request, status int)

// The following functions are cores, or return cores.

func correct(s *winnersOf, a attempt) int {
	if !s.free(a.order) {
		return http.StatusConflict
	}
	s.won(a.order, a.driver, 1)
	return http.StatusOK
}

// winnersUpTo makes the first n drivers of each order win.
func winnersUpTo(n int) core {
	return func(s *winnersOf, a attempt) int {
		if len(s.rows[a.order]) >= n {
			return http.StatusConflict
		}
		s.won(a.order, a.driver, 1)
		return http.StatusOK
	}
}

// perInstance makes one driver at each instance win, as with a mutex.
func perInstance() core {
	has := map[string]bool{}
	return func(s *winnersOf, a attempt) int {
		key := fmt.Sprint(a.order, a.instance)
		if has[key] {
			return http.StatusConflict
		}
		has[key] = true
		s.won(a.order, a.driver, 1)
		return http.StatusOK
	}
}

// lateSecond answers the second driver with the given status, but writes a row for it after d.
func lateSecond(status int, d time.Duration) core {
	second := map[int64]bool{}
	return func(s *winnersOf, a attempt) int {
		if s.free(a.order) {
			return correct(s, a)
		}
		if !second[a.order] {
			second[a.order] = true
			time.AfterFunc(d, func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.won(a.order, a.driver, 1)
			})
			return status
		}
		return http.StatusConflict
	}
}

// lateProbe tells a probe that the order is taken, but writes a row for it later.
func lateProbe(s *winnersOf, a attempt) int {
	if a.driver >= history.ProbeDriver {
		time.AfterFunc(300*time.Millisecond, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.won(a.order, a.driver, 1)
		})
		return http.StatusConflict
	}
	return correct(s, a)
}

// neverSettles repeatedly deletes the winner's row and writes it again, until the test closes the
// database.
func neverSettles(s *winnersOf, a attempt) int {
	status := correct(s, a)
	if status != http.StatusOK {
		return status
	}
	var again func()
	again = func() {
		if _, err := s.db.Exec("DELETE FROM wins WHERE order_id = ?", a.order); err != nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
		_, _ = s.db.Exec("INSERT INTO wins VALUES (?, ?)", a.order, a.driver)
		time.AfterFunc(100*time.Millisecond, again)
	}
	time.AfterFunc(100*time.Millisecond, again)
	return status
}

// disappears deletes a winner's row after d.
func disappears(d time.Duration, next core) core {
	return func(s *winnersOf, a attempt) int {
		status := next(s, a)
		if status == http.StatusOK {
			time.AfterFunc(d, func() { _, _ = s.db.Exec("DELETE FROM wins WHERE order_id = ? AND driver_id = ?", a.order, a.driver) })
		}
		return status
	}
}

// twice writes the winner's row twice.
func twice(s *winnersOf, a attempt) int {
	if !s.free(a.order) {
		return http.StatusConflict
	}
	s.won(a.order, a.driver, 2)
	return http.StatusOK
}

// ledgerOfOne makes one driver at each instance win. It writes the rows of the second instance to a
// database that the ledger query does not read.
func ledgerOfOne() core {
	next := perInstance()
	return func(s *winnersOf, a attempt) int {
		if a.instance == 0 {
			return next(s, a)
		}
		db := s.db
		s.db, _ = sql.Open("sqlite", ":memory:")
		defer func() { s.db.Close(); s.db = db }()
		return next(s, a)
	}
}

// withoutRow marks every nth order as taken without writing a row, and answers with the given
// status.
func withoutRow(n int64, status int) core {
	return func(s *winnersOf, a attempt) int {
		if s.free(a.order) && a.order%n == 0 {
			s.unknown[a.order] = true
			return status
		}
		return correct(s, a)
	}
}

// forgetful behaves correctly during the load, but lets a probe win an order that is already taken.
func forgetful(s *winnersOf, a attempt) int {
	if a.driver >= history.ProbeDriver && len(s.rows[a.order]) == 1 {
		s.won(a.order, a.driver, 1)
		return http.StatusOK
	}
	return correct(s, a)
}

// refusesProbes answers every probe with the given status.
func refusesProbes(status int) core {
	return func(s *winnersOf, a attempt) int {
		if a.driver >= history.ProbeDriver {
			return status
		}
		return correct(s, a)
	}
}

// says replaces the status from with the status to in the answers of the core next.
func says(from, to int, next core) core {
	return func(s *winnersOf, a attempt) int {
		if status := next(s, a); status != from {
			return status
		}
		return to
	}
}

// sheds answers drivers whose ID is a multiple of the parameter every with the given status, without
// trying their grabs.
func sheds(every int64, status int, next core) core {
	return func(s *winnersOf, a attempt) int {
		if a.driver < history.ProbeDriver && a.driver%every == 0 {
			return status
		}
		return next(s, a)
	}
}

// busyFirst answers the first n drivers of an order with busy.
func busyFirst(n int, next core) core {
	seen := map[int64]int{}
	return func(s *winnersOf, a attempt) int {
		if seen[a.order]++; seen[a.order] <= n {
			return http.StatusLocked
		}
		return next(s, a)
	}
}

// constant answers every grab with the same status.
func constant(status int) core { return func(*winnersOf, attempt) int { return status } }

// The following functions write responses, or return functions that do.

func plain(w http.ResponseWriter, _ *http.Request, status int) { w.WriteHeader(status) }

// silentFor does not answer requests whose URL contains the given path.
func silentFor(path string) answer {
	return func(w http.ResponseWriter, r *http.Request, status int) {
		if strings.Contains(r.URL.Path, path) {
			<-r.Context().Done()
		}
		w.WriteHeader(status)
	}
}

// always200 answers every grab with 200, and with the text won or lost as the body.
func always200(contentType, won, lost string) answer {
	return func(w http.ResponseWriter, _ *http.Request, status int) {
		w.Header().Set("Content-Type", contentType)
		if status == http.StatusOK {
			_, _ = io.WriteString(w, won)
		} else {
			_, _ = io.WriteString(w, lost)
		}
	}
}

// always200ToDrivers answers refused probes with 409, and all other requests with 200 and a text.
func always200ToDrivers(w http.ResponseWriter, r *http.Request, status int) {
	if status == http.StatusConflict && strings.Contains(r.URL.RawQuery, "wait=0") {
		w.WriteHeader(status)
		return
	}
	_, _ = io.WriteString(w, map[bool]string{true: "won", false: "lost"}[status == http.StatusOK])
}

// sticky sets a cookie that names the instance, as a load balancer with sticky sessions does.
func sticky(w http.ResponseWriter, r *http.Request, status int) {
	http.SetCookie(w, &http.Cookie{Name: "instance", Value: r.Host})
	w.WriteHeader(status)
}

// located redirects winners and losers to different pages.
func located(w http.ResponseWriter, _ *http.Request, status int) {
	w.Header().Set("Location", map[bool]string{true: "/won", false: "/sold"}[status == http.StatusOK])
	w.WriteHeader(http.StatusSeeOther)
}

// withBody answers with the status and the given body. The parameter n of body is the number of the
// response.
func withBody(contentType string, body func(r *http.Request, n int64) string) answer {
	var n atomic.Int64
	return func(w http.ResponseWriter, r *http.Request, status int) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body(r, n.Add(1)))
	}
}

// redirects redirects losers to another page of the service.
func redirects(status int) answer {
	return func(w http.ResponseWriter, r *http.Request, outcome int) {
		if outcome == http.StatusOK {
			return
		}
		http.Redirect(w, r, "/sold-out", status)
	}
}

// cutsWinners breaks off the response to a winner.
func cutsWinners(w http.ResponseWriter, _ *http.Request, status int) {
	if status == http.StatusOK {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "won")
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(status)
}

// closes closes the connection after each response.
func closes(w http.ResponseWriter, _ *http.Request, status int) {
	w.Header().Set("Connection", "close")
	w.WriteHeader(status)
}

// slowTo waits for d before it answers with the given status.
func slowTo(status int, d time.Duration) answer {
	return func(w http.ResponseWriter, _ *http.Request, outcome int) {
		if outcome == status {
			time.Sleep(d)
		}
		w.WriteHeader(outcome)
	}
}

func retryAfter(w http.ResponseWriter, _ *http.Request, status int) {
	w.Header().Set("Retry-After", "1")
	w.WriteHeader(status)
}

// The following functions start an instance in various ways, and return its URL.

func http1(t *testing.T, h http.Handler) string {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// withHTTP2 also supports HTTP/2 without TLS.
func withHTTP2(t *testing.T, h http.Handler) string {
	s := httptest.NewUnstartedServer(h)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	return s.URL
}

func overIPv6(t *testing.T, h http.Handler) string {
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skip(err)
	}
	s := httptest.NewUnstartedServer(h)
	_ = s.Listener.Close()
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
	return s.URL
}

// retryingProxy puts a proxy in front of the instance, which sends every request n times and
// returns the last response.
func retryingProxy(n int) func(*testing.T, http.Handler) string {
	return func(t *testing.T, h http.Handler) string {
		return http1(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			for i := range n {
				again := r.Clone(r.Context())
				again.Body = io.NopCloser(strings.NewReader(string(body)))
				rec := httptest.NewRecorder()
				h.ServeHTTP(rec, again)
				if i == n-1 {
					w.WriteHeader(rec.Code)
				}
			}
		}))
	}
}

// stubService describes a service in this process, the settings of its test, and the expected
// verdict.
type stubService struct {
	name    string
	core    core
	answer  answer // nil means plain
	serve   func(*testing.T, http.Handler) string
	spec    target.Spec
	query   string // ledger query; empty if there is no ledger
	change  func(*Config)
	verdict catalog.Verdict
	words   string
}

// measure tests the service without a fault.
func (tt stubService) measure(t *testing.T) Cell {
	t.Helper()
	s := &winnersOf{rows: map[int64][]int64{}, unknown: map[int64]bool{}}
	var dsn string
	s.db, dsn = createWins(t)
	if tt.answer == nil {
		tt.answer = plain
	}
	if tt.serve == nil {
		tt.serve = http1
	}
	cfg := Scenarios[0].Config
	cfg.Scenario, cfg.Seed, cfg.Out, cfg.Log = "rush", 1, t.TempDir(), t.Output()
	cfg.Orders, cfg.Drivers, cfg.Rate, cfg.Timeout = 4, 8, 0, 10*time.Second
	cfg.Settle = 2 * time.Second
	cfg.Target.FirstOrder, cfg.Target.Lease = 101, 200*time.Millisecond
	for instance := range 2 {
		cfg.Target.URLs = append(cfg.Target.URLs, tt.serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			m := pathOfGrab.FindStringSubmatch(r.URL.Path)
			if m == nil {
				http.NotFound(w, r)
				return
			}
			body, _ := io.ReadAll(r.Body)
			d := driverOfGrab.FindSubmatch(body)
			order, _ := strconv.ParseInt(m[1], 10, 64)
			driver, _ := strconv.ParseInt(string(d[1]), 10, 64)
			time.Sleep(20 * time.Millisecond) // make attempts overlap
			s.mu.Lock()
			status := tt.core(s, attempt{order, driver, instance})
			s.mu.Unlock()
			tt.answer(w, r, status)
		})))
	}
	var err error
	if cfg.Target.Shape, _, err = tt.spec.Compile(); err != nil {
		t.Fatal(err)
	}
	if tt.query != "" {
		cfg.Target.Database = target.Database{DSN: dsn, Query: tt.query}
	}
	if tt.change != nil {
		tt.change(&cfg)
	}
	run, err := execute(t, t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	c := run.Cells[0]
	if c.Verdict == catalog.Safe && s.doubled(max(cfg.Stock, 1)) {
		t.Errorf("the verdict is safe, but the service has too many rows for an order: %v", s.rows)
	}
	if err := run.Contradiction(); err != nil {
		t.Error(err)
	}
	return c
}

func TestNoWrongSafe(t *testing.T) {
	t.Parallel()
	const doubling = "SELECT w.order_id, w.driver_id FROM wins w JOIN (SELECT 1 AS n UNION ALL SELECT 2) twice WHERE w.order_id BETWEEN ? AND ?"
	const safe, unsafe, unknown, stuck = catalog.Safe, catalog.Unsafe, catalog.Unknown, catalog.Stuck
	const ok, taken, busy = http.StatusOK, http.StatusConflict, http.StatusLocked
	jsonRules := target.Spec{Grabbed: "json:.code==0", Taken: "json:.code==1"}
	coded := always200("application/json", `{"code":0}`, `{"code":1}`)
	texts := always200("text/plain", "you won", "sorry")
	textRules := target.Spec{Grabbed: `text:=="you won"`, Taken: "text:~`^sor`"}
	xmlAnswer := always200("application/xml", `<grab won="yes"/>`, `<grab won="no"/>`)
	xmlRules := target.Spec{Grabbed: `xml:/grab/@won=="yes"`, Taken: `xml:/grab/@won=="no"`}
	locationRules := target.Spec{Grabbed: "303&header:Location~`/won$`", Taken: "303&header:Location~`/sold$`"}
	one := func(c *Config) { c.Target.URLs = c.Target.URLs[:1] }
	named := func(name string) func(*Config) {
		return func(c *Config) {
			c.Target.URLs = []string{c.Target.URLs[0], strings.Replace(c.Target.URLs[0], "127.0.0.1", name, 1)}
		}
	}
	units := func(n int) func(*Config) { return func(c *Config) { c.Stock = n } }
	idempotent := func(c *Config) { c.Target.Idempotent = true }
	impatient := func(c *Config) { c.Timeout = 300 * time.Millisecond }
	rows := []stubService{
		{name: "correct", core: correct, verdict: safe},
		{name: "correct, ledger", core: correct, query: wins, verdict: safe},
		{name: "correct with HTTP/2 offered", core: correct, serve: withHTTP2, query: wins, verdict: safe},
		{name: "correct over IPv6", core: correct, serve: overIPv6, query: wins, verdict: safe},
		{name: "correct, closes each connection", core: correct, answer: closes, query: wins, verdict: safe},
		{name: "correct, busy first", core: busyFirst(2, correct), query: wins, verdict: safe},
		{name: "correct, sheds a few with 503", core: sheds(4, 503, correct), answer: retryAfter, query: wins, verdict: safe},
		{name: "correct, sheds a few with 429", core: sheds(4, 429, correct), answer: retryAfter, query: wins, verdict: safe},
		{name: "sheds nearly all with 429", core: sheds(1, 429, correct), answer: retryAfter, query: wins, verdict: unknown, words: "429"},
		{name: "correct, coded answers", core: correct, answer: coded, spec: jsonRules, query: wins, verdict: safe},
		{name: "two winners, coded answers", core: winnersUpTo(2), answer: coded, spec: jsonRules, query: wins, verdict: unsafe, words: "more than once"},
		{name: "correct, problem details", core: correct, answer: withBody("application/problem+json", func(r *http.Request, _ int64) string { return `{"instance":"` + r.URL.Path + `"}` }), query: wins, verdict: safe},
		{name: "one instance, problem details", core: correct, answer: withBody("application/problem+json", func(r *http.Request, _ int64) string { return `{"instance":"` + r.URL.Path + `"}` }), query: wins, change: one, verdict: unknown, words: "one instance"},
		{name: "one instance, many names", core: correct, answer: withBody("application/json", func(_ *http.Request, n int64) string { return `{"instance":"` + strconv.FormatInt(n, 10) + `"}` }), query: wins, change: one, verdict: unknown, words: "one instance"},
		{name: "two instances, one name", core: correct, answer: withBody("application/json", func(*http.Request, int64) string { return `{"instance":"shop"}` }), query: wins, verdict: safe},
		{name: "one listener as localhost", core: correct, query: wins, change: named("localhost"), verdict: unknown, words: "both reach"},
		{name: "one listener in upper case", core: correct, query: wins, change: named("LOCALHOST"), verdict: unknown, words: "both reach"},
		{name: "one URL given twice", core: correct, change: named("127.0.0.1"), query: wins, verdict: unknown},
		{name: "wrong content type", core: correct, answer: withBody("image/png", func(*http.Request, int64) string { return "not a picture" }), query: wins, verdict: safe},
		{name: "long bodies", core: correct, answer: withBody("text/plain", func(*http.Request, int64) string { return strings.Repeat("x", 20<<10) }), query: wins, verdict: safe},
		{name: "long bodies, two winners", core: winnersUpTo(2), answer: withBody("text/plain", func(*http.Request, int64) string { return strings.Repeat("x", 20<<10) }), query: wins, verdict: unsafe},

		{name: "correct, texts", core: correct, answer: texts, spec: textRules, query: wins, verdict: safe},
		{name: "two winners, texts", core: winnersUpTo(2), answer: texts, spec: textRules, verdict: unsafe},
		{name: "correct, XML", core: correct, answer: xmlAnswer, spec: xmlRules, query: wins, verdict: safe},
		{name: "two winners, XML", core: winnersUpTo(2), answer: xmlAnswer, spec: xmlRules, verdict: unsafe},
		{name: "correct, XML with an undefined entity", core: correct, answer: always200("application/xml", `<grab won="yes">&nbsp;</grab>`, `<grab won="no"/>`), spec: xmlRules, verdict: unknown, words: "may hide"},
		{name: "correct, Location", core: correct, answer: located, spec: locationRules, query: wins, verdict: safe},
		{name: "two winners, Location", core: winnersUpTo(2), answer: located, spec: locationRules, verdict: unsafe},
		{name: "two winners, Location of losers unknown", core: winnersUpTo(2), answer: located, spec: target.Spec{Grabbed: locationRules.Grabbed, Taken: "409"}, query: wins, verdict: unsafe},
		{name: "correct, Location of losers unknown", core: correct, answer: located, spec: target.Spec{Grabbed: locationRules.Grabbed, Taken: "409"}, query: wins, verdict: unknown, words: "303"},

		{name: "two winners", core: winnersUpTo(2), verdict: unsafe, words: "more than once"},
		{name: "two winners, ledger", core: winnersUpTo(2), query: wins, verdict: unsafe, words: "more than once"},
		{name: "two winners with HTTP/2 offered", core: winnersUpTo(2), serve: withHTTP2, query: wins, verdict: unsafe},
		{name: "two winners over IPv6", core: winnersUpTo(2), serve: overIPv6, query: wins, verdict: unsafe},
		{name: "everyone wins", core: winnersUpTo(99), query: wins, verdict: unsafe},
		{name: "one winner for each instance", core: perInstance(), query: wins, verdict: unsafe},
		{name: "one winner for each instance, by the answers", core: perInstance(), verdict: unsafe},
		{name: "one winner for each instance, and one of them asked", core: perInstance(), change: one, query: wins, verdict: unknown, words: "one instance"},
		{name: "two winners, the second told taken", core: lateSecond(taken, 0), query: wins, verdict: unsafe},
		{name: "two winners behind a proxy", core: winnersUpTo(2), serve: retryingProxy(1), query: wins, verdict: unsafe},
		{name: "a proxy that retries, correct", core: correct, serve: retryingProxy(2), query: wins, verdict: safe},
		{name: "a proxy that retries, three winners", core: winnersUpTo(3), serve: retryingProxy(2), query: wins, verdict: unsafe},
		{name: "forgets a winner", core: forgetful, query: wins, verdict: unsafe},
		{name: "forgets a winner, by the answers", core: forgetful, verdict: unsafe},

		{name: "writes 100 ms after taken", core: lateSecond(taken, 100*time.Millisecond), query: wins, verdict: unsafe},
		{name: "writes 200 ms after taken", core: lateSecond(taken, 200*time.Millisecond), query: wins, verdict: unsafe},
		{name: "writes 500 ms after taken", core: lateSecond(taken, 500*time.Millisecond), query: wins, verdict: unsafe},
		{name: "writes 1 s after taken", core: lateSecond(taken, time.Second), query: wins, verdict: unsafe},
		{name: "writes 200 ms after busy", core: lateSecond(busy, 200*time.Millisecond), query: wins, verdict: unsafe},
		{name: "writes 500 ms after busy", core: lateSecond(busy, 500*time.Millisecond), query: wins, verdict: unsafe},
		{name: "writes 1 s after busy", core: lateSecond(busy, time.Second), query: wins, verdict: unsafe},
		{name: "writes 500 ms after 500", core: lateSecond(500, 500*time.Millisecond), query: wins, verdict: unsafe},
		{name: "writes 500 ms after 503", core: lateSecond(503, 500*time.Millisecond), query: wins, verdict: unsafe},
		{name: "writes for the probe", core: lateProbe, query: wins, verdict: unsafe},
		{name: "never settles", core: says(ok, 500, neverSettles), query: wins, change: func(c *Config) { c.settleLimit = time.Second }, verdict: unknown, words: "still changed"},
		{name: "rows disappear", core: disappears(1200*time.Millisecond, correct), query: wins, verdict: unknown, words: "does not have"},
		{name: "rows of winners who were told 500 disappear", core: says(ok, 500, disappears(1200*time.Millisecond, correct)), query: wins, verdict: unknown, words: "deleted"},
		{name: "rows of two winners disappear at once", core: disappears(0, winnersUpTo(2)), query: wins, verdict: unsafe, words: "according to the responses"},

		{name: "a JOIN doubles rows", core: correct, query: doubling, verdict: unknown, words: "JOIN"},
		{name: "a JOIN doubles rows of two winners", core: winnersUpTo(2), query: doubling, verdict: unsafe},
		{name: "writes the winner twice", core: twice, query: wins, verdict: unknown, words: "twice"},
		{name: "writes the winner twice, idempotent", core: twice, query: wins, change: idempotent, verdict: safe},
		{name: "two winners, idempotent", core: winnersUpTo(2), query: wins, change: idempotent, verdict: unsafe, words: "more than once"},
		{name: "two winners in doubled rows, idempotent", core: winnersUpTo(2), query: doubling, change: idempotent, verdict: unsafe, words: "more than once"},
		{name: "forgets a winner, idempotent", core: forgetful, query: wins, change: idempotent, verdict: unsafe},
		{name: "writes the winner twice, all 200", core: twice, answer: always200("text/plain", "won", "lost"), query: wins, verdict: unknown, words: "twice"},

		{name: "taken without a row", core: withoutRow(2, 500), query: wins, verdict: stuck, words: "names no winner"},
		{name: "taken without a row, told taken", core: withoutRow(2, taken), query: wins, verdict: stuck, words: "names no winner"},
		{name: "taken without a row, told won", core: withoutRow(2, ok), query: wins, verdict: unknown, words: "promised"},
		{name: "answers swapped", core: says(ok, taken, says(taken, 299, correct)), query: wins, verdict: unknown},
		{name: "the winner is told busy", core: says(ok, busy, correct), query: wins, verdict: safe},
		{name: "the winner is told 500", core: says(ok, 500, correct), query: wins, verdict: safe},
		{name: "the winner is told 500, by the answers", core: says(ok, 500, correct), verdict: unknown, words: "may hide a grab"},
		{name: "two winners are told 500", core: says(ok, 500, winnersUpTo(2)), query: wins, verdict: unsafe},
		{name: "two winners are told 500, by the answers", core: says(ok, 500, winnersUpTo(2)), verdict: unknown, words: "may hide a grab"},
		{name: "two winners are told 202, by the answers", core: says(ok, 202, winnersUpTo(2)), verdict: unknown, words: "202"},

		{name: "200 and plain text", core: correct, answer: always200("text/plain", "you won", "sorry"), verdict: unknown},
		{name: "200 and XML", core: correct, answer: always200("application/xml", "<won/>", "<lost/>"), verdict: unknown},
		{name: "200 and XML, two winners, ledger", core: winnersUpTo(2), answer: always200("application/xml", "<won/>", "<lost/>"), query: wins, verdict: unsafe},
		{name: "200 and no text to all", core: correct, answer: always200("text/plain", "", ""), verdict: unknown, words: "every response was 200"},
		{name: "200 and no text to all, ledger", core: correct, answer: always200("text/plain", "", ""), query: wins, verdict: unknown, words: "every response was 200"},
		{name: "200 and no text to all, two winners, ledger", core: winnersUpTo(2), answer: always200("text/plain", "", ""), query: wins, verdict: unsafe},
		{name: "everyone wins but the probe, by the answers", core: winnersUpTo(8), verdict: unsafe, words: "more than once"},
		{name: "everyone wins and the probe too, by the answers", core: winnersUpTo(9), verdict: unknown, words: "every response was 200"},
		{name: "200 and texts, and the probe is told taken", core: refusesProbes(taken), answer: always200ToDrivers, verdict: unknown},
		{name: "a ledger for each instance, and one of them read", core: ledgerOfOne(), query: wins, verdict: unsafe, words: "according to the responses"},
		{name: "two units for each order, sold once each", core: winnersUpTo(2), query: wins, change: units(2), verdict: safe},
		{name: "two units for each order, three sold", core: winnersUpTo(3), query: wins, change: units(2), verdict: unsafe},
		{name: "two units for each order, one sold", core: correct, query: wins, change: units(2), verdict: stuck},
		{name: "an instance takes all requests of a session", core: correct, answer: sticky, query: wins, verdict: safe},
		{name: "a loser is redirected with 302", core: correct, answer: redirects(302), verdict: unknown, words: "302"},
		{name: "a loser is redirected with 307", core: correct, answer: redirects(307), verdict: unknown, words: "307"},
		{name: "a loser is redirected with 308", core: correct, answer: redirects(308), verdict: unknown, words: "308"},
		{name: "two winners, and redirects", core: winnersUpTo(2), answer: redirects(302), query: wins, verdict: unsafe},
		{name: "truncated bodies of winners", core: correct, answer: cutsWinners, verdict: unknown},
		{name: "truncated bodies of two winners", core: winnersUpTo(2), answer: cutsWinners, query: wins, verdict: unsafe},
		{name: "winners are answered past the time-out", core: correct, answer: slowTo(ok, time.Second), change: impatient, verdict: unknown, words: "may hide a grab"},
		{name: "two winners are answered past the time-out", core: winnersUpTo(2), answer: slowTo(ok, time.Second), change: impatient, query: wins, verdict: unsafe},

		{name: "unknown orders", core: constant(404), query: wins, verdict: unknown, words: "404"},
		{name: "nothing but 500", core: constant(500), query: wins, verdict: unknown},
		{name: "always busy", core: constant(busy), query: wins, verdict: stuck},
		{name: "one order never answers", core: correct, answer: silentFor("/orders/102/"), change: impatient, query: wins, verdict: stuck, words: "1 of 4 orders can no longer be grabbed"},
		{name: "no order answers", core: correct, answer: silentFor("/orders/"), change: impatient, query: wins, verdict: unknown},
		{name: "all taken", core: constant(taken), query: wins, verdict: unknown, words: "not open"},
		{name: "refuses the driver of the probe", core: refusesProbes(400), query: wins, verdict: unknown, words: "stuck orders"},
		{name: "does not know the driver of the probe", core: refusesProbes(404), query: wins, verdict: unknown, words: "stuck orders"},
		{name: "no contention", core: correct, query: wins, change: func(c *Config) { c.Drivers, c.Rate = 1, 100 }, verdict: unknown},
	}
	for _, tt := range rows {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := tt.measure(t)
			if c.Verdict != tt.verdict || !strings.Contains(c.Reason, tt.words) {
				t.Errorf("measure: %s (%s); want %s (…%s…)", c.Verdict, c.Reason, tt.verdict, tt.words)
			}
		})
	}
}

// TestDefaultRules tests services for which the user gave no rules. A winner gets 200 and a text.
// Losers get 409, or 200 with another text or the same text. A correct service must not be called
// unsafe, unless its losers get the same text as a winner. A service with two winners must not be
// called safe.
func TestDefaultRules(t *testing.T) {
	t.Parallel()
	const won, second, late = http.StatusOK, 298, 299 // what the core returns; the answer function replaces them
	answers := map[string]string{"409": "", "another text": `{"code":1,"id":"%s"}`, "the same text": `{"code":0,"id":"%s"}`}
	for name, winners := range map[string]int{"correct": 1, "two winners": 2} {
		for _, query := range []string{"", wins} {
			for toSecond := range answers {
				for toLate := range answers {
					says := map[int]string{won: "the same text", second: toSecond, late: toLate}
					t.Run(fmt.Sprintf("%s, query %q, second %s, late %s", name, query, toSecond, toLate), func(t *testing.T) {
						t.Parallel()
						attempts := map[int64]int{}
						c := stubService{
							core: func(s *winnersOf, a attempt) int {
								attempts[a.order]++
								switch {
								case len(s.rows[a.order]) < winners:
									s.won(a.order, a.driver, 1)
									return won
								case attempts[a.order] == winners+1:
									return second
								}
								return late
							},
							answer: func(w http.ResponseWriter, _ *http.Request, status int) {
								if says[status] == "409" {
									w.WriteHeader(http.StatusConflict)
									return
								}
								fmt.Fprintf(w, answers[says[status]], rand.Text())
							},
							query: query,
						}.measure(t)
						same := toSecond == "the same text" || query == "" && toLate == "the same text"
						switch {
						case winners == 1 && c.Verdict == catalog.Unsafe && !same,
							winners == 2 && (c.Verdict == catalog.Safe || query != "" && c.Verdict != catalog.Unsafe),
							toSecond == "409" && toLate == "409" && (c.Verdict == catalog.Safe) != (winners == 1),
							c.Verdict == catalog.Unknown && !strings.Contains(c.Reason, "-grabbed"):
							t.Errorf("the verdict is %s (%s), but the reason does not name -grabbed", c.Verdict, c.Reason)
						}
					})
				}
			}
		}
	}
}
