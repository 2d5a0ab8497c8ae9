package fleet

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"grablab/internal/testbed/target"
)

// at starts a server that listens on addr and responds only with 404. It returns the server's port.
func at(t *testing.T, addr string) (port int) {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Skipf("listen on %s: %v", addr, err)
	}
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.NotFoundHandler()}}
	s.Start()
	t.Cleanup(s.Close)
	return l.Addr().(*net.TCPAddr).Port
}

func attached(t *testing.T, urls ...string) *Fleet {
	t.Helper()
	f, err := Attach(t.Context(), target.Target{URLs: urls, FirstOrder: 1})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func served(f *Fleet) map[string]bool {
	ids := map[string]bool{}
	for _, in := range f.Instances {
		ids[in.ID] = true
	}
	return ids
}

// TestOneInstanceUnderTwoNames checks the warning for two URLs of the same listener, with equal or
// different host names. Listeners on different ports must count as two instances, without a warning.
func TestOneInstanceUnderTwoNames(t *testing.T) {
	hosts := []string{"127.0.0.1", "localhost", "LOCALHOST", "LocalHost", "0.0.0.0", "127.0.0.2", "[::1]", "[::ffff:127.0.0.1]", "[::]"}
	one, other := at(t, "[::]:0"), at(t, "[::]:0")
	for _, a := range hosts {
		for _, b := range hosts {
			for _, path := range []string{"", "/shop"} {
				first, second := fmt.Sprintf("http://%s:%d", a, one), fmt.Sprintf("http://%s:%d%s", b, one, path)
				f := attached(t, first, second)
				why := f.OneInstance(served(f))
				if !strings.Contains(why, strings.TrimPrefix(first, "http://")) || !strings.Contains(why, strings.TrimPrefix(second, "http://")) {
					t.Errorf("%s and %s: %q; want both URLs in the reason", first, second, why)
				}
				third := fmt.Sprintf("http://%s:%d", b, other)
				if f := attached(t, first, third); f.OneInstance(served(f)) != "" || len(served(f)) != 2 {
					t.Errorf("%s and %s are %v: %s", first, third, served(f), f.OneInstance(served(f)))
				}
				if f := attached(t, first, second, third); f.OneInstance(served(f)) != "" {
					t.Errorf("%s, %s and %s: %s", first, second, third, f.OneInstance(served(f)))
				}
				f = attached(t, first, second, third)
				if ids := map[string]bool{f.Instances[0].ID: true, f.Instances[1].ID: true}; f.OneInstance(ids) == "" {
					t.Errorf("of %s, %s and %s, only the first two have served, but there is no warning", first, second, third)
				}
			}
		}
	}
	if f := attached(t, fmt.Sprintf("http://127.0.0.1:%d", one), fmt.Sprintf("http://localhost:%d", one)); len(served(f)) != 1 {
		t.Errorf("one address has the names %v", served(f))
	}
}

// TestListenersOnOnePort checks the warning for two listeners with the same port at different addresses:
// they may belong to one process.
func TestListenersOnOnePort(t *testing.T) {
	port := at(t, "127.0.0.1:0")
	at(t, fmt.Sprintf("[::1]:%d", port))
	f := attached(t, fmt.Sprintf("http://127.0.0.1:%d", port), fmt.Sprintf("http://[::1]:%d", port))
	if why := f.OneInstance(served(f)); !strings.Contains(why, "may be one instance") || len(served(f)) != 2 {
		t.Errorf("%v: %q; want two IDs and a warning", served(f), why)
	}
}

// TestNamesInAnswersAreNoEvidence checks that instances are not counted by the names in their
// responses. Two instances with one name must count as two, and one instance at two addresses must
// count as one.
func TestNamesInAnswersAreNoEvidence(t *testing.T) {
	for _, answers := range []map[string]string{
		{"GET /healthz": `{"instance":"shop"}`},
		{"GET /healthz": `{"instance":"shop"}`, "GET /strategies": `["a"]`},
	} {
		one, two := serving(t, answers), serving(t, answers)
		if f := attached(t, one, two); len(served(f)) != 2 || f.OneInstance(served(f)) != "" {
			t.Errorf("%v: two instances are %v: %s", answers, served(f), f.OneInstance(served(f)))
		}
		if f := attached(t, one, strings.Replace(one, "127.0.0.1", "localhost", 1)); len(served(f)) != 1 || f.OneInstance(served(f)) == "" {
			t.Errorf("%v: one instance is %v", answers, served(f))
		}
	}
}
