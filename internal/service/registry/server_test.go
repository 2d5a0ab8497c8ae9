package registry

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// jarEnv is the environment variable with the path to a Eureka server's jar file, such as the one
// that examples/eureka builds.
const jarEnv = "GRABLAB_EUREKA"

// isReal reports whether startServer starts a real Eureka server.
func isReal() bool { return os.Getenv(jarEnv) != "" }

// startServer starts a Eureka server and returns its URL. By default, the server is a stub. If
// GRABLAB_EUREKA names a jar file, it is real.
func startServer(t *testing.T) (url string) {
	t.Helper()
	if isReal() {
		return startJar(t, os.Getenv(jarEnv))
	}
	s := httptest.NewServer(&stub{apps: map[string]map[string]json.RawMessage{}})
	t.Cleanup(s.Close)
	return s.URL + "/eureka"
}

func startJar(t *testing.T, jar string) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().(*net.TCPAddr)
	l.Close()
	cmd := exec.Command("java", "-Xmx256m", "-jar", jar, fmt.Sprintf("--server.port=%d", addr.Port))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	url = fmt.Sprintf("http://%s/eureka", addr)
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if resp, err := http.Get(url + "/apps"); err == nil {
			resp.Body.Close()
			return url
		}
	}
	t.Fatalf("%s did not start within two minutes", jar)
	return ""
}

// stub imitates a Eureka server in which registrations never expire.
type stub struct {
	mu   sync.Mutex
	apps map[string]map[string]json.RawMessage // instances by application and ID
}

func (s *stub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	app, id, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/eureka/apps/"), "/")
	app = strings.ToUpper(app)
	s.mu.Lock()
	defer s.mu.Unlock()
	_, known := s.apps[app][id]
	switch {
	case r.Method == http.MethodPost:
		s.register(w, r, app)
	case r.Method == http.MethodGet && len(s.apps[app]) > 0:
		list := []json.RawMessage{}
		for _, instance := range s.apps[app] {
			list = append(list, instance)
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"application": map[string]any{"name": app, "instance": list}})
	case r.Method == http.MethodGet || !known:
		http.NotFound(w, r)
	case r.Method == http.MethodDelete:
		delete(s.apps[app], id)
	}
}

func (s *stub) register(w http.ResponseWriter, r *http.Request, app string) {
	var body struct{ Instance json.RawMessage }
	var instance struct{ InstanceID, HostName, App string }
	if json.NewDecoder(r.Body).Decode(&body) != nil || json.Unmarshal(body.Instance, &instance) != nil ||
		instance.InstanceID == "" || instance.HostName == "" || instance.App != app {
		http.Error(w, "incomplete registration", http.StatusBadRequest)
		return
	}
	if s.apps[app] == nil {
		s.apps[app] = map[string]json.RawMessage{}
	}
	s.apps[app][instance.InstanceID] = body.Instance
	w.WriteHeader(http.StatusNoContent)
}
