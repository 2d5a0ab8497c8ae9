package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"grablab/internal/grab/lock"
)

// bench runs the tests and the explorer against one mistake at a time.
type bench struct {
	dir        string // overlays and programs; removed at the end
	root       string
	explores   bool
	reached    map[string][]string // the strategies whose search executes a line, by "file:line"
	fails      map[string]bool     // whether the search of a strategy fails without any mistake
	equivalent map[string]bool     // keys of the mistakes that change nothing
}

// testTimeout is how long the tests of one package may take. A mistake that keeps them running
// longer is found.
const testTimeout = 8 * time.Minute

// maxStrategies is the number of strategies that the explorer searches for one mistake.
const maxStrategies = 3

func newBench(ctx context.Context, explore bool) (*bench, error) {
	root, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(root, "internal/mutate/equivalent.txt")); err != nil {
		return nil, fmt.Errorf("run this in the root of the project: %w", err)
	}
	dir, err := os.MkdirTemp("", "grablab-mutate")
	if err != nil {
		return nil, err
	}
	b := &bench{dir: dir, root: root, explores: explore, reached: map[string][]string{}, fails: map[string]bool{}, equivalent: map[string]bool{}}
	list, err := os.ReadFile(filepath.Join(root, "internal/mutate/equivalent.txt"))
	for line := range strings.Lines(string(list)) {
		if key, _, ok := strings.Cut(line, " # "); ok {
			b.equivalent[key] = true
		}
	}
	if err == nil && explore {
		err = b.findReached(ctx)
	}
	if err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

func (b *bench) close() { os.RemoveAll(b.dir) }

// command returns a command that ends with everything that it started when ctx ends.
func (b *bench) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, name, args...)
	c.Dir = b.root
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	c.WaitDelay = 10 * time.Second
	return c
}

// findReached searches every strategy for a short time in a program that counts the executed
// lines.
func (b *bench) findReached(ctx context.Context) error {
	program := filepath.Join(b.dir, "covered")
	if out, err := b.command(ctx, "go", "build", "-cover", "-coverpkg=./internal/grab/...,./internal/order,./handoff", "-o", program, "./cmd/loadgen").CombinedOutput(); err != nil {
		return fmt.Errorf("building loadgen: %w: %s", err, out)
	}
	for _, strategy := range lock.Strategies {
		s := strategy.Name
		data := filepath.Join(b.dir, "cover-"+s)
		if err := os.Mkdir(data, 0o700); err != nil {
			return err
		}
		c := b.command(ctx, program, "explore", "-strategies", s, "-seconds", "4", "-quiet", "-out", filepath.Join(b.dir, "explored"))
		c.Env = append(os.Environ(), "GOCOVERDIR="+data)
		if err := c.Run(); err != nil && ctx.Err() != nil {
			return ctx.Err()
		} // a search that ends early still says what it executed
		text, err := b.command(ctx, "go", "tool", "covdata", "textfmt", "-i="+data, "-o=/dev/stdout").Output()
		if err != nil {
			return fmt.Errorf("reading the coverage of %s: %w", s, err)
		}
		b.addReached(s, string(text))
	}
	return nil
}

// addReached reads a coverage profile: "grablab/file.go:FROM.COL,TO.COL STATEMENTS COUNT".
func (b *bench) addReached(strategy, profile string) {
	for line := range strings.Lines(profile) {
		var from, to, count int
		file, rest, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "grablab/"), ":")
		if !ok || strings.HasPrefix(line, "mode:") {
			continue
		}
		fields := strings.Fields(rest)
		begin, end, _ := strings.Cut(fields[0], ",")
		from, _ = strconv.Atoi(begin[:strings.Index(begin, ".")])
		to, _ = strconv.Atoi(end[:strings.Index(end, ".")])
		if count, _ = strconv.Atoi(fields[2]); count == 0 {
			continue
		}
		for n := from; n <= to; n++ {
			key := fmt.Sprint(file, ":", n)
			if !slices.Contains(b.reached[key], strategy) {
				b.reached[key] = append(b.reached[key], strategy)
			}
		}
	}
}

// measure makes n mistakes in a group, and prints each with what found it.
func (b *bench) measure(ctx context.Context, g group, n int, seed string, allTests bool) ([]result, error) {
	var all []mistake
	sources := map[string][]byte{}
	for _, pattern := range g.files {
		files, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			if sources[file], err = os.ReadFile(file); err != nil {
				return nil, err
			}
			found, err := findMistakes(file, sources[file])
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
		}
	}
	fmt.Printf("\n== %s: %d possible mistakes\n", g.name, len(all))
	var results []result
	for _, m := range shuffled(all, seed+" "+g.name) {
		if len(results) == n {
			break
		}
		r, err := b.try(ctx, g, m, sources[m.file], allTests)
		if errors.Is(err, errNotViable) {
			continue
		}
		if err != nil {
			return results, err
		}
		r.group, r.rule = g.name, m.rule
		results = append(results, r)
		by := cmp.Or(r.byTest, "NOT FOUND")
		switch {
		case r.equivalent:
			by = "changes nothing"
		case r.byExplorer:
			by = "explorer, " + cmp.Or(r.byTest, "no test")
		}
		before, after := m.describe(sources[m.file])
		fmt.Printf("%-22s %s:%d: %s: %s => %s\n", by, m.file, m.line(sources[m.file]), m.rule, before, after)
	}
	return results, nil
}

