package grab

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/order"

	"github.com/gin-gonic/gin"
)

// HTTPConfig configures the HTTP API of an instance.
type HTTPConfig struct {
	// Timeout is the timeout for a grab, including the wait for the lock. It does not apply to
	// recording the winner or releasing the lock, because both have their own timeouts.
	Timeout time.Duration
	// Public means that other hosts can reach the API. Calls that change state then require
	// AdminToken. If AdminToken is empty, the API refuses these calls.
	Public     bool
	AdminToken string
	// Ready checks all servers that the instance needs. checks maps each server name to its error,
	// or to nil if the server works. ready reports whether enough servers work.
	Ready   func(context.Context) (checks map[string]error, ready bool)
	Metrics *Metrics
	Log     *slog.Logger
	Lab     string // URL of a web page about this instance; may be empty
}

// These are the limits for a request.
const (
	maxBody     = 4 << 10 // in bytes
	bodyTimeout = 5 * time.Second
	maxOrders   = order.MaxCreate // the maximum number of orders per call
)

//go:embed openapi.json
var openAPI []byte

// NewHandler returns a handler that serves a Service's HTTP API. openapi.json describes the API.
func NewHandler(s *Service, cfg HTTPConfig) http.Handler {
	return api{s, cfg}.routes()
}

type api struct {
	*Service
	http HTTPConfig
}

// routes returns the handler for all paths of the API.
func (a api) routes() *gin.Engine {
	gin.SetMode(gin.ReleaseMode)
	r := gin.New()
	r.HandleMethodNotAllowed = true
	r.RedirectTrailingSlash = false
	r.Use(a.recover, a.sameSite)
	r.NoRoute(func(c *gin.Context) {
		refuse(c, http.StatusNotFound, "unknown path %s: see /openapi.json", c.Request.URL.Path)
	})
	r.NoMethod(func(c *gin.Context) {
		refuse(c, http.StatusMethodNotAllowed, "%s does not support %s: see /openapi.json", c.Request.URL.Path, c.Request.Method)
	})

	r.GET("/", a.index)
	r.POST("/orders/:order_id/grab", a.grab)
	r.GET("/orders/:order_id", a.json(http.StatusOK, a.order))
	r.POST("/orders", a.admin, a.json(http.StatusCreated, a.open))
	r.GET("/strategies", a.json(http.StatusOK, a.strategies))
	r.GET("/strategy", a.json(http.StatusOK, a.strategy))
	r.PUT("/strategy", a.admin, a.json(http.StatusOK, a.switchTo))
	r.POST("/distrLock/:key/:uuid", a.admin, a.json(http.StatusOK, a.distrLock))
	r.POST("/distrUnlock/:key/:uuid", a.admin, a.json(http.StatusOK, a.distrUnlock))
	r.GET("/healthz", a.json(http.StatusOK, a.healthz))
	r.GET("/readyz", a.readyz())
	r.GET("/metrics", gin.WrapH(a.http.Metrics.handler()))
	r.GET("/openapi.json", func(c *gin.Context) { c.Data(http.StatusOK, "application/json", openAPI) })
	return r
}

// Index is the response body of GET /, with links to the instance's API and web page.
type Index struct {
	Service  string `json:"service"`
	Instance string `json:"instance"`
	Strategy string `json:"strategy"`
	OpenAPI  string `json:"openapi"`
	Lab      string `json:"lab,omitempty"` // URL of the lab's page; empty if the lab did not start this instance
}

func (a api) index(c *gin.Context) {
	c.JSON(http.StatusOK, Index{
		Service:  "One instance of a service that lets drivers grab orders",
		Instance: a.cfg.Instance,
		Strategy: a.Strategy(),
		OpenAPI:  "/openapi.json",
		Lab:      a.http.Lab,
	})
}

