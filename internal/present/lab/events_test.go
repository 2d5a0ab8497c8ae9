package lab

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
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

// TestLargestRequest checks that the page accepts requests up to its limit, and refuses the first one beyond it.
func TestLargestRequest(t *testing.T) {
	const limit = 64 << 10
	for _, size := range []int{2, limit - 1, limit, limit + 1, 2 * limit} {
		called := false
		handler := startHandler(func(*http.Request, struct{}) (any, error) { called = true; return nil, nil })
		body := strings.Repeat(" ", size-2) + "{}"
		w := httptest.NewRecorder()
		handler(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/api/stop", strings.NewReader(body)))
		want := map[bool]int{true: http.StatusOK, false: http.StatusBadRequest}[size <= limit]
		if w.Code != want || called != (size <= limit) {
			t.Errorf("%d bytes: status %d, want %d; the request was handled: %v", size, w.Code, want, called)
		}
	}
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
