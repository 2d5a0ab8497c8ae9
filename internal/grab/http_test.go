package grab_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/order"

	"github.com/alicebob/miniredis/v2"
	"github.com/gin-gonic/gin"
	dto "github.com/prometheus/client_model/go"
	"github.com/redis/go-redis/v9"
	"github.com/santhosh-tekuri/jsonschema/v6"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// rig is an instance that uses a store in memory and a Redis server in this process.
type rig struct {
	http.Handler
	store *order.Mem
	redis *miniredis.Miniredis
	first int64 // the ID of the first of 100 open orders
}

// settings configures a rig. With the zero value, a grab does no work and does not wait for the lock,
// and the instance is not public.
type settings struct {
	grab grab.Config
	env  lock.Env
	http grab.HTTPConfig
}

func newRig(t *testing.T, set settings) rig {
	t.Helper()
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true})
	t.Cleanup(func() { client.Close() })
	store := new(order.Mem)
	first, err := store.Create(t.Context(), 100, 1)
	if err != nil {
		t.Fatal(err)
	}

	env := set.env
	env.Node, env.Redis, env.Orders = "8004", client, store
	env.Now, env.Token, env.Rand = time.Now, rand.Text, mathrand.Float64
	if env.TTL == 0 {
		env.TTL = 30 * time.Second
	}
	cfg := set.grab
	cfg.Instance, cfg.Lock = "8004", env
	switch broken := cfg.Orders.(type) {
	case nil:
		cfg.Orders = store
	case brokenStore:
		broken.Mem = store
		cfg.Orders = broken
	case *lateClaims:
		broken.Mem = store
	}
	if cfg.Strategy == "" {
		cfg.Strategy = "setnx"
	}
	service, err := grab.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := service.Close(); err != nil {
			t.Error(err)
		}
	})
	return rig{newHandler(service, set.http), store, server, first}
}

// newHandler returns a handler for s. It sets defaults for all fields of cfg that are zero.
func newHandler(s *grab.Service, cfg grab.HTTPConfig) http.Handler {
	cfg.Timeout = cmp.Or(cfg.Timeout, time.Minute)
	cfg.Metrics = cmp.Or(cfg.Metrics, grab.NewMetrics())
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if cfg.Ready == nil {
		cfg.Ready = func(context.Context) (map[string]error, bool) { return nil, true }
	}
	return grab.NewHandler(s, cfg)
}

// call sends a request and checks that the response matches openapi.json.
func (r rig) call(t *testing.T, req *http.Request) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	r.ServeHTTP(w, req)
	described(t, req, w)
	return w
}

func request(method, path, body string) *http.Request {
	req := httptest.NewRequest(method, path, strings.NewReader(body))
	req.Host = "127.0.0.1:8004"
	return req
}

// description contains the parts of openapi.json that the tests need.
type description struct {
	Paths map[string]map[string]struct {
		Responses map[string]struct {
			Content map[string]struct {
				Examples map[string]struct{ Value any }
			}
		}
	}
}

