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
	{"internal/redishook", "", "a hook of the Redis client, whoever hangs on it"},
	{"internal/tap", "internal/redishook", "the one seam: what stands on both sides of it may know it, it knows neither"},
	{"internal/schedule", "", "a text format"},
	{"internal/stat", "", "arithmetic"},
	{"internal/version", "", "what a program was built from, whatever it is"},
	{"internal/proc", "", "what operating systems do differently with processes, whoever starts them"},
	{"handoff", "", "a library for everybody: go-redis, and nothing of ours"},
	{"internal/freeport", "", "a port, whoever listens there"},
	{"internal/wire", "", "it knows two protocols, and neither servers nor who holds a request"},
	{"internal/order", "migrations", "the ledger decides, so it depends on nothing that it judges"},
	{"internal/grab/lock", "handoff internal/order", "a strategy cannot know that it is watched: no tap, no history, no fault"},
	{"internal/grab/lock/peers", "internal/grab/lock internal/order", "other people's libraries as strategies: they cannot know that they are watched either"},
	{"internal/grab", "internal/grab/lock internal/order internal/history internal/tap", "the critical section; the same code in instance, benchmark and explorer"},
	{"internal/control", "internal/order internal/history internal/tap", "both ends of one API: what an instance serves and what a harness asks, neither of which it knows"},
	{"internal/check", "internal/history internal/order", "a verdict rests on the record and the ledger alone"},
	{"internal/stack", "internal/freeport internal/order internal/grab/lock internal/tap internal/proc", "servers, whatever runs on them"},
	{"internal/instance", "internal/version handoff internal/control internal/grab internal/grab/lock internal/order internal/tap internal/history internal/stack", "what both binaries start; nothing that measures it"},
	{"internal/fault", "internal/control internal/stack internal/tap internal/schedule internal/grab/lock internal/proc", "faults strike what runs, and know no experiment"},
	{"internal/explore/search", "internal/schedule", "which schedule comes next is decided by steps, costs and fingerprints alone"},
	{"internal/explore/sim", "internal/explore/search internal/grab internal/grab/lock internal/order internal/tap internal/history internal/check internal/schedule", "the simulated world: what a step does, and what it breaks; no sockets and no real servers"},
	{"internal/explore", "internal/explore/search internal/explore/sim internal/grab internal/grab/lock internal/order internal/tap internal/schedule internal/proc", "the two put together, in child processes; it knows no server, simulated or real"},
	{"internal/explore/bubble", "internal/explore", "virtual time for a program that is no test"},
	{"internal/explore/worker", "internal/explore internal/explore/bubble", "built with a lock of a user's own, so the less it links the sooner it is there"},
	{"internal/wait", "", "sleeping and polling"},
	{"internal/status", "", "a line on a terminal"},
	{"internal/nearest", "", "a distance between words"},
	{"internal/target", "internal/grab internal/nearest", "what the calls of a service look like and what its answers mean, whoever sends them"},
	{"internal/ledger", "internal/order", "a database of others is read as its owner says; it knows no service"},
	{"internal/load", "internal/target internal/wait", "what is sent and when, whatever answers"},
	{"internal/fleet", "internal/freeport internal/control internal/grab internal/order internal/history internal/stack internal/instance internal/target internal/nearest internal/proc internal/tap internal/wait internal/wire", "the instances under test, for whatever experiment"},
	{"internal/experiment", "internal/proc internal/version internal/load internal/fleet internal/target internal/ledger internal/nearest internal/control internal/grab internal/grab/lock internal/order internal/tap internal/history internal/check internal/stack internal/fault internal/stat internal/wait internal/status", "cells need all of it, but neither how schedules are searched nor how results look"},
	{"internal/replay", "internal/fleet internal/control internal/grab internal/grab/lock internal/order internal/tap internal/history internal/schedule internal/check internal/stack internal/wait internal/proc", "one schedule on real servers; it judges no cells"},
	{"internal/lockbench", "internal/experiment internal/grab internal/grab/lock internal/grab/lock/peers internal/order internal/history internal/stack internal/instance internal/stat internal/wait internal/status", "the locks and their peers side by side; the clients they are measured with are those of an instance"},
	{"internal/compare", "internal/experiment internal/load internal/lockbench", "what differs between records that are there already; it runs nothing"},
	{"internal/diagram", "internal/history internal/check internal/explore internal/schedule internal/tap", "what is to be seen of one order, in a run or in a schedule; it judges nothing, and knows no page"},
	{"internal/report", "internal/compare internal/diagram internal/experiment internal/load internal/history internal/check internal/explore internal/schedule internal/grab internal/grab/lock internal/order internal/stat", "results can be rendered again where nothing runs"},
	{"internal/lab", "internal/whichlock internal/diagram internal/report internal/experiment internal/replay internal/explore internal/schedule internal/load internal/fleet internal/target internal/control internal/grab internal/grab/lock internal/order internal/tap internal/history internal/check internal/stack internal/fault internal/wait internal/workshop", "a live page over what a run is made of; it judges nothing"},
	{"internal/workshop", "internal/experiment internal/explore internal/replay internal/schedule", "it judges answers by what commands have come to, and runs none itself"},
	{"internal/whichlock", "internal/experiment internal/grab/lock internal/lockbench internal/order internal/report internal/stat", "what results say to somebody who chooses a lock"},
	{"cmd/grabsvc", "internal/instance", "a thin main"},
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
