package servicetest

import (
	"bufio"
	"database/sql"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"grablab/internal/present/report"
)

const pragmas = "?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)"

// shop is an instance of a service. All instances use one database.
type shop struct {
	db *sql.DB
	// locks maps each order to its lock. The service is correct only if the instances share it.
	locks *sync.Map
}

func (s shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	order, driver := r.URL.Query().Get("order"), r.URL.Query().Get("driver")
	mu, _ := s.locks.LoadOrStore(order, new(sync.Mutex))
	mu.(*sync.Mutex).Lock()
	defer mu.(*sync.Mutex).Unlock()
	var wins int
	if err := s.db.QueryRow(`SELECT COUNT(*) FROM wins WHERE order_id = ?`, order).Scan(&wins); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if wins > 0 {
		w.WriteHeader(http.StatusGone)
		return
	}
	time.Sleep(5 * time.Millisecond)
	if _, err := s.db.Exec(`INSERT INTO wins (order_id, driver_id) VALUES (?, ?)`, order, driver); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	fmt.Fprint(w, `{"won":true}`)
}

// newShop starts two instances of shop. They share their locks if right is true. Otherwise, each
// instance has its own locks, so that an order can be grabbed twice.
func newShop(t *testing.T, right bool) Target {
	t.Helper()
	path := filepath.Join(t.TempDir(), "shop.db")
	db, err := sql.Open("sqlite", path+pragmas)
	if err == nil {
		_, err = db.Exec(`CREATE TABLE wins (order_id INTEGER, driver_id INTEGER)`)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	service := Target{
		Method: http.MethodPut, Path: "/win?order={order}&driver={driver}", Grabbed: `json:.won==true`, Taken: "410",
		FirstOrder: 1, DB: "sqlite:" + path, LedgerQuery: "SELECT order_id, driver_id FROM wins WHERE order_id BETWEEN ? AND ?",
		Lease: time.Second, Orders: 10, Drivers: 6, Rate: 50,
	}
	locks := new(sync.Map)
	for range 2 {
		if !right {
			locks = new(sync.Map)
		}
		s := httptest.NewServer(shop{db, locks})
		t.Cleanup(s.Close)
		service.URLs = append(service.URLs, s.URL)
	}
	return service
}

func TestRightService(t *testing.T) { Run(t, newShop(t, true)) }

// TestIDsWithoutFaults checks that Run accepts PIDs without Faults, and then leaves the processes
// alone.
func TestIDsWithoutFaults(t *testing.T) {
	service := newShop(t, true)
	service.PIDs = []int{os.Getpid(), os.Getppid()}
	Run(t, service)
}

// TestFromAnotherModule checks that another module can import this package with the go.mod from
// docs/ci.md.
func TestFromAnotherModule(t *testing.T) {
	text := func(name string) string {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	_, mod, _ := strings.Cut(text("../docs/ci.md"), "```text\nmodule ")
	mod, _, _ = strings.Cut(mod, "```")
	dir := t.TempDir()
	for name, content := range map[string]string{
		"go.mod": "module " + strings.ReplaceAll(mod, "../grablab", root), "go.sum": text("../go.sum"), "shop_test.go": "package shop\n\nimport _ \"grablab/servicetest\"\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "list", "-test", "-deps", ".")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off", "GOPROXY=off", "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -mod=mod"))
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "grablab/servicetest\n") {
		t.Errorf("go list in the other module: %v\n%s", err, out)
	}
}

// TestWrongService checks that a service fails, with the reason, if its instances do not share
// locks.
func TestWrongService(t *testing.T) {
	cases, err := newShop(t, false).run(t)
	if err != nil {
		t.Fatal(err)
	}
	if len(cases) != 1 || cases[0].Result != report.Failed || !strings.Contains(cases[0].Why, "orders were grabbed more than once") || *cases[0].Cell.Grabs <= 10 {
		t.Errorf("the test should fail, but its cases are %+v", cases)
	}
}