var readDescription = sync.OnceValues(func() (*description, *jsonschema.Compiler) {
	text, err := os.ReadFile("openapi.json")
	if err != nil {
		panic(err)
	}
	raw, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		panic(err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	d := new(description)
	if err := errors.Join(c.AddResource("openapi.json", raw), json.Unmarshal(text, d)); err != nil {
		panic(err)
	}
	return d, c
})

// schemaOf compiles the schema of one JSON answer.
func schemaOf(t *testing.T, c *jsonschema.Compiler, path, method, status string) *jsonschema.Schema {
	t.Helper()
	escaped := strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(path)
	s, err := c.Compile(fmt.Sprintf("openapi.json#/paths/%s/%s/responses/%s/content/application~1json/schema", escaped, method, status))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// described fails the test if the response does not match openapi.json. It ignores calls that the API
// does not have.
func described(t *testing.T, req *http.Request, w *httptest.ResponseRecorder) {
	t.Helper()
	d, c := readDescription()
	path, method, status := template(req.URL.Path), strings.ToLower(req.Method), fmt.Sprint(w.Code)
	op, ok := d.Paths[path][method]
	if !ok {
		return
	}
	answer, ok := op.Responses[status]
	if !ok {
		t.Errorf("%s %s answers %s, which is not in openapi.json", method, path, status)
		return
	}
	if _, ok := answer.Content["application/json"]; !ok {
		return
	}
	if got := w.Header().Get("Content-Type"); !strings.HasPrefix(got, "application/json") {
		t.Errorf("%s %s answers with content type %q", method, path, got)
	}
	if strings.Contains(w.Body.String(), "%!") {
		t.Errorf("%s %s answers with a text that is formatted wrongly: %s", method, path, w.Body)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(w.Body.Bytes()))
	if err != nil {
		t.Errorf("the response to %s %s is not JSON: %v", method, path, err)
		return
	}
	if err := schemaOf(t, c, path, method, status).Validate(value); err != nil {
		t.Errorf("%s %s answers %v: %v", method, path, value, err)
	}
}

// template returns the path in openapi.json that matches the path of a request.
func template(path string) string {
	parts := strings.Split(path, "/")
	switch {
	case len(parts) > 2 && parts[1] == "orders":
		parts[2] = "{order_id}"
	case len(parts) == 4 && strings.HasPrefix(parts[1], "distr") && parts[3] != "":
		parts[2], parts[3] = "{key}", "{uuid}"
	}
	return strings.Join(parts, "/")
}

func TestDescriptionIsServed(t *testing.T) {
	text, err := os.ReadFile("openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	if w := newRig(t, settings{}).call(t, request("GET", "/openapi.json", "")); w.Body.String() != string(text) {
		t.Errorf("GET /openapi.json is not openapi.json: %.100s…", w.Body)
	}
}

// TestIndex checks that the start page links to the description of the API.
func TestIndex(t *testing.T) {
	if text := newRig(t, settings{}).call(t, request("GET", "/", "")).Body.String(); !strings.Contains(text, `"openapi":"/openapi.json"`) || strings.Contains(text, `"lab"`) {
		t.Errorf("JSON: %s", text)
	}
}

// parameter matches a parameter in a route of gin.
var parameter = regexp.MustCompile(`:(\w+)`)

func TestDescriptionHasEveryRoute(t *testing.T) {
	d, _ := readDescription()
	var described, real []string
	for path, methods := range d.Paths {
		for method := range methods {
			described = append(described, strings.ToUpper(method)+" "+path)
		}
	}
	for _, route := range newRig(t, settings{}).Handler.(*gin.Engine).Routes() {
		real = append(real, route.Method+" "+parameter.ReplaceAllString(route.Path, "{$1}"))
	}
	slices.Sort(described)
	slices.Sort(real)
	if !slices.Equal(described, real) {
		t.Errorf("described\n%s\nserved\n%s", strings.Join(described, "\n"), strings.Join(real, "\n"))
	}
}

func TestDescriptionsExamplesAreValid(t *testing.T) {
	d, c := readDescription()
	for path, methods := range d.Paths {
		for method, op := range methods {
			for status, answer := range op.Responses {
				content, ok := answer.Content["application/json"]
				if !ok {
					continue
				}
				schema := schemaOf(t, c, path, method, status)
				for _, example := range content.Examples {
					if err := schema.Validate(example.Value); err != nil {
						t.Errorf("Validate: %s %s %s: %v", method, path, status, err)
					}
				}
			}
		}
	}
}

// answerOf decodes a grab answer.
func answerOf(t *testing.T, w *httptest.ResponseRecorder) grab.Answer {
	t.Helper()
	var a grab.Answer
	if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil {
		t.Fatalf("cannot decode the answer %s: %v", w.Body, err)
	}
	return a
}

func TestGrabRefusesBadRequests(t *testing.T) {
	const good = `{"driver_id":42}`
	tests := []struct {
		name, path, body string
		status           int
		reason, text     string
	}{
		{"id no number", "/orders/x/grab", good, 400, "bad_order_id", "use a positive integer"},
		{"id zero", "/orders/0/grab", good, 400, "bad_order_id", "use a positive integer"},
		{"id negative", "/orders/-1/grab", good, 400, "bad_order_id", "use a positive integer"},
		{"id too large", "/orders/9223372036854775808/grab", good, 400, "bad_order_id", "use a positive integer"},
		{"no body", "/orders/1/grab", "", 400, "bad_body", "(EOF): send one JSON object"},
		{"no JSON", "/orders/1/grab", "driver_id=42", 400, "bad_body", "cannot be read"},
		{"torn", "/orders/1/grab", `{"driver_id":4`, 400, "bad_body", "(unexpected EOF)"},
		{"an array", "/orders/1/grab", `[42]`, 400, "bad_body", "cannot unmarshal array"},
		{"null", "/orders/1/grab", `null`, 400, "bad_body", "positive integer"},
		{"no driver", "/orders/1/grab", `{}`, 400, "bad_body", "positive integer"},
		{"driver zero", "/orders/1/grab", `{"driver_id":0}`, 400, "bad_body", "positive integer"},
		{"driver negative", "/orders/1/grab", `{"driver_id":-1}`, 400, "bad_body", "positive integer"},
		{"driver a text", "/orders/1/grab", `{"driver_id":"42"}`, 400, "bad_body", "cannot unmarshal string into Go struct field .driver_id"},
		{"driver a fraction", "/orders/1/grab", `{"driver_id":1.5}`, 400, "bad_body", "cannot unmarshal number 1.5 into Go struct field .driver_id"},
		{"driver too large", "/orders/1/grab", `{"driver_id":9223372036854775808}`, 400, "bad_body", "cannot unmarshal number 9223372036854775808 into Go struct field .driver_id"},
		{"unknown field", "/orders/1/grab", `{"driver_id":42,"x":1}`, 400, "bad_body", `unknown field "x"`},
		{"two objects", "/orders/1/grab", good + good, 400, "bad_body", "extra data after the JSON object"},
		{"unknown strategy", "/orders/1/grab?strategy=x", good, 400, "bad_strategy", `no strategy "x"`},
		{"strategy without its servers", "/orders/1/grab?strategy=redlock", good, 400, "bad_strategy", "needs Redlock nodes (-redlock)"},
		{"wait a while", "/orders/1/grab?wait=1s", good, 400, "bad_wait", "wait must be 0"},
		{"over 4 KiB", "/orders/1/grab", good + strings.Repeat(" ", 4<<10), 413, "body_too_large", "4096"},
	}
	r := newRig(t, settings{})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := r.call(t, request("POST", tt.path, tt.body))
			a := answerOf(t, w)
			if w.Code != tt.status || a.Outcome != grab.Failed || a.Reason != tt.reason || !strings.Contains(a.Error, tt.text) {
				t.Errorf("status %d, answer %+v; want %d %s: …%s…", w.Code, a, tt.status, tt.reason, tt.text)
			}
		})
	}
	if grabs, _ := r.store.Ledger(t.Context(), r.first, 100); len(grabs) != 0 {
		t.Errorf("ledger %+v, want nothing", grabs)
	}
	if keys := r.redis.Keys(); len(keys) != 0 {
		t.Errorf("keys %v, want none", keys)
	}
}

// brokenStore is a store whose reads and claims return the given errors.
type brokenStore struct {
	*order.Mem
	read, claim error
}

func (s brokenStore) Read(ctx context.Context, id int64, fence uint64) (order.Order, error) {
	if s.read != nil {
		return order.Order{}, s.read
	}
	return s.Mem.Read(ctx, id, fence)
}

func (s brokenStore) Claim(ctx context.Context, c order.Claim, g order.Guard) error {
	if s.claim != nil {
		return s.claim
	}
	return s.Mem.Claim(ctx, c, g)
}

