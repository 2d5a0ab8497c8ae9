package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/explore"
	"grablab/internal/flags"
	"grablab/internal/grab/lock"
	"grablab/internal/testbed/infile"
	"grablab/internal/testbed/proc"
)

// ownBuild describes a worker program that contains the user's own strategies. explore and lab build
// this program for -file, because only a program that contains a strategy can run it.
type ownBuild struct {
	dir, exe   string
	strategies []lock.Strategy // descriptions, without the code
}

func (b ownBuild) names() []string { return catalog.Map(b.strategies, nameOf) }

func (b ownBuild) remove() { _ = os.RemoveAll(b.dir) }

// buildOwn builds a worker program that contains the strategies in the user's file. A build overlay
// adds the file to package lock, so the source tree stays unchanged.
//
// The strategies run only in the worker program, which sends their descriptions to this program.
func buildOwn(ctx context.Context, file string) (b ownBuild, err error) {
	variables, names, err := declaredStrategies(file)
	if err != nil {
		return b, flags.Usage("-file: %w", err)
	}
	if b.dir, err = os.MkdirTemp("", "loadgen-explore-"); err != nil {
		return b, err
	}
	if b.exe, err = buildWith(ctx, b.dir, file, variables); err == nil {
		b.strategies, err = explore.Describe([]string{b.exe}, names)
	}
	if _, ended := errors.AsType[*explore.EndedError](err); ended {
		err = flags.Usage("-file: %s ends the program before any schedule can run: %w", file, err)
	}
	if err = cmp.Or(ctx.Err(), err); err != nil {
		b.remove()
	}
	return b, err
}

// declaredStrategies returns the names of the strategies that a Go file declares, and the package
// variables that contain them. It recognizes a variable only if its value is a Strategy literal
// with a literal Name.
func declaredStrategies(file string) (variables, names []string, err error) {
	text, err := infile.Read(file, infile.Small)
	if err != nil {
		return nil, nil, err
	}
	f, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, nil, err
	}
	if f.Name.Name != "lock" {
		return nil, nil, fmt.Errorf("%s belongs to package %s: change its first line to package lock", file, f.Name.Name)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok {
			for i, value := range v.Values {
				if name := strategyName(value); name != "" && v.Names[i].Name != "_" {
					variables, names = append(variables, v.Names[i].Name), append(names, name)
				}
			}
		}
		_, inFunc := n.(*ast.FuncDecl)
		return !inFunc
	})
	if len(names) == 0 {
		return nil, nil, fmt.Errorf(`%s declares no strategy: add one, such as var mine = Strategy{Name: "mine", …}`, file)
	}
	for i, name := range names {
		if _, err := lock.Find(name); err == nil || slices.Contains(names[:i], name) {
			return nil, nil, fmt.Errorf("%s: there is already a strategy %q: choose another name for yours", file, name)
		}
	}
	return variables, names, nil
}

// strategyName returns the Name in a Strategy literal. For any other expression, it returns "".
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

var errNoTree = errors.New("-file needs Go and Grab Lab's source to compile your lock: install Go, and run loadgen in a Grab Lab checkout")

// buildWith builds the worker program in dir and returns its path. If the build fails, the error
// contains the compiler's output.
func buildWith(ctx context.Context, dir, file string, variables []string) (exe string, err error) {
	out, err := goCommand(ctx, dir, (*exec.Cmd).Output, "list", "-f", "{{.Dir}}", modulePath+"/internal/grab/lock")
	if err != nil {
		return "", flags.Usage("%w", errNoTree)
	}
	overlay, err := writeOverlay(dir, strings.TrimSpace(string(out)), file, variables)
	if err != nil {
		return "", err
	}
	exe = filepath.Join(dir, "worker")
	said, err := goCommand(ctx, dir, (*exec.Cmd).CombinedOutput, "build", "-ldflags=-s -w", "-overlay", overlay, "-o", exe, modulePath+"/internal/explore/worker")
	if err != nil {
		return "", flags.Usage("-file does not compile: %s", strings.TrimSpace(string(said)))
	}
	return exe, nil
}

// goCommand runs the go command with its temporary files in dir. When ctx ends, it also stops the
// child processes of the go command.
func goCommand(ctx context.Context, dir string, run func(*exec.Cmd) ([]byte, error), args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "GOTMPDIR="+dir)
	proc.NewProcessGroup(cmd)
	cmd.Cancel = func() error { return proc.Signal(cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = 2 * time.Second
	out, err := run(cmd)
	if ctx.Err() != nil && cmd.Process != nil {
		proc.KillRest(cmd.Process.Pid)
	}
	return out, err
}

// writeOverlay writes a build overlay that adds the user's file to package lock, together with a
// file that registers its strategies. Compiler errors still refer to the path that the user knows.
func writeOverlay(dir, lockDir, file string, variables []string) (path string, err error) {
	abs, err := filepath.Abs(file)
	if err != nil {
		return "", err
	}
	text, err := infile.Read(file, infile.Small)
	if err != nil {
		return "", err
	}
	files := map[string]string{
		"explore_register.go": fmt.Sprintf("package lock\n\nfunc init() { Strategies = append(Strategies, %s) }\n", strings.Join(variables, ", ")),
	}
	if filepath.Dir(abs) != lockDir { // otherwise the file is already part of the package
		files["explore_own.go"] = fmt.Sprintf("//line %s:1\n%s", abs, text)
	}
	replace := map[string]string{}
	for name, text := range files {
		replace[filepath.Join(lockDir, name)] = filepath.Join(dir, name)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, overlay, 0o600)
}
