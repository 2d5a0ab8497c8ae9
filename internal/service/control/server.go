package control

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"grablab/internal/history"
	"grablab/internal/order"
	"grablab/internal/tap"
)

// Server serves the control API for the instance in which it runs.
type Server struct {
	Holds
	instance string
	ahead    atomic.Int64 // how far the clock is ahead, in nanoseconds
}

// NewServer returns a Server for an instance whose clock is initially ahead of the true time. For
// each call that a fault hits, the Server records an event in r.
func NewServer(instance string, ahead time.Duration, r history.Recorder) *Server {
	s := &Server{Holds: Holds{Recorder: r}, instance: instance}
	s.ahead.Store(int64(ahead))
	return s
}

// Now returns the wall-clock time that locking strategies see. A fault may have set it ahead.
func (s *Server) Now() time.Time { return time.Now().Add(time.Duration(s.ahead.Load())) }

// Record records an event. If the event ends a phase, Record waits while a breakpoint stops the
// grab there.
func (s *Server) Record(e history.Event) {
	s.Recorder.Record(e)
	if e.Kind == history.OK && e.Op != history.Renew { // renewals in the background do not belong to a phase of a grab
		s.PhaseEnded(tap.Phase(e.Op), e.Order, e.Driver)
	}
}

// Orders returns a Store whose calls stop at breakpoints.
func (s *Server) Orders(store order.Store) order.Store {
	return order.Intercept(store, func(ctx context.Context, c *order.Call, send func(context.Context) error) error {
		err := s.Do(ctx, tap.OpFrom(ctx, tap.Op{Instance: s.instance, Target: tap.DB}), send)
		if c.Kind == order.ClaimCall && (errors.Is(err, ErrRefused) || errors.Is(err, ErrExpired)) {
			err = errors.Join(order.ErrNotWritten, err)
		}
		return err
	})
}

// Handler serves the control API under /lab/, and passes all other requests to next.
func (s *Server) Handler(next http.Handler) http.Handler {
	mux := http.NewServeMux()
	setHold.serve(mux, func(_ context.Context, name string, h Hold) (none struct{}, err error) {
		s.Set(name, h)
		return none, nil
	})
	listHolds.serve(mux, func(context.Context, string, struct{}) (map[string][]Held, error) {
		return s.All(), nil
	})
	awaitHeld.serve(mux, func(ctx context.Context, name string, in awaitRequest) ([]Held, error) {
		ctx, cancel := context.WithTimeout(ctx, fromMillis(in.WithinMS))
		defer cancel()
		return s.Await(ctx, name, in.N)
	})
	release.serve(mux, func(ctx context.Context, name string, in releaseRequest) (Answer, error) {
		answer, err := s.Release(ctx, name, in.Call, in.Outcome)
		if errors.Is(err, ErrNotHeld) {
			return Answer{Error: err.Error(), Code: NotHeld}, nil
		}
		return answerOf(answer), err
	})
	removeHold.serve(mux, func(_ context.Context, name string, _ struct{}) (none struct{}, err error) {
		return none, s.Remove(name)
	})
	setClock.serve(mux, func(_ context.Context, _ string, in clockRequest) (none struct{}, err error) {
		s.ahead.Store(int64(fromMillis(in.AheadMS)))
		return none, nil
	})
	mux.Handle("/", next)
	return http.NewCrossOriginProtection().Handler(mux)
}
