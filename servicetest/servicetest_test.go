package servicetest

import (
	"database/sql"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"grablab/internal/present/report"
)

// shop is a service with two instances on one database.
type shop struct {
	db *sql.DB
	// locks has a lock for each order, for both instances or for one.
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

// newShop starts two instances. They share their locks if the service is right.
func newShop(t *testing.T, right bool) Target {
	t.Helper()
	path := filepath.Join(t.TempDir(), "shop.db")
	db, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)")
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

// TestWrongService tests instances that each have locks of their own.
func TestWrongService(t *testing.T) {
	cases, err := newShop(t, false).run(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if len(cases) != 1 || cases[0].Result != report.Failed || !strings.Contains(cases[0].Why, "orders were grabbed more than once") || *cases[0].Cell.Grabs <= 10 {
		t.Errorf("%+v", cases)
	}
}

func TestOneInstanceIsUnknown(t *testing.T) {
	service := newShop(t, true)
	service.URLs = service.URLs[:1]
	cases, err := service.run(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if len(cases) != 1 || cases[0].Result != report.Unknown {
		t.Errorf("%+v", cases)
	}
}

func TestBadTarget(t *testing.T) {
	for want, service := range map[string]Target{
		"no URLs: name the base URL": {},
		"must be pause or crash":     {URLs: []string{"http://h:1"}, Faults: []string{"amnesia"}},
		"0 PIDs for 1 URLs":          {URLs: []string{"http://h:1"}, Faults: []string{"pause"}},
		"{order}":                    {URLs: []string{"http://h:1"}, Path: "/grab/{oder}"},
	} {
		if _, err := service.config(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
