package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"grablab/internal/flags"
	"grablab/internal/grab/lock"
	"grablab/internal/measure/lockbench"
	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/stack/stacktest"

	"golang.org/x/perf/benchfmt"
)

// startable skips the test if the local stack cannot run.
func startable(t *testing.T) {
	t.Helper()
	st, err := stack.Start(t.Context(), stack.Config{Kind: stack.Local})
	stacktest.Check(t, err)
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestBench(t *testing.T) {
	startable(t)
	cmd := loadgen(t, "bench", "-strategies", "setnx,none", "-cases", "uncontended,waves", "-rounds", "2", "-slice", "60ms", "-seed", "7", "-format", "json")
	code, stdout, stderr := output(t, cmd)
	if code != int(exitDone) {
		t.Fatalf("exit %d\n%s\n%s", code, stdout, stderr)
	}
	if !strings.Contains(stderr, "seed 7\n") {
		t.Errorf("stderr does not name the seed: %q", stderr)
	}
	folders, err := filepath.Glob(filepath.Join(cmd.Dir, "results", "*-bench"))
	if err != nil || len(folders) != 1 {
		t.Fatalf("Glob: %q, %v", folders, err)
	}
	if text := read(t, folders[0], "bench.json"); string(text) != stdout {
		t.Errorf("bench.json is\n%s\nprinted was\n%s", text, stdout)
	}
	var res lockbench.Result
	if err := json.Unmarshal([]byte(stdout), &res); err != nil {
		t.Fatal(err)
	}
	if !res.Complete || res.Rounds != 2 || len(res.Rows) != 3*2 {
		t.Errorf("bench printed\n%s", stdout)
	}
	lines := 0
	for in := benchfmt.NewReader(bytes.NewReader(read(t, folders[0], "bench.txt")), "bench.txt"); in.Scan(); lines++ {
		if _, ok := in.Result().(*benchfmt.Result); !ok {
			t.Errorf("the line for benchstat was read as %v", in.Result())
		}
	}
	if measured := bytes.Count(read(t, folders[0], "slices.jsonl"), []byte("\n")); measured != lines || lines < len(res.Rows) || lines > 2*len(res.Rows) { // a slice in which the machine stood still is left out
		t.Errorf("%d slices, %d lines, want %d", measured, lines, 2*len(res.Rows))
	}
}

// TestBenchCheck checks that bench -check exits with exitAssert if a lock had two holders at the same
// time.
func TestBenchCheck(t *testing.T) {
	startable(t)
	cmd := loadgen(t, "bench", "-strategies", "none", "-cases", "closed_loop", "-rounds", "2", "-slice", "20ms", "-check", "-quiet", "-out", "x")
	code, stdout, stderr := output(t, cmd)
	if code != int(exitAssert) || !strings.Contains(stderr, "closed_loop: none:") {
		t.Errorf("exit %d, %q\n%s", code, stderr, stdout)
	}
	if !strings.HasSuffix(stdout, "results in x\n") {
		t.Errorf("the output does not end with the result folder: %q", stdout)
	}
}

// TestBenchInterrupt checks that a benchmark keeps its finished rounds when the user presses Ctrl-C.
func TestBenchInterrupt(t *testing.T) {
	startable(t)
	cmd := loadgen(t, "bench", "-strategies", "setnx", "-cases", "uncontended", "-rounds", "10000", "-slice", "5ms", "-out", "x")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	saved, measured := filepath.Join(cmd.Dir, "x", "bench.json"), filepath.Join(cmd.Dir, "x", lockbench.SlicesFile)
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if info, err := os.Stat(measured); err == nil && info.Size() > 0 { // a round on a busy machine may have no valid slice
			break
		} else if time.Now().After(end) {
			t.Fatalf("no measurement was saved within a minute\n%s", errs.String())
		}
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != int(exitInterrupted) || !strings.Contains(errs.String(), "rounds are kept") {
		t.Errorf("exit %d\n%s", code, errs.String())
	}
	var res lockbench.Result
	if err := json.Unmarshal(read(t, saved), &res); err != nil || res.Complete || res.Rounds == 0 {
		t.Errorf("%v: complete %v after %d rounds", err, res.Complete, res.Rounds)
	}
}

func TestBenchBadUsage(t *testing.T) {
	t.Chdir(t.TempDir())
	for args, want := range map[string]string{
		"stray":                  "stray: this is not a flag",
		"-round 5":               "did you mean -rounds?",
		"-strategies setnxx":     "did you mean setnx?",
		"-strategies rueidislok": "did you mean rueidislock?",
		"-strategies setnx,":     "separated by commas",
		"-cases wave":            "must be one of uncontended, many_keys, waves, closed_loop",
		"-rounds 0":              "must be a whole number from 1",
		"-slice 1ms":             "must be at least 5ms",
		"-stack embedded":        "the embedded stack runs no real servers",
		"-stack moon":            "must be one of local, external",
		"-stack external":        "its address is missing",
		"-stack external -redis h:1 -sentinel h:2 -sentinel-master m": "-sentinel h:2: -sentinel and -redis both say where Redis is; use only one of these flags",
		"-stack external -sentinel h:2":                               "-sentinel h:2: the Redis master name is missing; add -sentinel-master NAME",
		"-redis h:1":                                                  "-stack local starts its own servers and takes no addresses; add -stack external",
		"-format markdown":                                            "must be one of text, json, benchstat",
		"-stack external -redis h:1 -strategies redlock":              "add -redlock with the addresses of at least 3",
		"-seed x":                     "must be a whole number",
		"-stack local -redlock a,b,c": "-stack local starts its own servers and takes no addresses; add -stack external",
	} {
		var out, errs bytes.Buffer
		code := exitOf(context.Background(), append([]string{"bench"}, strings.Fields(args)...), &out, &errs)
		if code == int(exitDone) || !strings.Contains(errs.String(), want) {
			t.Errorf("%s: exit %d, %q, want %q", args, code, errs.String(), want)
		}
		if entries, err := os.ReadDir("."); err != nil || len(entries) > 1 {
			t.Errorf("%s left %v, %v", args, entries, err)
		}
	}
}

func TestBenchFlags(t *testing.T) {
	s, err := parseBench(strings.Fields("-strategies peers,setnx -cases waves,uncontended -rounds 3 -slice 7ms -seed 5"))
	if err != nil {
		t.Fatal(err)
	}
	var chosen, cases []string
	peers := 0
	for _, c := range s.Subjects {
		chosen = append(chosen, c.Name)
		if c.Peer {
			peers++
		}
	}
	for _, c := range s.Cases {
		cases = append(cases, c.Name)
	}
	if peers == 0 || len(chosen) != peers+1 || chosen[peers] != "setnx" {
		t.Errorf("chosen: %v", chosen)
	}
	if !slices.Equal(cases, []string{"uncontended", "waves"}) || s.Rounds != 3 || s.Slice != 7*time.Millisecond || s.Seed != 5 {
		t.Errorf("cases %v, settings %+v", cases, s.Config)
	}
	if s, err := parseBench(nil); err != nil || s.Rounds < 21 || len(s.Subjects) != len(lockbench.Names()) || len(s.Cases) != len(lockbench.Cases) {
		t.Errorf("%v, defaults %+v", err, s)
	}
	// Without -strategies, bench chooses every lock that can run on the given servers.
	s, err = parseBench(strings.Fields("-stack external -redis h:1"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range s.Subjects {
		if c.Needs&^(lock.Redis|lock.RedisTracking) != 0 {
			t.Errorf("%s needs more than the given Redis server", c.Name)
		}
	}
	if _, err := parseBench([]string{"-rounds", "x"}); !errors.Is(err, flags.ErrUsage) {
		t.Errorf("parseBench: got %v", err)
	}
}

func TestBenchHelp(t *testing.T) {
	var out, errs bytes.Buffer
	if code := exitOf(context.Background(), []string{"bench", "-h"}, &out, &errs); code != int(exitDone) {
		t.Fatalf("exit %d, %s", code, errs.String())
	}
	for _, o := range newBenchSettings().flags() {
		if !strings.Contains(out.String(), "-"+o.Name+" ") {
			t.Errorf("the help does not list -%s", o.Name)
		}
	}
}
