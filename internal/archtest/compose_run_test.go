package archtest

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

// composeEnv is an environment variable that the commands "make compose" and "make prove" set. The
// tests that depend on it need a Docker Engine.
const composeEnv = "GRABLAB_COMPOSE"

// compose runs docker compose in a separate project and returns its output.
func compose(ctx context.Context, t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(ctx, "docker", append([]string{"compose", "-p", "grablab-test"}, args...)...)
	cmd.Dir = root
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	err := cmd.Run()
	t.Logf("docker compose %s: %v\n%s", strings.Join(args, " "), err, out.String())
	return out.String(), err
}

// verdictOf returns the verdict in the row of a strategy, or "" if there is no such row.
func verdictOf(table, strategy string) string {
	row := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(strategy) + `\*?\s+(\w+) [✓✗]`).FindStringSubmatch(table)
	if row == nil {
		return ""
	}
	return row[1]
}

// TestComposeRuns checks that docker-compose.yml works as the README and docs/running.md describe.
func TestComposeRuns(t *testing.T) {
	if os.Getenv(composeEnv) == "" {
		t.Skip("the compose file is not run: use make compose, which needs a Docker Engine")
	}
	if out, err := exec.Command("docker", "compose", "version").CombinedOutput(); err != nil {
		t.Fatalf("no Docker Compose: %v\n%s", err, out)
	}
	if out, err := exec.Command("docker", "info").CombinedOutput(); err != nil {
		t.Fatalf("no Docker Engine: %v\n%s", err, out)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 5*time.Minute)
		defer cancel()
		if _, err := compose(ctx, t, "--profile", "*", "down", "--volumes", "--timeout", "10"); err != nil {
			t.Errorf("the containers are left behind: %v", err)
		}
	})
	if _, err := compose(t.Context(), t, "up", "--build", "--wait"); err != nil {
		t.Fatal("the servers and the instances must become healthy")
	}

	t.Run("load", func(t *testing.T) {
		table, err := compose(t.Context(), t, "run", "--rm", "-T", "load")
		if err != nil {
			t.Fatal(err)
		}
		for strategy, want := range map[string]string{"none": "unsafe", "mutex": "unsafe", "setnx": "safe", "watchdog": "safe", "redlock": "safe"} {
			if got := verdictOf(table, strategy); got != want {
				t.Errorf("%s is %q, want %s", strategy, got, want)
			}
		}
		if !strings.Contains(table, "ledger") {
			t.Error("the table does not count the rows of the ledger")
		}
		list, err := compose(t.Context(), t, "run", "--rm", "-T", "--no-deps", "load", "sh", "-c", "tar -c results | tar -t")
		if err != nil || !strings.Contains(list, "/run.json") {
			t.Errorf("the results cannot be copied: %v", err)
		}
	})

	// The lease of 30 s outlasts the pause, so setnx must stay safe. The strategy none must be unsafe even
	// though an instance is stopped.
	t.Run("a stopped instance", func(t *testing.T) {
		type result struct {
			table string
			err   error
		}
		done := make(chan result, 1)
		go func() {
			table, err := compose(t.Context(), t, "run", "--rm", "-T", "load", "loadgen", "run",
				"-targets=http://grabsvc-8004:8004,http://grabsvc-8005:8005", "-admin-token=only-on-this-host",
				"-db=grab:grab@tcp(mysql:3306)/grab", "-strategies=none,setnx", "-rate=50", "-timeout=20s")
			done <- result{table, err}
		}()
		time.Sleep(15 * time.Second) // the load takes 40 s for each strategy
		for _, signal := range []string{"STOP", "CONT"} {
			if _, err := compose(t.Context(), t, "kill", "--signal", signal, "grabsvc-8005"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(3 * time.Second)
		}
		r := <-done
		if r.err != nil {
			t.Fatal(r.err)
		}
		if got := verdictOf(r.table, "none"); got != "unsafe" {
			t.Errorf("none is %q, want unsafe", got)
		}
		if got := verdictOf(r.table, "setnx"); got != "safe" {
			t.Errorf("setnx is %q, want safe", got)
		}
	})

	t.Run("cluster", func(t *testing.T) {
		t.Setenv("GRABLAB_REDIS", "cluster-1:6379,cluster-2:6379,cluster-3:6379")
		if _, err := compose(t.Context(), t, "--profile", "cluster", "up", "--wait"); err != nil {
			t.Fatal("the Cluster and the instances must become healthy")
		}
		table, err := compose(t.Context(), t, "run", "--rm", "-T", "load", "loadgen", "run",
			"-targets=http://grabsvc-8004:8004,http://grabsvc-8005:8005", "-admin-token=only-on-this-host",
			"-db=grab:grab@tcp(mysql:3306)/grab", "-strategies=none,setnx", "-orders=20", "-rate=40")
		if err != nil {
			t.Fatal(err)
		}
		if got := verdictOf(table, "setnx"); got != "safe" {
			t.Errorf("setnx is %q, want safe", got)
		}
	})

	t.Run("observe", func(t *testing.T) {
		if _, err := compose(t.Context(), t, "--profile", "observe", "up", "--wait"); err != nil {
			t.Fatal("Prometheus and Grafana must become healthy")
		}
	})

	t.Run("consensus", func(t *testing.T) {
		t.Setenv("GRABLAB_ZK", "zookeeper:2181")
		t.Setenv("GRABLAB_ETCD", "etcd:2379")
		if _, err := compose(t.Context(), t, "--profile", "consensus", "up", "--wait"); err != nil {
			t.Fatal("ZooKeeper, etcd and the instances must become healthy")
		}
		table, err := compose(t.Context(), t, "run", "--rm", "-T", "load", "loadgen", "run",
			"-targets=http://grabsvc-8004:8004,http://grabsvc-8005:8005", "-admin-token=only-on-this-host",
			"-db=grab:grab@tcp(mysql:3306)/grab", "-strategies=zookeeper,etcd", "-orders=20", "-rate=40")
		if err != nil {
			t.Fatal(err)
		}
		for _, strategy := range []string{"zookeeper", "etcd"} {
			if got := verdictOf(table, strategy); got != "safe" {
				t.Errorf("%s is %q, want safe", strategy, got)
			}
		}
	})
}