func TestGrabAnswers(t *testing.T) {
	const path, body = "/orders/1/grab", `{"driver_id":42}`
	errDown := errors.New("connection refused")
	tests := []struct {
		name            string
		set             settings
		prepare         func(*testing.T, rig)
		path            string
		status          int
		outcome         grab.Outcome
		reason          string
		grabbed, leaves bool // whether the ledger has a row, and whether Redis has another client's key
	}{
		{name: "grabbed", status: 200, outcome: grab.Grabbed, grabbed: true},
		{name: "grabbed by another strategy", path: path + "?strategy=none", status: 200, outcome: grab.Grabbed, grabbed: true},
		{name: "taken", status: 409, outcome: grab.Taken, grabbed: true, prepare: func(t *testing.T, r rig) {
			r.call(t, request("POST", path, `{"driver_id":41}`))
		}},
		{name: "busy", status: 423, outcome: grab.Busy, leaves: true, prepare: holdLock},
		{
			name: "busy at the first try", path: path + "?wait=0", status: 423, outcome: grab.Busy, leaves: true,
			set: settings{env: lock.Env{Wait: time.Minute}}, prepare: holdLock,
		},
		{
			name: "free at the first try", path: path + "?wait=0&strategy=mutex", status: 200, outcome: grab.Grabbed, grabbed: true,
			set: settings{env: lock.Env{Wait: time.Minute}},
		},
		{name: "no such order", path: "/orders/4711/grab", status: 404, outcome: grab.Failed, reason: "not_found"},
		{
			name: "deadline while waiting", status: 504, outcome: grab.Timeout, reason: "deadline", leaves: true,
			set:     settings{env: lock.Env{Wait: time.Minute}, http: grab.HTTPConfig{Timeout: 50 * time.Millisecond}},
			prepare: holdLock,
		},
		{
			name: "deadline while working", status: 504, outcome: grab.Timeout, reason: "deadline",
			set: settings{grab: grab.Config{Work: time.Minute}, http: grab.HTTPConfig{Timeout: 50 * time.Millisecond}},
		},
		{name: "Redis down", status: 503, outcome: grab.Failed, reason: "dependency", prepare: func(t *testing.T, r rig) { r.redis.Close() }},
		{
			name: "database down", status: 503, outcome: grab.Failed, reason: "dependency",
			set: settings{grab: grab.Config{Orders: brokenStore{read: errDown}}},
		},
		{
			name: "claim not written", status: 503, outcome: grab.Failed, reason: "dependency",
			set: settings{grab: grab.Config{Orders: brokenStore{claim: fmt.Errorf("%w: %w", order.ErrNotWritten, errDown)}}},
		},
		{
			name: "claim unknown", status: 504, outcome: grab.Timeout, reason: "unknown",
			set: settings{grab: grab.Config{Orders: brokenStore{claim: errDown}}},
		},
		{
			name: "stale", status: 503, outcome: grab.Failed, reason: "stale",
			set: settings{grab: grab.Config{Orders: brokenStore{claim: order.ErrStale}}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, tt.set)
			if tt.prepare != nil {
				tt.prepare(t, r)
			}
			if tt.path == "" {
				tt.path = path
			}
			w := r.call(t, request("POST", tt.path, body))
			a := answerOf(t, w)
			if w.Code != tt.status || a.Outcome != tt.outcome || a.Reason != tt.reason {
				t.Errorf("status %d, answer %+v; want %d %s %s", w.Code, a, tt.status, tt.outcome, tt.reason)
			}
			if a.Instance != "8004" || a.Driver != 42 || a.Strategy == "" {
				t.Errorf("the answer %+v has a wrong instance or driver, or no strategy", a)
			}
			if failed := a.Outcome == grab.Failed || a.Outcome == grab.Timeout; (a.Error != "") != failed {
				t.Errorf("%s has the error %q", a.Outcome, a.Error)
			}
			if grabs, _ := r.store.Ledger(t.Context(), 1, 1); (len(grabs) == 1) != tt.grabbed {
				t.Errorf("the ledger has the rows %+v", grabs)
			}
			if keys := r.redis.Keys(); (len(keys) > 0) != tt.leaves {
				t.Errorf("the keys in Redis are %v", keys)
			}
		})
	}
}

// holdLock makes another client hold the lock of order 1.
func holdLock(t *testing.T, r rig) { r.redis.Set("grab:setnx:{1}", "another client") }

// TestGrabLosesItsLease checks that a lost lease ends the work of a grab. The grab must write nothing,
// and its client must get an error.
func TestGrabLosesItsLease(t *testing.T) {
	r := newRig(t, settings{grab: grab.Config{Strategy: "watchdog", Work: time.Minute}, env: lock.Env{TTL: 300 * time.Millisecond}})
	answered := make(chan *httptest.ResponseRecorder)
	go func() {
		w := httptest.NewRecorder()
		r.ServeHTTP(w, request("POST", "/orders/1/grab", `{"driver_id":42}`))
		answered <- w
	}()
	eventually(t, "the lock is taken", func() bool { return len(r.redis.Keys()) > 0 })
	r.redis.FlushAll()
	w := <-answered
	described(t, request("POST", "/orders/1/grab", ""), w)
	if grabs, _ := r.store.Ledger(t.Context(), 1, 1); w.Code != 503 || len(grabs) != 0 {
		t.Errorf("%d %s, ledger %+v; want 503 and nothing", w.Code, w.Body, grabs)
	}
}