// json returns a handler that calls do and sends its result or error as JSON.
func (a api) json(status int, do func(context.Context, *gin.Context) (any, error)) gin.HandlerFunc {
	return func(c *gin.Context) {
		ctx, cancel := context.WithTimeout(c.Request.Context(), a.http.Timeout)
		defer cancel()
		body, err := do(ctx, c)
		var bad *requestError
		switch {
		case err == nil:
			c.JSON(status, body)
		case errors.As(err, &bad):
			refuse(c, bad.status, "%s", bad.text)
		case errors.Is(err, order.ErrNotFound):
			refuse(c, http.StatusNotFound, "order %s does not exist: check the id, or open orders with POST /orders", c.Param("order_id"))
		default:
			refuse(c, http.StatusServiceUnavailable, "%s", oneLine(err))
		}
	}
}

// grab handles POST /orders/{order_id}/grab.
func (a api) grab(c *gin.Context) {
	if c.Query("strategy") != "" {
		if a.admin(c); c.IsAborted() {
			return
		}
	}
	req, err := a.readGrab(c)
	if err != nil {
		a.refuseGrab(c, req, err)
		return
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), a.http.Timeout)
	defer cancel()

	ctx = a.cfg.Trace.Extract(ctx, c.Request.Header)
	ans := a.http.Metrics.count(func() Answer { return a.Grab(ctx, req) })
	c.JSON(ans.Status, ans)
}

// readGrab reads a grab's parameters from the path, the query and the body.
func (a api) readGrab(c *gin.Context) (Request, error) {
	req := Request{Strategy: c.Query("strategy")}
	if req.Strategy != "" {
		if err := a.mayUse(req.Strategy); err != nil {
			return req, err
		}
	}
	id, err := orderID(c)
	if err != nil {
		return req, err
	}
	req.Order = id
	if wait, ok := c.GetQuery("wait"); ok {
		if wait != "0" {
			return req, badRequest("bad_wait", "wait must be 0, which tries once: use 0 or leave it out")
		}
		req.TryOnce = true
	}
	var body struct {
		Driver int64 `json:"driver_id"`
	}
	if err := readBody(c, &body); err != nil {
		return req, err
	}
	if body.Driver <= 0 {
		return req, badRequest("bad_body", "driver_id must be a positive integer, as in {\"driver_id\": 42}")
	}
	req.Driver = body.Driver
	return req, nil
}

// refuseGrab responds to an invalid request. The response has the same JSON format as for a valid
// request, so clients need only one parser.
func (a api) refuseGrab(c *gin.Context, req Request, err error) {
	ans := Answer{
		Outcome: Failed, Order: req.Order, Driver: req.Driver,
		Instance: a.cfg.Instance, Strategy: cmp.Or(req.Strategy, a.Strategy()), Error: err.Error(),
	}
	if bad, ok := errors.AsType[*requestError](err); ok {
		ans.Reason, ans.Status = bad.reason, bad.status
	}
	c.JSON(ans.Status, ans)
}

// OrderView is the response body of GET /orders/{order_id}: the order and its recorded winners.
type OrderView struct {
	order.Order
	Stock *int64       `json:"stock,omitempty"` // the number of units left; absent for an order with one unit
	Grabs []order.Grab `json:"grabs"`
}

func (a api) order(ctx context.Context, c *gin.Context) (any, error) {
	id, err := orderID(c)
	if err != nil {
		return nil, err
	}
	row, err := a.cfg.Orders.Read(ctx, id, 0)
	if err != nil {
		return nil, err
	}
	ledger, err := a.cfg.Orders.Ledger(ctx, id, 1)
	view := OrderView{Order: row, Grabs: append([]order.Grab{}, ledger...)} // encode an empty list as [] instead of null
	if row.Units > 0 {
		view.Stock = &row.Stock
	}
	return view, err
}

// OrdersView is the response body of POST /orders.
type OrdersView struct {
	FirstID int64 `json:"first_id"`
	Count   int   `json:"count"`
	Stock   int   `json:"stock,omitempty"` // units per order; absent if 1
}

