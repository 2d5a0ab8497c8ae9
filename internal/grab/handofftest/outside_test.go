package handoff_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"grablab/internal/testbed/conformtest"
)

// TestDependsOnGoRedisAlone checks that the package depends only on go-redis, its dependencies, and the
// standard library.
func TestDependsOnGoRedisAlone(t *testing.T) {
	list := func(pkg string) []string {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", pkg).Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Fields(string(out))
	}
	may := append(list("github.com/redis/go-redis/v9"), "grablab/handoff")
	for _, pkg := range list("grablab/handoff") {
		if !slices.Contains(may, pkg) {
			t.Errorf("package handoff depends on %s", pkg)
		}
	}
}

// outsideProgram uses package handoff from another module.
const outsideProgram = `package main

import (
	"context"
	"fmt"
	"os"

	"grablab/handoff"

	"github.com/redis/go-redis/v9"
)

func main() {
	if err := run(context.Background(), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, addr string) error {
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	locks, err := handoff.New(client, handoff.Options{})
	if err != nil {
		return err
	}
	defer locks.Close()
	lease, err := locks.Acquire(ctx, "order:7")
	if err != nil {
		return err
	}
	fmt.Println("locked", lease.Key(), lease.Fence() > 0)
	return lease.Release(ctx)
}
`

// TestFromAnotherModule builds and runs a program in a module that requires only handoff. The program
// must get a lock, and link only handoff, go-redis and its dependencies. A replace directive stands for
// the released version that such a module would download.
func TestFromAnotherModule(t *testing.T) {
	addr := conformtest.RedisServer(t)
	library := must(filepath.Abs("../../../handoff"))
	dir := t.TempDir()
	must(0, os.WriteFile(filepath.Join(dir, "main.go"), []byte(outsideProgram), 0o600))
	mod := "module example.com/outside\n\ngo 1.26.0\n\nrequire grablab/handoff v0.0.0\n\nreplace grablab/handoff => " + library + "\n"
	must(0, os.WriteFile(filepath.Join(dir, "go.mod"), []byte(mod), 0o600))
	must(0, os.WriteFile(filepath.Join(dir, "go.sum"), must(os.ReadFile(filepath.Join(library, "go.sum"))), 0o600))
	outside := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod "+os.Getenv("GOFLAGS"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	// The output may start with the modules that go downloads.
	if out := outside("run", ".", addr); !strings.HasSuffix(out, "locked order:7 true\n") {
		t.Errorf("the program printed %q", out)
	}
	may := []string{
		"example.com/outside", "grablab/handoff", "github.com/redis/go-redis/v9",
		"github.com/cespare/xxhash/v2", "go.uber.org/atomic", "golang.org/x/sys",
	}
	used := strings.Fields(outside("list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "."))
	if !slices.Contains(used, "grablab/handoff") {
		t.Errorf("the program does not link handoff, but %v", used)
	}
	for _, module := range used {
		if !slices.Contains(may, module) {
			t.Errorf("the program also links module %s", module)
		}
	}
	for _, line := range strings.Split(string(must(os.ReadFile(filepath.Join(dir, "go.mod")))), "\n") {
		if fields := strings.Fields(strings.TrimPrefix(line, "require ")); len(fields) > 1 && strings.HasPrefix(fields[1], "v") && !slices.Contains(may, fields[0]) {
			t.Errorf("its go.mod also requires %s", fields[0])
		}
	}
}