// TestGrabOfClientThatHangsUp checks that clients that disconnect while their grabs work or wait leave
// no lock and no row behind.
func TestGrabOfClientThatHangsUp(t *testing.T) {
	for _, strategy := range []string{"none", "mutex", "setnx", "watchdog"} {
		t.Run(strategy, func(t *testing.T) {
			metrics := grab.NewMetrics()
			r := newRig(t, settings{
				grab: grab.Config{Strategy: strategy, Work: time.Minute}, env: lock.Env{Wait: time.Minute},
				http: grab.HTTPConfig{Metrics: metrics},
			})
			server := httptest.NewServer(r)
			defer server.Close()
			ctx, hangUp := context.WithCancel(t.Context())
			const clients = 3
			ended := make(chan error, clients)
			for range clients {
				req, err := http.NewRequestWithContext(ctx, "POST", server.URL+"/orders/1/grab", strings.NewReader(`{"driver_id":42}`))
				if err != nil {
					t.Fatal(err)
				}
				go func() {
					resp, err := http.DefaultClient.Do(req)
					if err == nil {
						resp.Body.Close()
					}
					ended <- err
				}()
			}
			eventually(t, "all grabs are in flight", func() bool { return gauge(t, metrics, "grab_in_flight") == clients })
			hangUp()
			for range clients {
				if err := <-ended; !errors.Is(err, context.Canceled) {
					t.Errorf("client: %v, want cancelled", err)
				}
			}
			eventually(t, "no grab is in flight", func() bool { return gauge(t, metrics, "grab_in_flight") == 0 })
			if keys := r.redis.Keys(); len(keys) != 0 {
				t.Errorf("keys %v, want none", keys)
			}
			if grabs, _ := r.store.Ledger(t.Context(), 1, 1); len(grabs) != 0 {
				t.Errorf("ledger %+v, want nothing", grabs)
			}
			// The lock must be free, so the next driver must get it.
			w := httptest.NewRecorder()
			short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			r.ServeHTTP(w, request("POST", "/orders/1/grab", `{"driver_id":43}`).WithContext(short))
			if a := answerOf(t, w); a.HeldMS == 0 {
				t.Errorf("the next driver: %+v, want it to have held the lock", a)
			}
		})
	}
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 10 s: %s", what)
		}
	}
}

// seriesOf returns all series of a metric, or nil if it has none yet.
func seriesOf(t *testing.T, m *grab.Metrics, name string) []*dto.Metric {
	t.Helper()
	families, err := m.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return catalog.First(families, func(f *dto.MetricFamily) bool { return f.GetName() == name }).GetMetric()
}

// gauge reads a metric without labels.
func gauge(t *testing.T, m *grab.Metrics, name string) float64 {
	t.Helper()
	if all := seriesOf(t, m, name); len(all) > 0 {
		return all[0].GetGauge().GetValue()
	}
	t.Fatalf("no metric %s", name)
	return 0
}

func TestMetricsCountGrabs(t *testing.T) {
	r := newRig(t, settings{})
	for range 3 {
		r.call(t, request("POST", "/orders/1/grab", `{"driver_id":42}`))
	}
	r.call(t, request("POST", "/orders/x/grab", `{"driver_id":42}`)) // no grab
	text := r.call(t, request("GET", "/metrics", "")).Body.String()
	for _, want := range []string{
		`grab_grabs_total{outcome="grabbed",strategy="setnx"} 1`,
		`grab_grabs_total{outcome="taken",strategy="setnx"} 2`,
		`grab_duration_seconds_count{strategy="setnx"} 3`,
		`grab_lock_wait_seconds_count{strategy="setnx"} 3`,
		`grab_lock_hold_seconds_count{strategy="setnx"} 3`,
		`grab_in_flight 0`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("metrics lack %s", want)
		}
	}
}

func TestCalls(t *testing.T) {
	tests := []struct {
		name, method, path, body string
		status                   int
		contains                 string
	}{
		{"order", "GET", "/orders/1", "", 200, `"grabs":[]`},
		{"no such order", "GET", "/orders/4711", "", 404, "order 4711 does not exist"},
		{"order's id is none", "GET", "/orders/x", "", 400, "use a positive integer"},
		{"open orders", "POST", "/orders", `{"count":3}`, 201, `{"first_id":101,"count":3}`},
		{"open none", "POST", "/orders", `{"count":0}`, 400, "count must be"},
		{"open minus one", "POST", "/orders", `{"count":-1}`, 400, "count must be"},
		{"open too many", "POST", "/orders", `{"count":500001}`, 400, "count must be"},
		{"open one unit each", "POST", "/orders", `{"count":3,"stock":1}`, 201, `{"first_id":101,"count":3}`},
		{"open several units each", "POST", "/orders", `{"count":3,"stock":5}`, 201, `{"first_id":101,"count":3,"stock":5}`},
		{"open no unit", "POST", "/orders", `{"count":3,"stock":0}`, 400, "stock must be"},
		{"open too many units", "POST", "/orders", `{"count":3,"stock":1000001}`, 400, "stock must be"},
		{"open what", "POST", "/orders", ``, 400, "(EOF)"},
		{"open at length", "POST", "/orders", strings.Repeat(" ", 4<<10+1), 413, "4096"},
		{"strategies", "GET", "/strategies", "", 200, `"name":"none"`},
		{"strategy", "GET", "/strategy", "", 200, `{"name":"setnx","lease_ms":30000}`},
		{"switch", "PUT", "/strategy", `{"name":"none"}`, 200, `{"name":"none","lease_ms":30000}`},
		{"switch to nothing", "PUT", "/strategy", `{"name":""}`, 400, `no strategy \"\"`},
		{"switch to the unknown", "PUT", "/strategy", `{"name":"x"}`, 400, `no strategy \"x\"`},
		{"switch to the unavailable", "PUT", "/strategy", `{"name":"redlock"}`, 400, "needs Redlock nodes (-redlock)"},
		{"switch how", "PUT", "/strategy", `{"strategy":"none"}`, 400, "unknown field"},
		{"alive", "GET", "/healthz", "", 200, `"instance":"8004"`},
		{"ready", "GET", "/readyz", "", 200, `"ready":true`},
		{"no such path", "GET", "/order/1", "", 404, `"error":"unknown path /order/1: `},
		{"path with a slash too many", "GET", "/strategy/", "", 404, `"error"`},
		{"no such method", "DELETE", "/orders/1", "", 405, `"error":"/orders/1 does not support DELETE: `},
		{"grab by GET", "GET", "/orders/1/grab", "", 405, `does not support GET`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := httptest.NewRecorder()
			req := request(tt.method, tt.path, tt.body)
			newRig(t, settings{}).ServeHTTP(w, req)
			if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.contains) {
				t.Errorf("status %d %s, want %d …%s…", w.Code, w.Body, tt.status, tt.contains)
			}
			described(t, req, w)
		})
	}
}

