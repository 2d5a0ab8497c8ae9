package lab

import (
	"strings"
	"testing"
)

// TestSlowPagesGetTheLatestState checks that a page that misses some states gets the latest one, and that
// an unchanged state is not sent again.
func TestSlowPagesGetTheLatestState(t *testing.T) {
	p := newPages(newState())
	_, newer := p.current()
	p.tick()
	select {
	case <-newer:
		t.Error("the state has not changed, but the page is told so")
	default:
	}
	for _, line := range []string{"first", "second"} {
		p.state.showProgress(line)
		p.tick()
	}
	<-newer
	if text, _ := p.current(); !strings.Contains(string(text), "second") {
		t.Errorf("got %s", text)
	}
}
