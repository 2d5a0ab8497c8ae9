package main

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"grablab/internal/catalog"
	"grablab/internal/testbed/fleet"
)

// TestTargetsFromRegistry checks that a run finds its targets in a service registry. It must leave out an
// instance that was killed but is still listed, and report it.
func TestTargetsFromRegistry(t *testing.T) {
	db := filepath.Join(t.TempDir(), "t.db")
	var urls []string
	var kill func()
	for range 3 {
		cmd := loadgen(t, fleet.Command, "-addr", "127.0.0.1:0", "-db", "sqlite:"+db, "-strategy", "mysql-cas", "-work", "5ms")
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		end := func(signal syscall.Signal) {
			_ = cmd.Process.Signal(signal) // it may have ended
			_ = cmd.Wait()
		}
		t.Cleanup(func() { end(syscall.SIGTERM) })
		kill = func() { end(syscall.SIGKILL) }
		line, err := bufio.NewReader(stdout).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		urls = append(urls, strings.TrimSpace(strings.TrimPrefix(line, "listening on ")))
	}
	slices.Sort(urls[:2])
	kill()
	server := listing(t, urls)

	out := filepath.Join(t.TempDir(), "out")
	code, stdout, stderr := output(t, loadgen(t, "run", "-targets", "eureka:GRABSVC@"+server, "-strategies", "mysql-cas", "-orders", "5", "-drivers", "8", "-seed", "1", "-quiet", "-out", out))
	if code != int(exitDone) {
		t.Fatalf("exit %d\n%s%s", code, stdout, stderr)
	}
	run := fits(t, read(t, out, "run.json"))
	c := run.Cells[0]
	if c.Verdict != catalog.Safe || len(c.ServedBy) != 2 || run.Config.Instances != 2 || len(run.Config.Unreachable) != 1 ||
		!strings.Contains(run.Config.Unreachable[urls[2]], "refused") {
		t.Errorf("%s (%s), served by %v, %+v", c.Verdict, c.Reason, c.ServedBy, run.Config)
	}
	if want := "the service registry also lists " + urls[2] + ", which does not answer"; !strings.Contains(stdout, want) {
		t.Errorf("%q is missing in\n%s", want, stdout)
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
