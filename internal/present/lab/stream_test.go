package lab

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestSlowPagesGetTheLatestState checks that a page that misses some states gets the latest one, and that
// an unchanged state is not sent again.
func TestSlowPagesGetTheLatestState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, page := &Lab{state: newState()}, httptest.NewRecorder()
		ctx, leave := context.WithCancel(t.Context())
		var reading sync.WaitGroup
		reading.Go(func() { l.events(page, httptest.NewRequestWithContext(ctx, http.MethodGet, "/api/events", nil)) })
		time.Sleep(5*tickEvery + tickEvery/2)
		l.state.setStrike("first", 0)
		l.state.setStrike("second", 0)
		time.Sleep(tickEvery)
		leave()
		reading.Wait()
		if text := page.Body.String(); strings.Count(text, "event: tick") != 2 || strings.Contains(text, "first") || !strings.Contains(text, "second") {
			t.Errorf("the page got %s", text)
		}
	})
}
