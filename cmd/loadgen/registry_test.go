package main

import (
	"bufio"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/service/registry"
	"grablab/internal/service/registry/registrytest"
	"grablab/internal/testbed/fleet"
)

// TestTargetsFromRegistry checks that a run finds its targets in a service registry. It must leave out an
// instance that was killed but is still listed, and report it.
func TestTargetsFromRegistry(t *testing.T) {
	server := registrytest.Start(t)
	source := "eureka:GRABSVC@" + server
	db := filepath.Join(t.TempDir(), "t.db")
	var urls []string
	var kill func()
	for range 3 {
		cmd := loadgen(t, fleet.Command, "-addr", "127.0.0.1:0", "-db", "sqlite:"+db, "-strategy", "mysql-cas", "-work", "5ms", "-registry", "eureka="+server)
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
	until(t, func() bool {
		s, err := registry.Parse(source)
		if err != nil {
			t.Fatal(err)
		}
		listed, err := s.Find(t.Context())
		return err == nil && len(listed) == 3
	})
	kill()

	out := filepath.Join(t.TempDir(), "out")
	code, stdout, stderr := output(t, loadgen(t, "run", "-targets", source, "-strategies", "mysql-cas", "-orders", "5", "-drivers", "8", "-seed", "1", "-quiet", "-out", out))
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

// until waits until has returns true, for at most 30 seconds.
func until(t *testing.T, has func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !has(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the condition does not hold after 30 s")
		}
	}
}
