package lab

import (
	"bytes"
	"cmp"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/order"
	"grablab/internal/present/diagram"
	"grablab/internal/present/whichlock"
	"grablab/internal/testbed/wait"
)

var (
	//go:embed *.css *.js
	files embed.FS

	//go:embed index.html
	index string

	//go:embed texts.json
	texts string // the page's texts in other languages
)

// policy is the page's Content-Security-Policy. It allows only files from this server.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// tokenHeader is the HTTP header for the page's secret token. Every state-changing request must
// contain it.
const tokenHeader = "X-Lab-Token"

type choices struct {
	Strategies []choice             `json:"strategies"`
	Guards     []order.Guard        `json:"guards"`
	Faults     []choice             `json:"faults"`
	Explored   []string             `json:"explored"`  // strategies that the explorer can search
	Searched   []choice             `json:"searched"`  // faults that a search can use
	Questions  []whichlock.Question `json:"questions"` // questions whose answers lead to a lock
	MaxRate    int                  `json:"max_rate"`
	MaxUnits   int                  `json:"max_units"` // the maximum number of units per order
	Stack      string               `json:"stack"`
	Words      map[string]string    `json:"words"` // explains the page's words
}

// choice is a strategy or a fault that the user can choose.
type choice struct {
	Name    string      `json:"name"`
	About   string      `json:"about"`
	Guard   order.Guard `json:"guard,omitempty"`   // the strategy's own guard
	Fences  bool        `json:"fences,omitempty"`  // whether the strategy has fencing tokens
	Refused string      `json:"refused,omitempty"` // why the user cannot choose the option
}

func choiceOf(f catalog.Fault) choice { return choice{Name: string(f), About: f.About()} }

// handler serves the page, its files and its API.
func (l *Lab) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", asset("text/html", strings.ReplaceAll(index, "{{.Token}}", l.token)))
	mux.Handle("GET /{file}", http.FileServerFS(files)) // scripts and style sheets
	mux.HandleFunc("GET /texts.js", asset("text/javascript", "export default "+texts))
	mux.HandleFunc("GET /diagram.js", asset("text/javascript", diagram.Script))
	mux.HandleFunc("GET /diagram.css", asset("text/css", diagram.Style))
	mux.HandleFunc("GET /api/choices", readHandler(l.choices))
	mux.HandleFunc("GET /api/events", l.events)
	mux.HandleFunc("GET /api/orders/{id}", readHandler(l.drawing))
	mux.HandleFunc("POST /api/start", startHandler(func(r *http.Request, s Settings) (any, error) { return nil, l.Start(r.Context(), s) }))
	mux.HandleFunc("POST /api/stop", startHandler(func(*http.Request, struct{}) (any, error) { l.Stop(); return nil, nil }))
	mux.HandleFunc("POST /api/hand", startHandler(func(r *http.Request, h Hand) (any, error) { return nil, l.ByHand(r.Context(), h) }))
	mux.HandleFunc(choosePath, readHandler(choose))
	mux.HandleFunc("POST /api/explore", startHandler(l.explore))
	(&lessons{ctx: l.ctx, open: l.cfg.Workshop, state: l.state, drawings: map[source][]diagram.Diagram{}}).handle(mux)
	return l.guarded(http.NewCrossOriginProtection().Handler(l.withToken(mux)))
}

// withToken rejects state-changing requests without the page's secret token. It wraps the whole
// handler, so that no path can be forgotten.
func (l *Lab) withToken(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead && r.Header.Get(tokenHeader) != l.token {
			refuse(w, http.StatusForbidden, "this page belongs to an earlier run of the lab: reload it")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// guarded adds security headers to all responses. It also rejects requests whose Host header names
// another server, because these may come from a foreign web page.
func (l *Lab) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", policy)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Referrer-Policy", "no-referrer")
		w.Header().Set("Cache-Control", "no-store")
		own, asked := url.URL{Host: l.url[len("http://"):]}, url.URL{Host: r.Host}
		if cmp.Or(asked.Port(), "80") != own.Port() || !slices.Contains([]string{own.Hostname(), "127.0.0.1", "localhost", "::1"}, asked.Hostname()) {
			refuse(w, http.StatusForbidden, fmt.Sprintf("this page does not accept the host name %.80q: open %s", r.Host, l.url))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// asset returns a handler that serves a text.
func asset(kind, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind+"; charset=utf-8")
		_, _ = io.WriteString(w, text) // the client may have disconnected
	}
}

