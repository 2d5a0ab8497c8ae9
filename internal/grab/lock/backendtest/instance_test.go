package backendtest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"grablab/internal/grab"
	"grablab/internal/service/instance"
	"grablab/internal/testbed/stack/stacktest"
)

// startInstance runs an instance in this process and returns its URL.
func startInstance(t *testing.T, args ...string) string {
	t.Helper()
	cfg, err := instance.Parse(append([]string{"-addr", "127.0.0.1:0", "-work", "0", "-strategy", "none", "-ttl", "1500ms"}, args...))
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := instance.Run(ctx, cfg, w, slog.New(slog.DiscardHandler))
		w.CloseWithError(err)
		ended <- err
	}()
	t.Cleanup(func() {
		cancel()
		must(t, <-ended)
		http.DefaultClient.CloseIdleConnections()
	})
	line, err := bufio.NewReader(r).ReadString('\n')
	must(t, err)
	return strings.TrimSpace(strings.TrimPrefix(line, "listening on "))
}

// call sends a request, decodes the response into out, and returns the status.
func call(t *testing.T, method, url, body string, out any) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	must(t, err)
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	defer resp.Body.Close()
	must(t, json.NewDecoder(resp.Body).Decode(out))
	return resp.StatusCode
}

// TestInstance checks that an instance with all servers can grab with each database, ZooKeeper and etcd
// strategy. The instance must also report the duration of a lease.
func TestInstance(t *testing.T) {
	st := stacktest.With(t, needs)
	url := startInstance(t, "-db", st.DSN, "-zk", strings.Join(st.ZooKeeper, ","), "-etcd", strings.Join(st.Etcd, ","))
	var ready grab.Readiness
	if code := call(t, "GET", url+"/readyz", "", &ready); code != 200 || ready.Checks["zookeeper"] != "ok" || ready.Checks["etcd"] != "ok" {
		t.Errorf("readyz: %d %+v", code, ready)
	}
	var orders grab.OrdersView
	call(t, "POST", url+"/orders", `{"count":7}`, &orders)
	for i, tt := range []struct {
		strategy string
		leaseMS  float64
		fenced   bool
	}{
		{"mysql-getlock", 1500, false}, {"mysql-forupdate", 1500, false}, {"mysql-cas", 1500, false},
		{"zookeeper", 1500, true}, {"etcd", 2000, true},
		{"zookeeper-fenced", 1500, true}, {"etcd-fenced", 2000, true},
	} {
		var now grab.CurrentStrategy
		if code := call(t, "PUT", url+"/strategy", fmt.Sprintf(`{"name":%q}`, tt.strategy), &now); code != 200 || now.LeaseMS != tt.leaseMS {
			t.Errorf("%s: %d %+v, want a lease of %v ms", tt.strategy, code, now, tt.leaseMS)
		}
		order := fmt.Sprintf("%s/orders/%d/grab", url, orders.FirstID+int64(i))
		var first, second grab.Answer
		if call(t, "POST", order, `{"driver_id":1}`, &first); first.Outcome != grab.Grabbed || (first.Fence > 0) != tt.fenced {
			t.Errorf("first grab with %s: %+v", tt.strategy, first)
		}
		if call(t, "POST", order+"?wait=0", `{"driver_id":2}`, &second); second.Outcome != grab.Taken {
			t.Errorf("second grab with %s: %+v", tt.strategy, second)
		}
	}
}

// TestInstanceOnSQLite checks that an instance rejects strategies that SQLite does not support. The
// error must appear when the strategy is selected, and recommend -stack local.
func TestInstanceOnSQLite(t *testing.T) {
	url := startInstance(t, "-db", "sqlite:"+filepath.Join(t.TempDir(), "t.db"))
	for strategy, want := range map[string]int{"mysql-getlock": 400, "mysql-forupdate": 400, "mysql-cas": 200, "mysql-unique": 200} {
		var problem grab.Problem
		code := call(t, "PUT", url+"/strategy", fmt.Sprintf(`{"name":%q}`, strategy), &problem)
		if code != want || (want == 400) != strings.Contains(problem.Error, "-stack local") {
			t.Errorf("PUT /strategy %s: status %d %+v, want %d", strategy, code, problem, want)
		}
	}
	var all []grab.StrategyView
	call(t, "GET", url+"/strategies", "", &all)
	for _, s := range all {
		if strings.HasPrefix(s.Name, "mysql-") && s.Available != (s.Name == "mysql-cas" || s.Name == "mysql-unique") {
			t.Errorf("on SQLite, %s is available: %v", s.Name, s.Available)
		}
	}
}
