package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// ownCommand is the hidden subcommand by which a program that was built together
// with -file is explore.
const ownCommand = "explore-own"

// ownStrategy is a variable of a file of one's own that declares a strategy.
type ownStrategy struct{ variable, name string }

// exploreOwn builds this program again, with the file as one more of package
// lock and its strategies in lock.Strategies, and calls that with the same flags.
// Nothing is written to the source tree: a build overlay puts the file there.
func exploreOwn(ctx context.Context, file string, args []string, stdout, stderr io.Writer) int {
	own, err := declared(file)
	if err != nil {
		return complain(stderr, fmt.Errorf("%w: -file: %w", errUsage, err))
	}
	dir, err := os.MkdirTemp("", "loadgen-explore-")
	if err != nil {
		return complain(stderr, err)
	}
	defer os.RemoveAll(dir)
	exe, err := buildWith(ctx, dir, file, own)
	if err != nil {
		return complain(stderr, err)
	}
	return runBuilt(ctx, exe, args, stdout, stderr)
}

// declared finds the strategies of a file: variables of the package that are
// set to a literal Strategy with a literal Name.
func declared(file string) ([]ownStrategy, error) {
	if strings.HasSuffix(file, "_test.go") || !strings.HasSuffix(file, ".go") {
		return nil, fmt.Errorf("%s: want a Go file that is no test", file)
	}
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	if f.Name.Name != "lock" {
		return nil, fmt.Errorf("%s is of package %s; want package lock", file, f.Name.Name)
	}
	var own []ownStrategy
	ast.Inspect(f, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok {
			for i, value := range v.Values {
				if name := strategyName(value); name != "" {
					own = append(own, ownStrategy{v.Names[i].Name, name})
				}
			}
		}
		_, inFunc := n.(*ast.FuncDecl)
		return !inFunc
	})
	if len(own) == 0 {
		return nil, fmt.Errorf(`%s declares no strategy, as in var mine = Strategy{Name: "mine", …}`, file)
	}
	return own, nil
}

// strategyName is the Name in a literal Strategy; "": it is something else.
func strategyName(e ast.Expr) string {
	literal, ok := e.(*ast.CompositeLit)
	if !ok || fmt.Sprint(literal.Type) != "Strategy" {
		return ""
	}
	for _, elt := range literal.Elts {
		if field, ok := elt.(*ast.KeyValueExpr); ok && fmt.Sprint(field.Key) == "Name" {
			if text, ok := field.Value.(*ast.BasicLit); ok {
				name, _ := strconv.Unquote(text.Value)
				return name
			}
		}
	}
	return ""
}

const modulePath = "grablab"

var errNoTree = errors.New("-file is compiled together with the locks that are here: call loadgen in its source tree, where go is installed")

// buildWith builds loadgen in dir. What the compiler says is the error.
func buildWith(ctx context.Context, dir, file string, own []ownStrategy) (exe string, err error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", modulePath+"/internal/grab/lock").Output()
	if err != nil {
		return "", fmt.Errorf("%w: %w", errUsage, errNoTree)
	}
	overlay, err := writeOverlay(dir, strings.TrimSpace(string(out)), file, own)
	if err != nil {
		return "", err
	}
	exe = filepath.Join(dir, "loadgen")
	said, err := exec.CommandContext(ctx, "go", "build", "-overlay", overlay, "-o", exe, modulePath+"/cmd/loadgen").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: -file does not compile: %s", errUsage, strings.TrimSpace(string(said)))
	}
	return exe, nil
}

// writeOverlay says to the go command that package lock has two more files: the
// own one, and one that registers what it declares.
func writeOverlay(dir, lockDir, file string, own []ownStrategy) (path string, err error) {
	abs, err := filepath.Abs(file)
	if err != nil {
		return "", err
	}
	variables := namesOf(own, func(o ownStrategy) string { return o.variable })
	register := filepath.Join(dir, "register.go")
	text := fmt.Sprintf("package lock\n\nfunc init() { Strategies = append(Strategies, %s) }\n", strings.Join(variables, ", "))
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{
		filepath.Join(lockDir, filepath.Base(file)):   abs,
		filepath.Join(lockDir, "register_explore.go"): register,
	}})
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, "overlay.json")
	return path, errors.Join(os.WriteFile(register, []byte(text), 0o600), os.WriteFile(path, overlay, 0o600))
}

// runBuilt calls what was built, and hands on the signal that ends ctx.
func runBuilt(ctx context.Context, exe string, args []string, stdout, stderr io.Writer) int {
	cmd := exec.CommandContext(ctx, exe, slices.Concat([]string{ownCommand}, args)...)
	cmd.Args[0] = program()
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C must reach it once, not twice
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	if err := cmd.Run(); cmd.ProcessState == nil {
		return complain(stderr, err)
	}
	return cmd.ProcessState.ExitCode()
}

// program is how this program was called, for commands that are printed.
func program() string {
	if strings.Contains(os.Args[0], "/go-build") { // by go run
		return "go run ./cmd/loadgen"
	}
	return os.Args[0]
}
