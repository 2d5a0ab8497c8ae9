package browsertest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
)

// A page may replace an element at any time, also between the lookup of Focus or Click and the
// use.
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
	p := New(t).Open(t, server.URL, Look{})
	for range 10 {
		p.Focus("#box button")
		p.Click("#box button")
	}
	// Not every focus and click has an effect: a button may be replaced just after the command found it.
	if focused := Eval[int](p, "window.focused"); focused == 0 {
		t.Error("no button ever had the focus")
	}
}
