// Package control is what a harness may do to a running instance beyond what a
// client may: hold calls of its grabs, decide what becomes of each, and set its
// wall clock. Scenarios strike a grab while it is held at a point; replays let
// every call go in the order of a schedule.
//
// Both ends are here. An instance mounts a Server under /lab/ and passes it its
// calls; a harness has a Client. They share the requests, the answers and the
// table of routes in this file. Between the two stands Holds, the mechanism
// itself, which knows no HTTP. Begin at Hold, and then at Holds.Do.
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

// The table of routes.
var (
	setHold    = route[Hold, struct{}]{"PUT", "/lab/holds/{name}"}
	removeHold = route[struct{}, struct{}]{"DELETE", "/lab/holds/{name}"}
	listHolds  = route[struct{}, holdsAnswer]{"POST", "/lab/holds"}
	awaitHeld  = route[awaitRequest, heldAnswer]{"POST", "/lab/holds/{name}/await"}
	release    = route[releaseRequest, Answer]{"POST", "/lab/holds/{name}/release"}
	setClock   = route[clockRequest, struct{}]{"PUT", "/lab/clock"}
)

type awaitRequest struct {
	N        int     `json:"n"`
	WithinMS float64 `json:"within_ms"`
}

type heldAnswer struct {
	Held []Held `json:"held"`
}

type holdsAnswer struct {
	Holds map[string][]Held `json:"holds"`
}

type releaseRequest struct {
	Call
	Outcome Outcome `json:"outcome"`
}

// Answer is what the server of a released call answered it.
type Answer struct {
	Error string `json:"error,omitempty"` // "": none
	Code  Code   `json:"code,omitempty"`
}

// Code tells apart the errors that a harness acts upon.
type Code string

// The codes.
const (
	NotHeld  Code = "not-held" // no such call is held
	Deadline Code = "deadline" // the deadline of the call had passed
)

type clockRequest struct {
	AheadMS float64 `json:"ahead_ms"`
}

// answerOf is the Answer for err.
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

// route is one call of the API: both ends read from it where it is and what it
// takes and gives.
type route[Request, Reply any] struct{ method, path string }

// serve mounts the route, to be answered by do.
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
		_ = json.NewEncoder(w).Encode(body) // the harness may have gone
	})
}

func (r route[Request, Reply]) call(ctx context.Context, c Client, name string, in Request) (out Reply, err error) {
	err = c(ctx, r.method, strings.Replace(r.path, "{name}", name, 1), in, &out)
	return out, err
}

// Client is the harness's end. It makes one call to the API of an instance:
// body, as JSON, goes to path, and what is answered comes into answer. An answer
// other than a 2xx is an error.
type Client func(ctx context.Context, method, path string, body, answer any) error

// SetHold sets a hold, in place of one that has its name, whose calls are released.
func (c Client) SetHold(ctx context.Context, name string, h Hold) error {
	_, err := setHold.call(ctx, c, name, h)
	return err
}

// Held is Holds.Await: the calls that a hold has met, once they are n or once
// the time is up.
func (c Client) Held(ctx context.Context, name string, n int, within time.Duration) ([]Held, error) {
	answer, err := awaitHeld.call(ctx, c, name, awaitRequest{n, millis(within)})
	return answer.Held, err
}

// Holds is Holds.All: the calls that each hold has met, by its name.
func (c Client) Holds(ctx context.Context) (map[string][]Held, error) {
	answer, err := listHolds.call(ctx, c, "", struct{}{})
	return answer.Holds, err
}

// Release lets one call go, and returns what its server has answered it. Where
// the answer has the code NotHeld, no such call was held.
func (c Client) Release(ctx context.Context, name string, call Call, as Outcome) (Answer, error) {
	return release.call(ctx, c, name, releaseRequest{call, as})
}

// RemoveHold removes a hold and releases its calls.
func (c Client) RemoveHold(ctx context.Context, name string) error {
	_, err := removeHold.call(ctx, c, name, struct{}{})
	return err
}

// SetClock has the strategies of the instance see a wall clock that is ahead of
// the true one.
func (c Client) SetClock(ctx context.Context, ahead time.Duration) error {
	_, err := setClock.call(ctx, c, "", clockRequest{millis(ahead)})
	return err
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func fromMillis(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

// Client is the harness's end of a server in the same process.
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

// page is an answer that is kept.
type page struct {
	bytes.Buffer
	header http.Header
	code   int
}

func (p *page) Header() http.Header  { return p.header }
func (p *page) WriteHeader(code int) { p.code = code }