var errNotViable = errors.New("it does not compile")

// try makes one mistake, and runs the explorer and the tests until one of them fails.
func (b *bench) try(ctx context.Context, g group, m mistake, source []byte, allTests bool) (r result, err error) {
	if b.equivalent[m.key(source)] {
		return result{equivalent: true}, nil
	}
	changed := filepath.Join(b.dir, "changed"+filepath.Ext(m.file))
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(b.root, m.file): changed}})
	if err == nil {
		err = os.WriteFile(changed, m.apply(source), 0o600)
	}
	file := filepath.Join(b.dir, "overlay.json")
	if err == nil {
		err = os.WriteFile(file, overlay, 0o600)
	}
	if err != nil {
		return r, err
	}
	if filepath.Ext(m.file) == ".go" {
		if err := b.command(ctx, "go", "build", "-overlay="+file, "./"+filepath.Dir(m.file)).Run(); err != nil {
			return r, cmp.Or(ctx.Err(), errNotViable)
		}
	}
	if g.locks && b.explores {
		r.explored = true
		if r.byExplorer, err = b.explore(ctx, file, b.strategiesFor(m, source)); err != nil {
			return r, err
		}
	}
	packages := g.tests
	if !allTests {
		packages = []string{filepath.Dir(m.file)}
	}
	for _, pkg := range packages {
		// Tests that build programs themselves must build them with the mistake too.
		test := b.command(ctx, "go", "test", "-count=1", "-vet=off", "-failfast", "-timeout", testTimeout.String(), "./"+pkg)
		test.Env = append(os.Environ(), "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+file))
		out, err := test.CombinedOutput()
		if ctx.Err() != nil {
			return r, ctx.Err()
		}
		if err != nil {
			if bytes.Contains(out, []byte("[build failed]")) {
				return r, errNotViable
			}
			r.byTest = pkg
			break
		}
	}
	return r, nil
}

// strategiesFor returns strategies whose search executes the line of a mistake. A line of Lua
// belongs to the strategies that execute the declaration of its script, and these are unknown, so
// the name of the file decides.
func (b *bench) strategiesFor(m mistake, source []byte) []string {
	of := b.reached[fmt.Sprint(m.file, ":", m.line(source))]
	if filepath.Ext(m.file) == ".lua" {
		stem, _, _ := strings.Cut(strings.TrimSuffix(filepath.Base(m.file), ".lua"), "_")
		switch {
		case strings.HasPrefix(m.file, "handoff/"):
			of = []string{"handoff", "handoff-fenced"}
		case stem == "fence":
			of = []string{"setnx-fenced", "watchdog-fenced"}
		case strings.Contains(m.file, "setnx_release"):
			of = []string{"setnx", "setnx-check"}
		case stem == "redis":
			of = []string{"redis-stock"}
		default:
			of = []string{stem, stem + "-fenced"}
		}
		of = slices.DeleteFunc(of, func(s string) bool { _, err := lock.Find(s); return err != nil })
	}
	if len(of) <= maxStrategies {
		return of
	}
	var chosen []string // spread over the list, because neighbours are alike
	for i := range maxStrategies {
		chosen = append(chosen, of[i*len(of)/maxStrategies])
	}
	return chosen
}

// explore reports whether the explorer finds a failure that the registry does not claim. A strategy
// whose search fails without the mistake too does not count.
func (b *bench) explore(ctx context.Context, overlay string, strategies []string) (bool, error) {
	for _, s := range strategies {
		if _, known := b.fails[s]; !known {
			fails, err := b.exploreFails(ctx, "", s)
			if err != nil {
				return false, err
			}
			b.fails[s] = fails
		}
		if b.fails[s] {
			continue
		}
		if found, err := b.exploreFails(ctx, overlay, s); found || err != nil {
			return found, err
		}
	}
	return false, nil
}

// exploreFails reports whether a search of the strategy with the default bounds ends in a failure. An
// empty overlay stands for the code as it is.
func (b *bench) exploreFails(ctx context.Context, overlay, strategy string) (bool, error) {
	program := filepath.Join(b.dir, "loadgen")
	if out, err := b.command(ctx, "go", "build", "-overlay="+overlay, "-ldflags=-s -w", "-o", program, "./cmd/loadgen").CombinedOutput(); err != nil {
		return false, fmt.Errorf("building loadgen: %w: %s", err, out)
	}
	limited, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	err := b.command(limited, program, "explore", "-strategies", strategy, "-quiet", "-out", filepath.Join(b.dir, "explored")).Run()
	return err != nil, ctx.Err()
}
