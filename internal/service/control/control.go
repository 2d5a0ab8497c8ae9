// Package control lets a test program pause and steer a running instance's calls. It can stop a
// grab's calls, decide their outcome, and set the instance's wall clock. A grab is a request in
// which a driver tries to win an order. A test with a fault stops a grab at a chosen point while
// the fault is active. A replay releases the calls in the order that a schedule gives.
//
// The package contains both ends of the control API. An instance mounts a Server under /lab/ and
// passes its calls through it. A test program uses a Client. For a user's service, which has no
// Server, the proxies of loadgen own one, and Server.Client calls it directly. Both share the messages and the route
// table in this file. A Hold is a breakpoint for calls. Holds implements breakpoints without HTTP.
// Start reading at Hold, and continue with Holds.Do.
package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

var (
	setHold    = route[Hold, struct{}]{"PUT", "/lab/holds/{name}"}
	removeHold = route[struct{}, struct{}]{"DELETE", "/lab/holds/{name}"}
	listHolds  = route[struct{}, map[string][]Held]{"POST", "/lab/holds"}
	awaitHeld  = route[awaitRequest, []Held]{"POST", "/lab/holds/{name}/await"}
	release    = route[releaseRequest, Answer]{"POST", "/lab/holds/{name}/release"}
	setClock   = route[clockRequest, struct{}]{"PUT", "/lab/clock"}
)

type awaitRequest struct {
	N        int     `json:"n"`
	WithinMS float64 `json:"within_ms"`
}

type releaseRequest struct {
	Call
	Outcome Outcome `json:"outcome"`
}

// Answer is the reply of Redis, the database or another server to a stopped call after its release. A
// failed request to the control API returns an Answer with its error too.
type Answer struct {
	Error string `json:"error,omitempty"` // empty if the call succeeded
	Code  Code   `json:"code,omitempty"`
}

// Code identifies an error, so that clients need not parse its text.
type Code string

// These are the error codes.
const (
	NotHeld  Code = "not-held" // the call is not stopped at the breakpoint
	Deadline Code = "deadline" // the call missed its deadline
)

type clockRequest struct {
	AheadMS float64 `json:"ahead_ms"`
}

func answerOf(err error) (a Answer) {
	if err == nil {
		return a
	}
	a.Error = err.Error()
	var timed interface{ Timeout() bool }
	if errors.As(err, &timed) && timed.Timeout() {
		a.Code = Deadline
	}
	return a
}

// route describes a control API request: its method, its path, and the types of its body and reply.
type route[Request, Reply any] struct{ method, path string }

// serve registers a handler that decodes the request, calls do, and encodes the reply.
func (r route[Request, Reply]) serve(mux *http.ServeMux, do func(ctx context.Context, name string, in Request) (Reply, error)) {
	mux.HandleFunc(r.method+" "+r.path, func(w http.ResponseWriter, req *http.Request) {
		var body any
		var in Request
		decoder := json.NewDecoder(req.Body)
		decoder.DisallowUnknownFields()
		err := decoder.Decode(&in)
		if err == nil {
			body, err = do(req.Context(), req.PathValue("name"), in)
		}
		w.Header().Set("Content-Type", "application/json")
		switch {
		case errors.Is(err, ErrNoHold):
			w.WriteHeader(http.StatusNotFound)
		case err != nil:
			w.WriteHeader(http.StatusBadRequest)
		}
		if err != nil {
			body = Answer{Error: err.Error()}
		}
		_ = json.NewEncoder(w).Encode(body) // ignore the error, because the client may have closed the connection
	})
}

func (r route[Request, Reply]) call(ctx context.Context, c Client, name string, in Request) (out Reply, err error) {
	err = c(ctx, r.method, strings.Replace(r.path, "{name}", name, 1), in, &out)
	return out, err
}

// Client sends a request to an instance's control API. It sends body as JSON and decodes the
// response into answer. If the status is not 2xx, it returns an error.
type Client func(ctx context.Context, method, path string, body, answer any) error

// SetHold sets a breakpoint. If the name is already in use, SetHold first removes the old
// breakpoint.
func (c Client) SetHold(ctx context.Context, name string, h Hold) error {
	_, err := setHold.call(ctx, c, name, h)
	return err
}

// Held waits until n calls have reached a breakpoint or within has passed. It returns these calls,
// even those that have continued since.
func (c Client) Held(ctx context.Context, name string, n int, within time.Duration) ([]Held, error) {
	return awaitHeld.call(ctx, c, name, awaitRequest{n, millis(within)})
}

// Holds returns the calls that have reached each breakpoint, by breakpoint name.
func (c Client) Holds(ctx context.Context) (map[string][]Held, error) {
	return listHolds.call(ctx, c, "", struct{}{})
}

// Release lets a stopped call continue, and returns the reply of Redis, the database or another server
// to that call. If the breakpoint does not stop this call, the answer has the code NotHeld.
func (c Client) Release(ctx context.Context, name string, call Call, as Outcome) (Answer, error) {
	return release.call(ctx, c, name, releaseRequest{call, as})
}

// RemoveHold removes a breakpoint and lets its stopped calls continue.
func (c Client) RemoveHold(ctx context.Context, name string) error {
	_, err := removeHold.call(ctx, c, name, struct{}{})
	return err
}

// SetClock sets the locking strategies' clock ahead of the true time.
func (c Client) SetClock(ctx context.Context, ahead time.Duration) error {
	_, err := setClock.call(ctx, c, "", clockRequest{millis(ahead)})
	return err
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func fromMillis(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

// Client returns a Client that calls this server without a network.
func (s *Server) Client() Client {
	handler := s.Handler(http.NotFoundHandler())
	return func(ctx context.Context, method, path string, body, answer any) error {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		req, err := http.NewRequestWithContext(ctx, method, path, bytes.NewReader(text))
		if err != nil {
			return err
		}
		w := &page{header: http.Header{}, code: http.StatusOK}
		handler.ServeHTTP(w, req)
		switch w.code {
		case http.StatusOK:
		case http.StatusNotFound:
			return ErrNoHold
		default:
			return fmt.Errorf("control: HTTP %d: %s", w.code, bytes.TrimSpace(w.Bytes()))
		}
		return json.Unmarshal(w.Bytes(), answer)
	}
}

// page is an http.ResponseWriter that keeps the response in memory.
type page struct {
	bytes.Buffer
	header http.Header
	code   int
}

func (p *page) Header() http.Header  { return p.header }
func (p *page) WriteHeader(code int) { p.code = code }