// TestOrderShowsItsLedger checks that each order shows its own winner and ledger row, and no other.
func TestOrderShowsItsLedger(t *testing.T) {
	r := newRig(t, settings{})
	for id := int64(3); id >= 1; id-- {
		path, driver := fmt.Sprint("/orders/", id), 40+id
		won := answerOf(t, r.call(t, request("POST", path+"/grab", fmt.Sprintf(`{"driver_id":%d}`, driver))))
		var got grab.OrderView
		w := r.call(t, request("GET", path, ""))
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if got.Status != order.Grabbed || got.Driver != driver || len(got.Grabs) != 1 || got.Grabs[0].Token != won.Token || got.Grabs[0].Strategy != "setnx" {
			t.Errorf("%s, want only the grab of driver %d with token %s", w.Body, driver, won.Token)
		}
	}
}

// TestUnitsOfAnOrder checks that only an order of several units shows how many it has, and how many are left.
func TestUnitsOfAnOrder(t *testing.T) {
	r := newRig(t, settings{})
	for units, want := range map[int][]string{1: nil, 2: {"stock", "units"}} {
		id, err := r.store.Create(t.Context(), 1, units)
		if err != nil {
			t.Fatal(err)
		}
		var row map[string]any
		w := r.call(t, request("GET", fmt.Sprint("/orders/", id), ""))
		if err := json.Unmarshal(w.Body.Bytes(), &row); err != nil {
			t.Fatal(err)
		}
		maps.DeleteFunc(row, func(name string, value any) bool {
			return name != "stock" && name != "units" || value != float64(units)
		})
		if got := slices.Sorted(maps.Keys(row)); !slices.Equal(got, want) {
			t.Errorf("an order of %d shows %v with this number, want %v: %s", units, got, want, w.Body)
		}
		if shows := strings.Contains(w.Body.String(), `"stock"`); shows != (units > 1) {
			t.Errorf("an order of %d shows its stock: %v", units, shows)
		}
	}
}

// TestReadsChangeNothing checks that no GET request of the API changes the orders, the ledger or the
// data in Redis.
func TestReadsChangeNothing(t *testing.T) {
	r := newRig(t, settings{})
	r.call(t, request("POST", "/orders/2/grab", `{"driver_id":42}`))
	state := func() string {
		rows, err := r.store.Ledger(t.Context(), r.first, 100)
		all := []any{rows, err, r.redis.Dump()}
		for id := range int64(3) {
			row, err := r.store.Read(t.Context(), r.first+id, 0)
			all = append(all, row, err)
		}
		return fmt.Sprint(all...)
	}
	before, asked := state(), 0
	for _, route := range r.Handler.(*gin.Engine).Routes() {
		if route.Method != http.MethodGet {
			continue
		}
		asked++
		for _, id := range []string{"1", "2", "999"} {
			r.call(t, request(route.Method, parameter.ReplaceAllString(route.Path, id), ""))
			if after := state(); after != before {
				t.Fatalf("GET %s with %s: %s, want %s", route.Path, id, after, before)
			}
		}
	}
	if asked < 7 {
		t.Errorf("the API has %d routes for GET, want at least 7", asked)
	}
}

func TestCheckToken(t *testing.T) {
	for token, ok := range map[string]bool{
		"": true, "secret": true, "two words": true, "tab\tinside": true,
		" secret": false, "secret ": false, "secret\t": false, "a\nb": false, "a\x00b": false, "a\x7fb": false,
	} {
		if err := grab.CheckToken(token); (err == nil) != ok {
			t.Errorf("CheckToken(%q): %v", token, err)
		}
	}
}