func TestOneInstanceIsUnknown(t *testing.T) {
	service := newShop(t, true)
	service.URLs = service.URLs[:1]
	cases, err := service.run(t)
	if err != nil {
		t.Fatal(err)
	}
	if len(cases) != 1 || cases[0].Result != report.Unknown {
		t.Errorf("the result should be unknown, but the cases are %+v", cases)
	}
}

// asInstance is an environment variable with the path of a database. If it is set, the test binary
// runs as a service instance on this database.
const asInstance = "SERVICETEST_INSTANCE_OF"

func TestMain(m *testing.M) {
	if path := os.Getenv(asInstance); path != "" {
		db, err := sql.Open("sqlite", path+pragmas)
		if err != nil {
			panic(err)
		}
		s := httptest.NewServer(once{db})
		fmt.Println(s.URL)
		select {}
	}
	os.Exit(m.Run())
}

// once is a correct service without a lock: a single SQL statement decides who gets the order.
type once struct{ db *sql.DB }

func (s once) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	order, driver := r.URL.Query().Get("order"), r.URL.Query().Get("driver")
	time.Sleep(50 * time.Millisecond) // leave time for a fault to strike
	done, err := s.db.Exec(`INSERT INTO wins SELECT ?, ? WHERE NOT EXISTS (SELECT 1 FROM wins WHERE order_id = ?)`, order, driver, order)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if n, _ := done.RowsAffected(); n == 0 {
		w.WriteHeader(http.StatusGone)
		return
	}
	fmt.Fprint(w, `{"won":true}`)
}

// TestProcesses checks that Run pauses the processes of a correct service during grabs, and that
// this does not make the test fail.
func TestProcesses(t *testing.T) {
	service := newShop(t, true)
	service.URLs, service.Faults, service.Orders = nil, []string{"pause"}, 4
	for range 2 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), asInstance+"="+strings.TrimPrefix(service.DB, "sqlite:"))
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
		url, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		service.URLs, service.PIDs = append(service.URLs, strings.TrimSpace(url)), append(service.PIDs, cmd.Process.Pid)
	}
	cases, err := service.run(t)
	if err != nil {
		t.Fatal(err)
	}
	if len(cases) != 2 || cases[1].Name != "foreign/pause" || cases[1].Result == report.NotRun || cases[1].Result == report.Failed || *cases[1].Cell.Struck == 0 {
		t.Errorf("the pause should strike and not fail, but the cases are %+v", cases)
	}
}

// TestBudget checks that all faults end before go test stops the test.
func TestBudget(t *testing.T) {
	service := Target{Faults: []string{"pause", "crash"}}
	for left, most := range map[time.Duration]time.Duration{time.Minute: 30 * time.Second, 10 * time.Minute: 5 * time.Minute, time.Hour: 15 * time.Minute} {
		if got := service.budget(time.Now().Add(left)); got > most || got < most*8/10 {
			t.Errorf("%v for each fault with %v left", got, left)
		}
	}
	if got := service.budget(time.Time{}); got != 15*time.Minute {
		t.Errorf("%v without a deadline", got)
	}
}

func TestBadTarget(t *testing.T) {
	for want, service := range map[string]Target{
		"no URLs: name the base URL": {},
		"use pause or crash":         {URLs: []string{"http://h:1"}, Faults: []string{"amnesia"}},
		"0 PIDs for 1 URLs":          {URLs: []string{"http://h:1"}, Faults: []string{"pause"}},
		"LedgerQuery, but no DB":     {URLs: []string{"http://h:1"}, LedgerQuery: "SELECT 1, 2"},
		"method: must be a method":   {URLs: []string{"http://h:1"}, Method: "P ST"},
		"{order}":                    {URLs: []string{"http://h:1"}, Path: "/grab/{oder}"},
	} {
		if _, err := service.config(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("config: %v, want %q", err, want)
		}
	}
}