// open creates the number of orders that the body asks for.
func (a api) open(ctx context.Context, c *gin.Context) (any, error) {
	body := struct {
		Count int `json:"count"`
		Stock int `json:"stock"`
	}{Stock: 1}
	if err := readBody(c, &body); err != nil {
		return nil, err
	}
	if body.Count < 1 || body.Count > maxOrders {
		return nil, badRequest("bad_body", "count must be from 1 to %d, as in {\"count\": 100}", maxOrders)
	}
	if body.Stock < 1 || body.Stock > order.MaxStock {
		return nil, badRequest("bad_body", "stock must be from 1 to %d units, as in {\"count\": 100, \"stock\": 5}", order.MaxStock)
	}
	view := OrdersView{Count: body.Count}
	if body.Stock > 1 {
		view.Stock = body.Stock
	}
	var err error
	view.FirstID, err = a.cfg.Orders.Create(ctx, body.Count, body.Stock)
	return view, err
}

// StrategyView describes one strategy in the response to GET /strategies.
type StrategyView struct {
	Name   string                            `json:"name"`
	Family string                            `json:"family"`
	Title  string                            `json:"title"`
	Source string                            `json:"source"`
	Guard  order.Guard                       `json:"guard"`
	Expect map[catalog.Fault]catalog.Verdict `json:"expect"` // the expected verdict under each fault
	// Available reports whether this instance has an address for every server that the strategy
	// needs. Otherwise, Missing names the servers without an address.
	Available bool   `json:"available"`
	Missing   string `json:"missing,omitempty"`
}

func (a api) strategies(context.Context, *gin.Context) (any, error) {
	all := slices.Concat(lock.Strategies, lock.Peers)
	views := make([]StrategyView, len(all))
	for i, st := range all {
		expect := make(map[catalog.Fault]catalog.Verdict, len(catalog.RunFaults))
		for _, f := range catalog.RunFaults {
			expect[f] = st.Expected(f)
		}
		missing := missingBackend(a.cfg.Lock, st.Needs)
		views[i] = StrategyView{st.Name, st.Family, st.Title, st.Source, st.Guard, expect, missing == "", missing}
	}
	return views, nil
}

// StrategyName is the request body of PUT /strategy.
type StrategyName struct {
	Name string `json:"name"`
}

// CurrentStrategy is the response body of GET /strategy and PUT /strategy.
type CurrentStrategy struct {
	Name string `json:"name"`
	// LeaseMS is how long a lease lasts without renewal, in milliseconds. It may differ from the
	// -ttl flag, because some servers round the TTL.
	LeaseMS float64 `json:"lease_ms"`
}

func (a api) strategy(context.Context, *gin.Context) (any, error) {
	return CurrentStrategy{a.Strategy(), millis(a.Lease())}, nil
}

func (a api) switchTo(ctx context.Context, c *gin.Context) (any, error) {
	var body StrategyName
	if err := readBody(c, &body); err != nil {
		return nil, err
	}
	if err := a.mayUse(body.Name); err != nil {
		return nil, err
	}
	if err := a.Switch(body.Name); err != nil {
		return nil, badRequest("bad_strategy", "%s", oneLine(err))
	}
	a.http.Log.Info("switched", "strategy", body.Name)
	return a.strategy(ctx, c)
}

// Health is the response body of GET /healthz. A new process ID shows that the instance was
// restarted.
type Health struct {
	Status   string   `json:"status"`
	Instance string   `json:"instance"`
	PID      int      `json:"pid"`
	Settings Settings `json:"settings"`
}

// Settings contains the instance settings that affect measurements.
type Settings struct {
	WorkMS float64     `json:"work_ms"`
	TTLMS  float64     `json:"ttl_ms"`
	WaitMS float64     `json:"wait_ms"`
	Guard  order.Guard `json:"guard,omitempty"` // absent if each strategy uses its default guard
	OnLost OnLost      `json:"on_lost"`
}