// TestStrategiesSayWhatIsAvailable checks that a strategy is available if the instance has its servers. The
// check must leave no database session open.
func TestStrategiesSayWhatIsAvailable(t *testing.T) {
	var got []grab.StrategyView
	r := newRig(t, settings{})
	w := r.call(t, request("GET", "/strategies", ""))
	if n := r.store.Sessions(); n != 0 {
		t.Errorf("%d sessions are open", n)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if len(got) != len(lock.Strategies) {
		t.Errorf("%d strategies, want %d", len(got), len(lock.Strategies))
	}
	for _, st := range got {
		if len(st.Expect) != len(catalog.RunFaults) {
			t.Errorf("%s has an expectation for %d faults, want %d", st.Name, len(st.Expect), len(catalog.RunFaults))
		}
		known, err := lock.Find(st.Name)
		if err != nil {
			t.Fatal(err)
		}
		if want := known.Needs&^(lock.Redis|lock.SQL|lock.SQLLocks) == 0; st.Available != want {
			t.Errorf("%s is available: %v, want %v", st.Name, st.Available, want)
		}
	}
}

// TestEverySetOfServers checks for each set of servers that an instance offers exactly the strategies that
// need no other server, and says which servers the others need.
func TestEverySetOfServers(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer client.Close()
	servers := []struct {
		needs lock.Backend
		add   func(*lock.Env)
	}{
		{lock.Redis, func(e *lock.Env) { e.Redis = client }},
		{lock.RedisQuorum, func(e *lock.Env) { e.Redlock = []redis.UniversalClient{client, client, client} }},
		{lock.SQL | lock.SQLLocks, func(e *lock.Env) { e.Orders = new(order.Mem) }},
		{lock.ZooKeeper, func(e *lock.Env) { e.ZooKeeper = &lock.Ensemble{} }},
		{lock.Etcd, func(e *lock.Env) { e.Etcd = new(clientv3.Client) }},
	}
	for set := range 1 << len(servers) {
		var given lock.Backend
		var env lock.Env
		for i, s := range servers {
			if set>>i&1 == 1 {
				given |= s.needs
				s.add(&env)
			}
		}
		service, err := grab.New(grab.Config{Orders: new(order.Mem), Strategy: "none", Lock: env})
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		newHandler(service, grab.HTTPConfig{}).ServeHTTP(w, request("GET", "/strategies", ""))
		var views []grab.StrategyView
		if err := json.Unmarshal(w.Body.Bytes(), &views); err != nil {
			t.Fatal(err)
		}
		for _, v := range views {
			st, err := lock.Find(v.Name)
			if err != nil {
				t.Fatal(err)
			}
			if want := st.Needs&^given == 0; v.Available != want || (v.Missing == "") != want {
				t.Errorf("set %b: %s is available: %v, missing %q", set, v.Name, v.Available, v.Missing)
			}
		}
	}
}

// sessionless is a store whose Begin fails with err.
type sessionless struct {
	*order.Mem
	err error
}

func (s sessionless) Begin(context.Context) (order.Tx, error) { return nil, s.err }

// TestOnlyUnsupportedMeansMissing checks that strategies with row locks are unavailable only if the
// database reports ErrUnsupported. After any other error, for example if all sessions are in use, the
// database may still support row locks.
func TestOnlyUnsupportedMeansMissing(t *testing.T) {
	for _, err := range []error{
		order.ErrUnsupported, fmt.Errorf("SQLite: %w", order.ErrUnsupported),
		order.ErrExhausted, context.DeadlineExceeded, errors.New("connection refused"),
	} {
		store := sessionless{new(order.Mem), err}
		service, failed := grab.New(grab.Config{
			Orders: store, Strategy: "none",
			Lock: lock.Env{Orders: store, TTL: time.Minute, Now: time.Now, Token: rand.Text, Rand: mathrand.Float64},
		})
		if failed != nil {
			t.Fatal(failed)
		}
		missing := errors.Is(err, order.ErrUnsupported)
		w := httptest.NewRecorder()
		newHandler(service, grab.HTTPConfig{}).ServeHTTP(w, request("GET", "/strategies", ""))
		var views []grab.StrategyView
		if err := json.Unmarshal(w.Body.Bytes(), &views); err != nil {
			t.Fatal(err)
		}
		for _, v := range views {
			if needs := strings.HasPrefix(v.Name, "mysql-get") || v.Name == "mysql-forupdate"; needs && v.Available == missing {
				t.Errorf("%v: %s is available: %v, missing %q", err, v.Name, v.Available, v.Missing)
			}
		}
		failed = service.Switch("mysql-getlock")
		if says := failed != nil && strings.Contains(failed.Error(), "row locks"); says != missing {
			t.Errorf("%v: a switch to mysql-getlock returns %v", err, failed)
		}
	}
}

// TestSwitchLeavesGrabsAlone checks that a switch of the strategy affects only later grabs. A grab in
// flight must end with the strategy with which it started.
func TestSwitchLeavesGrabsAlone(t *testing.T) {
	r := newRig(t, settings{grab: grab.Config{Work: 300 * time.Millisecond}})
	answered := make(chan grab.Answer)
	go func() {
		w := httptest.NewRecorder()
		r.ServeHTTP(w, request("POST", "/orders/1/grab", `{"driver_id":42}`))
		answered <- answerOf(t, w)
	}()
	eventually(t, "the lock is taken", func() bool { return r.redis.Exists("grab:setnx:{1}") })
	r.call(t, request("PUT", "/strategy", `{"name":"none"}`))
	if a := <-answered; a.Outcome != grab.Grabbed || a.Strategy != "setnx" {
		t.Errorf("%+v, want grabbed under setnx", a)
	}
	if a := answerOf(t, r.call(t, request("POST", "/orders/2/grab", `{"driver_id":42}`))); a.Strategy != "none" {
		t.Errorf("%+v, want strategy none", a)
	}
}

// TestReadyzTellsWhatIsWrong checks the response, and that the log has one line for each change.
func TestReadyzTellsWhatIsWrong(t *testing.T) {
	checks := map[string]error{"db": nil, "redis": errors.New("connection refused")}
	var ready bool
	var log strings.Builder
	r := newRig(t, settings{http: grab.HTTPConfig{
		Log: slog.New(slog.NewTextHandler(&log, nil)),
		Ready: func(ctx context.Context) (map[string]error, bool) {
			if _, ok := ctx.Deadline(); !ok {
				t.Error("no deadline")
			}
			return checks, ready
		},
	}})
	missing, again := `msg="not ready" checks="map[db:ok redis:connection refused]"`, `msg="ready again"`
	for n, step := range []struct {
		ready  bool
		logged string
	}{{true, ""}, {false, missing}, {false, ""}, {true, again}, {true, ""}, {false, missing}} {
		log.Reset()
		ready = step.ready
		w := r.call(t, request("GET", "/readyz", ""))
		want := fmt.Sprintf(`{"ready":%v,"checks":{"db":"ok","redis":"connection refused"}}`, ready)
		if (w.Code == 200) != ready || w.Body.String() != want {
			t.Errorf("call %d of /readyz: status %d %s, want %s", n, w.Code, w.Body, want)
		}
		if (log.Len() > 0) != (step.logged != "") || !strings.Contains(log.String(), step.logged) {
			t.Errorf("%d: the log has %q, want %q", n, log.String(), step.logged)
		}
	}
}

func TestAccess(t *testing.T) {
	public := grab.HTTPConfig{Public: true, AdminToken: "secret"}
	tests := []struct {
		name   string
		http   grab.HTTPConfig
		host   string
		header [2]string
		status int
	}{
		{"loopback", grab.HTTPConfig{}, "127.0.0.1:8004", [2]string{}, 200},
		{"localhost", grab.HTTPConfig{}, "LocalHost:8004", [2]string{}, 200},
		{"IPv6", grab.HTTPConfig{}, "[::1]:8004", [2]string{}, 200},
		{"IPv6 without a port", grab.HTTPConfig{}, "[::1]", [2]string{}, 200},
		{"rebound name", grab.HTTPConfig{}, "evil.example:8004", [2]string{}, 403},
		{"another address", grab.HTTPConfig{}, "10.0.0.1:8004", [2]string{}, 403},
		{"page of another site", grab.HTTPConfig{}, "127.0.0.1:8004", [2]string{"Origin", "http://evil.example"}, 403},
		{"page of another site, as browsers say", grab.HTTPConfig{}, "127.0.0.1:8004", [2]string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"its own page", grab.HTTPConfig{}, "127.0.0.1:8004", [2]string{"Origin", "http://127.0.0.1:8004"}, 200},
		{"beyond loopback, token", public, "grab.example", [2]string{"Authorization", "Bearer secret"}, 200},
		{"beyond loopback, in small letters", public, "grab.example", [2]string{"Authorization", "bearer secret"}, 200},
		{"beyond loopback, in capital letters", public, "grab.example", [2]string{"Authorization", "BEARER secret"}, 200},
		{"beyond loopback, no token", public, "grab.example", [2]string{}, 401},
		{"beyond loopback, wrong token", public, "grab.example", [2]string{"Authorization", "Bearer secreT"}, 401},
		{"beyond loopback, part of it", public, "grab.example", [2]string{"Authorization", "Bearer secre"}, 401},
		{"beyond loopback, other scheme", public, "grab.example", [2]string{"Authorization", "Basic secret"}, 401},
		{"beyond loopback, none set", grab.HTTPConfig{Public: true}, "grab.example", [2]string{"Authorization", "Bearer "}, 403},
	}
	for _, tt := range tests {
		for _, call := range [][3]string{{"PUT", "/strategy", `{"name":"none"}`}, {"POST", "/orders", `{"count":1}`}, {"POST", "/distrLock/k/a", ""}, {"POST", "/distrUnlock/k/a", ""}} {
			t.Run(tt.name+" "+call[1], func(t *testing.T) {
				r := newRig(t, settings{http: tt.http})
				req := request(call[0], call[1], call[2])
				req.Host = tt.host
				if tt.header[0] != "" {
					req.Header.Set(tt.header[0], tt.header[1])
				}
				w := r.call(t, req)
				if got := w.Code; got != tt.status && (tt.status != 200 || got != 201) {
					t.Errorf("status %d, want %d", got, tt.status)
				}
				if challenge := w.Header().Get("WWW-Authenticate"); (challenge == `Bearer realm="grabsvc"`) != (tt.status == 401) {
					t.Errorf("status %d with the header WWW-Authenticate: %q", w.Code, challenge)
				}
			})
		}
	}
}

// TestGrabNeedsNoToken checks that a client can grab on a public instance without a token.
func TestGrabNeedsNoToken(t *testing.T) {
	r := newRig(t, settings{http: grab.HTTPConfig{Public: true}})
	req := request("POST", "/orders/1/grab", `{"driver_id":42}`)
	req.Host = "grab.example"
	if w := r.call(t, req); w.Code != 200 {
		t.Errorf("grab without a token: status %d %s", w.Code, w.Body)
	}
}

// TestStrategyOfAGrabNeedsTheToken checks that a client of a public instance can choose a strategy only
// with the admin token. Even with the token, it must not be able to choose a known-broken strategy.
func TestStrategyOfAGrabNeedsTheToken(t *testing.T) {
	public := grab.HTTPConfig{Public: true, AdminToken: "secret"}
	for _, tt := range []struct {
		http     grab.HTTPConfig
		strategy string
		token    bool
		status   int
	}{
		{grab.HTTPConfig{}, "none", false, 200},
		{grab.HTTPConfig{}, "setnx-late-fence", false, 200},
		{public, "none", false, 401},
		{public, "none", true, 200},
		{public, "setnx-late-fence", true, 400},
		{grab.HTTPConfig{Public: true}, "none", true, 403},
	} {
		r := newRig(t, settings{http: tt.http})
		for _, call := range [][3]string{
			{"POST", "/orders/1/grab?strategy=" + tt.strategy, `{"driver_id":42}`},
			{"PUT", "/strategy", `{"name":"` + tt.strategy + `"}`},
		} {
			req := request(call[0], call[1], call[2])
			if tt.http.Public {
				req.Host = "grab.example"
			}
			if tt.token {
				req.Header.Set("Authorization", "Bearer secret")
			}
			w := r.call(t, req)
			if w.Code != tt.status {
				t.Errorf("%+v: %s returned status %d: %s", tt, call[1], w.Code, w.Body)
			}
			if says := fmt.Sprintf(`unknown strategy \"%s\": use one of none, mutex, `, tt.strategy); tt.status == 400 && !strings.Contains(w.Body.String(), says) {
				t.Errorf("%s: response %s, want …%s…", call[1], w.Body, says)
			}
			if tt.status == 400 && call[0] == "POST" && answerOf(t, w).Reason != "bad_strategy" {
				t.Errorf("the reason should be bad_strategy, but the answer is %s", w.Body)
			}
		}
	}
}

// slowToBuild returns a strategy whose New closes building, and then waits until may is closed.
func slowToBuild(building, may chan struct{}) lock.Strategy {
	s, _ := lock.Find("none")
	s.Name = "slow"
	build := s.New
	s.New = func(env lock.Env) (lock.Locker, error) {
		close(building)
		<-may
		return build(env)
	}
	return s
}

// TestBuildingDelaysNoOther checks that grabs with other strategies succeed while one strategy is
// still building its lock.
func TestBuildingDelaysNoOther(t *testing.T) {
	building, may := make(chan struct{}), make(chan struct{})
	slow := slowToBuild(building, may)
	r := newRig(t, settings{grab: grab.Config{Find: func(name string) (lock.Strategy, error) {
		if name == slow.Name {
			return slow, nil
		}
		return lock.Find(name)
	}}})
	var waiting sync.WaitGroup
	for driver := range 2 {
		waiting.Go(func() {
			if w := r.call(t, request("POST", "/orders/1/grab?strategy=slow", fmt.Sprintf(`{"driver_id":%d}`, driver+1))); w.Code != 200 && w.Code != 409 {
				t.Errorf("grab with the slow strategy: status %d %s", w.Code, w.Body)
			}
		})
	}
	<-building
	for _, name := range []string{"setnx", "mutex"} {
		if w := r.call(t, request("POST", "/orders/2/grab?strategy="+name, `{"driver_id":42}`)); w.Code != 200 && w.Code != 409 {
			t.Errorf("grab with %s: status %d %s", name, w.Code, w.Body)
		}
	}
	close(may)
	waiting.Wait()
}

// TestNoKeysOfOrdersThatDoNotExist checks that a grab of an order that does not exist leaves no key in
// Redis.
func TestNoKeysOfOrdersThatDoNotExist(t *testing.T) {
	r := newRig(t, settings{})
	for _, s := range slices.Concat(lock.Strategies, lock.KnownBroken) {
		if s.Needs&^(lock.Redis|lock.SQL) != 0 {
			continue
		}
		if w := r.call(t, request("POST", "/orders/999/grab?strategy="+s.Name, `{"driver_id":42}`)); w.Code != 404 {
			t.Errorf("grab with %s: status %d %s, want 404", s.Name, w.Code, w.Body)
		}
		if keys := r.redis.Keys(); len(keys) != 0 {
			t.Errorf("a grab with %s of an order that does not exist leaves the keys %v", s.Name, keys)
			r.redis.FlushAll()
		}
	}
}

// newMemRig returns a handler that needs no Redis server and no sockets. Each grab works for the given
// time.
func newMemRig(t *testing.T, work time.Duration) http.Handler {
	t.Helper()
	store := new(order.Mem)
	if _, err := store.Create(t.Context(), 100, 1); err != nil {
		t.Fatal(err)
	}
	service, err := grab.New(grab.Config{
		Instance: "8004", Orders: store, Strategy: "mutex", Work: work,
		Lock: lock.Env{Orders: store, TTL: time.Minute, Now: time.Now, Token: rand.Text, Rand: mathrand.Float64},
	})
	if err != nil {
		t.Fatal(err)
	}
	return newHandler(service, grab.HTTPConfig{})
}

// oneConn is a listener that accepts one connection.
type oneConn struct{ conn net.Conn }

func (l *oneConn) Accept() (net.Conn, error) {
	if l.conn == nil {
		return nil, net.ErrClosed
	}
	conn := l.conn
	l.conn = nil
	return conn, nil
}

func (l *oneConn) Close() error   { return nil }
func (l *oneConn) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// TestSlowBody checks that a request fails if its body takes too long to arrive. A body that arrives
// slowly, but in time, must not end the request, even if the grab then works for longer than that.
func TestSlowBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newMemRig(t, 20*time.Second)
		for _, tt := range []struct {
			pause  time.Duration
			status string
		}{{4999 * time.Millisecond, "200"}, {5001 * time.Millisecond, "408"}} {
			here, there := net.Pipe()
			served := make(chan struct{})
			server := &http.Server{Handler: r, ReadTimeout: time.Hour}
			go func() {
				defer close(served)
				_ = server.Serve(&oneConn{conn: there})
			}()
			body := `{"driver_id":42}`
			fmt.Fprintf(here, "POST /orders/%s/grab HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n", tt.status[:1], len(body))
			go func() {
				for i := range len(body) {
					time.Sleep(tt.pause / time.Duration(len(body)))
					if _, err := io.WriteString(here, body[i:i+1]); err != nil {
						return
					}
				}
			}()
			answer, err := bufio.NewReader(here).ReadString('\n')
			if err != nil || !strings.Contains(answer, " "+tt.status+" ") {
				t.Errorf("after %v: %q, %v", tt.pause, answer, err)
			}
			_ = here.Close()
			_ = server.Close()
			<-served
		}
	})
}

