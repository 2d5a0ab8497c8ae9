package registry

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the exchange with the real server to testdata")

const recorded = "testdata/exchange.txt"

// exchange is one call to the server and its reply.
type exchange struct{ method, path, request, status, reply string }

func (x exchange) String() string {
	return fmt.Sprintf("> %s %s\n> %s\n< %s\n< %s\n", x.method, x.path, x.request, x.status, x.reply)
}

func readExchanges(t *testing.T) (all []exchange) {
	t.Helper()
	text, err := os.ReadFile(recorded)
	if err != nil {
		t.Fatal(err)
	}
	for part := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
		lines := strings.Split(part, "\n")
		for i := range lines {
			lines[i] = strings.TrimSpace(lines[i][1:])
		}
		method, path, _ := strings.Cut(lines[0], " ")
		all = append(all, exchange{method, path, lines[1], lines[2], lines[3]})
	}
	return all
}

// record returns a proxy to a server that appends each call to all.
func record(t *testing.T, server string, all *[]exchange) (url string) {
	base := strings.TrimSuffix(server, "/eureka")
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		req, err := http.NewRequestWithContext(r.Context(), r.Method, base+r.URL.EscapedPath(), bytes.NewReader(body))
		if err != nil {
			t.Error(err)
			return
		}
		req.Header = r.Header
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		reply, _ := io.ReadAll(resp.Body)
		*all = append(*all, exchange{r.Method, r.URL.EscapedPath(), strings.TrimSpace(string(body)), resp.Status, strings.TrimSpace(string(reply))})
		w.WriteHeader(resp.StatusCode)
		w.Write(reply)
	})
}

// replay returns a server that answers with the recorded replies, and requires the recorded
// calls.
func replay(t *testing.T) (url string) {
	all := readExchanges(t)
	t.Cleanup(func() {
		if len(all) > 0 {
			t.Errorf("%d recorded calls were not made, the first is\n%v", len(all), all[0])
		}
	})
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if len(all) == 0 {
			t.Errorf("%s %s was not recorded", r.Method, r.URL)
			return
		}
		next := all[0]
		all = all[1:]
		if got := (exchange{r.Method, r.URL.EscapedPath(), strings.TrimSpace(string(body)), next.status, next.reply}); got != next {
			t.Errorf("the call differs from the recorded one:\n%v\nwant\n%v", got, next)
		}
		var status int
		fmt.Sscan(next.status, &status)
		w.WriteHeader(status)
		fmt.Fprint(w, next.reply)
	})
}

func serve(t *testing.T, h http.HandlerFunc) (url string) {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL + "/eureka"
}