func refuse(w http.ResponseWriter, status int, why string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": why})
}

// errMissing results in HTTP status 404.
var errMissing = errors.New("not found")

// answer writes body as JSON. For an error, it writes a message with a matching HTTP status.
func answer(w http.ResponseWriter, body any, err error) {
	switch {
	case errors.Is(err, errBad):
		refuse(w, http.StatusBadRequest, err.Error())
	case errors.Is(err, errBusy):
		refuse(w, http.StatusConflict, err.Error())
	case errors.Is(err, errMissing):
		refuse(w, http.StatusNotFound, err.Error())
	case err != nil:
		refuse(w, http.StatusServiceUnavailable, err.Error())
	default:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(body)
	}
}

func readHandler(do func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := do(r)
		answer(w, body, err)
	}
}

// maxRequest limits the request body size in bytes.
const maxRequest = 64 << 10

// startHandler returns a handler for requests that start something. It decodes the JSON body and
// passes it to do.
func startHandler[In any](do func(*http.Request, In) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in In
		d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest))
		d.DisallowUnknownFields()
		if err := d.Decode(&in); err != nil {
			refuse(w, http.StatusBadRequest, "the request body is not valid: "+err.Error())
			return
		}
		body, err := do(r, in)
		answer(w, body, err)
	}
}

func (l *Lab) choices(*http.Request) (any, error) {
	kind := l.cfg.Stack.Kind
	c := choices{
		Strategies: strategies(kind), Guards: order.Guards, Faults: catalog.Map(Faults, choiceOf),
		Explored: slices.Concat(l.cfg.Own, lock.Names()), Searched: catalog.Map(catalog.FaultsBy(catalog.Explore), choiceOf),
		Questions: whichlock.Questions, MaxRate: maxRate, MaxUnits: maxUnits, Stack: kind, Words: catalog.Meanings(),
	}
	for _, s := range lock.Strategies {
		c.Words[s.Name] = s.Title
	}
	for _, f := range catalog.RunFaults {
		c.Words[string(f)] = f.About()
	}
	return c, nil
}

// These constants determine how often a page gets the state.
const (
	tickEvery   = 100 * time.Millisecond
	resendEvery = 15 * time.Second // for an unchanged state, because only a write shows that the connection was closed
)

// events sends the state to a page, now and after each change, until the page disconnects. A page
// that reads too slowly misses some states, but always gets the latest one.
func (l *Lab) events(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	var last []byte
	var sent time.Time
	for connected := true; connected; connected = wait.For(r.Context(), tickEvery) {
		now := time.Now()
		text, err := json.Marshal(l.state.tick())
		if err != nil {
			return
		}
		if bytes.Equal(text, last) && now.Sub(sent) < resendEvery {
			continue
		}
		last, sent = text, now
		_ = out.SetWriteDeadline(now.Add(10 * time.Second))
		if _, err := fmt.Fprintf(w, "retry: 500\nevent: tick\ndata: %s\n\n", text); err != nil || out.Flush() != nil {
			return
		}
	}
}

// drawing returns an order's diagram. If the order no longer exists, it returns nil instead of an
// error, because a browser would log the 404 as an error.
func (l *Lab) drawing(r *http.Request) (any, error) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("%w: %.20q is not the id of an order", errMissing, r.PathValue("id"))
	}
	run, ok := l.state.runOf(id)
	if !ok {
		return nil, nil
	}
	return diagram.OfRun(run), nil // this takes a while, so the state is not locked
}

// explore runs a search that the page requests. If the lab is busy, it returns errBusy.
func (l *Lab) explore(r *http.Request, s Search) (any, error) {
	if !slices.Contains(slices.Concat(l.cfg.Own, lock.Names()), s.Strategy) {
		return nil, fmt.Errorf("%w: there is no strategy %.40q", errBad, s.Strategy)
	}
	if s.Actors < 2 || s.Actors > 3 {
		return nil, fmt.Errorf("%w: the number of actors is %d: it must be 2 or 3", errBad, s.Actors)
	}
	for _, f := range s.Faults {
		if !slices.Contains(catalog.FaultsBy(catalog.Explore), f) {
			return nil, fmt.Errorf("%w: the explorer does not know the fault %.40q", errBad, f)
		}
	}
	release, err := l.state.occupy("a search (view Schedules)")
	if err != nil {
		return nil, err
	}
	defer release()
	return l.cfg.Explore(r.Context(), s)
}
