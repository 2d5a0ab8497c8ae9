package experiment

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/testbed/fault"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/target"
)

const (
	springExample = "examples/spring-redisson/"
	springJar     = springExample + "target/app.jar"
	springBuild   = "mvn -q -f " + springExample + "pom.xml package"
)

// spring returns the configuration of a run against the example in Java. It skips the test if the
// example cannot run. Only make prove builds the example, because Maven is slow.
func spring(t *testing.T) Config {
	t.Helper()
	t.Chdir("../../..")
	if _, err := exec.LookPath("java"); err != nil {
		t.Skip("the Spring example is not tested: there is no JVM (java); on Debian and Ubuntu: apt-get install openjdk-17-jdk-headless maven")
	}
	if _, err := os.Stat(springJar); err != nil {
		if !proving {
			t.Skipf("the Spring example is not tested: there is no %s; %s, or GRABLAB_PROVE=1, builds it", springJar, springBuild)
		}
		if _, err := exec.LookPath("mvn"); err != nil {
			t.Skipf("the Spring example is not tested: there is no %s, and no Maven (mvn) to build it", springJar)
		}
		if out, err := exec.CommandContext(t.Context(), "mvn", "-q", "-f", springExample+"pom.xml", "package").CombinedOutput(); err != nil {
			t.Skipf("the Spring example is not tested: %s: %v\n%s", springBuild, err, out)
		}
	}
	settings, err := target.ReadFile(springExample + "target.yaml")
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]string{}
	for _, s := range settings {
		said[s.Key] = s.Value
	}
	s, err := fleet.ParseService(said["service"])
	if err != nil {
		t.Fatal(err)
	}
	s.Ready = said["ready"]
	cfg := small(t, stack.Local)
	cfg.Service, cfg.Workers, cfg.Target.Database.Query = &s, 1, said["ledger-query"]
	cfg.Stack.Logs, cfg.Budget, cfg.Warmup = cfg.Out, 10*time.Minute, 2*time.Second
	cfg.Rate, cfg.Together = 0, true
	return cfg
}

// TestSpringService checks the verdicts on the example in Java. Without a lock, or with a lock that
// works only within a process, it must be unsafe. With Redisson's lock, it must be safe without a
// fault, but unsafe if the process is paused before the write.
func TestSpringService(t *testing.T) {
	cfg := spring(t)
	cfg.Target.Strategies = []string{"none", "synchronized", "rlock"}
	cfg.Only = []CellName{{"none", catalog.NoFault}, {"synchronized", catalog.NoFault}, {"rlock", catalog.NoFault}, {"rlock", catalog.Pause}}
	cfg.Faults = []catalog.Fault{catalog.NoFault, catalog.Pause}
	at, err := fault.ParsePoint("before mysql UPDATE orders 1")
	if err != nil {
		t.Fatal(err)
	}
	cfg.At = &at
	run, err := Execute(t.Context(), cfg, func(*Run) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	wants := map[CellName]catalog.Verdict{
		cfg.Only[0]: catalog.Unsafe, cfg.Only[1]: catalog.Unsafe, cfg.Only[2]: catalog.Safe, cfg.Only[3]: catalog.Unsafe,
	}
	for _, c := range run.Cells {
		name := c.Name()
		if want := wants[name]; c.Verdict != want || c.CountedFrom != fromLedger {
			t.Errorf("%s: %s (%s), counted from the %s, want %s", name, c.Verdict, c.Reason, c.CountedFrom, want)
		}
		delete(wants, name)
	}
	if len(wants) > 0 {
		t.Errorf("not run: %v", wants)
	}
}
