package lab_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestElementIsReplaced checks that Focus and Click work although the page may replace an element between
// their lookup and its use.
func TestElementIsReplaced(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, `<!doctype html><link rel="icon" href="data:,"><div id="box"><button>press</button></div><script>
			window.clicks = 0;
			window.focused = 0;
			setInterval(() => {
				const b = document.createElement("button");
				b.textContent = "press";
				b.onclick = () => window.clicks++;
				b.onfocus = () => window.focused++;
				document.getElementById("box").replaceChildren(b);
			}, 10);
		</script>`)
	}))
	defer server.Close()
	p := newBrowser(t).Open(t, server.URL, Look{})
	for range 10 {
		p.Focus("#box button")
		p.Click("#box button")
	}
	// Some clicks have no effect, because the page replaces the button just after the command has found
	// it. Therefore, the test does not count clicks.
	if focused := eval[int](p, "window.focused"); focused == 0 {
		t.Error("no button ever had the focus")
	}
}
