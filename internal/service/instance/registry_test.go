package instance_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// TestInstanceIsRegistered checks that an instance registers when it starts, and removes its entry when it
// ends.
func TestInstanceIsRegistered(t *testing.T) {
	var mu sync.Mutex
	var calls []string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		calls = append(calls, r.Method+" "+r.URL.Path)
	}))
	defer server.Close()
	made := func() string {
		mu.Lock()
		defer mu.Unlock()
		return strings.Join(calls, ", ")
	}
	url, stop := run(t, configOf(t, "-strategy", "none", "-registry", "eureka="+server.URL))
	eventually(t, "the instance registers", func() bool { return made() == "POST /eureka/apps/GRABSVC" })
	stop()
	_, port, _ := strings.Cut(strings.TrimPrefix(url, "http://"), ":")
	if want := "POST /eureka/apps/GRABSVC, DELETE /eureka/apps/GRABSVC/127.0.0.1:grabsvc:" + port; made() != want {
		t.Errorf("the calls are %q, want %q", made(), want)
	}
}
