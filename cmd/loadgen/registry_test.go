package main

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"grablab/internal/catalog"
	"grablab/internal/testbed/fleet"
)

// TestTargetsFromRegistry checks that a run finds its targets in a service registry.
func TestTargetsFromRegistry(t *testing.T) {
	db := filepath.Join(t.TempDir(), "t.db")
	var urls []string
	for range 2 {
		cmd := loadgen(t, fleet.Command, "-addr", "127.0.0.1:0", "-db", "sqlite:"+db, "-strategy", "mysql-cas", "-work", "5ms")
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Signal(syscall.SIGTERM)
			_ = cmd.Wait()
		})
		line, err := bufio.NewReader(stdout).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		urls = append(urls, strings.TrimSpace(strings.TrimPrefix(line, "listening on ")))
	}
	server := listing(t, urls)

	out := filepath.Join(t.TempDir(), "out")
	code, stdout, stderr := output(t, loadgen(t, "run", "-targets", "eureka:GRABSVC@"+server, "-strategies", "mysql-cas", "-orders", "5", "-drivers", "8", "-seed", "1", "-quiet", "-out", out))
	if code != int(exitDone) {
		t.Fatalf("exit %d\n%s%s", code, stdout, stderr)
	}
	run := fits(t, read(t, out, "run.json"))
	c := run.Cells[0]
	if c.Verdict != catalog.Safe || len(c.ServedBy) != 2 || run.Config.Instances != 2 {
		t.Errorf("%s (%s), served by %v, %+v", c.Verdict, c.Reason, c.ServedBy, run.Config)
	}
	t.Log(stdout)
}

// listing starts a Eureka server that lists instances at these URLs, and returns the server's URL.
func listing(t *testing.T, urls []string) string {
	t.Helper()
	var instances []string
	for _, u := range urls {
		host, port, _ := strings.Cut(strings.TrimPrefix(u, "http://"), ":")
		instances = append(instances, fmt.Sprintf(`{"status":"UP","hostName":%q,"port":{"$":%s,"@enabled":"true"}}`, host, port))
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"application":{"instance":[%s]}}`, strings.Join(instances, ","))
	}))
	t.Cleanup(server.Close)
	return server.URL
}
