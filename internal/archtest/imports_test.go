package archtest

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "grablab"

// rules say which of our packages each may import.
var rules = []struct {
	pkg string
	may string
	why string
}{
	{"migrations", "", "the schema stands below everything"},
	{"internal/catalog", "", "names that all packages use stand below everything"},
	{"internal/history", "", "a record of facts must not depend on who makes them"},
	{"internal/tap/redishook", "", "a hook of the Redis client, whoever hangs on it"},
	{"internal/tap", "internal/tap/redishook", "the one seam: what stands on both sides of it may know it, it knows neither"},
	{"internal/explore/schedule", "", "a text format"},
	{"internal/measure/stat", "", "arithmetic"},
	{"internal/service/version", "", "what a program was built from, whatever it is"},
	{"internal/testbed/proc", "", "what operating systems do differently with processes, whoever starts them"},
	{"handoff", "", "a library for everybody: go-redis, and nothing of ours"},
	{"internal/freeport", "", "a port, whoever listens there"},
	{"internal/testbed/wire", "", "it knows two protocols, and neither servers nor who holds a request"},
	{"internal/order", "migrations", "the ledger decides, so it depends on nothing that it judges"},
	{"internal/grab/lock", "handoff internal/order", "a strategy cannot know that it is watched: no tap, no history, no fault"},
	{"internal/grab/lock/peers", "internal/grab/lock internal/order", "other people's libraries as strategies: they cannot know that they are watched either"},
	{"internal/grab", "internal/grab/lock internal/order internal/history internal/tap", "the critical section; the same code in instance, benchmark and explorer"},
	{"internal/service/control", "internal/order internal/history internal/tap", "both ends of one API: what an instance serves and what a harness asks, neither of which it knows"},
	{"internal/check", "internal/history internal/order", "a verdict rests on the record and the ledger alone"},
	{"internal/testbed/stack", "internal/freeport internal/order internal/grab/lock internal/tap internal/testbed/proc", "servers, whatever runs on them"},
	{"internal/service/instance", "internal/service/version handoff internal/service/control internal/grab internal/grab/lock internal/order internal/tap internal/history internal/testbed/stack", "what both binaries start; nothing that measures it"},
	{"internal/testbed/fault", "internal/service/control internal/testbed/stack internal/tap internal/explore/schedule internal/grab/lock internal/testbed/proc", "faults strike what runs, and know no experiment"},
	{"internal/explore/search", "internal/explore/schedule", "which schedule comes next is decided by steps, costs and fingerprints alone"},
	{"internal/explore/sim", "internal/explore/search internal/grab internal/grab/lock internal/order internal/tap internal/history internal/check internal/explore/schedule", "the simulated world: what a step does, and what it breaks; no sockets and no real servers"},
	{"internal/explore", "internal/explore/search internal/explore/sim internal/grab internal/grab/lock internal/order internal/tap internal/explore/schedule internal/testbed/proc", "the two put together, in child processes; it knows no server, simulated or real"},
	{"internal/explore/bubble", "internal/explore", "virtual time for a program that is no test"},
	{"internal/explore/worker", "internal/explore internal/explore/bubble", "built with a lock of a user's own, so the less it links the sooner it is there"},
	{"internal/testbed/wait", "", "sleeping and polling"},
	{"internal/measure/status", "", "a line on a terminal"},
	{"internal/nearest", "", "a distance between words"},
	{"internal/testbed/target", "internal/grab internal/nearest", "what the calls of a service look like and what its answers mean, whoever sends them"},
	{"internal/testbed/ledger", "internal/order", "a database of others is read as its owner says; it knows no service"},
	{"internal/testbed/load", "internal/testbed/target internal/testbed/wait", "what is sent and when, whatever answers"},
	{"internal/testbed/fleet", "internal/freeport internal/service/control internal/grab internal/order internal/history internal/testbed/stack internal/service/instance internal/testbed/target internal/nearest internal/testbed/proc internal/tap internal/testbed/wait internal/testbed/wire", "the instances under test, for whatever experiment"},
	{"internal/measure/experiment", "internal/testbed/proc internal/service/version internal/testbed/load internal/testbed/fleet internal/testbed/target internal/testbed/ledger internal/nearest internal/service/control internal/grab internal/grab/lock internal/order internal/tap internal/history internal/check internal/testbed/stack internal/testbed/fault internal/measure/stat internal/testbed/wait internal/measure/status", "cells need all of it, but neither how schedules are searched nor how results look"},
	{"internal/measure/replay", "internal/testbed/fleet internal/service/control internal/grab internal/grab/lock internal/order internal/tap internal/history internal/explore/schedule internal/check internal/testbed/stack internal/testbed/wait internal/testbed/proc", "one schedule on real servers; it judges no cells"},
	{"internal/measure/lockbench", "internal/measure/experiment internal/grab internal/grab/lock internal/grab/lock/peers internal/order internal/history internal/testbed/stack internal/service/instance internal/measure/stat internal/testbed/wait internal/measure/status", "the locks and their peers side by side; the clients they are measured with are those of an instance"},
	{"internal/present/compare", "internal/measure/experiment internal/testbed/load internal/measure/lockbench", "what differs between records that are there already; it runs nothing"},
	{"internal/present/diagram", "internal/history internal/check internal/explore internal/explore/schedule internal/tap", "what is to be seen of one order, in a run or in a schedule; it judges nothing, and knows no page"},
	{"internal/present/report", "internal/present/compare internal/present/diagram internal/measure/experiment internal/testbed/load internal/history internal/check internal/explore internal/explore/schedule internal/grab internal/grab/lock internal/order internal/measure/stat", "results can be rendered again where nothing runs"},
	{"internal/present/lab", "internal/present/whichlock internal/present/diagram internal/present/report internal/measure/experiment internal/measure/replay internal/explore internal/explore/schedule internal/testbed/load internal/testbed/fleet internal/testbed/target internal/service/control internal/grab internal/grab/lock internal/order internal/tap internal/history internal/check internal/testbed/stack internal/testbed/fault internal/testbed/wait internal/present/workshop", "a live page over what a run is made of; it judges nothing"},
	{"internal/present/workshop", "internal/measure/experiment internal/explore internal/measure/replay internal/explore/schedule", "it judges answers by what commands have come to, and runs none itself"},
	{"internal/present/whichlock", "internal/measure/experiment internal/grab/lock internal/measure/lockbench internal/order internal/present/report internal/measure/stat", "what results say to somebody who chooses a lock"},
	{"cmd/grabsvc", "internal/service/instance", "a thin main"},
	{"cmd/loadgen", "*", "the table of commands"},
}