type panickingStore struct {
	*order.Mem
	with any
}

func (s panickingStore) Read(context.Context, int64, uint64) (order.Order, error) { panic(s.with) }

// TestPanicIsAnswered checks that a driver never gets status 200 after a panic, even if the reason is a
// broken connection to a server.
func TestPanicIsAnswered(t *testing.T) {
	for _, with := range []any{"boom", fmt.Errorf("redis: %w", syscall.ECONNRESET)} {
		metrics := grab.NewMetrics()
		r := newRig(t, settings{grab: grab.Config{Orders: panickingStore{with: with}}, http: grab.HTTPConfig{Metrics: metrics}})
		w := httptest.NewRecorder()
		r.ServeHTTP(w, request("POST", "/orders/1/grab", `{"driver_id":42}`))
		if w.Code != 500 || w.Body.String() != `{"error":"internal error"}` {
			t.Errorf("panic with %v: status %d %s", with, w.Code, w.Body)
		}
		if n := gauge(t, metrics, "grab_in_flight"); n != 0 {
			t.Errorf("%v: %v grabs in flight", with, n)
		}
		if keys := r.redis.Keys(); len(keys) != 0 {
			t.Errorf("%v: keys %v, want none", with, keys)
		}
	}
}

func BenchmarkGrab(b *testing.B) {
	store := new(order.Mem)
	if _, err := store.Create(b.Context(), 1, 1); err != nil {
		b.Fatal(err)
	}
	service, err := grab.New(grab.Config{Instance: "8004", Orders: store, Strategy: "none", Lock: lock.Env{Token: rand.Text}})
	if err != nil {
		b.Fatal(err)
	}
	h := newHandler(service, grab.HTTPConfig{})
	b.ReportAllocs()
	for b.Loop() {
		req := request("POST", "/orders/1/grab", `{"driver_id":42}`)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		io.Copy(io.Discard, w.Body)
	}
}
