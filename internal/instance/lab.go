package instance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"grablab/internal/history"
	"grablab/internal/tap"
)

// lab is what an experiment may do to an instance beyond what any client may:
// set traps in its grabs, hold every call of some at a gate, and move its wall clock. An instance has one only
// with -traps, and serves it under /lab/ to its own host.
type lab struct {
	traps tap.Traps
	gate  tap.Gate
	ahead atomic.Int64 // ns
}

// newLab records every catch, before it is held.
func newLab(cfg Config, recorder history.Recorder) *lab {
	l := new(lab)
	l.ahead.Store(int64(cfg.ClockOffset))
	l.traps.Note = func(op tap.Op, at tap.Point) {
		recorder.Record(history.Event{Kind: history.Info, Op: history.Strike, Order: op.Order, Driver: op.Driver, Note: at.String()})
	}
	return l
}

// watch returns a recorder that keeps a grab where it records the end of a
// phase, if a trap stands there.
func (l *lab) watch(r history.Recorder) history.Recorder { return watched{r, &l.traps} }

type watched struct {
	history.Recorder
	traps *tap.Traps
}

// Record records e, and returns once its grab may go on.
func (w watched) Record(e history.Event) {
	w.Recorder.Record(e)
	if e.Kind == history.OK {
		w.traps.Ended(tap.Phase(e.Op), e.Order, e.Driver)
	}
}

// tap is around every remote call of the instance.
func (l *lab) tap() tap.Tap { return labTap{&l.traps, &l.gate} }

// release lets go whatever is held, so that the instance can end.
func (l *lab) release() {
	l.traps.LiftAll()
	l.gate.Open()
}

// now is the wall clock that strategies see.
func (l *lab) now() time.Time { return time.Now().Add(time.Duration(l.ahead.Load())) }

// handler answers what is asked under /lab/, and leaves all else to next.
func (l *lab) handler(next http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /lab/traps/{name}", answering(l.setTrap))
	mux.HandleFunc("GET /lab/traps/{name}", answering(l.awaitTrap))
	mux.HandleFunc("DELETE /lab/traps/{name}", answering(l.liftTrap))
	mux.HandleFunc("PUT /lab/gate", answering(l.shutGate))
	mux.HandleFunc("GET /lab/gate", answering(l.gateState))
	mux.HandleFunc("DELETE /lab/gate", answering(l.openGate))
	mux.HandleFunc("POST /lab/gate/calls", answering(l.letGo))
	mux.HandleFunc("PUT /lab/clock", answering(l.setClock))
	mux.Handle("/", next)
	return http.NewCrossOriginProtection().Handler(mux)
}

// Catch is the body of the answers about a trap: whom it has caught.
type Catch struct {
	Caught []tap.Caught `json:"caught"`
}

// setTrap sets a trap, in place of one of its name.
func (l *lab) setTrap(r *http.Request) (any, error) {
	var what tap.Trap
	if err := readJSON(r, &what); err != nil {
		return nil, err
	}
	l.traps.Set(r.PathValue("name"), what)
	return Catch{}, nil
}

// awaitTrap answers once ?n= grabs are caught, or after ?within= in any case.
func (l *lab) awaitTrap(r *http.Request) (any, error) {
	n, err := strconv.Atoi(r.FormValue("n"))
	if err != nil {
		return nil, fmt.Errorf("n: %w", err)
	}
	within, err := time.ParseDuration(r.FormValue("within"))
	if err != nil {
		return nil, fmt.Errorf("within: %w", err)
	}
	ctx, cancel := context.WithTimeout(r.Context(), within)
	defer cancel()
	caught, err := l.traps.Await(ctx, r.PathValue("name"), n)
	return Catch{caught}, err
}

// liftTrap lets the catch of a trap go on; with ?refuse=true it is refused.
func (l *lab) liftTrap(r *http.Request) (any, error) {
	var fate error
	if r.FormValue("refuse") == "true" {
		fate = tap.ErrRefused
	}
	caught, err := l.traps.Lift(r.PathValue("name"), fate)
	return Catch{caught}, err
}

// ClockSetting is the body of PUT /lab/clock.
type ClockSetting struct {
	AheadMS float64 `json:"ahead_ms"` // of the true time
}

func (l *lab) setClock(r *http.Request) (any, error) {
	var to ClockSetting
	if err := readJSON(r, &to); err != nil {
		return nil, err
	}
	l.ahead.Store(int64(to.AheadMS * float64(time.Millisecond)))
	return to, nil
}

func readJSON(r *http.Request, v any) error {
	dec := json.NewDecoder(r.Body)
	dec.DisallowUnknownFields()
	return dec.Decode(v)
}

func answering(do func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		body, err := do(r)
		switch {
		case errors.Is(err, tap.ErrNoTrap), errors.Is(err, tap.ErrNotStanding):
			w.WriteHeader(http.StatusNotFound)
		case err != nil:
			w.WriteHeader(http.StatusBadRequest)
		}
		if err != nil {
			body = map[string]string{"error": err.Error()}
		}
		_ = json.NewEncoder(w).Encode(body) // whoever asked may have gone
	}
}
