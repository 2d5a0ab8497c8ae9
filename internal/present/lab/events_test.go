package lab

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// brokenPage is a page whose connection breaks after a number of writes or flushes.
type brokenPage struct {
	*httptest.ResponseRecorder
	writes, flushes int
}

// Write fails once no writes are left.
func (p *brokenPage) Write(text []byte) (int, error) {
	if p.writes--; p.writes < 0 {
		return 0, errors.New("broken")
	}
	return p.ResponseRecorder.Write(text)
}

// FlushError fails once no flushes are left.
func (p *brokenPage) FlushError() error {
	if p.flushes--; p.flushes < 0 {
		return errors.New("broken")
	}
	return nil
}

// TestEventsEnd breaks a page's connection at each write and at each flush. The stream must then end at the
// next message, which an idle lab sends every 15 seconds.
func TestEventsEnd(t *testing.T) {
	for n := range 4 {
		for _, page := range []*brokenPage{{writes: n, flushes: 9}, {writes: 9, flushes: n}} {
			synctest.Test(t, func(t *testing.T) {
				page.ResponseRecorder = httptest.NewRecorder()
				l := &Lab{state: newState()}
				began := time.Now()
				l.events(page, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/events", nil))
				if took, want := time.Since(began), time.Duration(n)*15*time.Second; took != want {
					t.Errorf("broken after %d: ended after %s, want %s", n, took, want)
				}
			})
		}
	}
}