// names is what every package may import: it is words alone.
const names = "internal/catalog"

type goPackage struct {
	ImportPath string
	Imports    []string
}

func TestImports(t *testing.T) {
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		if p.ImportPath == module || testsOnly(name) {
			continue
		}
		i := slices.IndexFunc(rules, func(r struct{ pkg, may, why string }) bool { return r.pkg == name })
		if i < 0 {
			t.Errorf("%s has no rule: say in rules what it may import, and why", name)
			continue
		}
		for _, imported := range p.Imports {
			ours, ok := strings.CutPrefix(imported, module+"/")
			if ok && ours != names && rules[i].may != "*" && !slices.Contains(strings.Fields(rules[i].may), ours) {
				t.Errorf("%s must not import %s: %s", name, ours, rules[i].why)
			}
			if ok && (strings.HasPrefix(ours, "cmd/") || testsOnly(ours)) {
				t.Errorf("%s must not import %s: commands are not imported, nor test helpers by programs", name, ours)
			}
		}
	}
}

// testsOnly says whether a package serves tests: storetest, locktest, …
func testsOnly(name string) bool { return strings.HasSuffix(path.Base(name), "test") }

// An instance is what is measured; what it is compared with must not be in it.
func TestInstanceLinksNoPeer(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", module+"/cmd/grabsvc").Output()
	if err != nil {
		t.Fatal(explain(err))
	}
	deps := strings.Fields(string(out))
	if !slices.Contains(deps, module+"/internal/grab/lock") {
		t.Fatal("cmd/grabsvc links no locks: this test looks at the wrong thing")
	}
	for _, dep := range deps {
		for _, peer := range []string{module + "/internal/grab/lock/peers", "github.com/redis/rueidis", "github.com/bsm/redislock", "go.etcd.io/etcd/client/v3/concurrency"} {
			if dep == peer || strings.HasPrefix(dep, peer+"/") {
				t.Errorf("cmd/grabsvc links %s", dep)
			}
		}
	}
}

func packages(t *testing.T) []goPackage {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports", module+"/...").Output()
	if err != nil {
		t.Fatal(explain(err))
	}
	var all []goPackage
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := dec.Decode(&p); err == io.EOF {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// explain adds what a command printed to its error.
func explain(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return errors.Join(err, errors.New(string(exit.Stderr)))
	}
	return err
}
