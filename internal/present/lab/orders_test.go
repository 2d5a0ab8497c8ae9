package lab

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/history"
	"grablab/internal/present/diagram"
	"grablab/internal/present/report"
)

// labOf returns the state of a run with count orders, whose ids begin at 1.
func labOf(count int) *state {
	s := newState()
	s.begin(Settings{Strategy: "setnx"})
	s.open(1, count)
	return s
}

// TestDeathsAreSeen checks that each restart of an instance is recorded once as a death. The events come from
// two instances, of which one restarts twice.
func TestDeathsAreSeen(t *testing.T) {
	o := labOf(1)
	for i, e := range []struct {
		instance    string
		incarnation int
	}{{"8004", 1}, {"8005", 4}, {"8004", 1}, {"8004", 2}, {"8005", 4}, {"8004", 1}, {"8004", 2}, {"8004", 3}, {"8004", 3}} {
		o.record(history.Event{T: time.Duration(i), Kind: history.OK, Op: history.Read, Order: 1, Instance: e.instance, Incarnation: e.incarnation})
	}
	if want := []diagram.Death{{Instance: "8004", At: 3}, {Instance: "8004", At: 7}}; !slices.Equal(o.deaths, want) {
		t.Errorf("deaths are %+v, want %+v", o.deaths, want)
	}
}

// quietLab returns a lab without servers that listens at port 8080.
func quietLab(explore func(context.Context, Search) (report.Found, error)) *Lab {
	return &Lab{cfg: Config{Explore: explore}, url: "http://127.0.0.1:8080", token: "secret", state: newState()}
}

// TestSearchesAreChecked checks that only valid searches run, and that the lab is free again after each search,
// even after a failed one. It tries several numbers of actors, strategies and lists of faults.
func TestSearchesAreChecked(t *testing.T) {
	var searched []Search
	failed := errors.New("it failed")
	l := quietLab(func(_ context.Context, s Search) (report.Found, error) {
		if searched = append(searched, s); len(searched)%2 == 0 {
			return report.Found{}, failed
		}
		return report.Found{}, nil
	})
	r := httptest.NewRequest(http.MethodPost, "/api/explore", nil)
	known := catalog.FaultsBy(catalog.Explore)
	for actors := range 6 {
		for _, strategy := range []string{"setnx", "bogus", ""} {
			for _, faults := range [][]catalog.Fault{nil, known[:1], known, {known[0], "bogus"}, {"bogus", known[0]}, {known[0], known[1], ""}} {
				before := len(searched)
				s := Search{Strategy: strategy, Actors: actors, Faults: faults}
				_, err := l.explore(r, s)
				valid := (actors == 2 || actors == 3) && strategy == "setnx" && !slices.Contains(faults, "bogus") && !slices.Contains(faults, "")
				if (len(searched) > before) != valid || errors.Is(err, errBad) == valid || errors.Is(err, errBusy) {
					t.Errorf("search %+v: error %v", s, err)
				}
				if valid && (!reflect.DeepEqual(searched[before], s) || (err == nil) != (len(searched)%2 == 1)) {
					t.Errorf("%+v: searched %+v: %v", s, searched[before], err)
				}
			}
		}
	}
	release, err := l.state.occupy("a search")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.explore(r, Search{Strategy: "setnx", Actors: 2}); !errors.Is(err, errBusy) {
		t.Errorf("while a search is running: %v", err)
	}
	release()
}

// TestStatusOfErrors checks the HTTP status of each kind of error, even if the error is wrapped.
func TestStatusOfErrors(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want int
	}{
		{nil, http.StatusOK}, {errBad, http.StatusBadRequest}, {errBusy, http.StatusConflict}, {errMissing, http.StatusNotFound}, {errors.New("no server"), http.StatusServiceUnavailable},
	} {
		wrapped := tt.err
		if tt.err != nil {
			wrapped = fmt.Errorf("%w: order 7", tt.err)
		}
		for _, err := range []error{tt.err, wrapped} {
			w := httptest.NewRecorder()
			readHandler(func(*http.Request) (any, error) { return "fine", err })(w, nil)
			text := `"fine"` + "\n"
			if err != nil {
				text = fmt.Sprintf(`{"error":%q}`+"\n", err.Error())
			}
			if w.Code != tt.want || w.Body.String() != text || w.Header().Get("Content-Type") != "application/json" {
				t.Errorf("answer to %v: status %d %s, want %d", err, w.Code, w.Body, tt.want)
			}
		}
	}
}

// TestHostsAndTokens checks that a request is served only for a loopback host. If its method can change
// something, it must also have the token of the page. Every answer to such a host must have the
// security headers.
func TestHostsAndTokens(t *testing.T) {
	l := quietLab(nil)
	served := 0
	h := l.guarded(l.withToken(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ })))
	for host, own := range map[string]bool{
		"127.0.0.1:8080": true, "localhost:8080": true, "[::1]:8080": true, "127.0.0.1:8081": false, "localhost": false, "localhost:80": false, "[::1]": false,
		"127.0.0.2:8080": false, "evil.example:8080": false, "": false, "localhost.evil.example:8080": false,
	} {
		for method, needsToken := range map[string]bool{
			http.MethodGet: false, http.MethodHead: false, http.MethodPost: true, http.MethodPut: true, http.MethodPatch: true, http.MethodDelete: true, http.MethodOptions: true,
		} {
			for token, valid := range map[string]bool{"secret": true, "": false, "secre": false} {
				r := httptest.NewRequest(method, "/x", nil)
				r.Host = host
				if token != "" {
					r.Header.Set(tokenHeader, token)
				}
				w, before := httptest.NewRecorder(), served
				h.ServeHTTP(w, r)
				want := own && (valid || !needsToken)
				if (served > before) != want || (w.Code == http.StatusForbidden) == want {
					t.Errorf("%s as %q with the token %q: %d, served %v", method, host, token, w.Code, served > before)
				}
				for name, value := range map[string]string{
					"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
				} {
					if got := w.Header().Get(name); got != value {
						t.Errorf("%s as %q: %s is %q", method, host, name, got)
					}
				}
			}
		}
	}
}

// TestPageAcceptsOnlyItsAddress checks that the page accepts requests to its own address and refuses
// all others. On port 80, browsers omit the port.
func TestPageAcceptsOnlyItsAddress(t *testing.T) {
	for _, tt := range []struct {
		url, host string
		own       bool
	}{
		{"http://127.0.0.2:8080", "127.0.0.2:8080", true}, {"http://127.0.0.2:8080", "127.0.0.3:8080", false}, {"http://127.0.0.1:80", "127.0.0.1", true},
		{"http://127.0.0.1:80", "localhost:80", true}, {"http://[::1]:80", "[::1]", true}, {"http://127.0.0.1:80", "evil.example", false},
	} {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/x", nil)
		r.Host = tt.host
		(&Lab{url: tt.url}).guarded(http.NotFoundHandler()).ServeHTTP(w, r)
		if got := w.Code != http.StatusForbidden; got != tt.own {
			t.Errorf("%s as %s: accepted %v", tt.url, tt.host, got)
		}
	}
}
