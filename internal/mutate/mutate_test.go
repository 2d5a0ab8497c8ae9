// Package mutate measures how many mistakes the tests find. It puts small mistakes into the code, and counts how
// many of them make a test fail. This is mutation testing, after DeMillo,
// Lipton and Sayward, "Hints on Test Data Selection", 1978.
//
// All mistakes of a sample are compiled into the same programs. Each changed function begins with a switch that
// selects a copy of its body with one mistake, or the original body. An environment variable makes the
// choice. A first run of each test, without any mistake, records which mistakes the test reaches. Only tests that
// reach a mistake then run with it. This is called mutant schemata (Untch, Offutt and Harrold,
// "Mutation Analysis Using Mutant Schemata", 1993). A mistake outside every function, such as one in a constant or
// in a Lua script, needs programs of its own.
//
// Rules make the mistakes, and a seed draws a sample. By default, the seed is the name of the
// release, so each release measures a different sample and tests cannot be fitted to it. For the
// locks, TestMutate also runs `loadgen explore` with its default bounds, and reports how many
// mistakes the explorer finds by itself. TestMutate takes long, so only this command starts it:
//
//	.ci/mutate [-n N] [-seed TEXT] [-tests none|package|all] [-explore] [GROUP…]
package mutate

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"grablab/internal/service/version"
)

// group is a part of the code whose kill rate is reported by itself.
type group struct {
	name  string
	files []string // patterns, from the root
	tests []string // the packages whose tests can find mistakes in the files, the fastest first
}

// packages returns the packages whose tests run on a mistake in the file. The parameter tests selects none, only
// the package of the file, or all of the group, with the package of the file first. If the group does not list
// that package, the first one of the group takes its place.
func (g group) packages(file, tests string) []string {
	own := filepath.ToSlash(filepath.Dir(file))
	if !slices.Contains(g.tests, own) {
		own = g.tests[0]
	}
	switch tests {
	case "none":
		return nil
	case "package":
		return []string{own}
	}
	return slices.Concat([]string{own}, slices.DeleteFunc(slices.Clone(g.tests), func(p string) bool { return p == own }))
}

var groups = []group{
	{"lock", []string{"internal/grab/lock/*.go", "internal/grab/lock/*.lua"}, []string{"internal/grab/lock", "internal/explore", "internal/explore/sim", "locktest"}},
	{"guard", []string{"internal/order/*.go"}, []string{"internal/order", "internal/grab", "internal/explore"}},
	{"grab", []string{"internal/grab/*.go"}, []string{"internal/grab", "internal/service/instance", "internal/explore"}},
	{"handoff", []string{"handoff/*.go", "handoff/*.lua"}, []string{"internal/grab/handofftest", "internal/grab/lock", "internal/explore"}},
	{"strike", []string{"internal/measure/experiment/*.go", "internal/testbed/fault/*.go"}, []string{"internal/testbed/fault", "internal/measure/experiment"}},
	{"accounting", []string{"internal/check/*.go", "internal/history/*.go", "internal/testbed/ledger/*.go", "internal/testbed/load/*.go"}, []string{"internal/check", "internal/history", "internal/testbed/ledger", "internal/testbed/load", "internal/measure/experiment"}},
	{"compare", []string{"internal/present/compare/*.go"}, []string{"internal/present/compare", "cmd/loadgen"}},
	{"wire", []string{"internal/testbed/wire/*.go"}, []string{"internal/testbed/wire", "internal/measure/experiment"}},
	{"search", []string{"internal/explore/search/*.go", "internal/explore/sim/reducer.go"}, []string{"internal/explore/search", "internal/explore/sim", "internal/explore"}},
	{"oracle", []string{"internal/explore/sim/property*.go", "internal/explore/sim/facts.go", "internal/explore/sim/contents.go", "internal/explore/schedule/*.go"}, []string{"internal/explore/schedule", "internal/explore/sim", "internal/explore"}},
	{"target", []string{"internal/testbed/target/*.go", "internal/service/control/*.go", "internal/service/instance/*.go", "servicetest/*.go"}, []string{"internal/testbed/target", "internal/service/control", "internal/service/instance", "servicetest"}},
	{"report", []string{"internal/present/report/*.go"}, []string{"internal/present/report", "cmd/loadgen"}},
	{"page", []string{"internal/present/lab/*.go"}, []string{"internal/present/lab"}},
	{"proc", []string{"internal/testbed/proc/*.go"}, []string{"internal/testbed/proc", "internal/testbed/stack"}},
	{"figures", []string{"internal/measure/stat/*.go", "internal/measure/shard/*.go"}, []string{"internal/measure/stat", "internal/measure/shard", "internal/measure/experiment"}},
	{"command", []string{"cmd/loadgen/*.go", "internal/flags/*.go"}, []string{"internal/flags", "cmd/loadgen"}},
}

var (
	sampleSize = flag.Int("n", 5, "how many mistakes to make in each group")
	sampleSeed = flag.String("seed", version.Release, "the seeds of the samples, separated by commas")
	testsOf    = flag.String("tests", "package", "which tests may find a mistake: those of its package (package), of all packages listed for its group (all), or none")
	explores   = flag.Bool("explore", true, "also run the explorer with its default bounds on mistakes in locks")
)

// TestMutate makes mistakes in each group, and prints those that no test finds. It must run in the
// root of the project.
func TestMutate(t *testing.T) {
	if os.Getenv("GRABLAB_MUTATE") != "1" {
		t.Skip("make mutate runs this test")
	}
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *sampleSize, *sampleSeed, *testsOf, *explores, flag.Args()); err != nil {
		t.Fatal(err)
	}
}

func names() []string {
	var all []string
	for _, g := range groups {
		all = append(all, g.name)
	}
	return all
}

func run(ctx context.Context, n int, seed, tests string, explore bool, chosen []string) error {
	if !slices.Contains([]string{"none", "package", "all"}, tests) {
		return fmt.Errorf("-tests %q: use none, package or all", tests)
	}
	if n < 1 {
		return fmt.Errorf("-n %d: use at least 1", n)
	}
	for _, name := range chosen {
		if !slices.Contains(names(), name) {
			return fmt.Errorf("no group %q: the groups are %s", name, strings.Join(names(), ", "))
		}
	}
	bench, err := newBench(explore)
	if err != nil {
		return err
	}
	defer bench.close()
	fmt.Printf("make mutate at %s, seed %s, %d mistakes a group and seed, -tests %s, -explore=%t\n\n", version.Commit(), seed, n, tests, explore)
	of := slices.DeleteFunc(slices.Clone(groups), func(g group) bool {
		return len(chosen) > 0 && !slices.Contains(chosen, g.name)
	})
	sample, err := bench.sample(ctx, of, n, strings.Split(seed, ","), tests)
	if err != nil {
		return err
	}
	var all []result
	defer func() { printRates(os.Stdout, all) }()
	for i, m := range sample {
		if i == 0 || m.group.name != sample[i-1].group.name {
			fmt.Printf("\nmistakes in %s that nothing finds:\n", m.group.name)
		}
		r, err := bench.measure(ctx, m, tests)
		if err != nil {
			return err
		}
		if !r.explored && !r.tested {
			continue // nothing has looked for the mistake
		}
		all = append(all, r)
		out := os.Stdout
		if r.killed() {
			out = os.Stderr // the report lists only the other mistakes
		}
		fmt.Fprintln(out, r.describe(m.mistake, bench.files[m.file].source))
	}
	return nil
}