// TestExchange makes each call of the protocol. Without a real server, it compares the calls, byte by
// byte, with a recorded exchange with a real server.
func TestExchange(t *testing.T) {
	var all []exchange
	url, server := "", ""
	if isReal() {
		server = startServer(t)
		url = record(t, server, &all)
	} else {
		url = replay(t)
	}
	e, direct := parse(t, url), parse(t, server)
	ctx, log := t.Context(), slog.New(slog.DiscardHandler)
	self := Self{App: "grabsvc", Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8004}, Renew: time.Second}
	lists := func(want ...string) {
		t.Helper()
		if got, err := e.Instances(ctx, "grabsvc"); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("listed are %q, %v, want %q", got, err, want)
		}
	}
	lists()
	r, err := e.register(ctx, self, log)
	if err != nil {
		t.Fatal(err)
	}
	lists("http://127.0.0.1:8004")
	check := func(what, method string, want error) {
		t.Helper()
		if err := e.call(ctx, method, r, nil, nil); err != want {
			t.Errorf("%s: error %v, want %v", what, err, want)
		}
	}
	check("renew", http.MethodPut, nil)
	check("deregister", http.MethodDelete, nil)
	check("renew after that", http.MethodPut, errUnknown)
	lists()

	// An instance that was killed neither renews nor deregisters.
	began := time.Now()
	if _, err := e.register(ctx, self, log); err != nil {
		t.Fatal(err)
	}
	lists("http://127.0.0.1:8004")
	for isReal() {
		if urls, err := direct.Instances(ctx, "grabsvc"); err != nil || time.Since(began) > time.Minute {
			t.Fatalf("listed for a minute: %q, %v", urls, err)
		} else if len(urls) == 0 {
			t.Logf("a lease of %d s expired after %.1f s", r.Lease.Duration, time.Since(began).Seconds())
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	lists()
	if *update && isReal() {
		var text strings.Builder
		for i, x := range all {
			if i > 0 {
				text.WriteByte('\n')
			}
			text.WriteString(x.String())
		}
		if err := os.WriteFile(recorded, []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func parse(t *testing.T, text string) *Eureka {
	t.Helper()
	if text == "" {
		return nil
	}
	e, err := ParseEureka(text)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestAnnounce makes the server forget an instance. The instance must register again with its next
// renewal.
func TestAnnounce(t *testing.T) {
	e := parse(t, startServer(t))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	self := Self{App: "grabsvc", Addr: &net.TCPAddr{IP: net.IPv4zero, Port: 8005}, Renew: time.Second}
	go func() {
		defer close(ended)
		e.Announce(ctx, self, slog.New(slog.DiscardHandler))
	}()
	const url = "http://127.0.0.1:8005"
	waitFor(t, e, url)
	r, err := self.registration(e.base)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.call(ctx, http.MethodDelete, &r, nil, nil); err != nil {
		t.Fatal(err)
	}
	waitFor(t, e, url)
	cancel()
	<-ended
	waitFor(t, e)
}

// TestAnnounceEndsWhileItRegisters ends the context while the server handles the registration. The instance must then be
// removed, because the server has registered it.
func TestAnnounceEndsWhileItRegisters(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var calls []string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		calls = append(calls, r.Method)
		cancel()
	}))
	parse(t, server.URL).Announce(ctx, Self{App: "a", Addr: &net.TCPAddr{Port: 1}}, slog.New(slog.DiscardHandler))
	server.Close()
	if !slices.Equal(calls, []string{http.MethodPost, http.MethodDelete}) {
		t.Errorf("the calls are %q, want a POST and a DELETE", calls)
	}
}

// TestAnnounceWithoutServer checks that Announce logs an error if there is no server, and still ends with
// its context.
func TestAnnounceWithoutServer(t *testing.T) {
	var logged bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	parse(t, "http://127.0.0.1:1").Announce(ctx, Self{App: "a", Addr: &net.TCPAddr{Port: 1}}, slog.New(slog.NewTextHandler(&logged, nil)))
	if !strings.Contains(logged.String(), "cannot renew this instance's entry in the service registry") {
		t.Errorf("logged: %s", &logged)
	}
}

// waitFor waits until the server lists these URLs.
func waitFor(t *testing.T, e *Eureka, want ...string) {
	t.Helper()
	var got []string
	for range 200 {
		var err error
		if got, err = e.Instances(t.Context(), "GRABSVC"); err == nil && reflect.DeepEqual(got, want) {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("listed are %q, want %q", got, want)
}

// TestInstances lists instances of every status, with each of their ports enabled, disabled or missing.
// The result must contain only instances that are UP. It must use a secure port only if the plain port is
// disabled.
func TestInstances(t *testing.T) {
	ports := map[string]string{
		"enabled": `{"$":%d,"@enabled":"true"}`, "disabled": `{"$":%d,"@enabled":"false"}`, "missing": "",
	}
	var listed, want []string
	add := func(status, plain, secure string) {
		host := fmt.Sprintf("h%d", len(listed))
		text := fmt.Sprintf(`{"hostName":%q,"status":%q`, host, status)
		if plain != "missing" {
			text += fmt.Sprintf(`,"port":`+ports[plain], 8004)
		}
		if secure != "missing" {
			text += fmt.Sprintf(`,"securePort":`+ports[secure], 8443)
		}
		listed = append(listed, text+"}")
		switch {
		case status != "UP":
		case plain == "disabled" && secure == "enabled":
			want = append(want, "https://"+host+":8443")
		case plain == "missing":
			want = append(want, "http://"+host+":0")
		default:
			want = append(want, "http://"+host+":8004")
		}
	}
	for _, status := range []string{"UP", "DOWN", "STARTING", "OUT_OF_SERVICE", "UNKNOWN", ""} {
		for _, plain := range []string{"enabled", "disabled", "missing"} {
			for _, secure := range []string{"enabled", "disabled", "missing"} {
				add(status, plain, secure)
			}
		}
	}
	listed, want = append(listed, `{"hostName":"::1","status":"UP","port":{"$":4,"@enabled":"true"}}`), append(want, "http://[::1]:4")
	e := parse(t, serve(t, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"application":{"instance":[%s]}}`, strings.Join(listed, ","))
	}))
	if got, err := e.Instances(t.Context(), "X"); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("Instances: %q, %v, want %q", got, err, want)
	}
}

func TestServerFails(t *testing.T) {
	e := parse(t, serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }))
	if _, err := e.Instances(t.Context(), "X"); err == nil || !strings.Contains(err.Error(), "GET /eureka/apps/X: 503") {
		t.Error(err)
	}
}
