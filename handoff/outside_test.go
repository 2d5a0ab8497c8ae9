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

// The package needs go-redis, what that needs, and the standard library.
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
			t.Errorf("it depends on %s", pkg)
		}
	}
}

// Another module builds with the package, and takes a lock.
func TestFromAnotherModule(t *testing.T) {
	addr := conformtest.RedisServer(t)
	root := must(filepath.Abs(".."))
	dir := t.TempDir()
	must(0, os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "outside"))))
	// Its requirements are ours, so that nothing has to be fetched.
	_, requirements, _ := strings.Cut(string(must(os.ReadFile(filepath.Join(root, "go.mod")))), "\n")
	mod := "module example.com/outside\n" + requirements + "\nrequire grablab v0.0.0\n\nreplace grablab => " + root + "\n"
	must(0, os.WriteFile(filepath.Join(dir, "go.mod"), []byte(mod), 0o600))
	must(0, os.WriteFile(filepath.Join(dir, "go.sum"), must(os.ReadFile(filepath.Join(root, "go.sum"))), 0o600))
	cmd := exec.CommandContext(t.Context(), "go", "run", ".", addr)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOPROXY=off", "GOFLAGS=-mod=mod")
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "locked order:7 true\n" {
		t.Errorf("%v\n%s", err, out)
	}
}