func (a api) healthz(context.Context, *gin.Context) (any, error) {
	return Health{"ok", a.cfg.Instance, os.Getpid(), Settings{
		millis(a.cfg.Work), millis(a.cfg.Lock.TTL), millis(a.cfg.Lock.Wait), a.cfg.Guard, a.cfg.OnLost,
	}}, nil
}

// Readiness is the response body of GET /readyz. Checks maps each server name to "ok" or an error.
type Readiness struct {
	Ready  bool              `json:"ready"`
	Checks map[string]string `json:"checks"`
}

// readyTimeout is the timeout for all readiness checks together.
const readyTimeout = 2 * time.Second

// readyz answers readiness checks. It logs what is missing when the instance stops being ready,
// because an orchestrator such as Docker Compose shows only that the check failed.
func (a api) readyz() gin.HandlerFunc {
	var missing atomic.Bool
	return func(c *gin.Context) {
		ctx, cancel := context.WithTimeout(c.Request.Context(), readyTimeout)
		defer cancel()
		checks, ready := a.http.Ready(ctx)
		r := Readiness{Ready: ready, Checks: map[string]string{}}
		for name, err := range checks {
			r.Checks[name] = "ok"
			if err != nil {
				r.Checks[name] = oneLine(err)
			}
		}
		switch before := missing.Swap(!ready); {
		case before && ready:
			a.http.Log.Info("ready again")
		case !before && !ready:
			a.http.Log.Warn("not ready", "checks", r.Checks)
		}
		status := http.StatusOK
		if !ready {
			status = http.StatusServiceUnavailable
		}
		c.JSON(status, r)
	}
}

// Problem is the response body for every other error, such as a missing admin token. A failed grab gets
// an Answer instead.
type Problem struct {
	Error string `json:"error"`
}

func refuse(c *gin.Context, status int, format string, args ...any) {
	c.AbortWithStatusJSON(status, Problem{fmt.Sprintf(format, args...)})
}

type requestError struct {
	status int
	reason string
	text   string
}

func (e *requestError) Error() string { return e.text }

func badRequest(reason, format string, args ...any) error {
	return &requestError{http.StatusBadRequest, reason, fmt.Sprintf(format, args...)}
}

func orderID(c *gin.Context) (int64, error) {
	id, err := strconv.ParseInt(c.Param("order_id"), 10, 64)
	if err != nil || id <= 0 {
		return 0, badRequest("bad_order_id", "invalid order id %.40q: use a positive integer", c.Param("order_id"))
	}
	return id, nil
}

// readBody reads a JSON object into v and rejects unknown fields. It reads the body to its end,
// because otherwise net/http would not notice that a client has disconnected.
func readBody(c *gin.Context, v any) error {
	conn := http.NewResponseController(c.Writer)
	_ = conn.SetReadDeadline(time.Now().Add(bodyTimeout)) // fails only with the tests' response recorder
	b, err := io.ReadAll(http.MaxBytesReader(c.Writer, c.Request.Body, maxBody))
	_ = conn.SetReadDeadline(time.Time{}) // otherwise, the deadline would cancel the request
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return &requestError{http.StatusRequestTimeout, "bad_body", fmt.Sprintf("the body did not arrive within %v: send it at once", bodyTimeout)}
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return &requestError{http.StatusRequestEntityTooLarge, "body_too_large", fmt.Sprintf("the body is too large: send at most %d bytes", maxBody)}
	}
	if err != nil {
		return badRequest("bad_body", "the body ended early: %v", err)
	}
	return decode(b, v)
}

// decode decodes a JSON object into v and rejects unknown fields. Its errors are sent to the
// client.
func decode(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if _, more := d.Token(); err == nil && more != io.EOF {
		err = errors.New("extra data after the JSON object")
	}
	if err != nil {
		return badRequest("bad_body", "the body cannot be read (%s): send one JSON object", strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}
