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

// floors lists the groups of packages from the top of the tree to the bottom. A package can import
// packages on lower floors and on its own floor.
var floors = []struct {
	name     string
	packages string // separated by spaces; a name covers the packages below it
	why      string
}{
	{"programs", "cmd locktest servicetest examples internal/mutate", "they connect everything else, and nothing depends on them"},
	{"present", "internal/present", "it shows results, so the packages that produce them must not know it"},
	{"measure", "internal/measure", "it runs and judges cells, however they are shown"},
	{"explore", "internal/explore", "the search runs without servers, so it must not know how cells are run on real ones"},
	{"testbed", "internal/testbed", "it provides what any experiment needs, and knows no experiment"},
	{"service", "internal/service", "an instance must not know that it is under test"},
	{"check", "internal/check", "a verdict depends only on the record and the ledger"},
	{"grab", "internal/grab", "the same critical section runs in an instance, in the benchmark and in the explorer"},
	{"order", "internal/order", "the ledger decides, so it must not depend on what it judges"},
	{"ground", "internal/tap internal/history internal/catalog internal/flags migrations handoff", "every other package may use these"},
}

// exceptions are stricter than the floors. The package, and everything below it, must not
// import the listed packages.
var exceptions = []struct {
	pkg  string
	not  string
	why  string
	seen bool // whether the package exists
}{
	{pkg: "internal/grab/lock", not: "internal/tap internal/history internal/check", why: "a strategy cannot know that it is observed"},
	{pkg: "internal/tap", not: "internal/history internal/catalog migrations handoff", why: "a tap stands between two sides and knows neither"},
	{pkg: "internal/history", not: "internal/tap handoff migrations", why: "a record of facts must not depend on what makes them"},
	{pkg: "internal/catalog", not: "internal/tap internal/history migrations handoff", why: "it holds only names and sentences"},
	{pkg: "handoff", not: "internal migrations", why: "it is a library of its own, and needs only go-redis"},
	{pkg: "internal/service/instance", not: "internal/check", why: "an instance does not judge itself"},
	{pkg: "internal/explore/search", not: "internal/grab internal/order internal/check internal/explore/sim", why: "steps, costs and fingerprints alone decide which schedule is next"},
	{pkg: "internal/explore/sim", not: "internal/testbed internal/service", why: "the simulated world has no sockets and no real servers"},
	{pkg: "internal/testbed/wire", not: "internal/testbed/stack internal/testbed/fleet internal/grab", why: "it knows protocols, but not the servers"},
	{pkg: "internal/testbed/fault", not: "internal/testbed/fleet internal/testbed/load", why: "a fault strikes what runs, and knows no load"},
	{pkg: "internal/present/diagram", not: "internal/measure", why: "it draws one order, whether a run or a schedule produced it"},
	{pkg: "internal/measure/experiment", not: "internal/measure/replay internal/measure/lockbench", why: "a cell is independent of schedules and of the benchmark"},
}

// floorOf returns the index of the package's floor, or -1.
func floorOf(name string) int {
	return slices.IndexFunc(floors, func(f struct{ name, packages, why string }) bool {
		return slices.ContainsFunc(strings.Fields(f.packages), func(p string) bool { return within(name, p) })
	})
}

// within reports whether a package is dir or lies below it.
func within(name, dir string) bool { return name == dir || strings.HasPrefix(name, dir+"/") }

type goPackage struct {
	ImportPath string
	Imports    []string
}

func TestImports(t *testing.T) {
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		if p.ImportPath == module || name == "internal/archtest" {
			continue
		}
		floor := floorOf(name)
		if floor < 0 {
			t.Errorf("%s is on no floor: add it to floors", name)
			continue
		}
		for _, imported := range p.Imports {
			ours, ok := strings.CutPrefix(imported, module+"/")
			if !ok {
				continue
			}
			if at := floorOf(ours); at < floor {
				t.Errorf("%s must not import %s, which is on the higher floor %q: %s", name, ours, floors[at].name, floors[at].why)
			}
			if strings.HasPrefix(ours, "cmd/") || testHelper(ours) && !testHelper(name) && name != "locktest" {
				t.Errorf("%s must not import %s: commands and test helpers are not part of a program", name, ours)
			}
		}
		for i := range exceptions {
			e := &exceptions[i]
			if !within(name, e.pkg) || testHelper(name) {
				continue
			}
			e.seen = true
			for _, not := range strings.Fields(e.not) {
				for _, imported := range p.Imports {
					if ours, ok := strings.CutPrefix(imported, module+"/"); ok && within(ours, not) {
						t.Errorf("%s must not import %s: %s", name, ours, e.why)
					}
				}
			}
		}
	}
	for _, e := range exceptions {
		if !e.seen {
			t.Errorf("exceptions names %s, which does not exist", e.pkg)
		}
	}
}

// testHelper reports whether a package serves only tests, such as stacktest.
func testHelper(name string) bool {
	return name != "locktest" && strings.HasSuffix(path.Base(name), "test")
}

// TestInstanceLinksNoPeer checks that grabsvc does not contain the libraries that our locks are compared
// with.
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

// explain adds a command's standard error to the error that it returned.
func explain(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return errors.Join(err, errors.New(string(exit.Stderr)))
	}
	return err
}
